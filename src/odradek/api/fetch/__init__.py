"""Fetch (1), and what only Fetch needs.

handler            the requests; what it does is said there
fetching           one request, from its first read of the logs to its response
reading            what it has read so far; `parked`: its wait for more
sessions           the partitions that a client fetches, kept between requests
replica_sessions   the same for a follower: what has changed since its last fetch
replica_reads      the last small read, which the followers of a partition share
throttled_reads    what a quota lets them have
"""
