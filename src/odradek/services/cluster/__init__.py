"""The metadata, and this node's part in its quorum and in its cluster.

metadata             this node's copy of the image, and how it is changed; `forwarding` to the active controller
quorum               its replica of the quorum, with `quorum_peers`, `foreign_nodes` and `quorum_waiters`
lifecycle            registration, heartbeats and controlled shutdown; `majority`: when no consent can come
controller_duties    what the active controller does unasked: fencing and elections, with `broker_watch` and
                     `recovery_elections` (who leads after all replicas were killed)
calls                requests to other nodes; `greeting_nodes`: how this node proves to them who it is
authentication       how listeners learn who connects
"""
