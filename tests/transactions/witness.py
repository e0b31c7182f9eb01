"""Looks at the logs of all nodes after every step, and knows what transactions there are, and how they ended.

What the coordinators have committed in `__transaction_state` is the truth about decisions; what is committed in the
other partitions must follow from it (`fold`, `ledger`).

- T2  whoever begins to lead, or has cut its log, knows of producers and aborted transactions what its log says
- T5  the last stable offset of a leader is where the first open transaction begins
- T6  the records between two markers of a producer are of one transaction, and its coordinator knew the partition
- T7  a marker is written only after the decision is committed, and says the same; one decision for each transaction
- T8  a transactional id is forgotten only if nobody has used it for long, and never with an open transaction
- T10 whoever coordinates, the states follow each other by the table; a prepared transaction can only be completed
"""

from collections.abc import Callable
from typing import NamedTuple

from odradek.coordinators.records import OffsetCommitKey, decode
from odradek.coordinators.transactions.records import decode as decode_state
from odradek.coordinators.transactions.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionState,
)
from odradek.coordinators.transactions.transaction import Transaction
from odradek.model import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition
from odradek.records.batch import read_header
from odradek.records.record import decode_batch
from odradek.replication.leader import Leader
from odradek.replication.replica import Replica
from tests.cluster.committed import Committed, read_log
from tests.cluster.replicated import ReplicatedLogs
from tests.cluster.replicated_log import ReplicatedLog
from tests.simulation.connection import Violation
from tests.transactions.fold import Data, LogFold, Marker, check_state, fold_log
from tests.transactions.ledger import Attempt, Ledger, Place, Spot

PREPARED = {PREPARE_COMMIT: True, PREPARE_ABORT: False}
AT_REST = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
NEVER = 2**63
COUNTS = ("decisions", "markers", "moves of coordinators", "checked states", "transactional ids that expired")
# Our own table, not the product's.
MOVES: dict[TransactionState | None, tuple[TransactionState, ...]] = {
    None: (EMPTY,),
    EMPTY: (EMPTY, ONGOING, PREPARE_ABORT),
    ONGOING: (ONGOING, PREPARE_COMMIT, PREPARE_ABORT),
    PREPARE_COMMIT: (COMPLETE_COMMIT,),
    PREPARE_ABORT: (COMPLETE_ABORT,),
    COMPLETE_COMMIT: (EMPTY, ONGOING, PREPARE_ABORT),
    COMPLETE_ABORT: (EMPTY, ONGOING, PREPARE_ABORT),
}


class Decided(NamedTuple):
    producer_id: int
    epoch: int  # of the markers
    is_commit: bool


def place_of(log: ReplicatedLog) -> Place:
    name, _, index = log.name.rpartition("-")
    return name, int(index)


