"""The runner with a coordinator of this test's own, which keeps balances, some of them changed in transactions.

It is what transactions and share groups will ask of a runner: batches with a producer's id and epoch, control batches,
timers, appends that fail, and a log that has to be read again.
"""

import errno
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from odradek.coordinators import runner as runner_module
from odradek.coordinators.journal import Journal
from odradek.coordinators.runner import Runner
from odradek.coordinators.runtime import (
    Decision,
    EncodedRecord,
    Producer,
    StateRecord,
    Timers,
    Token,
)
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import Partition
from odradek.model import Caller, TopicPartition
from odradek.records.batch import read_header
from odradek.records.control import ControlType, build_control_batch
from odradek.replication.replica import Replica
from odradek.replication.settings import ReplicaSettings
from odradek.storage.disk.simulated import SimulatedFiles
from odradek.storage.log.reading import read_batches
from odradek.storage.producers.markers import Marker
from tests.coordinators.virtual import CoordinatorWorld, MemoryLog, VirtualHost, sync
from tests.storage.batches import new_log

CONTEXT = (0, Caller())
ANNA, BEN = Producer(7, 0), Producer(8, 3)
COMMIT, ABORT = Marker(False, 5), Marker(True, 5)


class Balances:
    """Requests are tuples: ("set", name, amount), the same with a producer, ("end", producer, marker), ("get", name),
    ("effect", amount, effect…), ("ask for", effect), ("wait", ms), ("raise",), ("raise later", ms)."""

    noun = "account"

    def __init__(self) -> None:
        self.timers = Timers()
        self.amounts: dict[str, int] = {}
        self.open: dict[Producer, dict[str, int]] = {}  # by transaction, not yet committed
        self.undone = 0

    def handle(self, request: Any, version: int, caller: Caller, token: Token, now_ms: int) -> Decision:
        match request:
            case ("set", name, amount):
                return Decision([(name, amount)], [(token, "done")], self.undo)
            case ("set", name, amount, producer):
                return Decision([(name, amount)], [(token, "done")], self.undo, producer, is_verified=True)
            case ("end", producer, marker):
                return Decision([], [(token, "ended")], self.undo, producer, marker)
            case ("effect", amount, *effects):
                return Decision([("last", amount)], [(token, "done")], effects=effects)
            case ("ask for", effect):
                return Decision(effects=[effect])
            case ("get", name):
                return Decision(responses=[(token, self.amounts.get(name))])
            case ("wait", delay_ms):
                self.timers.schedule(token, now_ms + delay_ms, lambda now_ms: self.on_time(token, now_ms))
                return Decision()
            case ("raise later", delay_ms):
                self.timers.schedule("broken", now_ms + delay_ms, self.broken)
                return Decision(responses=[(token, "done")])
        raise ValueError(request)

    def on_time(self, token: Token, now_ms: int) -> Decision:
        return Decision([("last", now_ms)], [(token, now_ms)])

    def broken(self, now_ms: int) -> Decision:
        raise ValueError("planted")

    def undo(self) -> None:
        self.undone += 1

    def refuse(self, request: Any, code: ErrorCode) -> Any:
        return code

    def encode(self, key: Any, value: Any | None) -> EncodedRecord:
        return key.encode(), str(value).encode()

    def decode(self, key: bytes, value: bytes | None) -> StateRecord | None:
        return key.decode(), int(value or b"0")

    def replay(self, key: Any, value: Any | None, producer: Producer | None = None) -> None:
        amounts = self.amounts if producer is None else self.open.setdefault(producer, {})
        amounts[key] = value or 0

    def replay_marker(self, producer: Producer, marker: Marker) -> None:
        ended = self.open.pop(producer, {})
        if not marker.is_abort:
            self.amounts.update(ended)

    def loaded(self, now_ms: int) -> None:
        self.timers.schedule("audit", now_ms + 60_000, lambda now_ms: None)

    def __len__(self) -> int:
        return len(self.amounts)


class Bank(CoordinatorWorld[Balances]):
    """A runner on a log, and what it has answered."""

    def __init__(self, log: Any = None, *, loads: bool = True) -> None:
        super().__init__(1_000)
        self.log = log or self.log
        self.responses: dict[Any, Any] = {}
        self.effects: list[Any] = []
        self.take_over()
        if loads:
            self.load()

    def new_coordinator(self) -> Balances:
        return Balances()

    def load(self) -> None:
        self.runner.begin_loading()
        self.host.run_for(0)

    def restart(self) -> None:
        self.runner.resign()
        self.start()

    def _respond(self, token: Any, response: Any) -> None:
        assert token not in self.responses, "answered twice"
        self.responses[token] = response
        if token == "raises":
            raise ConnectionError("planted")

    def perform(self, runner: Runner[Balances], effect: Any) -> None:
        assert runner is self.runner
        self.effects.append(effect)
        if effect == "raises":
            raise ConnectionError("planted")

    def ask(self, token: Any, *request: Any) -> Any:
        self.runner.handle(request, *CONTEXT, partial(self._respond, token))
        return self.responses.get(token)


