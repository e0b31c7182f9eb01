"""Producers, partitions, a log and a transaction coordinator in one thread, under a seeded scheduler.

The coordinator, its runner and its partition are the real ones; everything around them misbehaves. Producers of both
protocols share transactional ids, fence each other, and go silent, some for ever. Requests, responses and markers get
lost; those of transaction.version 2 also come late and twice, which the protocol before it does not survive. Appends
fail, the high watermark lags, the coordinator crashes and loses what was not committed, and the next one may find
records that are not committed yet, and lose them as well. In the last part of a run all faults stop.

What must hold, seen from the partitions and from what producers were told:

- all partitions end a transaction the same way, and never both ways;
- a transaction that its producer was told is committed is committed, and one that it was told is aborted is aborted;
- the epochs of a producer id never go back, in the log;
- no transaction stays open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from odradek.coordinators.runner import Runner
from odradek.coordinators.runtime import StateBatch
from odradek.coordinators.transactions.coordinator import TransactionCoordinator, TransactionSettings
from odradek.coordinators.transactions.effects import GetProducerId, WriteMarkers
from odradek.coordinators.transactions.records import decode
from odradek.coordinators.transactions.states import AT_REST
from odradek.errors import ErrorCode, KafkaError
from odradek.model import Caller, TopicPartition
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from tests.coordinators.virtual import CoordinatorWorld, logged_exceptions_raised
from tests.simulation.connection import Violation

IDS = ("tx-a", "tx-b")
PARTITIONS = [TopicPartition("t", index) for index in range(3)]
TIMEOUT_MS = 3_000
FAULTS_STOP_MS = 30_000
END_MS = FAULTS_STOP_MS + 4 * TIMEOUT_MS
SETTINGS = TransactionSettings(
    transactional_id_expiration_ms=20_000,
    transaction_abort_timed_out_transaction_cleanup_interval_ms=500,
    transaction_remove_expired_transaction_cleanup_interval_ms=5_000,
)


@dataclass
class Instance:
    """One transaction of one producer, as that producer knows it."""

    producer: tuple[int, int]
    raises_epoch: bool
    told: bool | None = None  # committed, aborted, or not known
    wanted: bool | None = None
    ends: dict[TopicPartition, bool] = field(default_factory=dict)  # how each partition saw it end


class Partition:
    """A partition, as far as a transaction meets it: epochs, an open transaction, and the coordinator's epoch."""

    def __init__(self, name: TopicPartition) -> None:
        self.name = name
        self.epochs: dict[int, int] = {}
        self.open: dict[int, list[Instance]] = {}
        self.coordinator_epochs: dict[int, int] = {}
        self.markers: dict[int, list[int]] = {}  # the epochs of those written, by producer id

    def append(self, instance: Instance, markers_seen: int) -> None:
        """Verified: unless a marker has come since that may have ended it."""
        producer_id, epoch = instance.producer
        since = self.markers.get(producer_id, [])[markers_seen:]
        has_ended = any(marker > epoch or (marker == epoch and not instance.raises_epoch) for marker in since)
        if epoch < self.epochs.get(producer_id, -1) or has_ended:
            return
        self.epochs[producer_id] = epoch
        opened = self.open.setdefault(producer_id, [])
        if opened and opened[0] is not instance:
            raise Violation(f"{self.name}: {instance} joins {opened[0]}")
        if not opened:
            opened.append(instance)

    def mark(self, markers: WriteMarkers, coordinator_epoch: int) -> ErrorCode:
        producer_id, epoch = markers.producer_id, markers.producer_epoch
        current, is_open = self.epochs.get(producer_id, -1), producer_id in self.open
        if coordinator_epoch < self.coordinator_epochs.get(producer_id, -1):
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        if markers.transaction_version >= 2:
            if epoch == current and not is_open:
                return ErrorCode.NONE  # once more
            if epoch <= current:
                return ErrorCode.INVALID_PRODUCER_EPOCH
        elif epoch < current:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        self.epochs[producer_id], self.coordinator_epochs[producer_id] = epoch, coordinator_epoch
        self.markers.setdefault(producer_id, []).append(epoch)
        for instance in self.open.pop(producer_id, []):
            instance.ends[self.name] = markers.is_commit
        return ErrorCode.NONE


