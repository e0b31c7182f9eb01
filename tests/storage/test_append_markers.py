"""Markers appended together are stored, answered and remembered as if they had been appended one by one."""

import random

from odradek.errors import ErrorCode, KafkaError
from odradek.records.batch import read_header
from odradek.storage.config import LogConfig
from odradek.storage.disk.simulated import SimulatedFiles
from odradek.storage.log.log import Log
from odradek.storage.log.marker_run import marker_batch, marker_of
from odradek.storage.producers.markers import TransactionEnd
from tests.storage.batches import NOW_MS, append, batches_of, make_batch, new_log

VERSION = 2


def begin(log: Log, producer_id: int, epoch: int) -> None:
    batch = make_batch(
        [b"x"], producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True
    )
    append(log, batch)


def end_of(
    producer_id: int, epoch: int, *, is_commit: bool = True, coordinator_epoch: int = 3
) -> TransactionEnd:
    return TransactionEnd(producer_id, epoch, coordinator_epoch, is_commit, VERSION)


def one_by_one(log: Log, ends: list[TransactionEnd]) -> list[object]:
    results: list[object] = []
    for end in ends:
        try:
            if log.producers.is_repeated_marker(end.producer_id, end.producer_epoch, VERSION):
                results.append(log.end_offset - 1)
                continue
            batch = marker_batch(end, NOW_MS)
            header, marker = read_header(batch), marker_of(end)
            appended = log.append_as_leader(batch, header, 0, NOW_MS, False, None, marker)
            results.append(appended.last_offset)
        except KafkaError as error:
            results.append(error.code)
    return results


def comparable(results: list[int | KafkaError] | None) -> list[object] | None:
    if results is None:
        return None
    return [each.code if isinstance(each, KafkaError) else each for each in results]


def state(log: Log) -> object:
    producers = {
        producer_id: (producer.epoch, producer.coordinator_epoch, producer.transaction_first_offset)
        for producer_id, producer in log.producers.by_id.items()
    }
    return log.end_offset, producers, log.producers.open_transactions, log.producers.ended, batches_of(log)


def test_together_is_as_one_by_one() -> None:
    """Some end what is open, some come again, some of a fenced coordinator or with an epoch of the past."""
    rng = random.Random(7)
    together, single = [new_log(SimulatedFiles(), "/log", LogConfig()) for _ in range(2)]
    epochs = dict.fromkeys(range(1, 9), 0)
    for log in (together, single):
        begin(log, 1, 0)
    for _ in range(40):
        for producer_id in rng.sample(range(1, 9), 4):
            if together.producers.by_id.get(
                producer_id
            ) is None or not together.producers.has_open_transaction(producer_id, epochs[producer_id]):
                for log in (together, single):
                    begin(log, producer_id, epochs[producer_id])
        ends = []
        for producer_id in rng.sample(range(1, 9), 5):
            epoch = epochs[producer_id] + rng.choice([1, 1, 1, 0, -1])
            ends.append(end_of(producer_id, max(epoch, 0), coordinator_epoch=rng.choice([3, 3, 3, 2])))
        results = comparable(together.append_markers_as_leader(ends, 0, NOW_MS))
        assert results == one_by_one(single, ends)
        assert state(together) == state(single)
        for producer_id, producer in together.producers.by_id.items():
            epochs[producer_id] = producer.epoch


def test_one_write_for_all() -> None:
    log = new_log(SimulatedFiles(), "/log")
    for producer_id in (1, 2, 3):
        begin(log, producer_id, 0)
    size, writes = log.size_bytes, []
    file = log.active.log
    write_at = type(file).write_at

    class Counted:
        def __getattr__(self, name: str) -> object:
            return getattr(file, name)

        def write_at(self, position: int, data: bytes) -> None:
            writes.append(len(data))
            write_at(file, position, data)

    log.active.log = Counted()  # type: ignore[assignment]
    assert log.append_markers_as_leader([end_of(each, 1) for each in (1, 2, 3)], 0, NOW_MS) == [3, 4, 5]
    assert writes == [log.size_bytes - size]
    assert not log.producers.open_transactions


def test_some_have_to_be_appended_one_by_one() -> None:
    """Aborts have an index, and a producer's second end depends on its first."""
    log = new_log(SimulatedFiles(), "/log")
    begin(log, 1, 0)
    begin(log, 2, 0)
    before = state(log)
    assert log.append_markers_as_leader([end_of(1, 1), end_of(2, 1, is_commit=False)], 0, NOW_MS) is None
    assert log.append_markers_as_leader([end_of(1, 1), end_of(1, 2)], 0, NOW_MS) is None
    assert log.append_markers_as_leader([end_of(1, 1), end_of(2, 1)], 1, NOW_MS) is None, "a new leader epoch"
    assert state(log) == before


def test_what_cannot_be_written_changes_nothing() -> None:
    log = new_log(SimulatedFiles(), "/log")
    begin(log, 1, 0)
    begin(log, 2, 0)
    before, file = state(log), log.active.log

    class Full:
        def __getattr__(self, name: str) -> object:
            return getattr(file, name)

        def write_at(self, position: int, data: bytes) -> None:
            raise OSError(28, "No space left on device")

    log.active.log = Full()  # type: ignore[assignment]
    assert log.append_markers_as_leader([end_of(1, 1), end_of(2, 1)], 0, NOW_MS) is None
    log.active.log = file
    assert state(log) == before
    assert comparable(log.append_markers_as_leader([end_of(1, 0), end_of(2, 1)], 0, NOW_MS)) == [
        ErrorCode.INVALID_PRODUCER_EPOCH,
        2,
    ]
