"""The choice of the log to compact, and compaction by a real worker process in a real log."""

import asyncio
import os
import random
import signal
import uuid
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import pytest

from odradek.errors import ErrorCode, KafkaError
from odradek.host.real import CleanerProcess, start_cleaner
from odradek.model import TopicPartition
from odradek.records.record import Record, build_batch, decode_batch, header_of
from odradek.storage.compaction.choice import (
    CleaningTarget,
    LogFacts,
    SegmentFacts,
    choose,
    examine,
    facts_of,
)
from odradek.storage.compaction.clean_offsets import CleanOffsets
from odradek.storage.compaction.cleaner import Cleaner, CleaningFailed, LogChanged
from odradek.storage.compaction.job import (
    CompactionJob,
    LastBatches,
    SourceSegment,
    job_from_json,
    job_to_json,
)
from odradek.storage.compaction.worker import RateLimit
from odradek.storage.compaction.worker import run as run_job
from odradek.storage.config import LogConfig
from odradek.storage.disk.checkpoints import CLEANER_OFFSETS
from odradek.storage.disk.files import DiskFiles
from odradek.storage.log.log import Log
from odradek.storage.store import LogStore

NOW_MS = 1_700_000_000_000
PARTITION = TopicPartition("compacted", 0)
OTHER = TopicPartition("compacted", 1)
CONFIG = LogConfig(compact=True, delete=False, segment_bytes=4096, delete_retention_ms=1000)


def facts(
    *sizes: int,
    config: LogConfig = CONFIG,
    clean_offset: int | None = None,
    last_stable_offset: int | None = None,
    timestamps: list[int] | None = None,
    log_start_offset: int = 0,
    name: str = "topic",
) -> LogFacts:
    """Segments of 100 offsets each, and an active one."""
    active = 100 * len(sizes)
    return LogFacts(
        TopicPartition(name, 0),
        config,
        [
            SegmentFacts(
                100 * index,
                size,
                timestamps[index] if timestamps else -1,
                timestamps[index] if timestamps else -1,
            )
            for index, size in enumerate(sizes)
        ],
        active,
        log_start_offset,
        active + 50,
        active + 50 if last_stable_offset is None else last_stable_offset,
        clean_offset,
    )


def test_without_a_checkpoint_all_is_dirty() -> None:
    target = examine(facts(10, 20, 30), NOW_MS)
    assert (target.first_dirty_offset, target.first_uncleanable_offset) == (0, 300)
    assert (target.dirty_bytes, target.dirty_ratio) == (60, 1.0)


def test_the_ratio_is_of_dirty_to_all_bytes_but_the_active_segments() -> None:
    target = examine(facts(10, 20, 30, clean_offset=200), NOW_MS)
    assert (target.first_dirty_offset, target.dirty_bytes, target.dirty_ratio) == (200, 30, 0.5)


@pytest.mark.parametrize("clean_offset", [300, 320])
def test_a_log_clean_up_to_its_active_segment_is_left_alone(clean_offset: int) -> None:
    cleaned = facts(10, 20, 30, clean_offset=clean_offset)
    assert examine(cleaned, NOW_MS).dirty_bytes == 0
    assert choose([cleaned], NOW_MS) is None


@pytest.mark.parametrize("clean_offset", [10, 351])
def test_a_checkpoint_outside_of_the_log_is_not_believed(clean_offset: int) -> None:
    target = examine(facts(10, 20, 30, clean_offset=clean_offset, log_start_offset=50), NOW_MS)
    assert target.first_dirty_offset == 50


def test_what_is_not_stable_is_not_cleaned() -> None:
    target = examine(facts(10, 20, 30, last_stable_offset=199), NOW_MS)
    assert (target.first_uncleanable_offset, target.dirty_bytes) == (100, 10)


def test_what_is_younger_than_the_minimal_lag_is_not_cleaned() -> None:
    config = LogConfig(compact=True, min_compaction_lag_ms=1000)
    timestamps = [NOW_MS - 5000, NOW_MS - 999, NOW_MS - 3000]
    target = examine(facts(10, 20, 30, config=config, timestamps=timestamps), NOW_MS)
    assert (target.first_uncleanable_offset, target.dirty_bytes) == (100, 10)


