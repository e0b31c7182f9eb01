"""A disk returns other bytes than it was given: a reader gets an error there, and never takes that for the end."""

import asyncio
import logging
import random
from collections.abc import Iterator

import pytest

from odradek.config.broker import BrokerConfig
from odradek.errors import ErrorCode, KafkaError
from odradek.host.metrics import Metrics
from odradek.host.real import RealHost
from odradek.records.walk import whole_batches
from odradek.services.partitions.integrity import IntegrityCheck
from odradek.storage.compaction.exchange import carry_out
from odradek.storage.compaction.job import CompactionJob, SourceSegment, job_to_json
from odradek.storage.config import LogConfig
from odradek.storage.disk.simulated import SimulatedFiles
from odradek.storage.log.integrity import check_piece
from odradek.storage.log.log import Log
from odradek.storage.log.lookup import offset_for_timestamp, offset_of_max_timestamp
from odradek.storage.log.reading import read_batches
from odradek.storage.log.retention import next_due_ms, old_segments
from odradek.storage.segments.damage import DamagedSegment
from odradek.storage.segments.segment import Segment
from odradek.storage.store import LogStore
from tests.storage.batches import NOW_MS, PARTITION, TOPIC_ID, append_values, durable_disk, new_log, reopen

D = "/data/topic-0"
CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=150)
BATCHES, RECORDS = 12, 2
DAMAGED = 4  # the number of the damaged batch: in the first segment, neither its first nor its last
# What of a batch's header is damaged, by the bits of its first bytes.
BASE_OFFSET = range(64)
LENGTH = range(64, 96)
MAGIC = range(128, 136)
CRC = range(136, 168)
HEADERS = [*BASE_OFFSET, *LENGTH, *MAGIC]


@pytest.fixture
def files() -> SimulatedFiles:
    """A log of several segments, as a clean stop leaves it."""
    files = durable_disk(D)
    log = new_log(files, D, CONFIG)
    for number in range(BATCHES):
        append_values(log, *[b"value-%d" % number] * RECORDS, timestamp=NOW_MS + number)
    assert len(log.segments) > 1 and log.segments[1].base_offset > (DAMAGED + 1) * RECORDS
    log.persist_state()
    log.sync()
    log.close()
    return files


def first_segment(number: int) -> str:
    return f"{D}/{number:020d}.log"


LOG = first_segment(0)


def positions(files: SimulatedFiles, path: str = LOG) -> list[int]:
    found, position = [], 0
    for header, _ in whole_batches(memoryview(files.read(path))):
        found.append(position)
        position += header.size
    return found


