"""Opening a log that is on disk, and making it whole again after a crash.

After a clean shutdown nothing is scanned: the end of the log is found from the last index entry. After a
crash every segment that was not known to be synced is read again from its start. Below the recovery point
the headers must follow from one another; from there on each batch must also have the right CRC, the next
offset, and the leader epoch that is on record for it. The log is cut before the first batch that fails, and
what lies behind it is dropped. The indexes of the segments read are built anew.

A base offset is not covered by the CRC, and gaps are lawful (compaction leaves them, and followers copy
them), so a batch that jumps ahead is believed only if the batch after it continues from there, or if the
topic is compacted.
"""

import logging
import os
import random
import uuid
from collections.abc import Iterator
from typing import NamedTuple

from odradek.errors import KafkaError
from odradek.model import TopicPartition
from odradek.records.batch import HEADER_SIZE, BatchHeader, read_header
from odradek.storage.checkpoints import LEADER_EPOCHS, PARTITION_METADATA, format_partition_metadata
from odradek.storage.config import LogConfig
from odradek.storage.deletions import Deletions
from odradek.storage.epochs import NO_EPOCH, LeaderEpochs
from odradek.storage.files import File, Files
from odradek.storage.indexes import MAX_RELATIVE_OFFSET
from odradek.storage.leftovers import offset_of, tidy
from odradek.storage.log import Log
from odradek.storage.producers import Producers
from odradek.storage.replay import rebuild_producers, replay_batch
from odradek.storage.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    Segment,
    file_name,
)
from odradek.storage.snapshots import SUFFIX as SNAPSHOT_SUFFIX
from odradek.storage.snapshots import Snapshots
from odradek.storage.validate import has_valid_crc, is_plausible

logger = logging.getLogger(__name__)

READ_BYTES = 1 << 20


class Opening(NamedTuple):
    """What is known of a log before its directory is looked at."""

    clean: bool  # the last shutdown was, so nothing needs recovery
    recovery_point: int = 0
    log_start_offset: int = 0


def create_log(
    files: Files,
    directory: str,
    topic_partition: TopicPartition,
    topic_id: uuid.UUID,
    config: LogConfig,
    now_ms: int,
    rng: random.Random,
    deletions: Deletions,
) -> Log:
    """Make a new log's directory and files. They come to disk with its first records: until then nobody would
    miss them, and a topic of a thousand partitions must not wait for as many syncs."""
    files.make_directory(directory)
    metadata = files.create(f"{directory}/{PARTITION_METADATA}")
    metadata.write_at(0, format_partition_metadata(topic_id))
    metadata.close()
    segment = Segment.create(files, directory, 0, config, now_ms)
    log = Log(
        files,
        directory,
        topic_partition,
        topic_id,
        config,
        [segment],
        LeaderEpochs(files, f"{directory}/{LEADER_EPOCHS}"),
        Snapshots(files, directory, []),
        log_start_offset=0,
        end_offset=0,
        rng=rng,
        deletions=deletions,
    )
    log.mark_unsynced([files.to_sync(metadata.path), *_names(files, directory)], 0)
    return log


def _names(files: Files, directory: str) -> list[File]:
    """What says which files there are, and that there is a log at all."""
    return [files.to_sync(directory), files.to_sync(os.path.dirname(directory))]


def open_log(
    files: Files,
    directory: str,
    topic_partition: TopicPartition,
    topic_id: uuid.UUID,
    config: LogConfig,
    opening: Opening,
    now_ms: int,
    rng: random.Random,
    deletions: Deletions,
) -> Log:
    """Open the log in a directory; recover it unless it was shut down cleanly."""
    sizes = {entry.name: entry.size for entry in files.list(directory) if not entry.is_directory}
    sizes = tidy(files, directory, sizes, config)
    epochs = LeaderEpochs(files, f"{directory}/{LEADER_EPOCHS}")
    if LEADER_EPOCHS in sizes:
        epochs.load()
    snapshots = Snapshots(
        files, directory, (offset_of(name) for name in sizes if name.endswith(SNAPSHOT_SUFFIX))
    )
    loader = _Loader(files, directory, config, opening, epochs, snapshots, now_ms)
    segments, end_offset = loader.load(sizes)
    log_start_offset = max(opening.log_start_offset, segments[0].base_offset)
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(log_start_offset)
    log = Log(
        files,
        directory,
        topic_partition,
        topic_id,
        config,
        segments,
        epochs,
        snapshots,
        log_start_offset=log_start_offset,
        end_offset=end_offset,
        rng=rng,
        deletions=deletions,
    )
    if loader.producers is not None:
        log.producers = loader.producers
        log.mark_unsynced([*loader.recovered, *_names(files, directory)], opening.recovery_point)
    else:
        rebuild_producers(log.producers, snapshots, segments, log_start_offset, end_offset)
    return log


