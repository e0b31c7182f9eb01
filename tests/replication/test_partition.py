"""A partition's high watermark: what it counts, whom it wakes, how waiting ends."""

from dataclasses import dataclass, field
from typing import cast

import pytest

from odradek.errors import ErrorCode, KafkaError
from odradek.model import NO_TOPIC_ID, TopicPartition
from odradek.replication.partition import Partition
from odradek.storage.epochs import LeaderEpochs
from odradek.storage.log import Log
from odradek.storage.simulated import SimulatedFiles


def no_epochs() -> LeaderEpochs:
    return LeaderEpochs(SimulatedFiles(), "/leader-epoch-checkpoint")


@dataclass
class FakeLog:
    end_offset: int = 0
    synced_offset: int = 0
    leader_epochs: LeaderEpochs = field(default_factory=no_epochs)


@pytest.fixture
def log() -> FakeLog:
    return FakeLog()


@pytest.fixture
def partition(log: FakeLog) -> Partition:
    return Partition(TopicPartition("t", 0), NO_TOPIC_ID, cast(Log, log), leader_epoch=4)


def test_counts_only_what_is_synced(partition: Partition, log: FakeLog) -> None:
    log.end_offset = 5
    partition.maybe_advance_high_watermark()
    assert partition.high_watermark == 0
    log.synced_offset = 3
    partition.maybe_advance_high_watermark()
    assert partition.high_watermark == 3


def test_counts_what_is_written_where_commits_are_not_synced(partition: Partition, log: FakeLog) -> None:
    partition.sync_commit = False
    log.end_offset = 5
    partition.maybe_advance_high_watermark()
    assert partition.high_watermark == 5


def test_never_goes_back(partition: Partition, log: FakeLog) -> None:
    log.end_offset = log.synced_offset = 5
    partition.maybe_advance_high_watermark()
    log.synced_offset = 2
    partition.maybe_advance_high_watermark()
    assert partition.high_watermark == 5


def test_wakes_who_waits_for_a_commit_in_order(partition: Partition, log: FakeLog) -> None:
    told: list[tuple[int, ErrorCode]] = []
    for offset in (1, 2, 4):
        partition.when_committed(offset, lambda error, offset=offset: told.append((offset, error)))
    log.synced_offset = 3
    partition.maybe_advance_high_watermark()
    assert told == [(1, ErrorCode.NONE), (2, ErrorCode.NONE)]
    log.synced_offset = 4
    partition.maybe_advance_high_watermark()
    assert told[2:] == [(4, ErrorCode.NONE)]


def test_tells_at_once_what_is_committed_already(partition: Partition, log: FakeLog) -> None:
    told: list[ErrorCode] = []
    partition.when_committed(0, told.append)
    assert told == [ErrorCode.NONE]


def test_wakes_readers_once(partition: Partition, log: FakeLog) -> None:
    told: list[ErrorCode] = []
    partition.when_data_arrives(told.append)
    for synced in (1, 2):
        log.synced_offset = synced
        partition.maybe_advance_high_watermark()
    assert told == [ErrorCode.NONE]


def test_a_forgotten_reader_is_not_woken(partition: Partition, log: FakeLog) -> None:
    told: list[ErrorCode] = []
    partition.when_data_arrives(told.append)
    partition.forget_data_waiter(told.append)
    log.synced_offset = 1
    partition.maybe_advance_high_watermark()
    assert told == []