class Producer:
    """Initializes, and then one transaction after the other, each ended or left alone."""

    def __init__(self, world: World, transactional_id: str, raises_epoch: bool) -> None:
        self.world = world
        self.id = transactional_id
        self.raises_epoch = raises_epoch
        self.producer = (-1, -1)
        self.instance: Instance | None = None
        world.after(world.rng.randrange(2_000), self.initialize)

    def initialize(self) -> None:
        expected = self.producer if self.world.rng.random() < 0.3 else (-1, -1)
        self.instance = None

        def heard(response: Any) -> None:
            if response is None or response.error_code:
                self.producer = (-1, -1)
                self.pause(self.initialize)
            else:
                self.producer = (response.producer_id, response.producer_epoch)
                self.pause(self.begin)

        self.world.ask(InitProducerIdRequest(self.id, TIMEOUT_MS, *expected), 5, heard)

    def pause(self, then: Callable[[], None]) -> None:
        rng = self.world.rng
        long = rng.random() < 0.01 and self.world.is_faulty
        self.world.after(rng.randrange(TIMEOUT_MS * 2 if long else 80), then)

    def lose(self) -> None:
        """Another producer has its id: it tries to have it back, but not at once."""
        self.world.after(self.world.rng.randrange(5_000), self.initialize)

    def begin(self) -> None:
        if self.world.host.time_ms > FAULTS_STOP_MS + TIMEOUT_MS:
            return
        self.instance = Instance(self.producer, self.raises_epoch)
        self.world.instances.append(self.instance)
        self.add(self.instance, self.world.rng.sample(PARTITIONS, self.world.rng.randrange(4)))

    def add(self, instance: Instance, partitions: list[TopicPartition]) -> None:
        if instance is not self.instance:
            return
        if not partitions:
            self.end(instance, self.world.rng.random() < 0.6)
            return
        first, rest = partitions[0], partitions[1:]
        partition = self.world.partitions[first]
        markers_seen = len(partition.markers.get(instance.producer[0], []))
        topics = [AddPartitionsToTxnTopic(first.topic, [first.partition])]
        asked = AddPartitionsToTxnTransaction(self.id, *instance.producer, False, topics)

        def heard(response: Any) -> None:
            code = None if response is None else _code_of(response)
            if code is ErrorCode.NONE:
                partition.append(instance, markers_seen)
                self.pause(lambda: self.add(instance, rest))
            elif code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING):
                self.lose()
            else:
                self.pause(lambda: self.add(instance, partitions))

        self.world.ask(AddPartitionsToTxnRequest([asked]), 5 if self.raises_epoch else 3, heard)

    def end(self, instance: Instance, commit: bool) -> None:
        if instance is not self.instance:
            return
        if not self.world.is_faulty and self.world.rng.random() < 0.5:
            return  # it is never heard of again
        instance.wanted = commit
        roll = self.world.rng.random()
        if roll < 0.1 and self.world.is_faulty:
            self.pause(self.initialize)  # it forgets about it
            return

        def heard(response: Any) -> None:
            code = None if response is None else ErrorCode(response.error_code)
            if code is ErrorCode.NONE:
                instance.told = commit
                if response.producer_id >= 0:
                    self.producer = (response.producer_id, response.producer_epoch)
                self.pause(self.begin)
            elif code is None or code.retriable:
                self.pause(lambda: self.end(instance, commit))
            else:
                self.lose()

        request = EndTxnRequest(self.id, *instance.producer, commit)
        self.world.ask(request, 5 if self.raises_epoch else 4, heard)


CoordinatorRunner = Runner[TransactionCoordinator]


