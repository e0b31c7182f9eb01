"""A leader: what it commits, whom it wakes, how waiting ends, what it knows of the other replicas."""

import pytest

from odradek.errors import ErrorCode, KafkaError
from odradek.replication.leader import Leader
from odradek.replication.settings import ReplicaSettings
from tests.replication.fakes import FakeLog, lead, registration


@pytest.fixture
def log() -> FakeLog:
    return FakeLog()


@pytest.fixture
def leader(log: FakeLog) -> Leader:
    return lead(log, leader_epoch=4)


def test_counts_only_what_is_synced(leader: Leader, log: FakeLog) -> None:
    log.end_offset = 5
    leader.maybe_advance_high_watermark()
    assert leader.high_watermark == 0
    log.synced_offset = 3
    leader.maybe_advance_high_watermark()
    assert leader.high_watermark == 3


def test_counts_what_is_written_where_commits_are_not_synced(leader: Leader, log: FakeLog) -> None:
    leader.configure(ReplicaSettings(sync_commit=False))
    log.end_offset = 5
    leader.maybe_advance_high_watermark()
    assert leader.high_watermark == 5


def test_never_goes_back(leader: Leader, log: FakeLog) -> None:
    log.end_offset = log.synced_offset = 5
    leader.maybe_advance_high_watermark()
    log.synced_offset = 2
    leader.maybe_advance_high_watermark()
    assert leader.high_watermark == 5


def test_wakes_who_waits_for_a_commit_in_order(leader: Leader, log: FakeLog) -> None:
    told: list[tuple[int, ErrorCode]] = []
    for offset in (1, 2, 4):
        leader.when_committed(offset, lambda error, offset=offset: told.append((offset, error)))
    log.synced_offset = 3
    leader.maybe_advance_high_watermark()
    assert told == [(1, ErrorCode.NONE), (2, ErrorCode.NONE)]
    log.synced_offset = 4
    leader.maybe_advance_high_watermark()
    assert told[2:] == [(4, ErrorCode.NONE)]


def test_tells_at_once_what_is_committed_already(leader: Leader, log: FakeLog) -> None:
    told: list[ErrorCode] = []
    leader.when_committed(0, told.append)
    assert told == [ErrorCode.NONE]


def test_wakes_readers_once(leader: Leader, log: FakeLog) -> None:
    told: list[ErrorCode] = []
    leader.when_high_watermark_moves(told.append)
    for synced in (1, 2):
        log.synced_offset = synced
        leader.maybe_advance_high_watermark()
    assert told == [ErrorCode.NONE]


def test_a_forgotten_reader_is_not_woken(leader: Leader, log: FakeLog) -> None:
    told: list[ErrorCode] = []
    leader.when_high_watermark_moves(told.append)
    leader.forget_waiter(told.append)
    log.synced_offset = 1
    leader.maybe_advance_high_watermark()
    assert told == []


