"""The parts of a node that run on their own. `broker.node` builds and starts them; request handlers use them.

    metadata          this node's copy of the cluster's metadata, and how it is changed
    quorum            this node's replica of the metadata quorum
    lifecycle         registration, heartbeats and controlled shutdown
    local_partitions  gives this broker the logs and roles that the metadata names
    replication, isr  followers fetch; leaders propose who is in sync
    flusher           syncs what was appended; `own_writes` waits for that if a client must see its own writes
    groups            the shards of the group coordinators; `producer_ids` and `creation` serve them and handlers
    maintenance       retention and checkpoints; `compactor` compacts logs
    monitoring        metrics, and whether the node is ready

None of them imports `broker`, and importing one starts nothing.
"""
