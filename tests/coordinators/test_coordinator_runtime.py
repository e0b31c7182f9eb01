"""The runtime with a coordinator of the simplest kind: it counts, and the log remembers the count."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from odradek.coordinators.runtime import (
    Decision,
    EncodedRecord,
    Producer,
    Shard,
    StateBatch,
    StateRecord,
    Timers,
    Token,
)
from odradek.errors import ErrorCode, KafkaError
from odradek.model import Caller
from odradek.storage.producers.markers import Marker

CONTEXT = (0, Caller())


@dataclass
class Counter:
    """`add` writes, `read` does not, `wait` is answered by a timer, `fail` is refused."""

    count: int = 0
    notes: int = 0
    timers: Timers = field(default_factory=Timers)

    def handle(self, request: Any, version: int, caller: Caller, token: Token, now_ms: int) -> Decision:
        match request:
            case "add":
                self.notes += 1
                return Decision([("count", self.count + 1)], [(token, self.count + 1)], self.forget_note)
            case "read":
                return Decision(responses=[(token, self.count)])
            case "wait":
                self.timers.schedule(token, now_ms + 10, lambda now_ms: Decision(responses=[(token, now_ms)]))
                return Decision()
            case _:
                raise KafkaError(ErrorCode.INVALID_REQUEST)

    def forget_note(self) -> None:
        self.notes -= 1

    def refuse(self, request: Any, code: ErrorCode) -> Any:
        return code

    def encode(self, key: Any, value: Any | None) -> EncodedRecord:
        return key.encode(), str(value).encode()

    def decode(self, key: bytes, value: bytes | None) -> StateRecord | None:
        return (key.decode(), int(value)) if key == b"count" and value else None

    def replay(self, key: Any, value: Any | None, producer: Producer | None = None) -> None:
        self.count = value or 0

    def replay_marker(self, producer: Producer, marker: Marker) -> None:
        raise AssertionError("it has no transactions")

    def loaded(self, now_ms: int) -> None:
        self.timers.schedule("hello", now_ms + 1_000, lambda now_ms: None)

    def __len__(self) -> int:
        return 1


@pytest.fixture
def shard() -> Shard:
    shard = Shard(Counter())
    shard.loaded(0)
    return shard


def add(shard: Shard, token: str, offset: int) -> None:
    ready = shard.handle("add", *CONTEXT, token, 0)
    assert ready.batch is not None and not ready.responses
    shard.appended(offset)


def test_a_response_waits_for_its_record(shard: Shard) -> None:
    add(shard, "a", 7)
    assert shard.committed(7).responses == []
    assert shard.committed(8).responses == [("a", 1)]
    assert shard.committed(9).responses == []


def test_what_was_decided_on_uncommitted_state_waits_for_it(shard: Shard) -> None:
    add(shard, "a", 0)
    assert not shard.handle("read", *CONTEXT, "r", 0).responses
    add(shard, "b", 1)
    assert shard.committed(1).responses == [("a", 1), ("r", 1)]
    assert shard.committed(2).responses == [("b", 2)]
    assert shard.handle("read", *CONTEXT, "r", 0).responses == [("r", 2)]


def test_an_append_that_fails_changes_nothing(shard: Shard) -> None:
    shard.handle("add", *CONTEXT, "a", 0)
    assert shard.append_failed(ErrorCode.NOT_ENOUGH_REPLICAS) == [("a", ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    assert shard.coordinator == Counter(timers=shard.coordinator.timers)
    assert shard.handle("read", *CONTEXT, "r", 0).responses == [("r", 0)]


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_append_errors_are_translated(shard: Shard, code: ErrorCode, seen: ErrorCode) -> None:
    shard.handle("add", *CONTEXT, "a", 0)
    assert shard.append_failed(code) == [("a", seen)]


def test_a_resignation_refuses_everything_that_is_open(shard: Shard) -> None:
    add(shard, "a", 0)
    shard.handle("wait", *CONTEXT, "w", 0)
    shard.handle("read", *CONTEXT, "r", 0)
    refused = shard.resigned()
    assert sorted(refused) == [(token, ErrorCode.NOT_COORDINATOR) for token in ("a", "r", "w")]
    assert shard.handle("read", *CONTEXT, "x", 0).responses == [("x", ErrorCode.NOT_COORDINATOR)]
    assert shard.tick(1_000) is None and shard.next_deadline_ms() is None
    assert shard.committed(99).responses == []


def test_loading_replays_the_log_and_refuses_meanwhile() -> None:
    shard = Shard(Counter())
    shard.replay(StateBatch([(b"count", b"4"), (b"unknown", b"5")]))
    refusal = shard.handle("read", *CONTEXT, "x", 0).responses
    assert refusal == [("x", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]
    shard.loaded(50)
    assert shard.handle("read", *CONTEXT, "r", 50).responses == [("r", 4)]
    assert shard.next_deadline_ms() == 1_050


def test_a_timer_answers_what_waits(shard: Shard) -> None:
    assert not shard.handle("wait", *CONTEXT, "w", 5).responses
    assert shard.tick(14) is None
    ready = shard.tick(15)
    assert ready is not None and ready.responses == [("w", 15)]


def test_a_request_may_be_refused_by_an_exception(shard: Shard) -> None:
    assert shard.handle("fail", *CONTEXT, "f", 0).responses == [("f", ErrorCode.INVALID_REQUEST)]


# --- timers ---


def fire(timers: Timers, now_ms: int) -> list[Any]:
    fired = []
    while (action := timers.pop(now_ms)) is not None:
        fired.append(action(now_ms))
    return fired


def schedule(timers: Timers, key: str, deadline_ms: int) -> None:
    timers.schedule(key, deadline_ms, lambda now_ms: key)  # type: ignore[arg-type, return-value]


def test_timers_fire_in_order_and_once() -> None:
    timers = Timers()
    for key, deadline_ms in (("c", 30), ("a", 10), ("b", 20)):
        schedule(timers, key, deadline_ms)
    assert fire(timers, 20) == ["a", "b"]
    assert fire(timers, 100) == ["c"]
    assert fire(timers, 100) == [] and timers.next_deadline_ms() is None


def test_timers_move_both_ways_and_can_be_cancelled() -> None:
    timers = Timers()
    for key in ("late", "early", "never"):
        schedule(timers, key, 50)
    timers.postpone("late", 90)
    timers.postpone("unknown", 90)
    schedule(timers, "early", 10)
    timers.cancel("never")
    assert timers.next_deadline_ms() == 10
    assert fire(timers, 10) == ["early"]
    assert fire(timers, 89) == []
    assert fire(timers, 90) == ["late"]


def test_what_was_cancelled_does_not_pile_up() -> None:
    timers = Timers()
    for turn in range(10_000):
        schedule(timers, f"member {turn}", 10_000 + turn)
        timers.cancel(f"member {turn}")
    assert len(timers._heap) < 200
