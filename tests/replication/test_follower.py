"""A follower: what it takes from its leader, where it cuts its log, when it asks for more."""

from itertools import pairwise
from random import Random
from typing import Any

import pytest

from odradek.errors import ErrorCode, KafkaError
from odradek.replication.follower import Follower
from odradek.replication.settings import ReplicaSettings
from odradek.storage.disk.simulated import SimulatedFiles
from odradek.storage.log.log import Log
from odradek.storage.log.reading import read_batches
from tests.replication.fakes import NAME, registration
from tests.storage.batches import NOW_MS, append_values, new_log


def log_with(*epochs: tuple[int, int]) -> Log:
    """A log with so many records of each epoch, synced."""
    log = new_log(SimulatedFiles(), "/data/t-0")
    for epoch, count in epochs:
        for number in range(count):
            append_values(log, b"%d of %d" % (number, epoch), epoch=epoch)
    log.sync()
    return log


def leader_with(*epochs: tuple[int, int]) -> Log:
    """The log of a leader, whose own epoch is newer than all that anybody has seen."""
    log = log_with(*epochs)
    log.leader_epochs.begin(99, log.end_offset)
    return log


def follow(log: Log, *, high_watermark: int = 0, told: list[Any] | None = None) -> Follower:
    appended = (lambda: told.append("appended")) if told is not None else (lambda: None)
    registered = registration(leader=2, leader_epoch=9, replicas=(1, 2), isr=(1, 2))
    return Follower(
        NAME, log, ReplicaSettings(), registered, high_watermark=high_watermark, appended=appended
    )


def bytes_from(log: Log, offset: int) -> bytes:
    return b"".join(
        bytes(batch) for piece in read_batches(log) for header, batch in piece if header.base_offset >= offset
    )


def fetch(follower: Follower, leader: Log) -> bool:
    """One round, as the leader answers a Fetch. False once there is nothing more."""
    offset, last_epoch = follower.fetch_offset, follower.last_fetched_epoch
    if last_epoch >= 0:
        epoch, end_offset = leader.leader_epochs.end_offset_for(last_epoch, leader.end_offset)
        if epoch < last_epoch or end_offset < offset:
            follower.truncate(epoch, end_offset, leader.log_start_offset)
            return True
    if offset == leader.end_offset:
        return False
    follower.append(bytes_from(leader, offset), NOW_MS)
    follower.log.sync()
    return True


def test_takes_batches_with_the_offsets_and_epochs_that_they_have() -> None:
    leader, told = log_with((0, 2), (3, 2)), []
    follower = follow(log_with(), told=told)
    follower.append(bytes_from(leader, 0), NOW_MS)
    assert told == ["appended"], "whoever syncs the log hears of it"
    assert bytes_from(follower.log, 0) == bytes_from(leader, 0)
    assert follower.log.leader_epochs.entries == [(0, 0), (3, 2)]


def test_asks_for_more_only_once_its_log_is_on_disk() -> None:
    leader, told = log_with((0, 2)), []
    follower = follow(log_with())
    assert (follower.may_fetch, follower.fetch_offset, follower.last_fetched_epoch) == (True, 0, -1)
    follower.append(bytes_from(leader, 0), NOW_MS)
    assert not follower.may_fetch
    follower.when_synced(told.append)
    follower.log_synced()
    assert told == []
    follower.log.sync()
    follower.log_synced()
    assert told == [ErrorCode.NONE]
    assert (follower.fetch_offset, follower.last_fetched_epoch) == (2, 0)


def test_where_commits_are_not_synced_it_asks_at_once() -> None:
    follower = follow(log_with())
    follower.configure(ReplicaSettings(sync_commit=False))
    follower.append(bytes_from(log_with((0, 2)), 0), NOW_MS)
    assert follower.fetch_offset == 2


def test_an_epoch_that_it_led_without_appending_leaves_no_trace() -> None:
    log = log_with((2, 3))
    log.leader_epochs.begin(5, log.end_offset)
    assert follow(log).last_fetched_epoch == 2