@pytest.fixture
def bank() -> Bank:
    return Bank()


# --- appending and answering ---


def test_a_response_leaves_when_its_batch_is_committed(bank: Bank) -> None:
    bank.commits = False
    assert bank.ask(1, "set", "anna", 5) is None
    assert bank.ask(2, "get", "anna") is None, "it was decided on what is not committed"
    assert bank.ask(3, "set", "anna", 6) is None
    sync(bank.partition, 1)
    assert bank.responses == {1: "done", 2: 5}
    sync(bank.partition)
    assert bank.responses == {1: "done", 2: 5, 3: "done"}


def test_an_append_that_fails_is_answered_and_undone(bank: Bank) -> None:
    bank.partition.has_enough_replicas = False
    assert bank.ask(1, "set", "anna", 5) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bank.ask(2, "end", BEN, COMMIT) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bank.runner.coordinator.undone == 2
    bank.partition.has_enough_replicas = True
    assert bank.ask(3, "get", "anna") is None and 3 in bank.responses
    assert bank.log.end_offset == 0


@pytest.mark.plants_traceback
def test_a_response_that_cannot_be_sent_keeps_no_other_back(bank: Bank) -> None:
    bank.commits = False
    for token in ("first", "raises", "last"):
        bank.ask(token, "set", "anna", 5)
    sync(bank.partition)
    assert bank.responses == dict.fromkeys(("first", "raises", "last"), "done")


def test_a_request_that_raises_leaves_the_runner_as_it_was(bank: Bank) -> None:
    with pytest.raises(ValueError, match="raise"):
        bank.ask(1, "raise")
    assert bank.ask(1, "set", "anna", 5) == "done", "its token is free again"


# --- effects, and events that are no requests ---


def test_an_effect_is_carried_out_when_its_batch_is_committed(bank: Bank) -> None:
    bank.commits = False
    bank.ask(1, "effect", 5, "first", "second")
    bank.ask(2, "ask for", "third")
    assert bank.effects == []
    sync(bank.partition)
    assert bank.effects == ["first", "second", "third"]
    assert bank.responses == {1: "done"}


def test_an_effect_is_carried_out_at_once_if_nothing_is_uncommitted(bank: Bank) -> None:
    bank.ask(1, "ask for", "something")
    assert bank.effects == ["something"]


def test_effects_are_lost_with_an_append_that_fails_and_with_the_leadership(bank: Bank) -> None:
    bank.partition.has_enough_replicas = False
    assert bank.ask(1, "effect", 5, "first") is ErrorCode.COORDINATOR_NOT_AVAILABLE
    bank.partition.has_enough_replicas = True
    bank.commits = False
    bank.ask(2, "effect", 5, "second")
    bank.ask(3, "ask for", "third")
    bank.runner.resign()
    sync(bank.partition)
    assert bank.effects == []


@pytest.mark.plants_traceback
def test_an_effect_that_raises_keeps_no_other_back(bank: Bank) -> None:
    bank.ask(1, "effect", 5, "first", "raises", "last")
    assert bank.effects == ["first", "raises", "last"]


def test_a_request_is_answered_by_what_became_of_its_effect(bank: Bank) -> None:
    """It waits meanwhile, like any other open request."""
    for token in (1, 2):
        bank.ask(token, "ask for", "something")
    assert bank.responses == {}
    respond = next(iter(bank.runner._shard._requests))
    bank.commits = False
    bank.runner.tell(lambda coordinator, now_ms: Decision([("last", 7)], [(respond, "got it")]))
    assert bank.responses == {} and bank.runner.coordinator.amounts == {"last": 7}
    sync(bank.partition)
    assert bank.responses == {1: "got it"}
    bank.runner.resign()
    assert bank.responses == {1: "got it", 2: ErrorCode.NOT_COORDINATOR}


def test_a_decision_on_an_event_that_cannot_be_written_is_undone(bank: Bank) -> None:
    bank.partition.has_enough_replicas = False
    bank.runner.tell(lambda coordinator, now_ms: Decision([("last", 7)], undo=coordinator.undo))
    assert bank.runner.coordinator.amounts == {} and bank.runner.coordinator.undone == 1


def test_a_runner_is_active_from_its_load_to_its_resignation() -> None:
    bank = Bank(filled(1), loads=False)
    assert not bank.runner.is_active
    bank.load()
    assert bank.runner.is_active
    bank.runner.resign()
    assert not bank.runner.is_active


# --- transactions ---


