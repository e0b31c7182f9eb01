"""The parts of a node that run on their own. `broker.node` builds and starts them; request handlers use them.

Four rooms; each may import from those above it:

    cluster         the metadata, and this node's part in its quorum and in its cluster
    upkeep          retention, compaction, free space, metrics
    partitions      the replicas on this broker
    coordination    groups, transactions, and what they need of other brokers

None of them imports `broker`, and importing one starts nothing.

Not obvious:

- What follows a commit cannot fail half-way. A listener to metadata changes or a request that waits for a partition
  may raise: that is logged, and the others continue. Listeners compare their own state with the image instead of
  trusting the delta, so acting twice is harmless, and what cannot be done now (a directory that cannot be renamed,
  a log that cannot be created, a shard that cannot be loaded) is tried again at the next change and every few
  seconds.
- Idle things cost nothing. Retention, checkpoints, sessions and deadlines are ordered by when they are due; nothing
  walks over everything.
"""
