"""The parts of a node that run on their own. `broker.node` builds and starts them; request handlers use them.

The metadata, and this node's part in its quorum:

    metadata             this node's copy of the image, and how it is changed; `forwarding` to the active controller
    quorum               its replica of the quorum, with `quorum_peers`, `foreign_nodes` and `quorum_waiters`
    lifecycle            registration, heartbeats and controlled shutdown
    controller_duties    what the active controller does unasked: fencing and elections, with `broker_watch` and
                         `recovery_elections` (who leads after all replicas were killed)

Partitions:

    local_partitions     gives this broker the logs and roles that the metadata names
    replication          followers fetch, in a `fetch_session` for each leader, in `fetch_rounds`
    isr                  leaders propose who is in sync
    flusher              syncs what was appended; `own_writes` waits for that if a client must see its own writes
    damaged_logs         and `lost_replicas`: replicas that are copied again; `integrity` finds damage
    low_watermarks       where records are deleted, on all replicas

Coordination:

    shards               coordinators on the partitions of an internal topic: `groups`, `transactions`
    verification         before a transaction begins in a partition; `txn_markers`: once it has ended
    peers                requests to other brokers, and to this one, over `calls`
    producer_ids         blocks of them; `creation` of internal topics

Upkeep:

    maintenance          retention and checkpoints; `compactor` compacts logs
    disk_watch           free space, and what happens when a disk is full
    monitoring           metrics, and whether the node is ready

None of them imports `broker`, and importing one starts nothing.

Not obvious:

- What follows a commit cannot fail half-way. A listener to metadata changes or a request that waits for a partition
  may raise: that is logged, and the others continue. Listeners compare their own state with the image instead of
  trusting the delta, so acting twice is harmless, and what cannot be done now (a directory that cannot be renamed,
  a log that cannot be created, a shard that cannot be loaded) is tried again at the next change and every few
  seconds.
- Idle things cost nothing. Retention, checkpoints, sessions and deadlines are ordered by when they are due; nothing
  walks over everything.
- A damaged replica is copied again, but never before the metadata says so (`services.damaged_logs`). Its log is
  marked by a file, so that a restart knows it; the controller takes the replica out of the ISR in a new leader
  epoch, so that nothing fetched with the old log counts (AssignReplicasToDirs); only a marked log of a replica that
  the metadata names as lost is thrown away. The last copy stays.
- DeleteRecords gets its response once the new log start offsets are on the disks of all replicas whose brokers are
  alive, as in Kafka, which does not wait for disks (`services.low_watermarks`). On each disk it is one file for all
  partitions, written as a whole; a follower writes it before its next fetch tells the leader. So no leader that is
  elected later brings the records back, unless its broker was away and has not followed since.
- A fetch response counts only for the log that asked (`services.replication`): one that comes late, after another
  leader was followed, could cut committed records.
"""