def test_what_a_transaction_writes_counts_when_its_marker_says_so(bank: Bank) -> None:
    for token, producer in ((1, ANNA), (2, BEN)):
        assert bank.ask(token, "set", f"of {producer.id}", 5, producer) == "done"
    assert bank.ask(3, "end", ANNA, COMMIT) == "ended"
    assert bank.ask(4, "end", BEN, ABORT) == "ended"
    assert bank.runner.coordinator.amounts == {"of 7": 5}


def test_transactions_are_loaded_as_they_were_left(bank: Bank) -> None:
    bank.ask(1, "set", "anna", 5, ANNA)
    bank.ask(2, "end", ANNA, COMMIT)
    bank.ask(3, "set", "anna", 6, ANNA)
    bank.ask(4, "set", "ben", 1, BEN)
    bank.ask(5, "end", BEN, ABORT)
    before = bank.runner.coordinator
    bank.restart()
    after = bank.runner.coordinator
    assert after is not before
    assert after.amounts == before.amounts == {"anna": 5}
    assert after.open == before.open == {ANNA: {"anna": 6}}
    bank.ask(6, "end", ANNA, COMMIT)
    assert after.amounts == {"anna": 6}


def test_batches_are_kafka_s_on_a_real_log() -> None:
    """Transactional batches and control batches, which the log itself understands."""
    log = new_log(SimulatedFiles(), "/data/balances-0")
    partition = Replica(
        TopicPartition("balances", 0),
        log.topic_id,
        log,
        ReplicaSettings(sync_commit=False),
        high_watermark=0,
        appended=Replica.log_written,
    )
    partition.take_role(1, Partition(1, 0, 0, (1,), (1,), ()), now_ms=0)
    assert partition.leader is not None
    responses: dict[int, Any] = {}
    journal = Journal(partition.leader)
    runner = Runner(journal, Balances, VirtualHost(1_000))

    def handle(token: int, *request: Any) -> None:
        runner.handle(request, *CONTEXT, partial(responses.__setitem__, token))

    runner.begin_loading()
    handle(1, "set", "all", 1)
    handle(2, "set", "anna", 5, ANNA)
    assert partition.last_stable_offset == 1, "a transaction is open"
    handle(3, "end", ANNA, ABORT)
    assert partition.last_stable_offset == 3
    assert responses == {1: "done", 2: "done", 3: "ended"}
    headers = [header for piece in read_batches(log) for header, _ in piece]
    assert [(header.producer_id, header.producer_epoch) for header in headers] == [(-1, -1), ANNA, ANNA]
    assert [header.is_transactional for header in headers] == [False, True, True]
    assert [header.is_control for header in headers] == [False, False, True]
    handle(4, "set", "anna", 6, ANNA._replace(epoch=1))
    handle(5, "set", "anna", 7, ANNA)
    assert responses[5] is ErrorCode.INVALID_PRODUCER_EPOCH, "the log refuses the fenced epoch"
    assert runner.coordinator.undone == 1


def test_control_batches_that_end_no_transaction_are_skipped() -> None:
    log = filled(1)
    batch = build_control_batch(ControlType.LEADER_CHANGE, b"", timestamp=0)
    log.append_as_leader(batch, read_header(batch), 0, 0, False)
    assert Bank(log).runner.coordinator.amounts == {"name 0": 0}


# --- loading ---


def filled(count: int) -> MemoryLog:
    bank = Bank()
    for number in range(count):
        bank.ask(number, "set", f"name {number}", number)
    return bank.log  # type: ignore[no-any-return]


def test_an_empty_log_is_loaded_at_once() -> None:
    bank = Bank(loads=False)
    assert bank.ask(1, "get", "anna") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    bank.runner.begin_loading()
    assert bank.ask(2, "set", "anna", 5) == "done"


def test_a_log_is_loaded_a_piece_in_each_turn() -> None:
    log = filled(10)
    log.batches_in_a_piece = 3
    turns: list[int] = []
    bank = Bank(log, loads=False)
    bank.runner.begin_loading()
    bank.host.run_until(bank.host.time_ms, lambda: turns.append(len(bank.runner.coordinator.amounts)))
    assert turns == [3, 6, 9, 10, 10]
    assert bank.ask(1, "get", "name 9") == 9


def test_what_happens_while_it_loads_is_told_afterwards() -> None:
    bank = Bank(filled(1), loads=False)
    told: list[tuple[int, int]] = []
    bank.runner.begin_loading()
    bank.runner.tell(lambda coordinator, now_ms: told.append((len(coordinator.amounts), now_ms)))
    assert told == []
    bank.host.run_for(0)
    assert told == [(1, 1_000)]
    bank.runner.tell(lambda coordinator, now_ms: told.append((len(coordinator.amounts), now_ms)))
    assert told == [(1, 1_000)] * 2


def failing(failures: list[Exception]) -> Any:
    def on_read() -> None:
        if failures:
            raise failures.pop()

    return on_read