def test_closing_ends_every_wait_and_those_that_come_later(leader: Leader, log: FakeLog) -> None:
    told: list[ErrorCode] = []
    leader.when_committed(1, told.append)
    leader.when_high_watermark_moves(told.append)
    leader.close(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    leader.when_committed(9, told.append)
    assert told == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3


def test_closing_ends_the_wait_of_a_reader_that_comes_later(leader: Leader) -> None:
    told: list[ErrorCode] = []
    leader.close(ErrorCode.KAFKA_STORAGE_ERROR)
    leader.when_high_watermark_moves(told.append)
    assert told == [ErrorCode.KAFKA_STORAGE_ERROR]


# --- waiters that act on the partition that wakes them ---


def advance(leader: Leader, log: FakeLog) -> None:
    log.synced_offset += 1
    leader.maybe_advance_high_watermark()


@pytest.mark.plants_traceback
def test_a_waiter_that_raises_keeps_no_other_from_being_told(
    leader: Leader, log: FakeLog, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[str] = []

    def broken(error: ErrorCode) -> None:
        raise ValueError("this response cannot be encoded")

    def wait() -> None:
        for name in ("first", "second"):
            leader.when_committed(1, broken)
            leader.when_committed(1, lambda _, name=name: told.append(f"{name} commit"))
            leader.when_high_watermark_moves(lambda _, name=name: told.append(f"{name} data"))
        leader.when_high_watermark_moves(broken)

    wait()
    advance(leader, log)
    assert told == ["first commit", "second commit", "first data", "second data"]
    assert len(caplog.records) == 3
    told.clear()
    log.synced_offset = leader.high_watermark = 0
    wait()
    leader.close(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert told == ["first commit", "second commit", "first data", "second data"]


@pytest.mark.parametrize("closing", [False, True])
def test_a_reader_whose_wait_another_one_ends_is_not_told(
    leader: Leader, log: FakeLog, closing: bool
) -> None:
    told: list[str] = []

    def last(_: ErrorCode) -> None:
        told.append("last")

    def first(_: ErrorCode) -> None:
        told.append("first")
        leader.forget_waiter(last)

    leader.when_high_watermark_moves(first)
    leader.when_high_watermark_moves(last)
    if closing:
        leader.close(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    else:
        advance(leader, log)
    assert told == ["first"]


def test_a_reader_that_waits_again_is_told_of_the_next_change(leader: Leader, log: FakeLog) -> None:
    told: list[int] = []

    def again(_: ErrorCode) -> None:
        told.append(leader.high_watermark)
        leader.when_high_watermark_moves(again)

    leader.when_high_watermark_moves(again)
    for _ in range(3):
        advance(leader, log)
    assert told == [1, 2, 3]


def test_a_waiter_may_close_the_partition(leader: Leader, log: FakeLog) -> None:
    """The waiter is told while others are still to be told: each of those hears of it once."""
    told: list[tuple[str, ErrorCode]] = []

    def closes(error: ErrorCode) -> None:
        told.append(("closes", error))
        leader.close(ErrorCode.KAFKA_STORAGE_ERROR)

    leader.when_committed(1, closes)
    leader.when_committed(1, lambda error: told.append(("commit", error)))
    leader.when_committed(9, lambda error: told.append(("later commit", error)))
    leader.when_high_watermark_moves(lambda error: told.append(("data", error)))
    advance(leader, log)
    failed = ErrorCode.KAFKA_STORAGE_ERROR
    assert told == [
        ("closes", ErrorCode.NONE),
        ("commit", failed),
        ("later commit", failed),
        ("data", failed),
    ]


def test_a_waiter_may_move_the_high_watermark(leader: Leader, log: FakeLog) -> None:
    told: list[tuple[str, int]] = []

    def moves(_: ErrorCode) -> None:
        told.append(("moves", leader.high_watermark))
        advance(leader, log)

    leader.when_committed(1, moves)
    leader.when_committed(1, lambda _: told.append(("first", leader.high_watermark)))
    leader.when_committed(2, lambda _: told.append(("second", leader.high_watermark)))
    leader.when_high_watermark_moves(lambda _: told.append(("data", leader.high_watermark)))
    advance(leader, log)
    assert told == [("moves", 1), ("first", 2), ("second", 2), ("data", 2)]


@pytest.mark.parametrize(
    ("epoch", "error"),
    [(-1, None), (4, None), (3, ErrorCode.FENCED_LEADER_EPOCH), (5, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_leader_epochs_are_fenced(leader: Leader, epoch: int, error: ErrorCode | None) -> None:
    if error is None:
        leader.check_leader_epoch(epoch)
        return
    with pytest.raises(KafkaError) as refused:
        leader.check_leader_epoch(epoch)
    assert refused.value.code is error


@pytest.mark.parametrize(
    ("minimum", "replicas", "isr", "is_enough"),
    [
        (1, (1,), (1,), True),
        (2, (1,), (1,), True),  # as in Kafka: a topic with one replica cannot be asked for two
        (2, (1, 2, 3), (1, 2), True),
        (2, (1, 2, 3), (1,), False),
        (3, (1, 2), (1, 2), True),
        (3, (1, 2), (1,), False),
    ],
)
def test_too_few_replicas_refuse_before_anything_is_written(
    log: FakeLog, minimum: int, replicas: tuple[int, ...], isr: tuple[int, ...], is_enough: bool
) -> None:
    leader = lead(log, replicas=replicas, isr=isr, settings=ReplicaSettings(min_insync_replicas=minimum))
    if is_enough:
        leader.check_enough_replicas()
        return
    with pytest.raises(KafkaError) as refused:
        leader.check_enough_replicas()
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


def test_the_epoch_begins_before_its_first_batch(leader: Leader, log: FakeLog) -> None:
    assert leader.end_offset_for_epoch(4) == (4, 0)
    assert leader.end_offset_for_epoch(3) == (3, 0)
    assert leader.end_offset_for_epoch(5) == (-1, -1)
    log.end_offset = 7
    leader = lead(log, leader_epoch=6)
    assert leader.epoch_start_offset == 7
    assert leader.end_offset_for_epoch(6) == (6, 7)
    assert leader.end_offset_for_epoch(5) == (4, 7)
    assert leader.end_offset_for_epoch(4) == (4, 7)
    assert leader.end_offset_for_epoch(1) == (1, 0)
    assert leader.end_offset_for_epoch(7) == (-1, -1)


# --- appending ---


def test_whoever_syncs_and_whoever_copies_hears_of_every_append(log: FakeLog) -> None:
    told: list[str] = []
    leader = lead(log, appended=lambda: told.append("synced later"))
    leader.when_log_end_moves(lambda error: told.append(f"log end moved: {error.name}"))
    leader.when_high_watermark_moves(lambda error: told.append("high watermark moved"))
    leader.append(bytearray(b"batch"), None, 0)  # type: ignore[arg-type]
    assert told == ["synced later", "log end moved: NONE"]
    leader.append_all([(memoryview(b"batch"), None)], 0)  # type: ignore[list-item]
    assert told[2:] == ["synced later"], "whoever wants to hear of the next one waits again"
    assert log.end_offset == 2


def test_nobody_hears_of_an_append_that_failed(log: FakeLog) -> None:
    told: list[str] = []
    leader = lead(log, appended=lambda: told.append("appended"))
    leader.when_log_end_moves(lambda error: told.append("log end moved"))
    log.fails = True
    with pytest.raises(OSError):
        leader.append(bytearray(b"batch"), None, 0)  # type: ignore[arg-type]
    assert told == []


def test_a_leader_whose_epoch_is_over_appends_nothing(leader: Leader, log: FakeLog) -> None:
    leader.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    with pytest.raises(KafkaError) as refused:
        leader.append(bytearray(b"batch"), None, 0)  # type: ignore[arg-type]
    (result,) = leader.append_all([(memoryview(b"batch"), None)], 0)  # type: ignore[list-item]
    assert isinstance(result, KafkaError)
    assert refused.value.code is result.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert log.end_offset == 0


# --- where the high watermark starts ---


def test_the_only_replica_has_committed_what_it_has_synced() -> None:
    """Its checkpoint is a few seconds old, and acknowledged records are readable at once all the same."""
    leader = lead(FakeLog(end_offset=9, synced_offset=7), high_watermark=2)
    assert leader.high_watermark == 7


def test_with_other_replicas_it_starts_from_its_checkpoint() -> None:
    log = FakeLog(end_offset=9, synced_offset=9)
    leader = lead(log, replicas=(1, 2), isr=(1, 2), high_watermark=2)
    assert leader.high_watermark == 2
    assert not leader.knows_high_watermark
    leader.replica_fetched(2, broker_epoch=5, offset=9, now_ms=0)
    assert leader.high_watermark == 9
    assert leader.knows_high_watermark


@pytest.mark.parametrize(("checkpoint", "expected"), [(0, 3), (5, 5), (50, 9)])
def test_it_starts_within_the_log(checkpoint: int, expected: int) -> None:
    log = FakeLog(log_start_offset=3, end_offset=9, synced_offset=9)
    assert lead(log, replicas=(1, 2), isr=(1, 2), high_watermark=checkpoint).high_watermark == expected


def test_it_starts_with_nothing_that_it_has_not_synced() -> None:
    """A replica that was not in sync, and is elected uncleanly, may know of a higher one."""
    log = FakeLog(end_offset=9, synced_offset=7)
    assert lead(log, replicas=(1, 2), isr=(1,), high_watermark=9).high_watermark == 7


# --- the other replicas ---


def test_a_record_is_committed_once_every_in_sync_replica_has_synced_it(log: FakeLog) -> None:
    leader = lead(log, replicas=(1, 2, 3), isr=(1, 2, 3))
    log.end_offset = 5
    leader.replica_fetched(2, 0, 5, 0)
    leader.replica_fetched(3, 0, 4, 0)
    assert leader.high_watermark == 0, "our own disk has none of it"
    log.synced_offset = 5
    leader.maybe_advance_high_watermark()
    assert leader.high_watermark == 4
    leader.replica_fetched(3, 0, 5, 0)
    assert leader.high_watermark == 5


def test_a_replica_outside_the_isr_holds_nobody_back(log: FakeLog) -> None:
    leader = lead(log, replicas=(1, 2), isr=(1,))
    log.end_offset = log.synced_offset = 5
    leader.maybe_advance_high_watermark()
    assert leader.high_watermark == 5


def test_a_proposed_member_counts_before_the_controller_has_answered(log: FakeLog) -> None:
    leader = lead(log, replicas=(1, 2), isr=(1,))
    leader.replica_fetched(2, 0, 0, 0)
    leader.propose_isr(frozenset({1, 2}))
    log.end_offset = log.synced_offset = 5
    leader.maybe_advance_high_watermark()
    assert leader.high_watermark == 0
    leader.withdraw_proposal()
    assert leader.high_watermark == 5


def test_a_member_proposed_to_leave_counts_until_the_controller_has_answered(log: FakeLog) -> None:
    leader = lead(log, replicas=(1, 2), isr=(1, 2))
    leader.propose_isr(frozenset({1}))
    log.end_offset = log.synced_offset = 5
    leader.maybe_advance_high_watermark()
    assert leader.high_watermark == 0
    leader.adopt(registration(replicas=(1, 2), isr=(1,), partition_epoch=1), now_ms=0)
    assert (leader.isr, leader.maximal_isr, leader.high_watermark) == ({1}, {1}, 5)


def test_an_older_registration_is_not_adopted(log: FakeLog) -> None:
    leader = lead(log, replicas=(1, 2), isr=(1, 2), partition_epoch=7)
    for partition_epoch in (6, 7):
        leader.adopt(registration(replicas=(1, 2), isr=(1,), partition_epoch=partition_epoch), now_ms=0)
    assert (leader.isr, leader.partition_epoch) == ({1, 2}, 7)


def test_below_the_minimum_nothing_is_committed(log: FakeLog) -> None:
    settings = ReplicaSettings(min_insync_replicas=2)
    leader = lead(log, replicas=(1, 2, 3), isr=(1,), settings=settings)
    log.end_offset = log.synced_offset = 5
    leader.maybe_advance_high_watermark()
    assert leader.high_watermark == 0
    leader.configure(ReplicaSettings(min_insync_replicas=1))
    assert leader.high_watermark == 5


def test_who_may_join_has_all_that_is_committed_and_all_of_earlier_epochs() -> None:
    log = FakeLog(end_offset=9, synced_offset=9)
    leader = lead(log, replicas=(1, 2, 3), isr=(1, 3), high_watermark=4)
    for offset in (4, 8):
        leader.replica_fetched(2, 6, offset, 0)
        assert leader.joining_replicas() == {}, (
            "an earlier leader may have committed up to where this epoch starts"
        )
    leader.replica_fetched(2, 6, 9, 0)
    assert leader.joining_replicas() == {2: 6}
    leader.propose_isr(frozenset({1, 2, 3}))
    assert leader.joining_replicas() == {}


def test_a_fetch_of_an_earlier_process_is_refused(log: FakeLog) -> None:
    leader = lead(log, replicas=(1, 2), isr=(1, 2))
    log.end_offset = log.synced_offset = 5
    leader.replica_fetched(2, broker_epoch=8, offset=1, now_ms=0)
    with pytest.raises(KafkaError):
        leader.replica_fetched(2, broker_epoch=7, offset=5, now_ms=0)
    assert leader.high_watermark == 1


def test_a_fetch_of_who_is_no_replica_is_refused(log: FakeLog) -> None:
    leader = lead(log, replicas=(1, 2), isr=(1, 2))
    with pytest.raises(KafkaError) as refused:
        leader.replica_fetched(3, 0, 0, 0)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_who_lags() -> None:
    log = FakeLog()
    leader = lead(log, replicas=(1, 2, 3), isr=(1, 2), now_ms=1_000)
    log.end_offset = 10
    assert leader.lagging_replicas(now_ms=2_000, max_lag_ms=1_000) == set(), "it had all when the epoch began"
    assert leader.lagging_replicas(now_ms=2_001, max_lag_ms=1_000) == {2}
    leader.replica_fetched(2, 0, 4, now_ms=2_001)
    assert leader.lagging_replicas(now_ms=2_002, max_lag_ms=1_000) == {2}, "it fetches, and never catches up"
    log.end_offset = 20
    leader.replica_fetched(2, 0, 10, now_ms=3_000)
    assert leader.lagging_replicas(now_ms=3_001, max_lag_ms=1_000) == set(), "it has what we had at 2,001"
    assert leader.lagging_replicas(now_ms=3_002, max_lag_ms=1_000) == {2}
    leader.replica_fetched(2, 0, 20, now_ms=3_002)
    assert leader.lagging_replicas(now_ms=9_999, max_lag_ms=1_000) == set(), (
        "there is nothing it does not have"
    )


def test_who_is_always_some_fetches_behind_lags_no_more_than_that() -> None:
    """Followers are so under a steady load, when more waits for them than one fetch brings."""
    log = FakeLog()
    leader = lead(log, replicas=(1, 2), isr=(1, 2), now_ms=0)
    behind, second = 5, 1_000
    for now in range(behind, 60):
        log.end_offset = 10 * now
        leader.replica_fetched(2, 0, 10 * (now - behind), now_ms=now * second)
        assert leader.lagging_replicas(now * second, 2 * behind * second) == set(), now
    assert leader.lagging_replicas(59 * second, behind * second - 1) == {2}


@pytest.mark.parametrize(
    ("replicas", "end_offset", "expected"), [((1,), 5, True), ((1,), 3, False), ((1, 2), 5, False)]
)
def test_what_our_own_sync_holds_back(replicas: tuple[int, ...], end_offset: int, expected: bool) -> None:
    log = FakeLog(end_offset=end_offset, synced_offset=3)
    assert lead(log, replicas=replicas, isr=replicas).is_held_back_by_own_sync == expected


def test_waits_are_told_in_the_order_of_their_offsets(leader: Leader, log: FakeLog) -> None:
    """A repeated batch waits for an offset below those that others wait for already."""
    told: list[int] = []
    for offset in (2, 4, 3, 1, 4):
        leader.when_committed(offset, lambda _, offset=offset: told.append(offset))  # type: ignore[misc]
    log.end_offset = log.synced_offset = 3
    leader.maybe_advance_high_watermark()
    assert told == [1, 2, 3]


def test_the_low_watermark_counts_all_replicas_whose_brokers_are_alive() -> None:
    log = FakeLog(end_offset=9, synced_offset=9, log_start_offset=4)
    leader = lead(log, replicas=(1, 2, 3), isr=(1, 2))
    assert leader.low_watermark(lambda broker_id: True) == -1, "they have not fetched in this epoch"
    leader.replica_fetched(2, 0, 9, 0, log_start_offset=3)
    assert leader.low_watermark(lambda broker_id: broker_id != 3) == 3
    leader.replica_fetched(3, 0, 9, 0, log_start_offset=1)
    assert leader.low_watermark(lambda broker_id: True) == 1
    leader.replica_fetched(2, 0, 9, 0, log_start_offset=8)
    assert leader.low_watermark(lambda broker_id: broker_id != 3) == 4


def test_who_waits_for_the_low_watermark_is_told_when_a_replica_deletes_records_or_the_epoch_ends() -> None:
    leader = lead(FakeLog(end_offset=9, synced_offset=9), replicas=(1, 2), isr=(1, 2))
    told: list[ErrorCode] = []
    leader.when_low_watermark_may_move(told.append)
    leader.replica_fetched(2, 0, 9, 0, log_start_offset=3)
    assert told == [ErrorCode.NONE]
    leader.when_low_watermark_may_move(told.append)
    assert leader.has_waiters
    leader.replica_fetched(2, 0, 9, 0, log_start_offset=3)
    assert len(told) == 1, "nothing has changed"
    leader.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    leader.when_low_watermark_may_move(told.append)
    assert told[1:] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2