def test_closing_ends_every_wait_and_those_that_come_later(partition: Partition, log: FakeLog) -> None:
    told: list[ErrorCode] = []
    partition.when_committed(1, told.append)
    partition.when_data_arrives(told.append)
    partition.close(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    partition.when_committed(9, told.append)
    assert told == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3


def test_closing_ends_the_wait_of_a_reader_that_comes_later(partition: Partition) -> None:
    told: list[ErrorCode] = []
    partition.close(ErrorCode.KAFKA_STORAGE_ERROR)
    partition.when_data_arrives(told.append)
    assert told == [ErrorCode.KAFKA_STORAGE_ERROR]


# --- waiters that act on the partition that wakes them ---


def advance(partition: Partition, log: FakeLog) -> None:
    log.synced_offset += 1
    partition.maybe_advance_high_watermark()


@pytest.mark.plants_traceback
def test_a_waiter_that_raises_keeps_no_other_from_being_told(
    partition: Partition, log: FakeLog, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []

    def broken(error: ErrorCode) -> None:
        raise ValueError("this response cannot be encoded")

    def wait() -> None:
        for name in ("first", "second"):
            partition.when_committed(1, broken)
            partition.when_committed(1, lambda _, name=name: told.append(f"{name} commit"))
            partition.when_data_arrives(lambda _, name=name: told.append(f"{name} data"))
        partition.when_data_arrives(broken)

    wait()
    advance(partition, log)
    assert told == ["first commit", "second commit", "first data", "second data"]
    assert len(caplog.records) == 3
    told.clear()
    log.synced_offset = partition.high_watermark = 0
    wait()
    partition.close(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert told == ["first commit", "second commit", "first data", "second data"]


@pytest.mark.parametrize("closing", [False, True])
def test_a_reader_whose_wait_another_one_ends_is_not_told(
    partition: Partition, log: FakeLog, closing: bool
) -> None:
    told: list[str] = []

    def last(_: ErrorCode) -> None:
        told.append("last")

    def first(_: ErrorCode) -> None:
        told.append("first")
        partition.forget_data_waiter(last)

    partition.when_data_arrives(first)
    partition.when_data_arrives(last)
    if closing:
        partition.close(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    else:
        advance(partition, log)
    assert told == ["first"]


def test_a_reader_that_waits_again_is_told_of_the_next_change(partition: Partition, log: FakeLog) -> None:
    told: list[int] = []

    def again(_: ErrorCode) -> None:
        told.append(partition.high_watermark)
        partition.when_data_arrives(again)

    partition.when_data_arrives(again)
    for _ in range(3):
        advance(partition, log)
    assert told == [1, 2, 3]


def test_a_waiter_may_close_the_partition(partition: Partition, log: FakeLog) -> None:
    """What it is told of while others are still to be told: each of those hears of it once."""
    told: list[tuple[str, ErrorCode]] = []

    def closes(error: ErrorCode) -> None:
        told.append(("closes", error))
        partition.close(ErrorCode.KAFKA_STORAGE_ERROR)

    partition.when_committed(1, closes)
    partition.when_committed(1, lambda error: told.append(("commit", error)))
    partition.when_committed(9, lambda error: told.append(("later commit", error)))
    partition.when_data_arrives(lambda error: told.append(("data", error)))
    advance(partition, log)
    failed = ErrorCode.KAFKA_STORAGE_ERROR
    assert told == [
        ("closes", ErrorCode.NONE),
        ("commit", failed),
        ("later commit", failed),
        ("data", failed),
    ]


def test_a_waiter_may_move_the_high_watermark(partition: Partition, log: FakeLog) -> None:
    told: list[tuple[str, int]] = []

    def moves(_: ErrorCode) -> None:
        told.append(("moves", partition.high_watermark))
        advance(partition, log)

    partition.when_committed(1, moves)
    partition.when_committed(1, lambda _: told.append(("first", partition.high_watermark)))
    partition.when_committed(2, lambda _: told.append(("second", partition.high_watermark)))
    partition.when_data_arrives(lambda _: told.append(("data", partition.high_watermark)))
    advance(partition, log)
    assert told == [("moves", 1), ("first", 2), ("second", 2), ("data", 2)]


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(-1, None), (4, None), (3, ErrorCode.FENCED_LEADER_EPOCH), (5, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_leader_epochs_are_fenced(partition: Partition, epoch: int, error: ErrorCode | None) -> None:
    if error is None:
        partition.check_leader_epoch(epoch)
        return
    with pytest.raises(KafkaError) as refused:
        partition.check_leader_epoch(epoch)
    assert refused.value.code is error


def test_too_few_replicas_refuse_before_anything_is_written(partition: Partition) -> None:
    partition.min_insync_replicas = 2
    with pytest.raises(KafkaError) as refused:
        partition.check_enough_replicas()
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


def test_the_leaders_epoch_begins_before_its_first_batch(partition: Partition, log: FakeLog) -> None:
    assert partition.end_offset_for_epoch(4) == (4, 0)
    assert partition.end_offset_for_epoch(3) == (3, 0)
    assert partition.end_offset_for_epoch(5) == (-1, -1)
    log.end_offset = 7
    partition.become_leader(6)
    assert partition.end_offset_for_epoch(6) == (6, 7)
    assert partition.end_offset_for_epoch(5) == (4, 7)
    assert partition.end_offset_for_epoch(4) == (4, 7)
    assert partition.end_offset_for_epoch(1) == (1, 0)
    assert partition.end_offset_for_epoch(7) == (-1, -1)
