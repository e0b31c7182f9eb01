"""The quorum that orders the metadata log: KRaft's protocol in the shape of etcd's raft.

Read in this order: `voters` (who decides), `messages` (what replicas say to each other), `log_view` (what the core
knows of the log), `ready` (what goes into the core and comes out), `roles` (what a replica is, and the legal moves),
`replica`, `leadership` and `core` (the state machine, in three storeys), with `outgoing` and `requests` (whom it asks)
and `reconfiguration` (changes of the voters). All of that is pure, and so are `rpc` (what replicas say, in Kafka's
messages) and `view` (what a leader tells of its quorum). `driver` does what the core wants done; `store` is the disk:
the log and the file quorum-state, with `election` and `control` for what is in them.

A follower whose log ends before the leader's begins fetches a snapshot. The core and the driver do that; where the
snapshots are kept (`driver.Snapshots`) is for whoever runs several voters to say, together with the RPCs on the wire.
"""