def test_knows_no_more_to_be_committed_than_it_has() -> None:
    follower = follow(log_with((0, 4)), high_watermark=1)
    follower.learn_high_watermark(3)
    assert follower.high_watermark == 3
    follower.learn_high_watermark(2)
    assert follower.high_watermark == 3, "an older response came late"
    follower.learn_high_watermark(9)
    assert follower.high_watermark == 4


@pytest.mark.parametrize(
    ("ours", "theirs", "cuts"),
    [
        # The same epoch, and the leader has less of it.
        ([(0, 2), (1, 3)], [(0, 2), (1, 1), (4, 2)], [3]),
        # KIP-101: ours is an epoch that the leader never saw.
        ([(0, 2), (1, 3)], [(0, 2), (2, 4)], [2]),
        # KIP-279: fast leader changes; each knows an epoch that the other does not.
        ([(0, 2), (1, 2), (3, 2)], [(0, 1), (2, 5)], [4, 1]),
        ([(0, 3), (2, 2)], [(0, 2), (1, 2), (4, 1)], [3, 2]),
        # Nothing is in common.
        ([(1, 3)], [(2, 3)], [0]),
        # Nothing has parted.
        ([(0, 2)], [(0, 2), (1, 2)], []),
    ],
)
def test_is_cut_where_the_logs_have_parted(
    ours: list[tuple[int, int]], theirs: list[tuple[int, int]], cuts: list[int]
) -> None:
    leader, follower = leader_with(*theirs), follow(log_with(*ours))
    ends = [follower.log.end_offset]
    while fetch(follower, leader):
        ends.append(follower.log.end_offset)
    assert [end for before, end in pairwise(ends) if end < before] == cuts
    assert bytes_from(follower.log, 0) == bytes_from(leader, 0)
    assert follower.log.leader_epochs.entries == leader.leader_epochs.entries[:-1]


@pytest.mark.parametrize("seed", range(40))
def test_becomes_a_copy_of_any_leader(seed: int) -> None:
    """Two logs of one history: what both have up to some offset, then epochs of their own."""
    rng = Random(seed)
    common = [(epoch, rng.randrange(1, 4)) for epoch in sorted(rng.sample(range(10), rng.randrange(4)))]
    later = rng.sample(range(10, 30), 8)
    ours, theirs = sorted(later[:4])[: rng.randrange(5)], sorted(later[4:])[: rng.randrange(1, 5)]
    leader = leader_with(*common, *((epoch, rng.randrange(1, 4)) for epoch in theirs))
    follower = follow(log_with(*common, *((epoch, rng.randrange(1, 4)) for epoch in ours)))
    committed = sum(count for _, count in common)
    follower.learn_high_watermark(committed)
    for _ in range(20):
        more = fetch(follower, leader)
        assert follower.log.end_offset >= committed, "what both have is never cut"
        if not more:
            break
    assert bytes_from(follower.log, 0) == bytes_from(leader, 0)
    assert follower.high_watermark == committed


def test_a_cut_below_the_high_watermark_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """Only after an election of a replica that was not in sync."""
    follower = follow(log_with((0, 5)), high_watermark=4)
    follower.truncate(0, 2, 0)
    assert (follower.log.end_offset, follower.high_watermark) == (2, 2)
    assert "though all below 4 was committed" in caplog.text


def test_keeps_nothing_where_the_leader_has_deleted_the_place_at_which_the_logs_parted() -> None:
    """They did at 2, but the leader's log starts at 4 now, and knows only of epochs from there on."""
    leader = log_with((0, 2), (1, 5))
    leader.delete_records_before(4)
    follower = follow(log_with((0, 6)))
    while fetch(follower, leader):
        pass
    assert follower.log.log_start_offset == 4
    assert bytes_from(follower.log, 0) == bytes_from(leader, 4)


def test_a_log_that_starts_over_in_the_middle_of_a_batch_has_all_of_it() -> None:
    """The leader's log start, which follows, hides the first records of the batch again."""
    leader = log_with()
    append_values(leader, b"0", b"1", b"2", b"3", epoch=1)
    leader.delete_records_before(2)
    follower = follow(log_with())
    follower.start_over(2)
    follower.append(bytes_from(leader, 0), NOW_MS)
    follower.learn_high_watermark(4)
    assert bytes_from(follower.log, 0) == bytes_from(leader, 0)
    assert (follower.log.end_offset, follower.high_watermark) == (4, 4)
    assert follower.has_to_start_at(2) and not follower.has_to_start_at(5)


