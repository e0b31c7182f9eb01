"""Compaction: of every key, keep the latest record.

A log is clean up to some offset and dirty from there on. One round reads the dirty part and notes for each
key the offset of its latest record (the offset map, as large as memory allows). Then it copies the log from
its start to where the map ends, without the records that the map knows a later one of. Offsets never change:
what is left has gaps, and a reader that asks for an offset in a gap gets the next record after it.

Rules that look small and are not:

- A tombstone (a null value) is the latest record of its key and still goes, but only `delete.retention.ms`
  after the round that first met it, so that readers who are on their way through the log learn of the
  deletion. That round writes the time (the delete horizon) into the batch, in place of its base timestamp.
- Data of an aborted transaction goes at once; its marker only in a round that no longer meets any of the
  data, and then with a delete horizon of its own. The aborted transactions whose data was met go into the new
  segment's transaction index. So a reader never sees aborted data without the word that it is aborted.
- A batch without records stays as a bare header while it tells the last sequence of an active producer, and
  at the very end of a round, so that the end of the log remains known.
- Records beyond the map are kept as they are.

Small segments are merged, up to `segment.bytes` and to what an index can address. The result of a group of
segments is a new segment in files that end in `.cleaned`, synced; putting it in place of its sources is the
log's work. Groups must be put in place from the oldest on: a tombstone may only go after what it deleted.

CRCs are checked on the way: rewriting a damaged batch would give it a fresh CRC and hide the damage.

What Kafka does and this does not: splitting a segment whose offsets overflow its index, which logs of
format v2 do not have.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import compress as select
from typing import NamedTuple

from crc32c import crc32c

from odradek.errors import KafkaError
from odradek.records.batch import (
    CODEC_MASK,
    CRC_START,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    read_header,
)
from odradek.records.control import ControlType, decode_control_key
from odradek.records.keys import KeyRow, read_keys
from odradek.records.record import (
    decode_batch,
    encode_records,
    pack_batch,
    scan_records,
    uncompressed_records,
    wrap_int64,
)
from odradek.records.walk import Batch, whole_batches
from odradek.storage.config import LogConfig
from odradek.storage.files import File, Files
from odradek.storage.indexes import ABORTED_ENTRY, MAX_RELATIVE_OFFSET, AbortedTransaction
from odradek.storage.segment import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TRANSACTION_INDEX_SUFFIX,
    Segment,
    file_name,
)

READ_BYTES = 1 << 20
WRITE_BYTES = 1 << 20
# What a key costs in the offset map: the key, its offset and their places in the dict, at its growth's peak.
MAP_ENTRY_BYTES = 200
MAX_PLAIN_KEY_BYTES = 32
DEFAULT_MAP_BYTES = 128 << 20

Throttle = Callable[[int], None]


class LastRecord(NamedTuple):
    """What of an active producer must survive: its last batch, or where that is gone, its epoch's marker."""

    last_data_offset: int | None
    producer_epoch: int


class SourceSegment(NamedTuple):
    base_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class CompactionJob:
    """One round on one log. `segments` are all up to `first_uncleanable_offset`, which one of them or the
    active segment begins with; it is at most the last stable offset."""

    directory: str
    segments: Sequence[SourceSegment]
    first_dirty_offset: int
    first_uncleanable_offset: int
    now_ms: int
    config: LogConfig
    active_producers: Mapping[int, LastRecord] = field(default_factory=dict)
    map_bytes: int = DEFAULT_MAP_BYTES


class CleanedGroup(NamedTuple):
    """The segment in `.cleaned` files at `base_offset` is to replace the segments at these base offsets."""

    source_offsets: tuple[int, ...]
    base_offset: int
    size: int


@dataclass(slots=True)
class CompactionStats:
    """`end_offset`: the log is clean up to there once every group is in place."""

    end_offset: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    keys: int = 0


class CorruptSegment(Exception):
    """A source that is not a row of sound batches. Retrying does not help."""


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


def read_batches(file: File, size: int, throttle: Throttle) -> Iterator[Batch]:
    """Every batch of a segment file, which must be whole batches from its first byte to its last."""
    position, previous_offset = 0, -1
    while position < size:
        chunk = read_chunk(file, position, size - position)
        throttle(len(chunk))
        at = 0
        for whole in whole_batches(chunk):
            header, batch = whole
            if header.base_offset <= previous_offset or header.last_offset_delta < 0:
                raise CorruptSegment(f"{file.path} has offsets out of order at position {position + at}")
            if crc32c(batch[CRC_START:]) != header.crc:
                raise CorruptSegment(f"{file.path} has a wrong CRC at position {position + at}")
            yield whole
            at += header.size
            previous_offset = header.last_offset
        if at == 0:
            raise CorruptSegment(f"{file.path} has no whole batch at position {position}")
        position += at


def read_chunk(file: File, position: int, remaining: int) -> memoryview:
    """Some batches, or one that is larger than our chunks are."""
    chunk = file.read_at(position, min(READ_BYTES, remaining))
    if len(chunk) >= HEADER_SIZE:
        size = read_header(chunk).size
        if len(chunk) < size <= remaining:
            chunk = file.read_at(position, size)
    return memoryview(chunk)


