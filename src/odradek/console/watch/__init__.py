"""A console's knowledge of a cluster, and how it is gathered.

    seen          the parts of that knowledge, each replaced as a whole; compact, for clusters of many partitions
    poller        the one thread that asks, each part at most so often that it costs the cluster next to nothing
    topology      brokers, topics, leaders, the quorum, and what is wrong with them
    disks         space of brokers and sizes of topics
    offsets       where logs end, and so how fast they grow
    groups        groups and their lag
    lag           the lag of groups that somebody looks at, over time
    transactions  open ones
    looked        what is read when somebody looks
    ledger        what sinks have written exactly once
    metrics       load of brokers that serve /metrics
    events        differences between two topologies in sentences; pure

Pages read what was seen last, and ask the cluster only about one topic or group.
"""