def test_what_waited_longer_than_the_maximal_lag_is_cleaned_whatever_its_ratio() -> None:
    config = LogConfig(compact=True, max_compaction_lag_ms=1000)
    timestamps = [NOW_MS - 5000, NOW_MS - 1000]
    assert choose([facts(90, 10, config=config, clean_offset=100, timestamps=timestamps)], NOW_MS) is None
    target = choose([facts(90, 10, config=config, clean_offset=100, timestamps=timestamps)], NOW_MS + 1)
    assert target is not None and target.overdue


def test_the_filthiest_log_is_chosen() -> None:
    logs = [
        facts(50, 50, clean_offset=100, name="not above the minimal ratio"),
        facts(40, 60, clean_offset=100, name="dirty"),
        facts(10, 90, clean_offset=100, name="filthy"),
        facts(100, config=LogConfig(compact=False), name="not compacted"),
        facts(name="empty"),
    ]
    target = choose(logs, NOW_MS)
    assert target is not None and target.partition.topic == "filthy"
    assert choose(logs[:1] + logs[3:], NOW_MS) is None


def test_a_job_survives_its_way_to_the_worker() -> None:
    job = CompactionJob(
        "/somewhere",
        [SourceSegment(0, 10), SourceSegment(5, 20)],
        3,
        9,
        NOW_MS,
        CONFIG,
        {1: LastBatches((3, 4), 0), 2: LastBatches((), 7)},
        1000,
    )
    assert job_from_json(job_to_json(job, 1.0)) == job


def test_the_rate_limit_sleeps_off_what_was_spent() -> None:
    now, slept = 0.0, 0.0

    def sleep(seconds: float) -> None:
        nonlocal now, slept
        now += seconds
        slept += seconds

    limit = RateLimit(1000, clock=lambda: now, sleep=sleep)
    for _ in range(100):
        limit(100)
    assert slept == pytest.approx(10.0)
    now += 100
    limit(1000)
    assert slept == pytest.approx(11.0)


def test_clean_offsets_survive(tmp_path: Path) -> None:
    offsets = CleanOffsets(DiskFiles(), str(tmp_path))
    offsets.note(PARTITION, 50)
    assert CleanOffsets(DiskFiles(), str(tmp_path)).offsets == {PARTITION: 50}
    offsets.forget(PARTITION)
    assert offsets.offsets == {}
    offsets.note(OTHER, 3)
    assert CleanOffsets(DiskFiles(), str(tmp_path)).offsets == {OTHER: 3}
    (tmp_path / CLEANER_OFFSETS).write_text("nonsense")
    assert CleanOffsets(DiskFiles(), str(tmp_path)).offsets == {}


def test_a_worker_without_its_broker_ends_before_it_writes(tmp_path: Path) -> None:
    batch = build_batch([Record(0, NOW_MS, b"key", b"value")])
    (tmp_path / "00000000000000000000.log").write_bytes(batch)
    job = CompactionJob(str(tmp_path), [SourceSegment(0, len(batch))], 0, 1, NOW_MS, CONFIG)
    with pytest.raises(SystemExit):
        run_job(DiskFiles(), job_to_json(job, 1e9), lambda message: None, parent=os.getppid() + 1)
    assert os.listdir(tmp_path) == ["00000000000000000000.log"]


# With a worker


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LogStore]:
    store = LogStore.open(DiskFiles(), str(tmp_path), NOW_MS, lambda topic: CONFIG, random.Random(1))
    yield store
    store.release()


@pytest.fixture
def log(store: LogStore) -> Log:
    log = store.create(PARTITION, uuid.UUID(int=7), CONFIG, NOW_MS)
    fill(log)
    return log


def fill(log: Log, count: int = 300) -> None:
    for index in range(count):
        record = Record(0, NOW_MS + index, b"key-%d" % (index % 20), b"value-%d" % index * 10)
        batch = build_batch([record])
        log.append_as_leader(batch, header_of(batch), 0, NOW_MS)