def read_aborted_transactions(files: Files, directory: str) -> list[AbortedTransaction]:
    """From all transaction indexes: data here may have been aborted by a marker in any later segment."""
    aborted = []
    for entry in files.list(directory):
        if entry.name.endswith(TRANSACTION_INDEX_SUFFIX):
            data = files.read(f"{directory}/{entry.name}")
            whole = len(data) - len(data) % ABORTED_ENTRY.size
            aborted += [AbortedTransaction(*row[1:]) for row in ABORTED_ENTRY.iter_unpack(data[:whole])]
    return aborted


# Transactions


class AbortedBatches:
    """Which batches belong to an aborted transaction: those of its producer within its offsets."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._by_producer: dict[int, list[AbortedTransaction]] = {}
        for transaction in sorted(aborted, key=lambda transaction: transaction.last_offset):
            self._by_producer.setdefault(transaction.producer_id, []).append(transaction)

    def find(self, header: BatchHeader) -> AbortedTransaction | None:
        """A producer's transactions follow one another, so the first to end at or after the batch decides."""
        if not header.attributes & TRANSACTIONAL:
            return None
        transactions = self._by_producer.get(header.producer_id)
        if not transactions:
            return None
        slot = bisect_left(transactions, header.last_offset, key=lambda transaction: transaction.last_offset)
        if slot < len(transactions) and transactions[slot].first_offset <= header.base_offset:
            return transactions[slot]
        return None


class Transactions:
    """Follows the transactions of a log from its start, to know which markers have nothing left to mark."""

    def __init__(self, aborted: AbortedBatches) -> None:
        self._aborted = aborted
        self._seen_aborted: set[AbortedTransaction] = set()
        self._seen_committed: set[int] = set()  # producers

    def note_data(self, header: BatchHeader) -> bool:
        """Whether the batch belongs to an aborted transaction and may go."""
        if not header.is_transactional:
            return False
        transaction = self._aborted.find(header)
        if transaction is None:
            self._seen_committed.add(header.producer_id)
            return False
        self._seen_aborted.add(transaction)
        return True

    def note_marker(self, batch: memoryview, header: BatchHeader) -> tuple[bool, AbortedTransaction | None]:
        """Whether the marker has no data left before it; if it has, the aborted transaction that it ends."""
        if header.record_count == 0:
            return True, None
        control_type = decode_control_key(decode_batch(batch, header)[0].key)
        if control_type is ControlType.ABORT:
            transaction = self._aborted.find(header)
            if transaction in self._seen_aborted:
                return False, transaction
            return True, None
        if control_type is ControlType.COMMIT:
            had_data = header.producer_id in self._seen_committed
            self._seen_committed.discard(header.producer_id)
            return not had_data, None
        return False, None


# The offset map


