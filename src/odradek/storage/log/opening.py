"""Creating a new log, and opening one that is on disk, which `recovery.py` checks."""

import os
import uuid

from odradek.model import TopicPartition
from odradek.storage.config import LogConfig
from odradek.storage.disk.checkpoints import (
    DAMAGED,
    LEADER_EPOCHS,
    PARTITION_METADATA,
    format_partition_metadata,
)
from odradek.storage.disk.files import File, Files
from odradek.storage.log.contents import Contents, LogHome
from odradek.storage.log.epochs import LeaderEpochs
from odradek.storage.log.log import Log
from odradek.storage.log.recovery import Opening, Recovery
from odradek.storage.log.report import RecoveryReport
from odradek.storage.producers.snapshots import SUFFIX as SNAPSHOT_SUFFIX
from odradek.storage.producers.snapshots import Snapshots
from odradek.storage.producers.state import Producers
from odradek.storage.segments.segment import Segment
from odradek.storage.segments.swap import is_log_file, offset_of, tidy

STATE_FILES = (LEADER_EPOCHS, PARTITION_METADATA, DAMAGED)  # besides segments and snapshots


def create_log(
    home: LogHome, topic_partition: TopicPartition, topic_id: uuid.UUID, config: LogConfig, now_ms: int
) -> Log:
    """Create a new log's directory and files. They are synced with its first records: until then it does not matter if
    they are lost, and a topic of a thousand partitions must not wait for as many syncs."""
    files, directory = home.files, home.directory
    files.make_directory(directory)
    metadata = files.create(f"{directory}/{PARTITION_METADATA}")
    metadata.write_at(0, format_partition_metadata(topic_id))
    metadata.close()
    segment = Segment.create(files, directory, 0, config, now_ms)
    epochs, snapshots = LeaderEpochs(files, f"{directory}/{LEADER_EPOCHS}"), Snapshots(files, directory, [])
    contents = Contents([segment], epochs, snapshots, Producers(), log_start_offset=0, end_offset=0)
    log = Log(topic_partition, topic_id, config, home, contents)
    log.mark_unsynced([files.to_sync(metadata.path), *_names(home)], 0)
    return log


def open_log(
    home: LogHome,
    topic_partition: TopicPartition,
    topic_id: uuid.UUID,
    config: LogConfig,
    opening: Opening,
    now_ms: int,
    sizes: dict[str, int] | None = None,
    report: RecoveryReport | None = None,
) -> Log:
    """Open the log in a directory; recover it unless it was shut down cleanly. `sizes` are those of its files,
    if the caller has listed them; the work of recovery is added to `report`."""
    files, directory = home.files, home.directory
    sizes = tidy(files, directory, list_log_files(files, directory) if sizes is None else sizes, config)
    epochs = LeaderEpochs(files, f"{directory}/{LEADER_EPOCHS}")
    if LEADER_EPOCHS in sizes:
        epochs.load()
    snapshots = Snapshots(
        files, directory, (offset_of(name) for name in sizes if name.endswith(SNAPSHOT_SUFFIX))
    )
    recovery = Recovery(home, config, opening, epochs, snapshots, report or RecoveryReport(), now_ms)
    log = Log(topic_partition, topic_id, config, home, recovery.load(sizes))
    if recovery.producers is not None:
        identity = [files.to_sync(f"{directory}/{PARTITION_METADATA}")] if PARTITION_METADATA in sizes else []
        log.mark_unsynced([*identity, *recovery.recovered, *_names(home)], recovery.recovery_point)
    return log


def list_log_files(files: Files, directory: str) -> dict[str, int]:
    """The sizes of the files that make up the log in this directory: none if it contains no log."""
    return {
        entry.name: entry.size
        for entry in files.list(directory)
        if not entry.is_directory and (is_log_file(entry.name) or entry.name in STATE_FILES)
    }


def _names(home: LogHome) -> list[File]:
    """The files that show that there is a log at all."""
    return [home.files.to_sync(home.directory), home.files.to_sync(os.path.dirname(home.directory))]
