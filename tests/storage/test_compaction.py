"""Compaction of segment files, against a plain model of what must be left of a log."""

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.records.batch import DELETE_HORIZON, BatchHeader
from odradek.records.compression import Codec
from odradek.records.control import build_marker_batch
from odradek.records.record import Record, TimestampType, build_batch, decode_batch, header_of, patch_crc
from odradek.storage.compaction.job import (
    CompactionJob,
    CompactionStats,
    CorruptSegment,
    LastBatches,
    SourceSegment,
)
from odradek.storage.compaction.offset_map import MAP_ENTRY_BYTES
from odradek.storage.compaction.rounds import compact, group_segments, read_batches
from odradek.storage.compaction.transactions import read_aborted_transactions
from odradek.storage.config import LogConfig
from odradek.storage.disk.files import DiskFiles
from odradek.storage.segments.indexes import ABORTED_ENTRY, AbortedTransaction
from odradek.storage.segments.segment import CLEANED_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, Segment, file_name

NOW_MS = 1_700_000_000_000
RETENTION_MS = 1000


@dataclass
class TestLog:
    """A log in plain segment files: `batches` are appended, `roll` begins the next segment."""

    __test__ = False
    directory: Path
    config: LogConfig = field(
        default_factory=lambda: LogConfig(compact=True, delete_retention_ms=RETENTION_MS)
    )
    files: DiskFiles = field(default_factory=DiskFiles)
    next_offset: int = 0
    clean_offset: int = 0
    segments: list[int] = field(default_factory=lambda: [0])
    transaction_starts: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.log_path(0).touch()

    def log_path(self, base_offset: int) -> Path:
        return self.directory / file_name(base_offset, LOG_SUFFIX)

    def append(self, *pairs: tuple[bytes | None, bytes | None], **options: object) -> int:
        """The base offset of a batch of these keys and values."""
        base_offset = self.next_offset
        records = [
            Record(base_offset + index, NOW_MS + base_offset + index, key, value)
            for index, (key, value) in enumerate(pairs)
        ]
        producer_id = options.get("producer_id", -1)
        if options.get("transactional"):
            assert isinstance(producer_id, int)
            self.transaction_starts.setdefault(producer_id, base_offset)
        self.write(build_batch(records, **options))  # type: ignore[arg-type]
        return base_offset

    def end_transaction(self, producer_id: int, *, commit: bool) -> int:
        offset = self.next_offset
        self.write(
            build_marker_batch(
                commit=commit,
                coordinator_epoch=0,
                producer_id=producer_id,
                producer_epoch=0,
                timestamp=NOW_MS,
                base_offset=offset,
            )
        )
        first_offset = self.transaction_starts.pop(producer_id, None)
        if not commit and first_offset is not None:
            entry = ABORTED_ENTRY.pack(0, producer_id, first_offset, offset, offset + 1)
            with open(self.directory / file_name(self.segments[-1], ".txnindex"), "ab") as index:
                index.write(entry)
        return offset

    def write(self, batch: bytearray) -> None:
        with open(self.log_path(self.segments[-1]), "ab") as log:
            log.write(batch)
        self.next_offset = header_of(batch).next_offset

    def roll(self) -> None:
        self.segments.append(self.next_offset)
        self.log_path(self.next_offset).touch()

    def compact(
        self,
        now_ms: int = NOW_MS,
        active_producers: dict[int, LastBatches] | None = None,
        map_bytes: int = 1 << 20,
    ) -> CompactionStats:
        """One round over all segments but the last that lie below the last stable offset, the results put in
        place of their sources."""
        last_stable_offset = min(self.transaction_starts.values(), default=self.next_offset)
        first_uncleanable = max(base for base in self.segments if base <= last_stable_offset)
        job = CompactionJob(
            directory=str(self.directory),
            segments=[
                SourceSegment(base, self.log_path(base).stat().st_size)
                for base in self.segments
                if base < first_uncleanable
            ],
            first_dirty_offset=self.clean_offset,
            first_uncleanable_offset=first_uncleanable,
            now_ms=now_ms,
            config=self.config,
            active_producers=active_producers or {},
            map_bytes=map_bytes,
        )
        stats = CompactionStats()
        for group in compact(self.files, job, stats):
            self.replace(group.source_offsets, group.base_offset)
        self.clean_offset = stats.end_offset
        return stats

    def replace(self, sources: tuple[int, ...], base_offset: int) -> None:
        for source in sources:
            for suffix in SEGMENT_SUFFIXES:
                (self.directory / file_name(source, suffix)).unlink(missing_ok=True)
        for suffix in SEGMENT_SUFFIXES:
            cleaned = self.directory / file_name(base_offset, suffix + CLEANED_SUFFIX)
            if cleaned.exists():
                cleaned.rename(self.directory / file_name(base_offset, suffix))
        self.segments = sorted({*self.segments} - {*sources} | {base_offset})

    def batches(self) -> list[tuple[bytes, BatchHeader]]:
        found = []
        for base in self.segments:
            path = self.log_path(base)
            file = self.files.file(str(path))
            found += [
                (bytes(batch), header)
                for header, batch in read_batches(
                    file, path.stat().st_size, lambda count: None, self.next_offset
                )
            ]
            file.close()
        return found

    def records(self) -> list[Record]:
        """All data records, of aborted transactions too."""
        return [
            record
            for batch, header in self.batches()
            if not header.is_control
            for record in decode_batch(batch, header)
        ]

    def visible(self) -> list[Record]:
        """Return what a read_committed consumer gets: it drops batches of a producer from an aborted transaction's
        first offset until the abort marker.
        """
        pending = sorted(self.aborted(), key=lambda transaction: transaction.first_offset)
        dropped: set[int] = set()
        found: list[Record] = []
        for batch, header in self.batches():
            while pending and pending[0].first_offset <= header.last_offset:
                dropped.add(pending.pop(0).producer_id)
            if header.is_control:
                if header.record_count and decode_batch(batch)[0].key == b"\0\0\0\0":
                    dropped.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in dropped):
                found += decode_batch(batch, header)
        return found

    def aborted(self) -> list[AbortedTransaction]:
        return read_aborted_transactions(self.files, str(self.directory))