def read_all(log: Log) -> list[Record]:
    """Read as consumers do: ask for the offset after the last one got."""
    records: list[Record] = []
    offset = log.log_start_offset
    while (piece := log.read(offset, 1 << 20, log.end_offset)) is not None:
        data = memoryview(piece.file.read_at(piece.position, piece.length))
        while data:
            header = header_of(data)
            records += decode_batch(data, header)
            offset, data = header.next_offset, data[header.size :]
    return records


def target_of(log: Log) -> CleaningTarget:
    target = choose([facts_of(log, log.end_offset, None)], NOW_MS)
    assert target is not None
    return target


def run(work: Callable[[Cleaner], Coroutine[None, None, None]]) -> None:
    async def with_cleaner() -> None:
        cleaner = Cleaner(DiskFiles(), start_cleaner)
        try:
            await work(cleaner)
        finally:
            await cleaner.stop()

    asyncio.run(with_cleaner())


def cleaned_files(log: Log) -> list[str]:
    return [name for name in os.listdir(log.directory) if ".cleaned" in name or ".swap" in name]


def check_compacted(log: Log, before: list[Record], clean_until: int) -> None:
    latest = {record.key: record.offset for record in before if record.offset < clean_until}
    expected = [
        record for record in before if record.offset >= clean_until or latest[record.key] == record.offset
    ]
    assert read_all(log) == expected
    assert cleaned_files(log) == []


def test_the_worker_compacts_a_log_that_is_written_to(log: Log) -> None:
    before = read_all(log)

    async def work(cleaner: Cleaner) -> None:
        target = target_of(log)
        stats = await cleaner.clean(log, target, NOW_MS)
        assert stats.end_offset == target.first_uncleanable_offset == log.active.base_offset
        check_compacted(log, before, stats.end_offset)
        fill(log)
        again = await cleaner.clean(log, target_of(log), NOW_MS)
        check_compacted(log, sorted({*before, *read_all(log)}), again.end_offset)

    run(work)
    assert [record.offset for record in read_all(log)][-1] == 599


def test_a_round_removes_what_an_earlier_one_could_not(log: Log) -> None:
    """After a crash it would look as if this round was not finished, and its new segments would be thrown away."""
    before = read_all(log)
    Path(log.directory, "00000000000000000001.log.cleaned").write_bytes(b"")
    Path(log.directory, "00000000000000000001.index.cleaned").write_bytes(b"")

    async def work(cleaner: Cleaner) -> None:
        stats = await cleaner.clean(log, target_of(log), NOW_MS)
        check_compacted(log, before, stats.end_offset)

    run(work)


def test_the_compacted_log_opens_again(store: LogStore, log: Log, tmp_path: Path) -> None:
    async def work(cleaner: Cleaner) -> None:
        await cleaner.clean(log, target_of(log), NOW_MS)

    run(work)
    records = read_all(log)
    log.sync()
    store.release()
    again = LogStore.open(DiskFiles(), str(tmp_path), NOW_MS, lambda topic: CONFIG, random.Random(1))
    try:
        assert read_all(again.logs[PARTITION]) == records
        assert again.logs[PARTITION].end_offset == 300
    finally:
        again.release()
        store._lock = DiskFiles().lock(f"{tmp_path}/.lock")


def idempotent(sequence: int) -> bytearray:
    record = Record(0, NOW_MS, b"key-0", b"value")
    return build_batch([record], producer_id=7, producer_epoch=0, base_sequence=sequence)


def test_a_producer_may_repeat_its_last_five_batches_after_compaction_and_a_crash(
    store: LogStore, tmp_path: Path
) -> None:
    """Later records replace all that the producer wrote, and without a recovery point no producer snapshot counts."""
    log = store.create(PARTITION, uuid.UUID(int=7), CONFIG, NOW_MS)
    for sequence in range(7):
        batch = idempotent(sequence)
        log.append_as_leader(batch, header_of(batch), 0, NOW_MS)
    fill(log)

    async def work(cleaner: Cleaner) -> None:
        await cleaner.clean(log, target_of(log), NOW_MS)

    run(work)
    log.sync()
    store.release()
    again = LogStore.open(DiskFiles(), str(tmp_path), NOW_MS, lambda topic: CONFIG, random.Random(1))
    try:
        recovered = again.logs[PARTITION]
        assert not [record for record in read_all(recovered) if record.offset < 7]
        offsets = []
        for sequence in range(2, 7):
            batch = idempotent(sequence)
            offsets.append(recovered.append_as_leader(batch, header_of(batch), 0, NOW_MS).base_offset)
        assert offsets == [2, 3, 4, 5, 6]
        assert recovered.end_offset == 307
        batch = idempotent(1)
        with pytest.raises(KafkaError) as refused:
            recovered.append_as_leader(batch, header_of(batch), 0, NOW_MS)
        assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    finally:
        again.release()
        store._lock = DiskFiles().lock(f"{tmp_path}/.lock")


