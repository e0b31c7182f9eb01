"""Batches appended together are stored, answered and remembered as if they had been appended one by one."""

import random

import pytest

from odradek.errors import ErrorCode, KafkaError
from odradek.records.batch import read_header
from odradek.storage.config import LogConfig
from odradek.storage.disk.simulated import SimulatedFiles
from odradek.storage.log.log import Log
from odradek.storage.log.run import AppendResult
from tests.storage.batches import NOW_MS, append, batches_of, make_batch, new_log, reopen

CONFIGS = {
    "large segments": LogConfig(),
    "small segments": LogConfig(segment_bytes=2_000, index_interval_bytes=100),
    "small indexes": LogConfig(index_interval_bytes=100, segment_index_bytes=160),
    "short segments": LogConfig(segment_ms=500),
    "every batch indexed": LogConfig(index_interval_bytes=0),
    "every batch indexed, small indexes": LogConfig(index_interval_bytes=0, segment_index_bytes=160),
}


def random_run(rng: random.Random, sequences: dict[int, int]) -> list[bytearray]:
    """Batches of three producers and of none: mostly in sequence, at times repeated, at times with a gap."""
    run: list[bytearray] = []
    for _ in range(rng.randrange(1, 12)):
        values = [rng.randbytes(rng.randrange(60)) for _ in range(rng.randrange(1, 4))]
        timestamp = NOW_MS + rng.randrange(1000)
        producer_id = rng.choice([-1, 7, 8, 9])
        if producer_id < 0:
            run.append(make_batch(values, timestamps=timestamp))
            continue
        sequence = sequences.get(producer_id, 0) + rng.choice([0, 0, 0, 0, 5])
        batch = make_batch(
            values, timestamps=timestamp, producer_id=producer_id, producer_epoch=0, base_sequence=sequence
        )
        if sequence == sequences.get(producer_id, 0):
            sequences[producer_id] = sequence + len(values)
        run += [batch, bytearray(batch)] if rng.random() < 0.2 else [batch]
    return run


def together(log: Log, run: list[bytearray]) -> list[AppendResult | KafkaError]:
    batches = [(memoryview(batch), read_header(batch)) for batch in run]
    return log.append_all_as_leader(batches, 0, NOW_MS)


def one_by_one(log: Log, run: list[bytearray]) -> list[AppendResult | KafkaError]:
    responses: list[AppendResult | KafkaError] = []
    for batch in run:
        try:
            responses.append(append(log, batch))
        except KafkaError as error:
            responses.append(error)
    return responses


def comparable(responses: list[AppendResult | KafkaError]) -> list[object]:
    return [response.code if isinstance(response, KafkaError) else response for response in responses]


def state(log: Log) -> object:
    producers = {
        producer_id: (producer.epoch, producer.batches, producer.last_timestamp)
        for producer_id, producer in log.producers.by_id.items()
    }
    segments = [
        (
            segment.base_offset,
            segment.size,
            segment.max_timestamp,
            segment.max_timestamp_offset,
            [segment.offsets[slot] for slot in range(len(segment.offsets))],
            [segment.times[slot] for slot in range(len(segment.times))],
        )
        for segment in log.segments
    ]
    return log.end_offset, producers, segments, batches_of(log)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_together_is_as_one_by_one(seed: int, config: LogConfig) -> None:
    rng = random.Random(seed)
    logs = [new_log(SimulatedFiles(), "/log", config) for _ in range(2)]
    sequences: dict[int, int] = {}
    for _ in range(15):
        run = random_run(rng, sequences)
        copies = [bytearray(batch) for batch in run]
        assert comparable(together(logs[0], run)) == comparable(one_by_one(logs[1], copies))
        assert state(logs[0]) == state(logs[1])


def test_one_write_for_all() -> None:
    files = SimulatedFiles()
    log = new_log(files, "/log")
    append(log, make_batch())
    writes: list[int] = []
    write_at = log.active.log.write_at

    class Counted:
        def __getattr__(self, name: str) -> object:
            return getattr(file, name)

        def write_at(self, position: int, data: bytes) -> None:
            writes.append(len(data))
            write_at(position, data)

    file, log.active.log = log.active.log, Counted()  # type: ignore[assignment]
    run = [make_batch([b"a" * size]) for size in (10, 20, 30)]
    responses = together(log, run)
    assert writes == [sum(map(len, run))]
    assert [response.base_offset for response in responses if isinstance(response, AppendResult)] == [1, 2, 3]


@pytest.mark.parametrize("fitting", range(6))
def test_on_a_full_disk_those_that_fit_are_stored(fitting: int) -> None:
    files = SimulatedFiles()
    log = new_log(files, "/log")
    producer = {"producer_id": 7, "producer_epoch": 0}
    append(log, make_batch(base_sequence=0, **producer))
    run = [make_batch([b"x" * 50], base_sequence=sequence, **producer) for sequence in range(1, 6)]
    files.free_bytes = fitting * len(run[0]) + len(run[0]) // 2 if fitting < 5 else None
    responses = together(log, run)
    assert [response.base_offset for response in responses if isinstance(response, AppendResult)] == list(
        range(1, fitting + 1)
    )
    assert {response.code for response in responses if isinstance(response, KafkaError)} <= {
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    }
    files.free_bytes = None
    again = together(log, [bytearray(batch) for batch in run[fitting:]])
    assert all(isinstance(response, AppendResult) and not response.duplicate for response in again)
    log.sync()
    assert len(batches_of(reopen(files, "/log"))) == 6


def test_a_failed_log_takes_none_of_them() -> None:
    log = new_log(SimulatedFiles(), "/log")
    append(log, make_batch())
    log._health.fail()
    responses = together(log, [make_batch(), make_batch()])
    assert comparable(responses) == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