@pytest.fixture
def log(tmp_path: Path) -> TestLog:
    return TestLog(tmp_path)


def keys_and_values(log: TestLog) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(record.offset, record.key, record.value) for record in log.records()]


def test_keeps_the_latest_record_of_each_key_at_its_offset(log: TestLog) -> None:
    log.append((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    log.append((b"c", b"1"))
    log.roll()
    log.append((b"b", b"2"), (b"d", b"1"))
    log.roll()
    stats = log.compact()
    assert keys_and_values(log) == [(2, b"a", b"2"), (3, b"c", b"1"), (4, b"b", b"2"), (5, b"d", b"1")]
    assert stats.end_offset == 6
    assert (stats.records_read, stats.records_kept, stats.keys) == (6, 4, 4)


def test_batches_keep_their_range_of_offsets_and_their_timestamps(log: TestLog) -> None:
    log.append((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), producer_id=9, producer_epoch=1, base_sequence=40)
    log.append((b"b", b"2"))
    log.roll()
    log.compact()
    _, header = log.batches()[0]
    assert (header.base_offset, header.last_offset, header.record_count) == (0, 2, 1)
    assert (header.producer_id, header.base_sequence, header.last_sequence) == (9, 40, 42)
    assert header.max_timestamp == NOW_MS + 2
    assert [record.timestamp for record in log.records()] == [NOW_MS + 2, NOW_MS + 3]


def test_never_touches_the_last_segment(log: TestLog) -> None:
    log.append((b"a", b"1"))
    log.roll()
    log.append((b"a", b"2"))
    log.append((b"a", b"3"))
    log.compact()
    assert keys_and_values(log) == [(0, b"a", b"1"), (1, b"a", b"2"), (2, b"a", b"3")]


@pytest.mark.parametrize("codec", list(Codec))
def test_keeps_the_compression(log: TestLog, codec: Codec) -> None:
    log.append(*[(b"key-%d" % (index % 7), b"value" * 20) for index in range(50)], codec=codec)
    log.roll()
    log.compact()
    assert [header.codec for _, header in log.batches()] == [codec]
    assert [record.offset for record in log.records()] == list(range(43, 50))


def test_log_append_time_stays(log: TestLog) -> None:
    log.append((b"a", b"1"), (b"b", None), (b"a", b"2"), timestamp_type=TimestampType.LOG_APPEND_TIME)
    log.append((b"x", b"1"))
    log.roll()
    log.compact()
    assert [record.timestamp for record in log.records()] == [NOW_MS + 2, NOW_MS + 2, NOW_MS + 3]


def test_log_append_time_stays_though_the_latest_record_goes(log: TestLog) -> None:
    log.append((b"a", b"1"), (b"b", b"1"), timestamp_type=TimestampType.LOG_APPEND_TIME)
    log.append((b"b", b"2"))
    log.roll()
    log.compact()
    assert [record.timestamp for record in log.records()] == [NOW_MS + 1, NOW_MS + 2]


def test_the_latest_timestamp_is_that_of_what_is_left(log: TestLog) -> None:
    log.append((b"a", b"1"), (b"b", b"1"))
    log.append((b"b", b"2"))
    log.roll()
    log.compact()
    assert [header.max_timestamp for _, header in log.batches()] == [NOW_MS, NOW_MS + 2]


def test_a_gap_at_the_end_of_a_segment_is_clean_too(log: TestLog) -> None:
    log.append((b"a", b"1"))
    log.next_offset += 10
    log.roll()
    assert log.compact().end_offset == 11


def test_records_without_a_key_go(log: TestLog) -> None:
    log.append((None, b"1"), (b"a", b"1"))
    log.roll()
    log.compact()
    assert keys_and_values(log) == [(1, b"a", b"1")]


def test_long_keys_are_told_apart(log: TestLog) -> None:
    one, other = b"k" * 100 + b"1", b"k" * 100 + b"2"
    log.append((one, b"1"), (other, b"1"), (one, b"2"))
    log.roll()
    log.compact()
    assert keys_and_values(log) == [(1, other, b"1"), (2, one, b"2")]


def test_a_tombstone_goes_after_the_delete_horizon(log: TestLog) -> None:
    log.append((b"a", b"1"))
    log.append((b"a", None), (b"b", b"1"))
    log.append((b"z", b"1"))
    log.roll()
    log.compact(now_ms=NOW_MS)
    assert keys_and_values(log) == [(1, b"a", None), (2, b"b", b"1"), (3, b"z", b"1")]
    header = log.batches()[0][1]
    assert header.attributes & DELETE_HORIZON
    assert header.base_timestamp == NOW_MS + RETENTION_MS
    assert [record.timestamp for record in log.records()] == [NOW_MS + 1, NOW_MS + 2, NOW_MS + 3]

    log.compact(now_ms=NOW_MS + RETENTION_MS - 1)
    assert keys_and_values(log)[0] == (1, b"a", None)
    log.compact(now_ms=NOW_MS + RETENTION_MS)
    assert keys_and_values(log) == [(2, b"b", b"1"), (3, b"z", b"1")]
    assert [record.timestamp for record in log.records()] == [NOW_MS + 2, NOW_MS + 3]


def test_a_horizon_that_was_set_is_not_moved(log: TestLog) -> None:
    log.append((b"a", None), (b"b", b"1"))
    log.append((b"b", b"2"))
    log.roll()
    log.compact(now_ms=NOW_MS)
    log.compact(now_ms=NOW_MS + 500)
    assert log.batches()[0][1].base_timestamp == NOW_MS + RETENTION_MS


def test_the_end_of_the_round_stays_known(log: TestLog) -> None:
    log.append((None, b"no key"))
    log.append((None, b"no key either"))
    log.roll()
    log.compact()
    assert [(header.base_offset, header.record_count) for _, header in log.batches()] == [(1, 0)]


def test_an_active_producer_keeps_its_last_batch_even_if_it_is_empty(log: TestLog) -> None:
    log.append((b"a", b"1"), producer_id=7, producer_epoch=2, base_sequence=5, codec=Codec.GZIP)
    log.append((b"a", b"2"), producer_id=8, producer_epoch=0, base_sequence=0)
    log.append((b"a", b"3"))
    log.roll()
    log.compact(active_producers={7: LastBatches((0,), 2)})
    headers = [header for _, header in log.batches()]
    assert [header.base_offset for header in headers] == [0, 2]
    empty = headers[0]
    assert (empty.record_count, empty.codec, empty.producer_id, empty.producer_epoch) == (0, 0, 7, 2)
    assert (empty.last_sequence, empty.max_timestamp, empty.base_timestamp) == (5, NOW_MS, -1)
    log.compact()
    assert [header.base_offset for _, header in log.batches()] == [2]


def test_the_markers_between_the_last_batches_of_a_producer_stay_with_them(log: TestLog) -> None:
    """A transactional batch without its marker would open a transaction that nobody ends."""
    for slot in range(4):
        log.append((b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=slot, transactional=True)
        log.end_transaction(7, commit=slot % 2 == 0)
    log.append((b"a", b"2"))
    log.roll()
    for round_ in range(4):
        now_ms = NOW_MS + 10 * round_ * RETENTION_MS
        log.compact(now_ms, active_producers={7: LastBatches((2, 4, 6), 0)})
    assert [header.base_offset for _, header in log.batches()] == [2, 3, 4, 5, 6, 7, 8]


def test_a_marker_with_the_epoch_of_an_active_producer_stays(log: TestLog) -> None:
    marker = log.end_transaction(7, commit=True)
    log.append((b"a", b"1"))
    log.roll()
    producers = {7: LastBatches((), 0)}
    for _ in range(3):
        log.compact(now_ms=NOW_MS + 10 * RETENTION_MS, active_producers=producers)
        assert log.batches()[0][1].base_offset == marker
    log.compact(now_ms=NOW_MS + 30 * RETENTION_MS)
    assert [header.base_offset for _, header in log.batches()] == [1]


def test_aborted_data_goes_and_is_never_the_latest(log: TestLog) -> None:
    log.append((b"a", b"old"))
    log.append((b"a", b"aborted"), transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    log.end_transaction(1, commit=False)
    log.append((b"b", b"1"))
    log.roll()
    log.compact()
    assert keys_and_values(log) == [(0, b"a", b"old"), (3, b"b", b"1")]


def test_an_abort_marker_outlives_its_data_and_then_its_horizon(log: TestLog) -> None:
    log.append((b"a", b"aborted"), transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    marker = log.end_transaction(1, commit=False)
    log.append((b"b", b"1"))
    log.roll()

    log.compact(now_ms=NOW_MS)  # meets the data, so that the marker stays as it is
    markers = [header for _, header in log.batches() if header.is_control]
    assert [header.base_offset for header in markers] == [marker]
    assert not markers[0].attributes & DELETE_HORIZON
    assert log.aborted() == [AbortedTransaction(1, 0, 1, 2)]

    log.compact(now_ms=NOW_MS + 1)  # no data any more: the horizon begins
    markers = [header for _, header in log.batches() if header.is_control]
    assert markers[0].base_timestamp == NOW_MS + 1 + RETENTION_MS
    assert log.aborted() == []

    log.compact(now_ms=NOW_MS + RETENTION_MS)
    assert [header.base_offset for _, header in log.batches()] == [1, 2]
    log.compact(now_ms=NOW_MS + 1 + RETENTION_MS)
    assert [header.base_offset for _, header in log.batches()] == [2]


def test_a_commit_marker_stays_while_its_transaction_has_records(log: TestLog) -> None:
    log.append((b"a", b"1"), transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    log.end_transaction(1, commit=True)
    log.append((b"z", b"1"))
    log.roll()
    later = NOW_MS
    for _ in range(3):
        later += 10 * RETENTION_MS
        log.compact(now_ms=later)
        assert [header.base_offset for _, header in log.batches()] == [0, 1, 2]
    log.append((b"a", b"2"))
    log.append((b"z", b"2"))
    log.roll()
    for _ in range(3):
        later += 10 * RETENTION_MS
        log.compact(now_ms=later)
    assert [header.base_offset for _, header in log.batches()] == [3, 4]


def test_data_aborted_by_a_marker_beyond_the_round_goes_too(log: TestLog) -> None:
    log.append((b"a", b"old"))
    log.append((b"a", b"aborted"), transactional=True, producer_id=1, producer_epoch=0, base_sequence=0)
    log.append((b"c", b"1"))
    log.roll()
    log.append((b"b", b"1"))
    log.end_transaction(1, commit=False)
    log.compact()
    assert keys_and_values(log) == [(0, b"a", b"old"), (2, b"c", b"1"), (3, b"b", b"1")]
    assert log.aborted() == [AbortedTransaction(1, 1, 4, 5)]


def test_each_new_segment_indexes_its_own_aborted_transactions(log: TestLog) -> None:
    log.config = LogConfig(compact=True, segment_bytes=1)  # nothing is merged
    for producer_id in (1, 2):
        log.append(
            (b"a", b"1"), transactional=True, producer_id=producer_id, producer_epoch=0, base_sequence=0
        )
        log.end_transaction(producer_id, commit=False)
        log.roll()
    log.compact()
    assert sorted(log.aborted()) == [AbortedTransaction(1, 0, 1, 2), AbortedTransaction(2, 2, 3, 4)]


def test_a_producer_that_aborted_once_may_commit_later(log: TestLog) -> None:
    options = {"transactional": True, "producer_id": 1, "producer_epoch": 0}
    log.append((b"a", b"aborted"), base_sequence=0, **options)
    log.end_transaction(1, commit=False)
    log.roll()
    log.append((b"b", b"1"))
    log.roll()
    log.compact()
    log.append((b"a", b"committed"), base_sequence=1, **options)
    log.end_transaction(1, commit=True)
    log.append((b"z", b"1"))
    log.roll()
    log.compact()
    assert keys_and_values(log) == [(2, b"b", b"1"), (3, b"a", b"committed"), (5, b"z", b"1")]


def test_a_map_that_is_too_small_takes_several_rounds(log: TestLog) -> None:
    for round_index in range(2):
        for key in range(10):
            log.append((b"%d" % key, b"%d" % round_index))
    log.roll()
    ends = []
    while log.clean_offset < log.segments[-1]:
        ends.append(log.compact(map_bytes=4 * MAP_ENTRY_BYTES).end_offset)
    assert ends == [4, 8, 12, 16, 20]
    assert keys_and_values(log) == [(10 + key, b"%d" % key, b"1") for key in range(10)]


def test_one_batch_always_fits_the_map(log: TestLog) -> None:
    log.append(*[(b"%d" % key, b"") for key in range(10)])
    log.append((b"0", b"new"))
    log.roll()
    assert log.compact(map_bytes=1).end_offset == 10
    assert log.compact(map_bytes=1).end_offset == 11
    assert [record.offset for record in log.records()] == list(range(1, 11))


def test_small_segments_are_merged(log: TestLog) -> None:
    for index in range(6):
        log.append((b"%d" % index, b"v" * 100))
        log.roll()
    size = log.log_path(0).stat().st_size
    log.config = LogConfig(compact=True, segment_bytes=2 * size + 10)
    log.compact()
    assert log.segments == [0, 2, 4, 6]
    assert [record.offset for record in log.records()] == list(range(6))


def test_groups_stay_within_what_an_index_can_address() -> None:
    far = 2**31
    segments = [SourceSegment(0, 10), SourceSegment(5, 10), SourceSegment(far, 10), SourceSegment(far + 5, 0)]
    groups = group_segments(segments, 1000, far + 6)
    assert [[segment.base_offset for segment in group] for group in groups] == [[0, 5], [far, far + 5]]
    groups = group_segments(segments[:2], 1000, 100)
    assert groups == [segments[:2]]


def test_the_new_indexes_find_every_offset(log: TestLog) -> None:
    log.config = LogConfig(compact=True, index_interval_bytes=200)
    generator = random.Random(1)
    for _ in range(100):
        log.append(*[(b"%d" % generator.randrange(300), b"v" * 20) for _ in range(3)])
    log.roll()
    log.compact()
    sizes = {path.name: path.stat().st_size for path in log.directory.iterdir()}
    segment = Segment.open(log.files, str(log.directory), 0, sizes, log.config, NOW_MS)
    assert len(segment.offsets) > 5 and len(segment.times) > 5
    last_offsets = [header.last_offset for _, header in log.batches()]
    for offset in range(300):
        located = segment.locate(offset)
        expected = next((last for last in last_offsets if last >= offset), None)
        assert (located[1].last_offset if located else None) == expected


def test_leftovers_of_an_earlier_round_are_replaced(log: TestLog) -> None:
    log.append((b"a", b"1"))
    log.roll()
    for suffix in SEGMENT_SUFFIXES:
        (log.directory / file_name(0, suffix + CLEANED_SUFFIX)).write_bytes(b"garbage" * 100)
    log.compact()
    assert keys_and_values(log) == [(0, b"a", b"1")]
    assert log.aborted() == []


def damage_crc(data: bytearray) -> None:
    data[-1] ^= 1


def damage_length(data: bytearray) -> None:
    data[8:12] = b"\0\0\0\1"


def damage_end(data: bytearray) -> None:
    del data[-1]


def damage_magic(data: bytearray) -> None:
    data[16] = 1


def damage_order(data: bytearray) -> None:
    data += bytes(data)


@pytest.mark.parametrize("damage", [damage_crc, damage_length, damage_end, damage_magic, damage_order])
def test_damaged_segments_are_refused_and_left_alone(log: TestLog, damage: object) -> None:
    assert callable(damage)
    log.append((b"a", b"1"))
    log.roll()
    data = bytearray(log.log_path(0).read_bytes())
    damage(data)
    log.log_path(0).write_bytes(data)
    with pytest.raises(CorruptSegment):
        log.compact()
    assert log.log_path(0).read_bytes() == data


def test_records_that_cannot_be_read_are_refused(log: TestLog) -> None:
    batch = build_batch([Record(0, NOW_MS, b"a", b"1")])
    batch[61] = 0x7E  # the record's length
    patch_crc(batch)
    log.write(batch)
    log.roll()
    with pytest.raises(CorruptSegment):
        log.compact()


def test_a_batch_larger_than_the_read_chunk(log: TestLog) -> None:
    log.append((b"small", b"1"))
    log.append((b"large", b"v" * 3_000_000))
    log.append((b"small", b"2"))
    log.roll()
    log.compact()
    assert [record.offset for record in log.records()] == [1, 2]


# Against a model


@dataclass
class Step:
    kind: str
    keys: list[int]
    producer: int
    tombstones: int
    codec: int


steps = st.builds(
    Step,
    kind=st.sampled_from(
        ["data", "data", "data", "transaction", "transaction", "commit", "abort", "roll", "compact"]
    ),
    keys=st.lists(st.integers(0, 6), min_size=1, max_size=12),
    producer=st.integers(1, 3),
    tombstones=st.integers(0, 3),
    codec=st.sampled_from([0, 0, 0, 1, 4]),
)


class Model:
    """The records that a read_committed reader must see: committed ones in the order of their offsets."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.open: dict[int, list[Record]] = {}
        self.sequences: dict[int, int] = {}

    def latest(self) -> dict[bytes, Record]:
        latest: dict[bytes, Record] = {}
        for record in sorted(self.records):
            assert record.key is not None
            latest[record.key] = record
        return latest


def apply(step: Step, log: TestLog, model: Model, now_ms: int) -> None:
    producer = step.producer
    pairs = [
        (b"key-%d" % key, None if index < step.tombstones else b"value-%d-%d" % (log.next_offset, index))
        for index, key in enumerate(step.keys)
    ]
    if step.kind == "data":
        base = log.append(*pairs, codec=step.codec)
        model.records += [r for r in log_tail(log) if r.offset >= base]
    elif step.kind == "transaction":
        sequence = model.sequences.get(producer, 0)
        log.append(
            *pairs,
            codec=step.codec,
            transactional=True,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
        )
        model.sequences[producer] = sequence + len(pairs)
        model.open.setdefault(producer, []).extend(log_tail(log))
    elif step.kind in ("commit", "abort") and producer in model.open:
        log.end_transaction(producer, commit=step.kind == "commit")
        records = model.open.pop(producer)
        if step.kind == "commit":
            model.records += records
    elif step.kind == "roll" and log.segments[-1] != log.next_offset:
        log.roll()
    elif step.kind == "compact" and len(log.segments) > 1:
        log.compact(now_ms=now_ms, map_bytes=5 * MAP_ENTRY_BYTES)


def log_tail(log: TestLog) -> list[Record]:
    batch, header = log.batches()[-1]
    return decode_batch(batch, header)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(script=st.lists(steps, max_size=40))
def test_readers_see_what_the_model_says(
    tmp_path_factory: pytest.TempPathFactory, script: list[Step]
) -> None:
    log, model = TestLog(tmp_path_factory.mktemp("log")), Model()
    now_ms = NOW_MS
    for step in script:
        now_ms += 100
        apply(step, log, model, now_ms)
        check_readers(log, model)
    for producer in list(model.open):
        apply(Step("abort", [0], producer, 0, 0), log, model, now_ms)
    if log.segments[-1] != log.next_offset:
        log.roll()
    while log.clean_offset < log.segments[-1]:
        log.compact(now_ms=now_ms)
    check_fully_compacted(log, model)
    for _ in range(3):
        now_ms += 10 * RETENTION_MS
        log.compact(now_ms=now_ms)
    live = [record for record in sorted(model.latest().values()) if record.value is not None]
    assert log.records() == live


def check_readers(log: TestLog, model: Model) -> None:
    """Nothing but what was committed is seen, at its offset, and of every key the latest, unless a tombstone
    is what was latest; so whoever reads to the end knows each key's state."""
    undecided = {record.offset for records in model.open.values() for record in records}
    visible = [record for record in log.visible() if record.offset not in undecided]
    committed = {record.offset: record for record in model.records}
    assert [committed.get(record.offset) for record in visible] == visible
    offsets = [record.offset for record in visible]
    assert offsets == sorted(set(offsets))
    seen = {record.key: record for record in visible}
    for key, record in model.latest().items():
        if record.value is not None:
            assert seen[key] == record
        else:
            assert key not in seen or seen[key] == record


def check_fully_compacted(log: TestLog, model: Model) -> None:
    kept = [record for record in log.records() if record.value is not None]
    assert kept == [record for record in sorted(model.latest().values()) if record.value is not None]