@pytest.mark.plants_traceback
def test_a_load_that_fails_is_tried_again_ever_later(caplog: pytest.LogCaptureFixture) -> None:
    log = filled(2)
    told: list[Balances] = []
    failures: list[Exception] = [KafkaError(ErrorCode.KAFKA_STORAGE_ERROR), ValueError("planted")]
    failures += [OSError(errno.EMFILE, "too many open files")] * 6
    log.on_read = failing(failures)
    bank = Bank(log, loads=False)
    bank.runner.tell(lambda coordinator, now_ms: told.append(coordinator))
    bank.load()
    for attempt, seconds in enumerate((1, 2, 4, 8, 16, 32, 60, 60)):
        assert len(failures) == 7 - attempt
        assert bank.ask(attempt, "get", "name 1") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert caplog.messages[-1].startswith("__consumer_offsets-0: its coordinator cannot be loaded")
        assert f"trying again in {seconds} s" in caplog.messages[-1]
        bank.host.run_for(seconds * 1000)
    assert bank.ask("last", "get", "name 1") == 1
    assert told == [bank.runner.coordinator], "once, and the one that is served"


def test_a_load_that_fails_half_way_starts_from_nothing() -> None:
    log = filled(4)
    log.batches_in_a_piece = 1
    reads: Iterator[bool] = iter([True, True, False])

    def third_fails() -> None:
        if not next(reads, True):
            raise OSError(errno.EIO, "planted")

    log.on_read = third_fails
    bank = Bank(log)
    assert bank.runner.coordinator.amounts == {}
    bank.host.run_for(int(runner_module.LOAD_RETRY_SECONDS * 1000))
    assert len(bank.runner.coordinator.amounts) == 4


# --- timers ---


def test_timers_fire_when_they_are_due_and_append(bank: Bank) -> None:
    bank.ask("late", "wait", 5_000)
    bank.ask("early", "wait", 2_000)
    bank.host.run_for(1_999)
    assert bank.responses == {}
    bank.host.run_for(1)
    assert bank.responses == {"early": 3_000}
    bank.host.run_for(10_000)
    assert bank.responses == {"early": 3_000, "late": 6_000}
    assert bank.runner.coordinator.amounts == {"last": 6_000}


@pytest.mark.plants_traceback
def test_a_timer_that_raises_keeps_no_other_from_firing(bank: Bank) -> None:
    bank.ask("broken", "raise later", 10)
    bank.ask("same time", "wait", 10)
    bank.host.run_for(10)
    assert "same time" not in bank.responses
    bank.host.run_for(int(runner_module.TICK_RETRY_SECONDS * 1000))
    assert bank.responses["same time"] == 2_010


def test_an_append_of_a_timer_that_fails_is_answered(bank: Bank) -> None:
    bank.ask(1, "wait", 10)
    bank.partition.has_enough_replicas = False
    bank.host.run_for(10)
    assert bank.responses == {1: ErrorCode.COORDINATOR_NOT_AVAILABLE}


# --- resigning ---


def test_a_resignation_refuses_everyone_and_ends_all_work(bank: Bank) -> None:
    bank.commits = False
    bank.ask("written", "set", "anna", 5)
    bank.ask("waiting", "wait", 10)
    bank.runner.resign()
    assert bank.responses == dict.fromkeys(("written", "waiting"), ErrorCode.NOT_COORDINATOR)
    sync(bank.partition)
    turns: list[int] = []
    bank.host.run_until(1_000_000, lambda: turns.append(1))
    assert turns == [], "no timer is left"
    assert bank.ask("new", "get", "anna") is ErrorCode.NOT_COORDINATOR
    bank.runner.tell(lambda coordinator, now_ms: turns.append(1))
    assert turns == []


def test_a_resignation_ends_the_loading() -> None:
    for is_waiting_for_the_next_attempt in (False, True):
        log = filled(3)
        log.on_read = failing([OSError(errno.EIO, "planted")] if is_waiting_for_the_next_attempt else [])
        bank = Bank(log, loads=False)
        bank.runner.begin_loading()
        if is_waiting_for_the_next_attempt:
            bank.host.run_for(0)
        bank.runner.resign()
        bank.host.run_for(100_000)
        assert bank.runner.coordinator.amounts == {}
        assert bank.ask(1, "get", "name 1") is ErrorCode.NOT_COORDINATOR


def test_a_partition_that_closes_before_the_commit_makes_the_runner_resign(bank: Bank) -> None:
    bank.commits = False
    bank.ask("written", "set", "anna", 5)
    bank.ask("waiting", "wait", 10)
    bank.partition.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert bank.responses == dict.fromkeys(("written", "waiting"), ErrorCode.NOT_COORDINATOR)
    assert bank.ask("new", "set", "anna", 5) is ErrorCode.NOT_COORDINATOR
