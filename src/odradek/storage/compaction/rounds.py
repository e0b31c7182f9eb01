"""Compaction: for every key, keep the latest record.

A log is clean up to some offset and dirty from there on. One round reads the dirty part and notes for each
key the offset of its latest record (the offset map, as large as memory allows). Then it copies the log from
its start to where the map ends, without records for which the map has a later one. Offsets never change:
the result has gaps, and a reader that asks for an offset in a gap gets the next record after it.

Rules that look small and are not:

- A tombstone (a null value) is the latest record of its key and is still removed, but only `delete.retention.ms`
  after the round that first saw it, so that readers in the middle of the log see the deletion. That round writes the
  time (the delete horizon) into the batch, in place of its base timestamp.
- Data of an aborted transaction is removed at once; its marker only in a round that no longer finds any of the
  data, and then with its own delete horizon. The aborted transactions whose data was found go into the new
  segment's transaction index. So a reader never sees aborted data without learning that it is aborted.
- A batch without records stays as a bare header while it is one of the last five of an active producer, and
  at the very end of a round, so that the end of the log remains known. Kafka keeps only a producer's last batch. But a
  producer may have five in flight, and sends all of them again after a crash. Recovery then learns from the batches
  what the producer has sent, and so does a new replica, which copies no producer snapshot.
- Records beyond the map are kept unchanged.

Small segments are merged, up to `segment.bytes` and to what an index can address. The result of a group of
segments is a new segment in files that end in `.cleaned`, synced; the log puts it in place of its sources.
Groups must be put in place oldest first: a tombstone may only be removed after the records it deleted.

CRCs are checked: rewriting a damaged batch would give it a fresh CRC and hide the damage.

Unlike Kafka, this does not split a segment whose offsets overflow its index: logs of format v2 do not have such
segments.
"""

from collections.abc import Callable, Iterator, Sequence

from odradek.errors import KafkaError
from odradek.records.batch import HEADER_SIZE, read_header
from odradek.records.keys import read_keys
from odradek.records.walk import Batch, whole_batches
from odradek.storage.compaction.job import (
    CleanedGroup,
    CompactionJob,
    CompactionStats,
    CorruptSegment,
    Damage,
    SourceSegment,
)
from odradek.storage.compaction.offset_map import OffsetMap
from odradek.storage.compaction.retained import Retention
from odradek.storage.compaction.transactions import AbortedBatches, Transactions, read_aborted_transactions
from odradek.storage.disk.files import File, Files
from odradek.storage.segments.indexes import MAX_RELATIVE_OFFSET
from odradek.storage.segments.segment import CLEANED_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, Segment, file_name

READ_BYTES = 1 << 20
WRITE_BYTES = 1 << 20
NO_LIMIT = 2**63

Throttle = Callable[[int], None]


def no_throttle(byte_count: int) -> None:
    pass


def compact(
    files: Files, job: CompactionJob, stats: CompactionStats, throttle: Throttle = no_throttle
) -> Iterator[CleanedGroup]:
    """Yield each group as soon as its new segment is on disk; the caller may replace it at once or later."""
    aborted = read_aborted_transactions(files, job.directory)
    offset_map = build_offset_map(files, job, AbortedBatches(aborted), stats, throttle)
    stats.end_offset = offset_map.latest_offset + 1
    stats.keys = len(offset_map.offsets)
    retention = Retention(job, offset_map, Transactions(AbortedBatches(aborted)))
    sources = [segment for segment in job.segments if segment.base_offset < stats.end_offset]
    for group in group_segments(sources, job.config.segment_bytes, job.first_uncleanable_offset):
        yield clean_group(files, job, group, retention, stats, throttle)


def group_segments(
    segments: Sequence[SourceSegment], max_bytes: int, first_uncleanable_offset: int
) -> list[list[SourceSegment]]:
    """Neighbours that fit into one segment together, in bytes and in offsets."""
    groups: list[list[SourceSegment]] = []
    group_bytes = 0
    for index, segment in enumerate(segments):
        following = segments[index + 1].base_offset if index + 1 < len(segments) else first_uncleanable_offset
        fits = groups and (
            group_bytes + segment.size <= max_bytes
            and (segment.size == 0 or following - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET)
        )
        if fits:
            groups[-1].append(segment)
            group_bytes += segment.size
        else:
            groups.append([segment])
            group_bytes = segment.size
    return groups


# Reading


def build_offset_map(
    files: Files, job: CompactionJob, aborted: AbortedBatches, stats: CompactionStats, throttle: Throttle
) -> OffsetMap:
    """Whole batches until the map is full. One always fits, so that every round gets further."""
    start = job.first_dirty_offset
    offset_map = OffsetMap(job.map_bytes, start - 1)
    for segment, following in dirty_segments(job):
        log = files.file(f"{job.directory}/{file_name(segment.base_offset, LOG_SUFFIX)}")
        try:
            for header, batch in read_batches(log, segment.size, throttle, following):
                stats.bytes_read += header.size
                if header.last_offset < start:
                    continue
                if offset_map.is_full:
                    return offset_map
                if not header.is_control and aborted.find(header) is None:
                    offset_map.note(read_keys(batch, header), start)
                offset_map.latest_offset = header.last_offset
        except KafkaError as error:
            raise CorruptSegment(f"{log.path}: {error.message}") from error
        finally:
            log.close()
        offset_map.latest_offset = following - 1
    return offset_map