class OffsetMap:
    """The offset of each key's latest record. A long key is stood in for by a hash no plain key can equal."""

    def __init__(self, map_bytes: int, latest_offset: int) -> None:
        self.offsets: dict[bytes, int] = {}
        self.latest_offset = latest_offset  # everything up to there has been noted
        self._capacity = max(1, map_bytes // MAP_ENTRY_BYTES)

    @property
    def is_full(self) -> bool:
        return len(self.offsets) >= self._capacity

    def note(self, rows: Iterable[KeyRow], start_offset: int) -> None:
        offsets = self.offsets
        for offset, key, _ in rows:
            if key is not None and offset >= start_offset:
                offsets[key if len(key) <= MAX_PLAIN_KEY_BYTES else shortened(key)] = offset

    def kept(self, rows: Iterable[KeyRow], keep_tombstones: bool) -> list[bool]:
        """For each record, whether it stays: the latest of its key, or later than anything noted here."""
        find, latest_offset = self.offsets.get, self.latest_offset
        kept = []
        for offset, key, is_tombstone in rows:
            if offset > latest_offset:
                kept.append(True)
            elif key is None or (is_tombstone and not keep_tombstones):
                kept.append(False)
            else:
                kept.append(find(key if len(key) <= MAX_PLAIN_KEY_BYTES else shortened(key), -1) <= offset)
        return kept


def shortened(key: bytes) -> bytes:
    return blake2b(key, digest_size=MAX_PLAIN_KEY_BYTES + 1).digest()


def build_offset_map(
    files: Files, job: CompactionJob, aborted: AbortedBatches, stats: CompactionStats, throttle: Throttle
) -> OffsetMap:
    """Whole batches until the map is full. One always fits, so that every round gets further."""
    start = job.first_dirty_offset
    offset_map = OffsetMap(job.map_bytes, start - 1)
    for segment, following in dirty_segments(job):
        log = files.file(f"{job.directory}/{file_name(segment.base_offset, LOG_SUFFIX)}")
        try:
            for header, batch in read_batches(log, segment.size, throttle):
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
    following = [segment.base_offset for segment in job.segments[1:]] + [job.first_uncleanable_offset]
    for segment, end_offset in zip(job.segments, following, strict=False):
        if end_offset > job.first_dirty_offset:
            yield segment, end_offset


# Retention


class Retention:
    """What becomes of each batch of the log, taken in order from its start."""

    def __init__(self, job: CompactionJob, offset_map: OffsetMap, transactions: Transactions) -> None:
        self._map = offset_map
        self._transactions = transactions
        self._now_ms = job.now_ms
        self._new_horizon_ms = job.now_ms + job.config.delete_retention_ms
        self._active_producers = job.active_producers
        self._end_offset = job.first_uncleanable_offset
        self.kept_aborted: list[AbortedTransaction] = []  # for the transaction index of the current group

    def retained(self, batch: memoryview, header: BatchHeader) -> memoryview | bytearray | None:
        """The bytes to write: the batch itself, one with fewer records or none, or None."""
        if header.is_control:
            kept = self._retained_marker(batch, header)
        elif self._transactions.note_data(header):
            kept = None
        elif header.base_offset > self._map.latest_offset:
            kept = batch
        else:
            kept = self._retained_data(batch, header)
        if kept is None and self._must_remain(header):
            return empty_batch(header)
        return kept

    def _must_remain(self, header: BatchHeader) -> bool:
        if header.next_offset == self._end_offset:
            return True
        last = self._active_producers.get(header.producer_id)
        if header.producer_id == NO_PRODUCER_ID or last is None:
            return False
        if last.last_data_offset is not None:
            return header.last_offset == last.last_data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch

    def _retained_marker(self, batch: memoryview, header: BatchHeader) -> memoryview | bytearray | None:
        useless, transaction = self._transactions.note_marker(batch, header)
        if transaction is not None:
            self.kept_aborted.append(transaction)
        if not useless:
            return batch
        if header.record_count == 0:
            return None
        if not header.attributes & DELETE_HORIZON:
            return rewritten(batch, header, [True] * header.record_count, self._new_horizon_ms)
        return None if header.base_timestamp <= self._now_ms else batch

    def _retained_data(self, batch: memoryview, header: BatchHeader) -> memoryview | bytearray | None:
        rows = read_keys(batch, header)
        has_horizon = bool(header.attributes & DELETE_HORIZON)
        keep_tombstones = not has_horizon or self._now_ms < header.base_timestamp
        kept = self._map.kept(rows, keep_tombstones)
        if not any(kept):
            return None
        sets_horizon = not has_horizon and any(row[2] for row in select(rows, kept))
        if all(kept) and not sets_horizon:
            return batch
        return rewritten(batch, header, kept, self._new_horizon_ms if sets_horizon else None)


def rewritten(
    batch: memoryview, header: BatchHeader, kept: Sequence[bool], new_horizon_ms: int | None
) -> bytearray:
    """The batch with only the kept records. Its range of offsets stays, and with it the producer's sequence.

    Records are copied as they are, unless a new delete horizon changes what their timestamps count from.
    """
    if new_horizon_ms is not None:
        records = list(select(decode_batch(batch, header), kept))
        max_timestamp = max(record.timestamp for record in records)
        data = encode_records(records, header.base_offset, new_horizon_ms)
        header = header._replace(attributes=header.attributes | DELETE_HORIZON, base_timestamp=new_horizon_ms)
    else:
        source = uncompressed_records(batch, header)
        spans = list(select(scan_records(source, header), kept))
        max_timestamp = max(wrap_int64(header.base_timestamp + span[2]) for span in spans)
        data = bytearray().join(source[span[0] : span[1]] for span in spans)
    if not header.attributes & LOG_APPEND_TIME:
        header = header._replace(max_timestamp=max_timestamp)
    return pack_batch(header._replace(record_count=sum(kept)), data)


def empty_batch(header: BatchHeader) -> bytearray:
    """The bare header, for what it says of its producer and of the end of the log."""
    attributes = header.attributes & ~(DELETE_HORIZON | CODEC_MASK)
    return pack_batch(
        header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0), b""
    )


# Writing


def clean_group(
    files: Files,
    job: CompactionJob,
    group: Sequence[SourceSegment],
    retention: Retention,
    stats: CompactionStats,
    throttle: Throttle,
) -> CleanedGroup:
    """Copy what is retained of a group of segments into a new one, and sync it."""
    base_offset = group[0].base_offset
    remove_cleaned(files, job.directory, base_offset)
    cleaned = Segment.create(files, job.directory, base_offset, job.config, job.now_ms, CLEANED_SUFFIX)
    retention.kept_aborted = []
    for segment in group:
        log = files.file(f"{job.directory}/{file_name(segment.base_offset, LOG_SUFFIX)}")
        try:
            copy_retained(log, segment.size, cleaned, retention, stats, throttle)
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
    size: int,
    cleaned: Segment,
    retention: Retention,
    stats: CompactionStats,
    throttle: Throttle,
) -> None:
    output, position = bytearray(), cleaned.size
    for header, batch in read_batches(source, size, throttle):
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
