"""Fetch (1), and what only Fetch needs.

handler            the requests; what it does is said there
consumer           one request of a consumer, from its first read to its response
follower           one request of a follower
follower_session   what has changed since a follower's last fetch
throttled_reads    what a quota lets followers have
parts              what every request works with
response           what is new to the client

What Fetch has in common with other requests that read is in `odradek.fetching`.
"""