def dirty_segments(job: CompactionJob) -> Iterator[tuple[SourceSegment, int]]:
    """The segments that reach into the dirty part, each with the base offset of the next."""
    for segment, end_offset in limits_of(job).items():
        if end_offset > job.first_dirty_offset:
            yield segment, end_offset


def limits_of(job: CompactionJob) -> dict[SourceSegment, int]:
    """Return where the segment after each one begins."""
    following = [segment.base_offset for segment in job.segments[1:]] + [job.first_uncleanable_offset]
    return dict(zip(job.segments, following, strict=False))


def read_batches(file: File, size: int, throttle: Throttle, limit: int = NO_LIMIT) -> Iterator[Batch]:
    """Every batch of a segment file, which must be whole batches from its first byte to its last, below the offset
    where the next segment begins."""
    position, previous_offset = 0, -1
    while position < size:
        chunk = read_chunk(file, position, size - position)
        throttle(len(chunk))
        at = 0
        for batch in whole_batches(chunk):
            header = batch.header
            if not previous_offset < header.base_offset <= header.last_offset < limit:
                raise _damaged(file, position + at, previous_offset, "offsets out of order")
            if not batch.has_valid_crc:
                raise _damaged(file, position + at, previous_offset, "a wrong CRC")
            yield batch
            at += header.size
            previous_offset = header.last_offset
        if at == 0:
            raise _damaged(file, position, previous_offset, "no whole batch")
        position += at


def _damaged(file: File, position: int, previous_offset: int, what: str) -> CorruptSegment:
    damage = Damage(file.path, position, previous_offset + 1, f"compaction found {what}")
    return CorruptSegment(f"{file.path} has {what} at position {position}", damage)


def read_chunk(file: File, position: int, remaining: int) -> memoryview:
    """Some batches, or one that is larger than our chunks are."""
    chunk = file.read_at(position, min(READ_BYTES, remaining))
    if len(chunk) >= HEADER_SIZE:
        size = read_header(chunk).size
        if len(chunk) < size <= remaining:
            chunk = file.read_at(position, size)
    return memoryview(chunk)


# Writing


def clean_group(
    files: Files,
    job: CompactionJob,
    group: Sequence[SourceSegment],
    retention: Retention,
    stats: CompactionStats,
    throttle: Throttle,
) -> CleanedGroup:
    """Copy the retained records of a group of segments into a new one, and sync it."""
    base_offset = group[0].base_offset
    remove_cleaned(files, job.directory, base_offset)
    cleaned = Segment.create(files, job.directory, base_offset, job.config, job.now_ms, CLEANED_SUFFIX)
    retention.kept_aborted = []
    limits = limits_of(job)
    for segment in group:
        log = files.file(f"{job.directory}/{file_name(segment.base_offset, LOG_SUFFIX)}")
        try:
            copy_retained(log, segment, limits[segment], cleaned, retention, stats, throttle)
        except KafkaError as error:
            raise CorruptSegment(f"{log.path}: {error.message}") from error
        finally:
            log.close()
    for transaction in retention.kept_aborted:
        cleaned.aborted.append(transaction)
    cleaned.finish()
    for file in cleaned.files:
        file.sync()
        file.close()
    return CleanedGroup(tuple(segment.base_offset for segment in group), base_offset, cleaned.size)


def copy_retained(
    source: File,
    segment: SourceSegment,
    limit: int,
    cleaned: Segment,
    retention: Retention,
    stats: CompactionStats,
    throttle: Throttle,
) -> None:
    output, position = bytearray(), cleaned.size
    for header, batch in read_batches(source, segment.size, throttle, limit):
        stats.bytes_read += header.size
        stats.records_read += header.record_count
        kept = retention.retained(batch, header)
        if kept is None:
            continue
        output += kept
        kept_header = read_header(kept)
        stats.records_kept += kept_header.record_count
        cleaned.appended(cleaned.size, len(kept), kept_header.last_offset, kept_header.max_timestamp)
        if len(output) >= WRITE_BYTES:
            position = write_output(cleaned, position, output, stats, throttle)
    write_output(cleaned, position, output, stats, throttle)


def write_output(
    cleaned: Segment, position: int, output: bytearray, stats: CompactionStats, throttle: Throttle
) -> int:
    """Write and empty `output`; the position after it."""
    length = len(output)
    if length:
        throttle(length)
        cleaned.log.write_at(position, output)
        stats.bytes_written += length
        output.clear()
    return position + length


def remove_cleaned(files: Files, directory: str, base_offset: int) -> None:
    """Files of an earlier round that was given up. A new round never writes into old files."""
    for suffix in SEGMENT_SUFFIXES:
        try:
            files.remove(f"{directory}/{file_name(base_offset, suffix + CLEANED_SUFFIX)}")
        except FileNotFoundError:
            pass
