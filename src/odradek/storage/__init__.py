"""Logs on disk, in Kafka's formats.

    disk/        files and what can go wrong with them: the small interface that all of this is written against, real,
                 simulated and lossy; descriptors that run out; what is on disk and what is dirty; what an error means
    segments/    a segment and its indexes; the row of segments that a log is made of
    producers/   what a log remembers of its producers, and the snapshots of that
    log/         one partition's log: append, read, cut; its leader epochs; opening and recovering it; its retention
    compaction/  which log to compact, the process that does it, and what is kept of a batch
    store        all logs of a data directory, and their checkpoints; `upkeep` looks after them
    config       what a topic's settings mean for its logs

A room imports from those above it in this list, never from one below; `config` from none.
"""
