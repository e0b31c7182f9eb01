"""The quorum that orders the metadata log: KRaft's protocol in the shape of etcd's raft.

Read in this order: `voters` (who votes), `messages` (what replicas send each other), `log_view` (what the core knows of
the log), `ready` (the core's input and output), `roles` (the roles of a replica, and the legal moves), `replica`,
`leadership` and `core` (the state machine, in three layers), with `outgoing` and `requests` (which requests it sends)
and `reconfiguration` (changes of the voter set). All of that is pure, and so are `rpc` (the messages on the wire) and
`view` (what DescribeQuorum reports). `driver` carries out the core's decisions; `store` is the disk: the log and the
file quorum-state, whose contents are in `control` and `election`.

A follower whose log ends before the leader's begins fetches a snapshot. The core and the driver do that, through
`driver.Snapshots`; `metadata.snapshot_exchange` implements it. `services.quorum` runs all this on the event loop.
"""
