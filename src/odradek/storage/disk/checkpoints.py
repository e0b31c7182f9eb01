"""The small text files next to the data, in Kafka's formats, each written as a whole or not at all.

A checkpoint file has a version, the number of entries and one entry per line: `topic partition offset` in
the checkpoints of a data directory, `epoch start-offset` in a partition's `leader-epoch-checkpoint`. A file
that is not there is an empty one. A file that cannot be read is refused by name: guessing a recovery point
or a log start offset would risk data, and the operator can remove it knowingly.
"""

import json
import os
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress

from odradek.errors import DamagedData
from odradek.model import NO_TOPIC_ID, TopicPartition, id_from_text, id_to_text
from odradek.storage.disk.files import Files

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
MISSING_RECORDS = "missing-records-checkpoint"  # up to where logs have lost committed records
LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
DAMAGED = "damaged"  # in the directory of a log that is to be copied from another replica
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"

VERSION = 0
SPARE_BYTES = 1024
# Remedies for an operator without a backup.
REMEDIES = {
    RECOVERY_POINTS: "If you remove it, the next start reads all logs in full",
    HIGH_WATERMARKS: "If you remove it, high watermarks are learned again from the replicas",
    LOG_START_OFFSETS: "If you remove it, records that were deleted by DeleteRecords reappear",
    MISSING_RECORDS: "If you remove it, logs that have lost committed records count as whole",
    LEADER_EPOCHS: "If the partition has other replicas, move its directory away: it is copied from them",
    PARTITION_METADATA: "It has two lines, 'version: 0' and 'topic_id: ID', with the topic id that "
    "'odradek topic describe' shows",
}


class MalformedCheckpoint(DamagedData):
    """A file of this module's that does not have its format."""

    def __init__(self, path: str, reason: str) -> None:
        remedy = REMEDIES.get(path.rpartition("/")[2], "")
        super().__init__(f"{path} {reason}. Restore it from a backup." + (f" {remedy}" if remedy else ""))


def write_atomically(files: Files, path: str, data: bytes) -> None:
    """After a crash the file has its old content or its new one."""
    temporary = files.create(path + ".tmp")
    try:
        temporary.write_at(0, data)
        temporary.sync()
    finally:
        temporary.close()
    files.rename(path + ".tmp", path)
    files.sync_directory(os.path.dirname(path))


def write_with_spare(files: Files, path: str, data: bytes) -> None:
    """The same for a small file that must be written on a full disk too: its next version takes the space of a spare,
    which was written before."""
    spare = files.file(path + ".tmp") if files.exists(path + ".tmp") else files.create(path + ".tmp")
    try:
        spare.write_at(0, data)
        spare.truncate(len(data))
        spare.sync()
    finally:
        spare.close()
    files.rename(path + ".tmp", path)
    files.sync_directory(os.path.dirname(path))
    with suppress(OSError):  # the disk is full
        spare = files.create(path + ".tmp")
        try:
            spare.write_at(0, bytes(SPARE_BYTES))
        finally:
            spare.close()


def format_entries(entries: Iterable[str]) -> bytes:
    lines = list(entries)
    return "\n".join([str(VERSION), str(len(lines)), *lines, ""]).encode()


def parse_entries(path: str, data: bytes) -> list[list[str]]:
    if not data:
        return []
    if not data.isascii():
        raise MalformedCheckpoint(path, "is not plain text")
    lines = data.decode("ascii").splitlines()
    try:
        version, count = int(lines[0]), int(lines[1])
    except (ValueError, IndexError) as error:
        raise MalformedCheckpoint(path, "does not start with a version and a number of entries") from error
    if version != VERSION:
        raise MalformedCheckpoint(path, f"has version {version}, which is not {VERSION}")
    if count != len(lines) - 2:
        raise MalformedCheckpoint(path, f"has {len(lines) - 2} entries, but says that it has {count}")
    return [line.split() for line in lines[2:]]


def read_if_present(files: Files, path: str) -> bytes:
    try:
        return files.read(path)
    except FileNotFoundError:
        return b""


def read_offsets(files: Files, path: str) -> dict[TopicPartition, int]:
    entries = parse_entries(path, read_if_present(files, path))
    try:
        return {TopicPartition(topic, int(partition)): int(offset) for topic, partition, offset in entries}
    except ValueError as error:
        raise MalformedCheckpoint(
            path, "has an entry that is not a topic, a partition and an offset"
        ) from error


def write_offsets(files: Files, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    lines = (f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items())
    write_atomically(files, path, format_entries(lines))


class OffsetCheckpoint:
    """One checkpoint file of a data directory, and what is known about its content.

    Entries are by name, and a name may be used again: `may_name` says whether one has to be dropped first.
    """

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._on_disk: Mapping[TopicPartition, int] | None = {}  # None: unknown, because a write failed

    def read(self) -> dict[TopicPartition, int]:
        offsets = read_offsets(self._files, self._path)
        self._on_disk = dict(offsets)
        return offsets

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Unless the file says so already."""
        if offsets != self._on_disk:
            self._on_disk = None
            write_offsets(self._files, self._path, offsets)
            self._on_disk = offsets

    def may_name(self, topic_partition: TopicPartition) -> bool:
        return self._on_disk is None or topic_partition in self._on_disk


def read_epochs(files: Files, path: str) -> list[tuple[int, int]]:
    entries = parse_entries(path, read_if_present(files, path))
    try:
        return [(int(epoch), int(start_offset)) for epoch, start_offset in entries]
    except ValueError as error:
        raise MalformedCheckpoint(path, "has an entry that is not an epoch and an offset") from error


def write_epochs(files: Files, path: str, epochs: Iterable[tuple[int, int]]) -> None:
    write_atomically(files, path, format_entries(f"{epoch} {start_offset}" for epoch, start_offset in epochs))


def format_partition_metadata(topic_id: uuid.UUID) -> bytes:
    return f"version: 0\ntopic_id: {id_to_text(topic_id)}".encode()


def read_topic_id(files: Files, path: str) -> uuid.UUID:
    """The topic's id; NO_TOPIC_ID if the file is missing, or power failed before it was written as a whole: then it is
    shorter, or a part of it is zero. Anything else is damage."""
    data = read_if_present(files, path)
    topic_id = parse_partition_metadata(data)
    if topic_id == NO_TOPIC_ID and len(data) == len(format_partition_metadata(NO_TOPIC_ID)) and 0 not in data:
        raise MalformedCheckpoint(path, "does not name the id of its topic")
    return topic_id


def parse_partition_metadata(data: bytes) -> uuid.UUID:
    """The topic's id; NO_TOPIC_ID if it cannot be read."""
    for line in data.decode("ascii", "replace").splitlines():
        name, _, value = line.partition(": ")
        if name == "topic_id" and len(value) == 22:
            try:
                return id_from_text(value)
            except ValueError:
                return NO_TOPIC_ID
    return NO_TOPIC_ID


def clean_shutdown_marker(broker_epoch: int) -> bytes:
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()
