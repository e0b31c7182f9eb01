"""The quorum that orders the metadata log: KRaft's protocol in the shape of etcd's raft.

Read in this order: `voters` (who votes), `messages` (what replicas send each other), `log_view` (what the core knows of
the log), `ready` (the core's input and output), `roles` (the roles of a replica, and the legal moves), `replica`,
`leadership` and `core` (the state machine, in three layers), with `outgoing` and `requests` (which requests it sends)
and `reconfiguration` (changes of the voter set). All of that is pure, and so are `rpc` (the messages on the wire) and
`view` (what DescribeQuorum reports). `driver` carries out the core's decisions; `store` is the disk: the log and the
file quorum-state, whose contents are in `control` and `election`.

A follower whose log ends before the leader's begins fetches a snapshot. The core and the driver do that, through
`driver.Snapshots`; `metadata.snapshot_exchange` implements it. `services.cluster.quorum` runs all this on the event
loop.

Not obvious:

- The quorum core decides, and its driver acts. Every call of the core (`raft.core`) returns a `Ready`, whose fields
  are carried out in order: quorum-state, truncate, append, sync, messages. So no message is sent before the epoch
  and the vote in it are on disk. The core knows where records are, not what they are.
- A refused connection is better than a timeout. A voter whose leader's port is closed starts an election at once
  (`raft.ready.Unreachable`): pre-votes make that harmless, and a killed leader is replaced in a fraction of a
  second.
- A fetch offset is a promise. A follower of the quorum fetches from its log end offset only once everything before
  it is synced; the leader counts that as on disk, and counts itself only up to its own sync. A leader that steps
  down syncs before its first fetch, for the same reason.
- The voter set changes when its record is appended, not when it is committed, and changes back if that record is
  truncated (`raft.voters.VoterHistory`).
"""
