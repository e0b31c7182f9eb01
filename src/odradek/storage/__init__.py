"""Logs on disk, in Kafka's formats.

    disk/        files and how they fail: the small interface that the rest is written against, real, simulated and
                 lossy; running out of descriptors; what is on disk and what is dirty; what an error means
    segments/    a segment and its indexes; the row of segments that a log consists of
    producers/   what a log remembers about its producers, and the snapshots of that
    log/         one partition's log: append, read, cut; its leader epochs; opening and recovering it; its retention
    compaction/  which log to compact, the process that does it, and what is kept of a batch
    store        all logs of a data directory; `upkeep` maintains them, `checkpoints` are files about all of them
    config       what a topic's settings mean for its logs

Each imports only from those above it in this list; `config` from none.

Not obvious:

- A log serves only the topic with its topic id: a name may be used again before the old log is gone.
- A `File` is a name, not a descriptor (`storage.disk.files`): descriptors are closed least recently used. Code that
  needs one to stay open pins it: the flusher while it syncs, the output while it sends.
- Running out of descriptors is not a failed disk (`storage.disk.shortage`). Connections may use only what files do
  not need; if there are still none left, idle files are closed, then a small reserve is used, and then `CannotOpen`
  says that nothing has happened: clients get KAFKA_STORAGE_ERROR and try again. Work that must not stop half-way (a
  roll, a swap, a cut, a metadata commit) pins its files first. Only a failed sync, or a change that stopped
  half-way and could not be undone, makes a log `failed`, for good (`storage.disk.health`): it takes no records, is
  not rolled, and its recovery point no longer moves.
- Retired segments get unique names (`storage.segments.retired`): one base offset may be compacted several times
  within `file.delete.delay.ms`, so a number is put before `.deleted` if the name is taken.
- No memory maps of files: reading one whose file was truncated kills the process.
- The active segment's index is in memory and is written when the segment is closed. After a crash it is rebuilt; a
  clean start reads nothing but directory entries.
- Checkpoint files go by name, and names are used again. Before a log is created, the entries of an earlier log of
  that name are removed from the files (`LogStore.create`). Deleting a topic writes nothing, so it works on a full
  disk.
- Damage is never the end of a segment (`storage.segments.damage`). The batches of a segment fill its file, with
  rising offsets. A reader that meets anything else (a lookup, a replay, compaction, the integrity check) gets
  KAFKA_STORAGE_ERROR with file, byte and offset, and the log reports it once. Base offset and length are outside
  the CRC, so a client cannot notice all of it: the headers of bytes that were found on disk are walked before they
  are first sent, a few hundred kilobytes per read (`Segment.walk_over`); what this process wrote is not. CRCs are
  compared where a log is replayed or compacted, by followers, by clients, and by the integrity check
  (`services.partitions.integrity`).
- The files of a log are authoritative. A recovery point or a log start offset that contradicts them never removes a
  record, a gap in the offsets is never damage, and a log without a topic is renamed, not deleted: the metadata may
  have lost the topic. A log is deleted only if this node has applied the committed record that removed the topic
  with its id, in this start or later (`storage.strays`).
- A recovery point never names what is not committed (`storage.checkpoints`), because that may be truncated. So a
  log that ends before its recovery point has lost committed records: it is damaged until it is in sync again, over
  restarts too, and its broker registers as after a crash. The file missing-records-checkpoint remembers it, not the
  recovery point: that goes back, because what the log copies next is not synced yet.
- A log may start in the middle of a batch, where records were deleted. A follower that starts over there takes the
  whole batch, and so its log begins a little before its log start offset.
- A log's topic id comes to disk with its first records, at the latest by the sync of a recovery that found both in
  the page cache. So records without an id were never acknowledged, and nobody can know which topic of that name
  they belong to: they are set aside at start.
- Names are not durable until their directory is synced, and of two changes without a sync between them a crash may
  keep the second alone. So segments are removed from the end of a log one by one (`segments.row`), and a start
  syncs the metadata log's directory before it votes by the quorum-state that it found there (`raft.store`).
- A sync that succeeds says nothing about one that failed before it. The node whose metadata log could not be synced
  stops. Until its event loop has heard of it, a roll or a cut counts nothing as synced
  (`disk.sync.Durability.reached`). At the next start the metadata log writes again what is beyond its recovery
  point: it may be in the page cache alone.
"""
