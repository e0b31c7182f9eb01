"""Benchmarks: the same workloads on Odradek, on Apache Kafka, and on what one might take instead.

    python -m bench              Odradek alone, synced and unsynced, a few workloads (make bench)
    python -m bench peers        every workload on every system that can be had (make bench-peers)
    python -m bench kafka        the six workloads that count most, on Odradek and Apache Kafka (make bench-kafka)
    python -m bench growth       Odradek with more and more partitions and connections (make bench-growth)
    python -m bench cluster      three nodes, replication 3, beside Apache Kafka's (make bench-cluster)
    python -m bench.failover     nodes of both are lost, and ours are kept busy (make bench-cluster, too)
    python -m bench show peers   table and picture again, from stored numbers
    python -m bench show peers --markdown    the tables of docs/PERFORMANCE.md and README.md, from the same numbers

A reading path: `measure` (what a number is), `systems` and `other_systems` (what is measured), `workloads`
(how), `warmth` (when a server is warm), `runner` (in which order, how often), `report`, `summary` and `plots`
(what is shown). The load comes from small
native programs, so that a Python client is not what is measured: load.c (librdkafka), redis_load.c (hiredis),
streams/ (Go), replay.c (many connections) and limit.c (the machine itself). docs/PERFORMANCE.md explains.
"""