class _Loader:
    """Brings the segments of one directory into a consistent state."""

    def __init__(
        self,
        files: Files,
        directory: str,
        config: LogConfig,
        opening: Opening,
        epochs: LeaderEpochs,
        snapshots: Snapshots,
        now_ms: int,
    ) -> None:
        self.files = files
        self.directory = directory
        self.config = config
        self.opening = opening
        self.epochs = epochs
        self.snapshots = snapshots
        self.now_ms = now_ms
        self.recovered: list[File] = []  # files that recovery went through
        self.producers: Producers | None = None  # as recovery left them
        self._epochs_on_record = bool(epochs.entries)

    def load(self, sizes: dict[str, int]) -> tuple[list[Segment], int]:
        """The segments and the end offset."""
        segments = self._open_segments(sizes)
        if not self.opening.clean:
            segments = self._recover(segments)
        end_offset = segments[-1].next_offset() if segments else -1
        if end_offset < self.opening.log_start_offset:
            end_offset = self.opening.log_start_offset
            self._drop(segments, "it ends before the log starts")
            segments = [Segment.create(self.files, self.directory, end_offset, self.config, self.now_ms)]
            self.files.sync_directory(self.directory)
            self.producers = None
            self.recovered.clear()
        return segments, end_offset

    def _open_segments(self, sizes: dict[str, int]) -> list[Segment]:
        bases = sorted(offset_of(name) for name in sizes if name.endswith(LOG_SUFFIX))
        known = set(bases)
        for name in [name for name in sizes if name.endswith(SEGMENT_SUFFIXES)]:
            if offset_of(name) not in known:
                self.files.remove(f"{self.directory}/{name}")  # an index without a log
        return [self._open_segment(base, sizes) for base in bases]

    def _open_segment(self, base_offset: int, sizes: dict[str, int]) -> Segment:
        missing = [
            suffix
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
            if file_name(base_offset, suffix) not in sizes
        ]
        for suffix in missing:
            self.files.create(f"{self.directory}/{file_name(base_offset, suffix)}").close()
        segment = Segment.open(self.files, self.directory, base_offset, sizes, self.config, self.now_ms)
        if missing:
            segment.rebuild_indexes()
        return segment

    def _recover(self, segments: list[Segment]) -> list[Segment]:
        """Read again what may not have been synced, cut at the first batch that is not whole."""
        if not segments:
            return segments
        point = self.opening.recovery_point
        first = max(
            (slot for slot, segment in enumerate(segments) if segment.base_offset <= point), default=0
        )
        producers = self.producers = Producers()
        start_offset, base_offset = segments[0].base_offset, segments[first].base_offset
        rebuild_producers(producers, self.snapshots, segments[:first], start_offset, base_offset)
        for slot, segment in enumerate(segments[first:], first):
            snapshot = self.snapshots.write(producers, segment.base_offset)
            is_whole = self._recover_segment(segment, producers)
            self.recovered.extend(segment.files)
            if snapshot is not None:
                self.recovered.append(snapshot)
            if not is_whole:
                self._drop(segments[slot + 1 :], "it follows a damaged one")
                return segments[: slot + 1]
        return segments

    def _recover_segment(self, segment: Segment, producers: Producers) -> bool:
        """Check the batches, rebuild the indexes, cut what is damaged. True if nothing was."""
        size = segment.size
        segment.size = 0
        segment.reset_indexes()
        segment.aborted.truncate_to(0)
        for position, header in self._sound_batches(segment, size):
            try:
                aborted = replay_batch(producers, segment, position, header)
            except KafkaError:
                break
            segment.appended(position, header.size, header.last_offset, header.max_timestamp)
            if header.leader_epoch > self.epochs.latest:
                self.epochs.assign(header.leader_epoch, header.base_offset)
            if aborted is not None:
                segment.aborted.append(aborted)
        if segment.size < size:
            logger.warning("%s is damaged: cut from %d to %d bytes", segment.log.path, size, segment.size)
            segment.log.truncate(segment.size)
        segment.finish()
        return segment.size == size

    def _sound_batches(self, segment: Segment, size: int) -> Iterator[tuple[int, BatchHeader]]:
        reader = _Reader(segment.log, size)
        expected_offset, epoch, position = segment.base_offset, NO_EPOCH, 0
        while (header := reader.header(position)) is not None:
            if (
                header.base_offset < expected_offset
                or header.leader_epoch < epoch
                or header.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET
            ):
                return
            if header.base_offset >= self.opening.recovery_point and not (
                has_valid_crc(reader.batch(position, header), header)
                and self._has_its_epoch(header)
                and (header.base_offset == expected_offset or self._may_jump(reader, position, header))
            ):
                return
            yield position, header
            expected_offset, epoch, position = header.next_offset, header.leader_epoch, position + header.size

    def _has_its_epoch(self, header: BatchHeader) -> bool:
        """An epoch is on record before its first batch is written, so any other is damage."""
        if not self._epochs_on_record:
            return True
        return self.epochs.epoch_for_offset(header.base_offset) in (NO_EPOCH, header.leader_epoch)

    def _may_jump(self, reader: "_Reader", position: int, header: BatchHeader) -> bool:
        following = reader.header(position + header.size)
        if following is None:
            return self.config.compact
        return following.base_offset >= header.next_offset

    def _drop(self, segments: list[Segment], reason: str) -> None:
        for segment in reversed(segments):
            logger.warning("%s is dropped: %s", segment.log.path, reason)
            segment.remove()
        if segments:
            self.files.sync_directory(self.directory)


class _Reader:
    """Reads a file front to back in large pieces, and gives out headers and batches."""

    def __init__(self, file: File, size: int) -> None:
        self._file = file
        self._size = size
        self._piece = memoryview(b"")
        self._start = 0

    def header(self, position: int) -> BatchHeader | None:
        """The header of the whole batch here, if there is one."""
        if position + HEADER_SIZE > self._size:
            return None
        header = read_header(self._bytes(position, HEADER_SIZE))
        return header if is_plausible(header) and position + header.size <= self._size else None

    def batch(self, position: int, header: BatchHeader) -> memoryview:
        return self._bytes(position, header.size)

    def _bytes(self, position: int, length: int) -> memoryview:
        at = position - self._start
        if at < 0 or at + length > len(self._piece):
            self._piece = memoryview(self._file.read_at(position, max(length, READ_BYTES)))
            self._start, at = position, 0
        return self._piece[at : at + length]
