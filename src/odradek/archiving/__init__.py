"""Processes over archives: from topics into tables, and back. They need no Spark.

    rounds    one round of one topic: plan, read, commit, merge; over interfaces that a simulation has, too
    topics    a topic as a round needs it, on a cluster
    archiver  all topics of a process, once or for ever, with what it reports
    metrics   the same as numbers for Prometheus
    replay    stored records into a topic, exactly once; `replay_sources`: archives and files

All state is in what they write: the transaction versions of a table, the ledger of a cluster.
"""
