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
