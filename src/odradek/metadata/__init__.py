"""The cluster's metadata: a log of records in Kafka's schemas, and the immutable image that they add up to.

    records      the records; `image`: what they say; `delta` and `mapping`: its next version, at the cost of the change
    log          the metadata log; `loading`: what a start makes of it
    snapshot     the image as records; `snapshot_files`, `snapshotting` (when), `snapshot_exchange` (between nodes)
    formatting   whose a data directory is, and the first voters; `node_format`: what a user asks for, once

`api.create_topics` and similar handlers pass the request message to `services.cluster.metadata`. On the active
controller, the leader of the quorum, the pure controller decides on the newest image, a large request in parts; the
records are appended to `__cluster_metadata-0`, and once a majority of the voters has them on disk the next image is
published and the client gets the response. Any other node wraps the request in an Envelope and forwards it
(`services.cluster.forwarding`). Requests of the broker itself (its registration, heartbeats, blocks of producer ids)
take the same path in Kafka's own messages. All nodes fetch the log from its leader (`services.cluster.quorum`); each
applies what is committed to its own image and acts on the difference. The only voter of a cluster is its own majority:
it syncs in place, and its changes are committed when they are written.

`services.partitions.local_partitions` gives each partition the role that the image says, and creates its log: one new
log per turn of the event loop, or with the first append, so that no client waits for the files of a thousand
partitions. Until then a partition is known to be empty, and requests about it touch no file. A change that cannot be
appended (a full disk) is refused with an error for each topic or resource; if the sync of an appended change fails, the
node cannot know what a restart would find, and it stops. From time to time the image is written out as a snapshot, in
turns of the event loop; a start reads the newest snapshot and the log after it, and `metadata.max.retention.*` deletes
what is older. A node that has fallen behind the start of the leader's log fetches the leader's snapshot.

Not obvious:

- A leader of the quorum is the active controller only once the record that opens its epoch is committed and
  applied: before that it does not know all that earlier leaders committed (`metadata.log.publish`). When it loses
  leadership, it drops what it appended and could not commit; the log shows later what became of it.
- A start trusts no image that may be old. Logs that the metadata does not name are set aside as strays, so logs are
  opened only after this node has applied a record of the current leader's epoch, and all that was committed when
  that leader last responded. Its own snapshot may be of the same epoch, and old (`Quorum.is_caught_up`).
- A snapshot from the leader replaces the log in two renames: once it is called `.installing` the old log no longer
  counts, and after a crash the next start does the rest (`metadata.snapshot_exchange`).
- A directory is formatted once `meta.properties` is there, which is written last. The first voters are kept outside
  the log (at offsets below 0 in `VoterHistory`) until the first leader writes them into it, where all other nodes
  find them. A node formats its own directory only if its configuration names no other controller
  (`metadata.formatting`).
- The metadata log is complete, or the broker does not start. Only a torn last batch is cut; anything else would
  make topics vanish. `odradek up` says in one line what is damaged. The same goes for a damaged snapshot, unless
  the log still reaches back to an older one or to its beginning: then that is used, with a warning.
- A snapshot contains everything that the log says up to its end. A field of the image without a writer in
  `metadata.snapshot` would be lost when the log is cut; a test compares the two, for every field and kind of
  record.
- The cost of a change to the image depends on the size of the change (`metadata.mapping`), and so does acting on
  it: a delta names topics and partitions, and nothing walks over the others.
"""
