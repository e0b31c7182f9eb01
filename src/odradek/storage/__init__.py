"""Logs on disk, in Kafka's formats.

    disk/        files and how they fail: the small interface that the rest is written against, real, simulated and
                 lossy; running out of descriptors; what is on disk and what is dirty; what an error means
    segments/    a segment and its indexes; the row of segments that a log consists of
    producers/   what a log remembers about its producers, and the snapshots of that
    log/         one partition's log: append, read, cut; its leader epochs; opening and recovering it; its retention
    compaction/  which log to compact, the process that does it, and what is kept of a batch
    store        all logs of a data directory, and their checkpoints; `upkeep` maintains them
    config       what a topic's settings mean for its logs

Each imports only from those above it in this list; `config` from none.
"""