class World(CoordinatorWorld[TransactionCoordinator]):
    def __init__(self, seed: int, version: int) -> None:
        super().__init__(1)
        self.rng = Random(seed)
        self.version = version
        self.partitions = {name: Partition(name) for name in PARTITIONS}
        self.instances: list[Instance] = []
        self.next_producer_id = 1
        self.coordinator_epoch = 0
        self.is_up = False
        self.start()
        for number in range(4):
            Producer(self, IDS[number % 2], raises_epoch=version == 2 and number < 3)
        self.after(500, self.misbehave)

    @property
    def is_faulty(self) -> bool:
        return self.host.time_ms < FAULTS_STOP_MS

    def chance(self, probability: float) -> bool:
        return self.is_faulty and self.rng.random() < probability

    def after(self, delay_ms: int, action: Callable[[], None]) -> None:
        self.host.after(delay_ms, action)

    # --- the coordinator ---

    def new_coordinator(self) -> TransactionCoordinator:
        return TransactionCoordinator(SETTINGS, lambda: self.version)

    def start(self, synced_offset: int | None = None) -> None:
        self.coordinator_epoch += 1
        epoch = self.coordinator_epoch
        self.is_up = True
        self.perform = partial(self._perform, epoch)
        self.take_over(synced_offset)
        self.runner.begin_loading()
        self.lags_until_ms = 0
        if synced_offset is not None:
            lag_ms = self.rng.randrange(500)
            self.lags_until_ms = self.host.time_ms + lag_ms
            self.after(lag_ms, lambda: self._sync(epoch))

    def appended(self) -> None:
        epoch = self.coordinator_epoch
        delay_ms = self.rng.randrange(300 if self.chance(0.3) else 3)
        lag_ms = max(self.lags_until_ms - self.host.time_ms, 0)
        self.after(max(delay_ms, lag_ms), lambda: self._sync(epoch))

    def _sync(self, epoch: int) -> None:
        if self.is_up and epoch == self.coordinator_epoch:
            self.commit()

    def before_append(self, batch: StateBatch) -> None:
        if self.chance(0.02):
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)

    def misbehave(self) -> None:
        if not self.is_faulty:
            if not self.is_up:
                self.start()
            return
        is_ahead = False
        if self.is_up:
            self._crash()
        else:
            is_ahead = self.rng.random() < 0.5
            self.start(self._committed if is_ahead else None)
        soon = not self.is_up or is_ahead
        self.after(self.rng.randrange(300 if soon else 4_000), self.misbehave)

    def _crash(self) -> None:
        """Another broker has all that was committed, and some of the rest."""
        self.is_up = False
        self._committed = self.partition.high_watermark
        self.runner.resign()
        ends = [header.next_offset for header, _ in self.log.batches if header.next_offset >= self._committed]
        self.log.truncate(self.rng.choice([self._committed, *ends]))

    def _perform(self, epoch: int, runner: CoordinatorRunner, effect: Any) -> None:
        if isinstance(effect, GetProducerId):
            self._get_producer_id(runner, effect)
            return
        assert isinstance(effect, WriteMarkers)
        missing = set(effect.partitions)
        for name in effect.partitions:
            self._send_marker(runner, effect, name, missing, epoch)

    def _send_marker(
        self,
        runner: CoordinatorRunner,
        markers: WriteMarkers,
        name: TopicPartition,
        missing: set[TopicPartition],
        epoch: int,
    ) -> None:
        """Send it: it arrives, even if its coordinator is not one any more."""

        def arrive() -> None:
            code = self.partitions[name].mark(markers, epoch)
            if code is ErrorCode.TRANSACTION_COORDINATOR_FENCED or self.chance(0.1):
                again()
                return
            missing.discard(name)
            if not missing:
                runner.tell(lambda coordinator, now_ms: coordinator.markers_written(markers, now_ms))

        def again() -> None:
            if runner.is_active:
                self.after(50, lambda: self._send_marker(runner, markers, name, missing, epoch))

        is_late = markers.transaction_version >= 2 and self.chance(0.05)
        delay_ms = self.rng.randrange(3_000 if is_late else 10)
        if self.chance(0.1):
            self.after(100, again)
        else:
            self.after(delay_ms, arrive)
        if markers.transaction_version >= 2 and self.chance(0.1):
            self.after(self.rng.randrange(2_000), lambda: self.partitions[name].mark(markers, epoch))

    def _get_producer_id(self, runner: CoordinatorRunner, wanted: GetProducerId) -> None:
        """Some are refused: the controller is not there."""
        producer_id = self.next_producer_id
        self.next_producer_id += 1
        is_refused = self.chance(0.05)

        def heard() -> None:
            runner.tell(
                lambda coordinator, now_ms: (
                    coordinator.producer_id_refused(wanted, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
                    if is_refused
                    else coordinator.producer_id_got(wanted, producer_id, now_ms)
                )
            )

        self.after(self.rng.randrange(20), heard)

    # --- requests ---

    def ask(self, request: Any, version: int, heard: Callable[[Any], None]) -> None:
        """`heard` gets the response once, or None if it is lost; the request may arrive twice, and late."""
        told: list[None] = []

        def tell(response: Any) -> None:
            if not told:
                told.append(None)
                heard(response)

        def responded(response: Any) -> None:
            if not self.chance(0.05):
                self.after(self.rng.randrange(5), lambda: tell(response))

        def arrive() -> None:
            if self.is_up:  # each time with a token of its own
                self.runner.handle(request, version, Caller(), partial(responded))

        survives = version >= 5
        for _ in range(2 if survives and self.chance(0.05) else 1):
            if not self.chance(0.05):
                self.after(self.rng.randrange(1_500 if survives and self.chance(0.05) else 5), arrive)
        self.after(400 if survives else 1_600, lambda: tell(None))

    # --- what must hold ---

    def check(self) -> None:
        for instance in self.instances:
            ends = set(instance.ends.values())
            if len(ends) > 1:
                raise Violation(f"both ways: {instance}")
            if instance.told is not None and ends and ends != {instance.told}:
                raise Violation(f"not as told: {instance}")
            if ends == {True} and instance.wanted is not True:
                raise Violation(f"committed, though nobody asked for it: {instance}")
        for partition in self.partitions.values():
            if partition.open:
                raise Violation(f"{partition.name} has open transactions: {partition.open}")
        for transaction in self.runner.coordinator.transactions.values():
            if transaction.state not in AT_REST:
                raise Violation(f"not over: {transaction}")
        self._check_log()

    def _check_log(self) -> None:
        epochs: dict[int, int] = {}
        for key, value in self.log.records():
            record = decode(key, value)
            assert record is not None
            transaction = record[1]
            if transaction is None:
                continue
            if transaction.producer_epoch < epochs.get(transaction.producer_id, -1):
                raise Violation(f"an epoch went back: {transaction}")
            epochs[transaction.producer_id] = transaction.producer_epoch

    @property
    def committed(self) -> int:
        return sum(True in instance.ends.values() for instance in self.instances)


def run(seed: int) -> World:
    with logged_exceptions_raised():
        world = World(seed, version=(2, 2, 1)[seed % 3])
        world.host.run_until(END_MS)
        world.check()
    return world


def _code_of(response: Any) -> ErrorCode:
    (result,) = response.results_by_transaction
    return ErrorCode(result.topic_results[0].results_by_partition[0].partition_error_code)
