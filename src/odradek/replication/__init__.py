"""The work of a replica of a partition in one leader epoch. Pure: no sockets, clock or files except through the log.

    source     what requests read from and wait on: `role`s are sources, and so will be views
    role       what leader and follower have in common; `leader` and `follower` are the two
    replica    a partition on this broker, over its roles; `replicas`: all of them
    waiters    requests that wait for a partition to change
    selector   which replica a consumer should read from; `quota`: how fast replicas may catch up

`services.partitions.replication` has a loop for every broker that leads something this one follows. A round is one
Fetch, in which all partitions of that leader are named once (`fetch_session`) and then only what changed; what comes
back is appended from the memory it arrived in, and the next request leaves in the same turn of the event loop, or once
that is on disk (`fetch_rounds`). The leader's end of the session (`api.fetch.follower_session`) watches the partitions
that nothing happens to, so that a round costs what has changed on both ends; the followers that an append wakes share
one read of it (`fetching.shared_reads`), and each response leaves before the next one is made. `api.fetch.follower`
serves a replica to the end of the log, before the leader's own sync, so that the syncs overlap; the offset that a
replica asks for says what it has synced, and moves the high watermark (`replication.leader`). Throttled partitions that
are not in sync are left out of a response, or of a request, while the leader's or the follower's quota is exceeded
(`replication.quota`). `services.partitions.isr` proposes who joins and who leaves the ISR; the controller decides
(AlterPartition), and the metadata tells the leader. The active controller fences brokers that are silent or gone and
elects leaders from the ISR, then from the eligible leader replicas (KIP-966), and uncleanly only where the topic allows
it. If all of these were killed, it asks their brokers where their logs end, and elects the one that has the most, once
enough have told (`services.cluster.recovery_elections`, `controller.recovery`).

AlterPartitionReassignments adds the new replicas to a partition (`controller.reassignment`); they follow like any
other. The AlterPartition that brings the last of them into the ISR completes the move in the same record: the old
replicas leave, and with them the leader, if it is one of them. `services.partitions.local_partitions` closes a replica
that has left and deletes its log; requests that wait for it get NOT_LEADER_OR_FOLLOWER. A replica that leaves raises
the leader epoch.

Not obvious:

- acks=all means on disk. Kafka responds once a record is in the page caches of the in-sync replicas. We sync first
  (`log.sync.commit`, on by default), with one sync for all waiting requests. See
  docs/decisions/0002-sync-before-acknowledging.md.
- Consumers see only synced records, because the high watermark counts the leader itself only as far as it is
  synced. A record that a consumer has seen cannot be lost by a power cut.
- acks=1 is acknowledged before the sync, and readable after it. Where nothing else holds the high watermark back (one
  replica), ListOffsets and DeleteRecords wait for the sync under way (`services.partitions.own_writes`), so a client
  finds the records that were acknowledged to it. A Fetch waits anyway.
- A leader epoch is one object (`replication.leader`). When the next epoch begins, on whichever broker, the old
  leader is closed and every waiting request is told: no acknowledgement outlives its epoch. The coordinator's shard
  is closed with it.
- The high watermark starts from its checkpoint, and advances once every in-sync replica has fetched in the new
  epoch. The only replica of a partition waits for no other: after a start, everything it has synced is committed at
  once.
- A leader records its epoch in memory when it takes over, and on disk with its first batch: idle partitions cost no
  writes at start.
- After a crash every partition gets a new leader epoch: records that were not synced are gone, and later ones must
  not be mistaken for them. A broker that was killed asks for this at registration, by naming no previous broker
  epoch (`controller.requests.broker_registration`). Until the metadata knows of its registration a broker leads
  nothing, though it listens already (`services.partitions.local_partitions`).
"""
