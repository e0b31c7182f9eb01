"""The replicas on this broker: their logs and roles, who follows whom, and what is in sync.

    local_partitions     gives this broker the logs and roles that the metadata names
    replication          followers fetch, in a `fetch_session` for each leader, in `fetch_rounds`
    isr                  leaders propose who is in sync
    flusher              syncs what was appended; `own_writes` waits for that if a client must see its own writes
    damaged_logs         and `lost_replicas`: replicas that are copied again; `integrity` finds damage
    low_watermarks       where records are deleted, on all replicas

Not obvious:

- A damaged replica is copied again, but never before the metadata says so (`damaged_logs`). Its log is marked by a
  file, so that a restart knows it; the controller takes the replica out of the ISR in a new leader epoch, so that
  nothing fetched with the old log counts (AssignReplicasToDirs); only a marked log of a replica that the metadata names
  as lost is thrown away. The last copy stays.
- DeleteRecords gets its response once the new log start offsets are on the disks of all replicas whose brokers are
  alive, as in Kafka, which does not wait for disks (`low_watermarks`). On each disk it is one file for all partitions,
  written as a whole; a follower writes it before its next fetch tells the leader. So no leader that is elected later
  brings the records back, unless its broker was away and has not followed since.
- A fetch response counts only for the log that asked (`replication`): one that comes late, after another leader was
  followed, could cut committed records.
"""