def test_a_log_with_records_takes_no_batch_that_begins_before_its_end() -> None:
    leader, follower = log_with((0, 3)), follow(log_with((0, 2)))
    with pytest.raises(KafkaError, match="starts at offset 0"):
        follower.append(bytes_from(leader, 0), NOW_MS)
    assert follower.log.end_offset == 2


def test_a_leader_that_does_not_know_where_to_cut_cuts_nothing() -> None:
    follower = follow(log_with((0, 2)))
    with pytest.raises(KafkaError):
        follower.truncate(-1, -1, 0)
    assert follower.log.end_offset == 2


def test_after_its_epoch_it_takes_and_cuts_nothing() -> None:
    follower, told = follow(log_with((0, 2))), []
    follower.append(bytes_from(log_with((0, 3)), 2), NOW_MS)
    follower.when_synced(told.append)
    follower.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    follower.when_synced(told.append)
    assert told == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
    with pytest.raises(KafkaError):
        follower.append(bytes_from(log_with((0, 4)), 3), NOW_MS)
    with pytest.raises(KafkaError):
        follower.truncate(0, 0, 0)
    assert follower.log.end_offset == 3


def test_who_waits_for_the_high_watermark_is_told_when_it_moves() -> None:
    follower, told = follow(log_with((0, 5))), []
    follower.when_high_watermark_moves(told.append)
    follower.learn_high_watermark(0)
    assert told == []
    follower.learn_high_watermark(3)
    assert told == [ErrorCode.NONE]
    follower.learn_high_watermark(4)
    assert told == [ErrorCode.NONE], "once for each wait"
    follower.when_high_watermark_moves(told.append)
    follower.forget_waiter(told.append)
    follower.learn_high_watermark(5)
    assert told == [ErrorCode.NONE]


def test_who_waits_for_the_high_watermark_is_told_of_the_end() -> None:
    follower, told = follow(log_with((0, 5))), []
    follower.when_high_watermark_moves(told.append)
    follower.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    follower.when_high_watermark_moves(told.append)
    assert told == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2


def test_who_waits_at_a_log_that_starts_over_is_told() -> None:
    follower, told = follow(log_with((0, 5))), []
    follower.when_high_watermark_moves(told.append)
    follower.start_over(100)
    assert told == [ErrorCode.NONE]
    assert follower.high_watermark == 100


def test_it_has_caught_up_once_it_has_what_the_leader_said_was_committed() -> None:
    follower = follow(log_with((0, 5)))
    assert not follower.is_caught_up, "the leader has said nothing yet"
    follower.learn_high_watermark(6)
    assert not follower.is_caught_up
    follower.learn_high_watermark(5)
    assert follower.is_caught_up


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(8, ErrorCode.FENCED_LEADER_EPOCH), (10, ErrorCode.UNKNOWN_LEADER_EPOCH), (9, None), (-1, None)],
)
def test_clients_that_know_another_leader_epoch_are_refused(epoch: int, code: ErrorCode | None) -> None:
    follower = follow(log_with((0, 5)))
    if code is None:
        follower.check_leader_epoch(epoch)
        return
    with pytest.raises(KafkaError) as refusal:
        follower.check_leader_epoch(epoch)
    assert refusal.value.code is code


def test_a_batch_in_whose_middle_the_leader_now_starts_replaces_what_it_has_deleted() -> None:
    """The leader's log starts where ours ends, with the middle of a batch of a newer epoch. It no longer knows that the
    logs had parted before: seed 201285."""
    leader = log_with()
    append_values(leader, b"a", b"b", b"c", b"d", epoch=1)
    leader.sync()
    follower = follow(log_with((0, 2)))
    with pytest.raises(KafkaError, match="starts at offset 0, but the log ends at 2"):
        follower.append(bytes_from(leader, 0), NOW_MS)
    follower.append(bytes_from(leader, 0), NOW_MS, leader_start_offset=2)
    assert bytes_from(follower.log, 0) == bytes_from(leader, 0)
    assert follower.log.leader_epochs.entries == [(1, 0)]
