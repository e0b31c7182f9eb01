"""The things that brokers agree on for clients: groups, transactions, and what both need of other brokers.

shards               coordinators on the partitions of an internal topic: `groups`, `transactions`
verification         before a transaction begins in a partition; `txn_markers`: once it has ended
peers                requests to other brokers, and to this one
producer_ids         blocks of them; `creation` of internal topics
"""
