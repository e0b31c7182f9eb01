"""The checkpoint files of a data directory: what its logs do not say themselves.

How far each log was synced, where it starts, what was committed, and up to where it has lost committed records. A
recovery point never names what is not committed, because that may be truncated: then a log that ends before its
recovery point has lost something.

Entries are by name, but a name may be used again by another topic. So before a log is created, those of an earlier one
are removed from the files (`forget`).
"""

from collections.abc import Mapping
from typing import NamedTuple

from odradek.model import TopicPartition
from odradek.storage.disk.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    MISSING_RECORDS,
    RECOVERY_POINTS,
    MalformedCheckpoint,
    OffsetCheckpoint,
)
from odradek.storage.disk.files import Files
from odradek.storage.log.log import Log

Offsets = Mapping[TopicPartition, int]


class Found(NamedTuple):
    """The contents of the files at start."""

    recovery_points: Offsets
    start_offsets: Offsets
    high_watermarks: Offsets
    missing: Offsets


class StoreCheckpoints:
    def __init__(self, files: Files, directory: str, logs: Mapping[TopicPartition, Log]) -> None:
        """`logs` are those of the store, now and later."""
        self._files = files
        self._directory = directory
        self._logs = logs
        self._recovery_points = self._file(RECOVERY_POINTS)
        self._start_offsets = self._file(LOG_START_OFFSETS)
        self._high_watermarks = self._file(HIGH_WATERMARKS)
        self._missing_records = self._file(MISSING_RECORDS)
        self.high_watermarks: dict[TopicPartition, int] = {}  # as of the last checkpoint
        self.has_deleted = False  # the cleaner's checkpoint may name logs that are gone
        self.are_due = False  # a log was deleted, or the last write failed

    def _file(self, name: str) -> OffsetCheckpoint:
        return OffsetCheckpoint(self._files, f"{self._directory}/{name}")

    def read(self) -> Found:
        return Found(
            self._recovery_points.read(),
            self._start_offsets.read(),
            self._high_watermarks.read(),
            self._missing_records.read(),
        )

    def opened(self, high_watermarks: Offsets) -> None:
        """Take over the high watermarks of the logs that were found."""
        self.high_watermarks = {
            name: min(high_watermarks[name], log.end_offset)
            for name, log in self._logs.items()
            if name in high_watermarks
        }
        self._drop_clean_offsets()

    def write(self, high_watermarks: Offsets, *, is_last: bool = False) -> None:
        """Write how far each log is synced, where it starts and what is committed, if that changed. The last one, when
        the store is closed, names the ends of all logs: nothing is truncated after it."""
        self.are_due = True
        self.high_watermarks.update(high_watermarks)
        # First: the recovery point of such a log goes back, and then nothing else says that records are missing.
        self.write_missing_records()
        self._recovery_points.write(
            {name: self._recovery_point(log, is_last) for name, log in self._logs.items()}
        )
        self.write_starts({})
        self._high_watermarks.write({name: self.high_watermarks.get(name, 0) for name in self._logs})
        self.are_due = False

    def write_starts(self, moved: Offsets) -> None:
        """Write where each log starts; those that move start there from now on."""
        starts = {name: log.log_start_offset for name, log in self._logs.items() if log.log_start_offset > 0}
        self._start_offsets.write(starts | dict(moved))

    def write_missing_records(self) -> None:
        self._missing_records.write(
            {name: log.missing_until for name, log in self._logs.items() if log.missing_until}
        )

    def _recovery_point(self, log: Log, is_last: bool) -> int:
        """Up to where a log is synced, but no further than is committed: what is not may be truncated, and then a log
        that ends before its recovery point would look damaged."""
        committed = log.synced_offset if is_last else self.high_watermarks.get(log.topic_partition, 0)
        return min(log.synced_offset, committed)

    def deleted(self, topic_partition: TopicPartition) -> None:
        self.high_watermarks.pop(topic_partition, None)

    def forget(self, topic_partition: TopicPartition) -> None:
        """Remove the entries of an earlier log of this name, before the new one exists."""
        self.high_watermarks.pop(topic_partition, None)
        files = (self._recovery_points, self._start_offsets, self._high_watermarks, self._missing_records)
        if any(file.may_name(topic_partition) for file in files):
            self.write({})
        if self.has_deleted:
            self._drop_clean_offsets()
            self.has_deleted = False

    def _drop_clean_offsets(self) -> None:
        """The cleaner owns its checkpoint, but only here is it known which logs are gone. If an entry were taken for
        another log's, compaction could keep a value and drop the tombstone after it."""
        checkpoint = self._file(CLEANER_OFFSETS)
        try:
            offsets = checkpoint.read()
        except MalformedCheckpoint:
            return  # the cleaner starts from scratch
        checkpoint.write({name: offset for name, offset in offsets.items() if name in self._logs})
