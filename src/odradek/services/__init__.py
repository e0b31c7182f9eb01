"""The parts of a broker that have a life of their own. `broker.node` puts them together; handlers of requests use them.

    metadata          this broker's copy of the cluster's metadata, and its way to change it
    local_partitions  makes this broker's logs and roles what the metadata says
    flusher           syncs what leaders appended; `own_writes` waits for it where a client must see its own writes
    groups            the shards of the group coordinators; `producer_ids`, `creation`: what they and handlers ask for
    maintenance       what is done unasked: retention, checkpoints; `compactor` has logs compacted

None of them knows `broker`, and none is started by being imported.
"""
