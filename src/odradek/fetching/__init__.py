"""Requests that read from sources and wait on them (`replication.source`) are composed from these parts.

sources        what a request may read: names, access, and who has the records
waiting        its wait at many sources, until there is enough to send or its time is up
sessions       the partitions that a client reads, kept between requests
shared_reads   the last small read, which those who want the same records share

A consumer's Fetch and a follower's are two such requests (`api.fetch`).
"""