def flip(files: SimulatedFiles, position: int, bit: int, path: str = LOG) -> None:
    data = bytearray(files.read(path))
    data[position + bit // 8] ^= 0x80 >> bit % 8
    files.create(path).write_at(0, data)


def opened(files: SimulatedFiles) -> Log:
    return reopen(files, D, CONFIG, clean=True, recovery_point=BATCHES * RECORDS)


def damaged(files: SimulatedFiles, bit: int) -> Log:
    flip(files, positions(files)[DAMAGED], bit)
    return opened(files)


def stored(files: SimulatedFiles) -> LogStore:
    return LogStore.open(files, "/data", NOW_MS, lambda topic: CONFIG, random.Random(0))


def consume(log: Log, max_bytes: int) -> Iterator[int]:
    """Read as a consumer does, and yield the offset of every record. Ends where the broker returns nothing more."""
    offset = 0
    while offset < log.end_offset:
        piece = log.read(offset, max_bytes, log.end_offset)
        assert piece is not None
        for batch in whole_batches(memoryview(piece.file.read_at(piece.position, piece.length))):
            assert batch.has_valid_crc
            yield from range(max(batch.header.base_offset, offset), batch.header.next_offset)
            offset = batch.header.next_offset


@pytest.mark.parametrize("max_bytes", [1, 300, 1 << 20])
@pytest.mark.parametrize("bit", HEADERS)
def test_a_consumer_gets_what_comes_before_a_damaged_header_and_then_an_error(
    files: SimulatedFiles, bit: int, max_bytes: int
) -> None:
    log = damaged(files, bit)
    read: list[int] = []
    with pytest.raises(KafkaError) as refused:
        for offset in consume(log, max_bytes):
            read.append(offset)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert read == list(range(DAMAGED * RECORDS))
    assert log.damage is not None and log.damage.path == LOG


@pytest.mark.parametrize("bit", HEADERS)
def test_the_error_names_the_file_the_position_and_the_offset(files: SimulatedFiles, bit: int) -> None:
    position = positions(files)[DAMAGED]
    log = damaged(files, bit)
    with pytest.raises(DamagedSegment) as refused:
        for _ in consume(log, 1):
            pass
    assert (refused.value.position, refused.value.offset) == (position, DAMAGED * RECORDS)
    assert str(refused.value).startswith(f"{LOG} is damaged at byte {position}: ")


def test_it_is_logged_once_with_its_place(files: SimulatedFiles, caplog: pytest.LogCaptureFixture) -> None:
    position = positions(files)[DAMAGED]
    log = damaged(files, MAGIC[0])
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            with pytest.raises(DamagedSegment):
                log.read(DAMAGED * RECORDS, 1 << 20, log.end_offset)
    assert [record.getMessage() for record in caplog.records] == [
        f"the log of topic-0 cannot be read to its end: {LOG} is damaged at byte {position}: there is no whole batch, "
        f"so the records from offset {DAMAGED * RECORDS} on cannot be read"
    ]


def test_segments_after_the_damage_are_still_served(files: SimulatedFiles) -> None:
    log = damaged(files, LENGTH[5])
    following = log.segments[1].base_offset
    piece = log.read(following, 1 << 20, log.end_offset)
    assert piece is not None and piece.file is log.segments[1].log


@pytest.mark.parametrize("bit", [*HEADERS, *CRC])
def test_what_replays_a_log_is_not_told_that_it_ends_there(files: SimulatedFiles, bit: int) -> None:
    log, replayed = damaged(files, bit), []
    with pytest.raises(DamagedSegment):
        for batches in read_batches(log, 200):
            replayed += [batch.header.base_offset for batch in batches]
    assert len(replayed) == DAMAGED


@pytest.mark.parametrize("bit", [*HEADERS, *CRC])
def test_the_integrity_check_finds_it(files: SimulatedFiles, bit: int) -> None:
    position = positions(files)[DAMAGED]
    log = damaged(files, bit)
    segment = log.segments[0]
    limit = log.segments[1].base_offset
    found = check_piece(segment.log, 0, segment.size, 0, limit)
    while not found.damage and found.position < segment.size:
        found = check_piece(segment.log, found.position, segment.size, found.offset, limit)
    assert found.damage
    assert (found.position, found.offset) == (position, DAMAGED * RECORDS)


@pytest.mark.parametrize("bit", [*HEADERS, *CRC])
def test_compaction_finds_it_and_says_where(files: SimulatedFiles, bit: int) -> None:
    log = damaged(files, bit)
    sources = [SourceSegment(segment.base_offset, segment.size) for segment in log.segments[:-1]]
    job = CompactionJob(D, sources, 0, log.active.base_offset, NOW_MS, LogConfig(compact=True, delete=False))
    (message,) = carry_out(files, job_to_json(job, 1e9), lambda count: None)
    assert message["corrupt"] and message["damage"].path == LOG


@pytest.mark.parametrize("bit", [BASE_OFFSET[0], LENGTH[3], MAGIC[7]])
def test_lookups_by_time_do_not_skip_it(files: SimulatedFiles, bit: int) -> None:
    log = damaged(files, bit)
    with pytest.raises(DamagedSegment):
        offset_for_timestamp(log, NOW_MS + DAMAGED, log.end_offset)
    later = log.segments[1].base_offset // RECORDS
    found = offset_for_timestamp(log, NOW_MS + later, log.end_offset)
    assert found is not None and found.offset == later * RECORDS
    assert offset_of_max_timestamp(log) is not None


def test_retention_goes_on_in_a_damaged_log(files: SimulatedFiles) -> None:
    log = damaged(files, LENGTH[3])
    now_ms = NOW_MS + CONFIG.retention_ms + BATCHES // 2
    assert next_due_ms(log) is not None
    assert old_segments(log, now_ms, log.end_offset) >= 1
    log.delete_segments(1, now_ms)
    assert log.damage is None  # with the segment, the damage is gone


@pytest.mark.parametrize("is_index_there", [True, False])
def test_an_index_is_not_given_up_for_a_damaged_batch(files: SimulatedFiles, is_index_there: bool) -> None:
    if not is_index_there:
        files.remove(LOG.replace(".log", ".index"))
    log = damaged(files, BASE_OFFSET[63])
    entries = len(log.segments[0].offsets)
    for offset in range(log.segments[1].base_offset):
        try:
            log.read(offset, 1, log.end_offset)
        except DamagedSegment as damage:
            assert offset >= DAMAGED * RECORDS, damage
    assert len(log.segments[0].offsets) == entries


@pytest.mark.parametrize("bit", [*LENGTH, *MAGIC, *BASE_OFFSET])
def test_damage_in_the_newest_batch_does_not_move_the_end_of_a_log_that_was_closed_cleanly(
    files: SimulatedFiles, bit: int
) -> None:
    names = [entry.name for entry in files.list(D) if entry.name.endswith(".log") and entry.size]
    path = f"{D}/{max(names)}"
    flip(files, positions(files, path)[-1], bit, path)
    data = files.read(path)
    log = opened(files)
    assert log.end_offset == BATCHES * RECORDS
    assert files.read(path) == data  # nothing is cut: this may be the last copy
    with pytest.raises(DamagedSegment):
        log.read(log.end_offset - 1, 1 << 20, log.end_offset)
    append_values(log, b"next")
    assert log.read(BATCHES * RECORDS, 1 << 20, log.end_offset) is not None


def test_what_this_process_has_written_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only whoever first reads what was found on disk pays for a walk over its headers."""
    log = new_log(durable_disk(D), D, CONFIG)
    for _ in range(BATCHES):
        append_values(log, b"value")
    monkeypatch.setattr(Segment, "walk_over", None)
    assert list(consume(log, 1 << 20)) == list(range(BATCHES))


def test_what_was_found_on_disk_is_looked_at_once(
    files: SimulatedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(files)
    everything = list(range(BATCHES * RECORDS))
    assert list(consume(log, 1 << 20)) == everything
    monkeypatch.setattr(Segment, "walk_over", None)
    assert list(consume(log, 1 << 20)) == everything


def test_the_check_goes_through_all_logs_and_reports_what_it_finds(
    files: SimulatedFiles, caplog: pytest.LogCaptureFixture
) -> None:
    stored(files).close({})
    flip(files, positions(files)[DAMAGED], CRC[0])
    store = stored(files)
    metrics, told = Metrics(), []
    store.damages.listen(lambda name, damage: told.append((name, damage.offset)))
    config = BrokerConfig({"log.integrity.check.bytes.per.second": "1000000000"})

    async def check() -> None:
        host = RealHost(asyncio.get_running_loop())
        await IntegrityCheck(host, store, config, random.Random(0), metrics).check_all()

    with caplog.at_level(logging.INFO):
        asyncio.run(check())
    assert told == [(PARTITION, DAMAGED * RECORDS)]
    size = sum(segment.size for segment in store.logs[PARTITION].segments)
    assert 0 < metrics.checked_bytes < size
    assert caplog.records[-1].getMessage().endswith("of 1 log: 1 segment damaged")
    with pytest.raises(
        DamagedSegment
    ):  # and whoever asks for it is refused, though nobody else looks at CRCs
        store.logs[PARTITION].read(DAMAGED * RECORDS, 1 << 20, BATCHES * RECORDS)
    assert store.logs[PARTITION].read(0, 1 << 20, BATCHES * RECORDS) is not None


def test_a_mark_survives_a_restart_and_goes_with_the_log(files: SimulatedFiles) -> None:
    store = stored(files)
    assert store.mark_damaged(PARTITION) and not store.mark_damaged(PARTITION)
    store.close({})
    store = stored(files)
    assert list(store.marked) == [PARTITION]
    store.delete([PARTITION], NOW_MS)
    store.create(PARTITION, TOPIC_ID, CONFIG, NOW_MS)
    assert not store.marked
    store.close({})
    assert not stored(files).marked