def test_a_worker_that_dies_costs_only_its_round(log: Log) -> None:
    before = read_all(log)

    async def work(cleaner: Cleaner) -> None:
        cleaner.bytes_per_second = 2000  # so that the round lasts until the process is killed
        task = asyncio.create_task(cleaner.clean(log, target_of(log), NOW_MS))
        while cleaner._worker is None:
            await asyncio.sleep(0)
        assert isinstance(cleaner._worker, CleanerProcess)
        os.kill(cleaner._worker.pid, signal.SIGKILL)
        with pytest.raises(CleaningFailed):
            await task
        assert read_all(log) == before
        assert cleaned_files(log) == []
        assert cleaner.uncleanable == {}
        cleaner.bytes_per_second = 1e9
        stats = await cleaner.clean(log, target_of(log), NOW_MS)
        check_compacted(log, before, stats.end_offset)

    run(work)


def test_an_idle_worker_that_died_is_replaced(log: Log) -> None:
    async def work(cleaner: Cleaner) -> None:
        await cleaner.clean(log, target_of(log), NOW_MS)
        process = cleaner._worker
        assert process is not None
        process.kill()
        await process.wait()
        fill(log)
        await cleaner.clean(log, target_of(log), NOW_MS)

    run(work)


def test_aborting_fails_the_round_of_that_partition_alone(log: Log) -> None:
    async def work(cleaner: Cleaner) -> None:
        cleaner.bytes_per_second = 2000
        task = asyncio.create_task(cleaner.clean(log, target_of(log), NOW_MS))
        while cleaner._worker is None:
            await asyncio.sleep(0)
        cleaner.abort(TopicPartition("another", 0))
        assert not cleaner._worker.has_ended
        cleaner.abort(PARTITION)
        with pytest.raises(CleaningFailed):
            await task

    run(work)


def test_a_cancelled_round_leaves_nothing(log: Log) -> None:
    before = read_all(log)

    async def work(cleaner: Cleaner) -> None:
        cleaner.bytes_per_second = 2000
        task = asyncio.create_task(cleaner.clean(log, target_of(log), NOW_MS))
        while cleaner._worker is None:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(work)
    assert read_all(log) == before
    assert cleaned_files(log) == []


def test_a_log_that_was_cut_meanwhile_keeps_what_it_has(log: Log) -> None:
    async def work(cleaner: Cleaner) -> None:
        task = asyncio.create_task(cleaner.clean(log, target_of(log), NOW_MS))
        while cleaner._worker is None:
            await asyncio.sleep(0)
        log.truncate_to(5)  # one segment is left, and it is active now
        with pytest.raises(LogChanged):
            await task
        assert cleaner.uncleanable == {}

    run(work)
    assert [record.offset for record in read_all(log)] == list(range(5))
    assert cleaned_files(log) == []


def test_a_damaged_log_is_given_up_with_the_reason(log: Log) -> None:
    path = log.segments[0].log.path
    data = bytearray(Path(path).read_bytes())
    data[200] ^= 1
    Path(path).write_bytes(data)

    async def work(cleaner: Cleaner) -> None:
        with pytest.raises(CleaningFailed):
            await cleaner.clean(log, target_of(log), NOW_MS)
        assert list(cleaner.uncleanable) == [PARTITION]
        assert "CRC" in cleaner.uncleanable[PARTITION]
        cleaner.forget(PARTITION)
        assert cleaner.uncleanable == {}

    run(work)
    assert Path(path).read_bytes() == data