class TransactionWitness:
    def __init__(self, replicated: ReplicatedLogs, ledger: Ledger, now_ms: Callable[[], int]) -> None:
        self._replicated = replicated
        self._ledger = ledger
        self._now_ms = now_ms
        self.expiration_ms = NEVER  # of transactional ids
        self.folds: dict[ReplicatedLog, LogFold] = {}
        self.states: dict[str, Transaction] = {}  # as committed, by transactional id
        self._before: dict[str, Transaction] = {}  # the step that is being looked at
        self._owners: dict[int, str] = {}  # transactional ids by producer id
        self._decided: dict[Decided, set[TopicPartition]] = {}
        self.stored: dict[Spot, dict[int, set[int]]] = {}  # the records of each attempt
        self.positions: dict[str, Attempt] = {}  # the newest whose offsets are committed, by group
        self._committed: list[tuple[ReplicatedLog, list[Committed]]] = []
        self._appended: list[tuple[ReplicatedLog, list[Committed]]] = []
        self._leaders: dict[tuple[ReplicatedLog, int], Leader] = {}
        self._to_check: list[tuple[ReplicatedLog, Leader | Replica]] = []
        self.counts = dict.fromkeys(COUNTS, 0)

    # --- what happens ---

    def leads(self, node_id: int, log: ReplicatedLog, leader: Leader) -> None:
        self._to_check.append((log, leader))
        if log.name.startswith(TRANSACTIONS_TOPIC) and log.history:
            self.counts["moves of coordinators"] += 1

    def cut(self, node_id: int, log: ReplicatedLog, replica: Replica) -> None:
        self._to_check.append((log, replica))

    def appended(self, log: ReplicatedLog, leader: Leader, start: int) -> None:
        if not log.name.startswith(TRANSACTIONS_TOPIC):
            self._appended.append((log, read_log(leader.log, start)))

    def committed(self, log: ReplicatedLog, added: list[Committed]) -> None:
        self._committed.append((log, added))

    def changed(self, log: ReplicatedLog, leader: Leader) -> None:
        self._leaders[log, leader.node_id] = leader

    def looked(self) -> None:
        if not (self._committed or self._appended or self._leaders or self._to_check):
            return
        committed, self._committed = self._committed, []
        states = [(log, added) for log, added in committed if log.name.startswith(TRANSACTIONS_TOPIC)]
        self._before = dict(self.states) if states else self.states
        for _, added in states:
            for item in added:
                self._take_states(item)
        for log, added in committed:
            for item in added:
                self._take(log, item)
        appended, self._appended = self._appended, []
        for log, added in appended:
            for item in added:
                self._check_appended(log, item)
        leaders, self._leaders = self._leaders, {}
        for (log, _), leader in leaders.items():
            self._check_last_stable_offset(log, leader)
        to_check, self._to_check = self._to_check, []
        for log, holder in to_check:
            self.check_state(log, holder)

    # --- decisions ---

    def _take_states(self, item: Committed) -> None:
        for record in decode_batch(item.data, read_header(item.data)):
            decoded = decode_state(record.key or b"", record.value)
            assert decoded is not None
            transactional_id, state = decoded
            before = self.states.get(transactional_id)
            if state is None:
                self._expired(transactional_id, self.states.pop(transactional_id, None))
                continue
            self._check_move(transactional_id, before, state)
            self.states[transactional_id] = state
            self._owners[state.producer_id] = transactional_id
            if state.state in PREPARED:
                self._decide(state)

    def _expired(self, transactional_id: str, before: Transaction | None) -> None:
        """T8: only an id that nobody has used for long is forgotten, and never one with a transaction."""
        self.counts["transactional ids that expired"] += 1
        if before is not None and not self.may_expire(before):
            raise Violation(f"T8: {transactional_id} was forgotten, in spite of {before}")

    def may_expire(self, state: Transaction) -> bool:
        return state.state in AT_REST and self._now_ms() - state.updated_ms >= self.expiration_ms

    def _check_move(self, transactional_id: str, before: Transaction | None, after: Transaction) -> None:
        if after.state not in MOVES[before.state if before is not None else None]:
            raise Violation(f"T10: {transactional_id} went from {before} to {after}")
        if before is None or before.producer_id != after.producer_id:
            return
        if after.producer_epoch < before.producer_epoch:
            raise Violation(f"T3: the epoch of {transactional_id} went back: from {before} to {after}")
        if before.state is ONGOING and not after.partitions >= before.partitions:
            raise Violation(f"T4: {transactional_id} lost partitions: from {before} to {after}")
        if (
            after.state in PREPARED
            and after.client_version >= 2
            and after.producer_epoch != before.producer_epoch + 1
        ):
            raise Violation(
                f"T6: {transactional_id} ended with the epoch that it had: from {before} to {after}"
            )

    def _decide(self, state: Transaction) -> None:
        self.counts["decisions"] += 1
        is_commit = PREPARED[state.state]
        decided = Decided(state.producer_id, state.producer_epoch, is_commit)
        self._decided.setdefault(decided, set()).update(state.partitions)
        if not is_commit and state.partitions and not self._ledger.initializing.get(state.transactional_id):
            attempts = [
                attempt
                for attempt in self._ledger.of(state.transactional_id)
                if attempt.producer_id == state.producer_id
            ]
            if attempts and attempts[-1].asked is None:
                self._ledger.count("timeouts")

    def has_decided(self, attempt: Attempt, is_commit: bool) -> bool:
        epoch = attempt.epoch + 1 if attempt.is_newer_protocol else attempt.epoch
        return Decided(attempt.producer_id, epoch, is_commit) in self._decided

    # --- records and markers ---

    def fold(self, log: ReplicatedLog) -> LogFold:
        if log not in self.folds:
            self.folds[log] = LogFold(log.name)
        return self.folds[log]

    def _take(self, log: ReplicatedLog, item: Committed) -> None:
        event = self.fold(log).take(item)
        if isinstance(event, Data):
            if event.is_first:
                self._check_is_known(log, event)
            for attempt, number in self.attempts_in(log, event):
                self._take_record(log, event, attempt, number)
        elif isinstance(event, Marker):
            self.counts["markers"] += 1
            if event.ended is not None:
                self._take_marker(log, event)

    def attempts_in(self, log: ReplicatedLog, data: Data) -> list[tuple[Attempt, int]]:
        if not log.name.startswith(OFFSETS_TOPIC):
            return [self._ledger.find(record.value or b"") for record in data.records]
        found = []
        for record in data.records:
            decoded = decode(record.key or b"", record.value)
            if decoded is not None and isinstance(decoded[0], OffsetCommitKey) and decoded[1] is not None:
                found.append(self._ledger.find(decoded[1].metadata))
        return found

    def _check_is_known(self, log: ReplicatedLog, data: Data) -> None:
        """T6: a transaction begins in a partition only if the coordinator has put it on its list."""
        producer_id, epoch = data.header.producer_id, data.header.producer_epoch
        place = TopicPartition(*place_of(log))
        owner = self._owners.get(producer_id, "")
        for states in (self._before, self.states):
            state = states.get(owner)
            if state is not None and state.producer_id == producer_id and place in state.partitions:
                ended = 1 if state.state in PREPARED else 0
                if epoch in (state.producer_epoch, state.producer_epoch - ended):
                    return
        raise Violation(
            f"T6: {log.name} has a record of producer {producer_id} in epoch {epoch} at {data.header.base_offset}, "
            f"which its coordinator does not know of: {self.states.get(owner)}"
        )

    def _take_record(self, log: ReplicatedLog, data: Data, attempt: Attempt, number: int) -> None:
        header, place = data.header, place_of(log)
        if (header.producer_id, header.producer_epoch) != (attempt.producer_id, attempt.epoch):
            raise Violation(f"P12: {attempt} has a record at {header.base_offset} of {log.name}: {header}")
        opened = self.fold(log).producers[header.producer_id].open
        others = {other for each in opened[:1] for other, _ in self.attempts_in(log, each)}
        if others - {attempt}:
            raise Violation(f"T6: a record of {attempt} in {log.name} joined {others.pop()}")
        if log.name.startswith(OFFSETS_TOPIC):
            return
        known = self.stored.setdefault((log.topic_id, log.index), {}).setdefault(attempt.number, set())
        if number in known:
            raise Violation(f"T1: record {number} of {attempt} is in {log.name} twice")
        if number not in attempt.sent.get(place, ()):
            raise Violation(f"P12: record {number} of {attempt} was not sent to {log.name}")
        known.add(number)

    def _take_marker(self, log: ReplicatedLog, marker: Marker) -> None:
        assert marker.ended is not None
        place = place_of(log)
        owner = self._owners.get(marker.producer_id, "")
        for states in (self._before, self.states):
            state = states.get(owner)
            if (
                state is not None
                and PREPARED.get(state.state) is marker.is_commit
                and (state.producer_id, state.producer_epoch) == (marker.producer_id, marker.epoch)
                and TopicPartition(*place) in state.partitions
            ):
                break
        else:
            raise Violation(
                f"T7: {log.name} has a marker of producer {marker.producer_id} with epoch {marker.epoch} at "
                f"{marker.offset}, {'commit' if marker.is_commit else 'abort'}, and its coordinator has "
                f"{self.states.get(owner)}"
            )
        attempts = dict.fromkeys(
            attempt for data in marker.ended.batches for attempt, _ in self.attempts_in(log, data)
        )
        for attempt in attempts:
            self._ledger.ended(attempt, place, marker.is_commit)
            if place[0] == OFFSETS_TOPIC and marker.is_commit:
                self.positions[attempt.group] = attempt

    def _check_appended(self, log: ReplicatedLog, item: Committed) -> None:
        """T7: nobody writes a marker before the decision is durable."""
        header = read_header(item.data)
        if not header.is_control or header.producer_id < 0:
            return
        marker = LogFold(log.name).take(item)
        if isinstance(marker, Marker):
            decided = Decided(marker.producer_id, marker.epoch, marker.is_commit)
            if TopicPartition(*place_of(log)) not in self._decided.get(decided, ()):
                raise Violation(
                    f"T7: {log.name} got a marker that nobody has decided on: {decided}, "
                    f"{self.states.get(self._owners.get(marker.producer_id, ''))}"
                )

    # --- what a leader says ---

    def _check_last_stable_offset(self, log: ReplicatedLog, leader: Leader) -> None:
        fold, shown = self.fold(log), leader.last_stable_offset
        if leader.high_watermark == log.high_watermark == fold.end_offset:
            if shown != fold.last_stable_offset:
                raise Violation(
                    f"T5: the last stable offset of {log.name} is {shown} on broker {leader.node_id}, not "
                    f"{fold.last_stable_offset}"
                )
        elif shown > fold.last_stable_offset:
            raise Violation(
                f"T5: the last stable offset of {log.name} is {shown} on broker {leader.node_id}, above "
                f"{fold.last_stable_offset}"
            )

    def check_state(self, log: ReplicatedLog, holder: Leader | Replica) -> None:
        found = holder.log
        if found.segments and not found.failed and found._health.is_sound and not found.log_start_offset:
            self.counts["checked states"] += 1
            check_state(fold_log(log.name, found), found)

    # --- the end ---

    def unfinished(self) -> list[str]:
        """Transactions that have not ended."""
        return [
            f"{transactional_id} is {state.state.label} with {sorted(state.partitions)}"
            for transactional_id, state in self.states.items()
            if state.state not in AT_REST
        ] + [
            f"producer {producer_id} has a transaction in {fold.name} since {batches[0].header.base_offset}"
            for log, fold in self.folds.items()
            if log.topic_id in self._replicated.image.topics_by_id
            for producer_id, batches in fold.open_transactions().items()
        ]

    def check_all(self) -> None:
        """Check what every replica knows."""
        for log in self._replicated.logs.values():
            for broker_id in log.registration.replicas:
                replica = self._replicated.replica(log, broker_id)
                if replica is not None:
                    self.check_state(log, replica)
