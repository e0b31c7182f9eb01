"""Producers with transactions, in both protocols, that behave as clients do, or stop behaving at all.

A `Worker` owns a transactional id, and sees to it that there is a producer with it: an `Instance`, a process. An
instance consumes numbers (the position is the offset of its group), writes records to several partitions, sends the new
position, and commits or aborts. Some stop dead in the middle: their timeout, or the next instance, has to end what they
began. Some stand still for so long that they are replaced, wake up, and go on. After lost responses they ask again.
Frames that were held up arrive when their transaction is long over.

The newer protocol is that of transaction.version 2: a Produce adds its partition, and every end raises the epoch.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from odradek.errors import ErrorCode
from odradek.records.record import Record, build_batch
from odradek.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.cluster.router import GROUP, TRANSACTION
from tests.cluster.traffic import AGAIN as LEADER_AGAIN
from tests.cluster.traffic import PRODUCE_TIMEOUT_MS, START_MS, ClusterClient
from tests.simulation.connection import Connection, Disconnected, Violation
from tests.simulation.log_history import PartitionHistory
from tests.transactions.ledger import Attempt
from tests.transactions.membership import REFUSED_OFFSETS, Membership
from tests.transactions.play import CONSUMED, GROUP_AGAIN, TransactionPlay, offsets_request
from tests.transactions.readers import OFFSETS_VERSION

TIMEOUT_MS = 1_500
PATIENCE_SECONDS = 2.5  # with one batch; then the transaction is aborted
TOPIC_IDS_SINCE = 13
MEMBERS_SINCE = 3  # TxnOffsetCommit
KEYS = [b"k0", b"k1", b"k2"]

COORDINATOR_AGAIN = GROUP_AGAIN | {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
# A Produce that adds its partition may come while the last transaction is still being ended.
PRODUCE_AGAIN = {*LEADER_AGAIN, ErrorCode.CONCURRENT_TRANSACTIONS}
FENCED = {
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}


NewMembership = Callable[[str], Membership]  # by the name of its client


class Versions(NamedTuple):
    """Versions of the requests of one producer. The cluster's transaction.version, too, decides on its protocol."""

    is_newer: bool
    produce: int
    init: int
    end: int
    offsets: int


NEWER = (Versions(True, 12, 5, 5, 5), Versions(True, 13, 5, 5, 5))
OLDER = (Versions(False, 11, 4, 4, 4), Versions(False, 9, 2, 2, 2), Versions(False, 11, 3, 3, 3))
OLDER_BY_LEVEL = (*OLDER, Versions(False, 13, 5, 5, 5))  # where transaction.version is below 2


class Gone(Exception):
    """The process has ended."""


class Fenced(Gone):
    """Another one has taken its place, or it was silent for too long."""


class Abortable(Exception):
    """The transaction cannot go on: it has to be aborted."""


class Instance(ClusterClient):
    play: TransactionPlay

    def __init__(
        self,
        play: TransactionPlay,
        name: str,
        transactional_id: str,
        versions: Versions,
        consumes: bool,
        membership: Membership | None = None,
    ) -> None:
        """Without a membership its group is its own, and it is no member."""
        super().__init__(play, name)
        self.transactional_id = transactional_id
        self._membership = membership
        self._group = membership.group if membership is not None else transactional_id
        self._versions = versions
        self._consumes = consumes
        self._producer = (-1, -1)
        self._sequences: dict[PartitionHistory, int] = {}
        self._added: set[PartitionHistory] = set()  # to the transaction, by the older protocol
        self._is_in_doubt = False  # a batch was sent, and may still arrive
        self._coordinators: dict[int, int] = {}  # by type of key
        self.is_stalled = False
        self.is_gone = False
        self.died = False

    # --- its life ---

    async def serve(self) -> None:
        try:
            if self._membership is not None:
                self.play.world.spawn(self._membership.beat())
                await self._membership.poll()
            await self._initialize()
            while True:
                self._check_alive()
                await self.pause(0.1)
                await self._transaction()
        except Fenced:
            self.play.ledger.count("fenced producers")
        except Gone:
            self.died = True
        finally:
            self.is_gone = True
            if self._membership is not None:
                self._membership.is_gone = True
            self.hang_up()

    def _check_alive(self) -> None:
        if self.play.is_over:
            raise Gone

    async def _transaction(self) -> None:
        attempt = self.play.ledger.begin(
            self.transactional_id, *self._producer, self._versions.is_newer, self._group
        )
        self._added = set()
        course = self.rng.choices(["commit", "abort", "hold", "die", "stall"], [60, 14, 8, 8, 10])[0]
        steps = await self._plan(attempt)
        stop = self.rng.randint(1, len(steps)) if course in ("die", "stall") else -1
        try:
            for number, step in enumerate(steps):
                if number == stop:
                    await self._stop(course)
                await step()
            if stop == len(steps):
                await self._stop(course)
        except Abortable:
            course = "abort"
        if course == "hold":
            try:
                await self._hold(attempt)
                await self.pause(0.03)  # it may be about to be verified when the transaction ends
            except Abortable:
                pass
        await self._end(attempt, course in ("commit", "stall"))

    async def _plan(self, attempt: Attempt) -> list[Callable[[], Awaitable[None]]]:
        partitions = self.play.partitions()
        chosen = self.rng.sample(partitions, self.rng.randint(1, min(3, len(partitions))))
        steps: list[Callable[[], Awaitable[None]]] = [
            lambda partition=partition: self._produce(attempt, partition)  # type: ignore[misc]
            for partition in chosen
            for _ in range(self.rng.choice([1, 1, 2]))
        ]
        self.rng.shuffle(steps)
        consumes = self._consumes if self._membership is None else await self._membership.poll()
        if consumes and self.rng.random() < 0.7:
            position = await self._position()
            end = position + self.rng.randint(1, 5)
            steps.insert(self.rng.randint(0, len(steps)), lambda: self._send_offsets(attempt, position, end))
        return steps

    async def _stop(self, course: str) -> None:
        if course == "die":
            self.play.count("producers that died")
            raise Gone
        self.play.count("producers that stood still")
        self.is_stalled = True
        if self._membership is not None:
            self._membership.is_still = True
        await asyncio.sleep(0.1 + self.rng.random() * 2.0)
        if self._membership is not None:
            self._membership.is_still = False

    # --- coordinators ---

    async def _ask_coordinator(self, key_type: int, request: Any, version: int) -> Any:
        """Raises Disconnected."""
        connection = await self._coordinator(key_type)
        try:
            return await connection.ask(request, version)
        except Disconnected:
            self._coordinators.pop(key_type, None)
            raise

    async def _coordinator(self, key_type: int) -> Connection:
        if key_type not in self._coordinators:
            key = self._group if key_type == GROUP else self.transactional_id
            found = await self.router.coordinator_of(key, key_type)
            if found is None:
                raise Disconnected("no coordinator")
            self._coordinators[key_type] = found
        try:
            return await self.router.connection_to(self._coordinators[key_type])
        except Disconnected:
            self._coordinators.pop(key_type, None)
            raise

    async def _try_again(self, key_type: int, code: int) -> None:
        if code in GROUP_AGAIN:
            self._coordinators.pop(key_type, None)
        await self.pause(0.06)

    async def _until_done(
        self,
        attempt: Attempt | None,
        key_type: int,
        request: Any,
        version: int,
        codes_of: Callable[[Any], list[int]],
    ) -> Any:
        """Ask until it is answered without an error that passes. Raises Fenced, Abortable, Gone."""
        tries = 0
        while True:
            self._check_alive()
            newest = self.play.ledger.initialized.get(self.transactional_id)
            try:
                response = await self._ask_coordinator(key_type, request, version)
            except Disconnected:
                tries += 1
                await self.pause(0.06)
                continue
            codes = set(codes_of(response)) - {ErrorCode.NONE}
            if not codes:
                if attempt is not None and not tries:
                    self.play.ledger.check_accepted(attempt, newest, type(request).__name__)
                return response
            for code in codes - COORDINATOR_AGAIN - {ErrorCode.OPERATION_NOT_ATTEMPTED}:
                self._refused(attempt, type(request).__name__, code)
            await self._try_again(key_type, codes.pop())

    def _refused(self, attempt: Attempt | None, what: str, code: int) -> None:
        """Note that it was refused for good."""
        if code in FENCED:
            self._check_is_fenced(attempt, what, code)
            raise Fenced
        is_abortable = code in (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE)
        if is_abortable or (self._membership is not None and code in REFUSED_OFFSETS):
            self.play.count(f"responses with {ErrorCode(code).name}")
            raise Abortable
        raise Violation(f"{what} of {attempt} was answered with {ErrorCode(code).name}")

    def _check_is_fenced(self, attempt: Attempt | None, what: str, code: int) -> None:
        """Somebody, or the timeout, has raised the epoch. A coordinator that was replaced, and does not know it yet,
        may not have heard of the producer's epoch."""
        state = self.play.witness.states.get(self.transactional_id)
        log = self.play.coordinator_log(self.transactional_id)
        if log is None or log.registration.leader != self._coordinators.get(TRANSACTION):
            return
        if state is None or self.play.witness.may_expire(state):
            return
        if (state.producer_id, state.producer_epoch) == self._producer:
            raise Violation(
                f"{what} of {attempt} was answered with {ErrorCode(code).name}, and nobody has taken its place"
            )

    async def _initialize(self) -> None:
        """Initialize: those before it are fenced; or, if it was initialized before, only its epoch rises."""
        ledger = self.play.ledger
        request = InitProducerIdRequest(self.transactional_id, TIMEOUT_MS, *self._producer)
        ledger.initializing[self.transactional_id] = ledger.initializing.get(self.transactional_id, 0) + 1
        try:
            response = await self._until_done(
                None, TRANSACTION, request, self._versions.init, lambda response: [response.error_code]
            )
        finally:
            ledger.initializing[self.transactional_id] -= 1
        ledger.take_init(self.transactional_id, response)
        self._begin_epoch(response.producer_id, response.producer_epoch)

    def _begin_epoch(self, producer_id: int, epoch: int) -> None:
        self._producer = producer_id, epoch
        self._sequences.clear()
        self._is_in_doubt = False

    # --- records ---

    def _batch(self, attempt: Attempt, partition: PartitionHistory) -> tuple[list[int], int, ProduceRequest]:
        """The next of this partition: the numbers of its records, its sequence, and the request."""
        place = partition.topic.name, partition.index
        numbers = attempt.new_records(place, self.rng.choice([1, 1, 2]))
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + len(numbers)
        now_ms = START_MS + int(self.play.world.now() * 1000)
        records = [
            Record(at, now_ms, KEYS[number % len(KEYS)], attempt.value(number))
            for at, number in enumerate(numbers)
        ]
        batch = build_batch(
            records,
            producer_id=attempt.producer_id,
            producer_epoch=attempt.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = [PartitionProduceData(partition.index, bytes(batch))]
        if self._versions.produce >= TOPIC_IDS_SINCE:
            topic = TopicProduceData(topic_id=partition.topic.id, partition_data=data)
        else:
            topic = TopicProduceData(name=partition.topic.name, partition_data=data)
        return numbers, sequence, ProduceRequest(self.transactional_id, -1, PRODUCE_TIMEOUT_MS, [topic])

    async def _produce(self, attempt: Attempt, partition: PartitionHistory) -> None:
        if not self._versions.is_newer and partition not in self._added:
            await self._add(attempt, partition)
        numbers, sequence, request = self._batch(attempt, partition)
        newest = self.play.ledger.initialized.get(self.transactional_id)
        patience_ends = self.play.world.now() + PATIENCE_SECONDS
        tries = 0
        while True:
            self._check_alive()
            try:
                connection, _ = await self.leader_of(partition)
                response = await connection.ask(request, self._versions.produce)
            except Disconnected:
                tries += 1
                code = int(ErrorCode.NETWORK_EXCEPTION)
            else:
                (result,) = response.responses[0].partition_responses
                code = result.error_code
                if code == ErrorCode.NONE:
                    break
                if not partition.topic.is_stable:
                    code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                    patience_ends = 0.0
                if code not in PRODUCE_AGAIN:
                    self._is_in_doubt = True
                    if code == ErrorCode.INVALID_PRODUCER_EPOCH:
                        raise Abortable  # if it is fenced, the coordinator will say so
                    self._refused(attempt, f"sequence {sequence} for {partition.name}", code)
            if self.play.world.now() > patience_ends:
                self._is_in_doubt = True
                self.play.count("batches given up")
                raise Abortable
            await self.pause(0.06)
            try:
                await self.router.refresh()
            except Disconnected:
                pass
        if not tries:
            self.play.ledger.check_accepted(attempt, newest, f"sequence {sequence} for {partition.name}")
        if not partition.topic.is_stable:
            self._is_in_doubt = True  # this may have been about the next topic of that name
            raise Abortable
        self.play.check_stored(partition, attempt, sequence, result.base_offset)
        attempt.acknowledged.setdefault((partition.topic.id, partition.index), []).extend(numbers)
        self.play.acknowledged += 1
        if self.rng.random() < 0.1:
            self._send_late(attempt, partition, request, result.base_offset)

    async def _add(self, attempt: Attempt, partition: PartitionHistory) -> None:
        topics = [AddPartitionsToTxnTopic(partition.topic.name, [partition.index])]
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=attempt.producer_id,
            v3_and_below_producer_epoch=attempt.epoch,
            v3_and_below_topics=topics,
        )
        await self._until_done(
            attempt,
            TRANSACTION,
            request,
            min(3, self._versions.end),
            lambda response: [
                partition.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for partition in topic.results_by_partition
            ],
        )
        self._added.add(partition)

    # --- offsets ---

    async def _position(self) -> int:
        """Return where the group goes on."""
        while True:
            self._check_alive()
            try:
                connection = await self._coordinator(GROUP)
                before = self.play.before(self._group, self._coordinators[GROUP], True)
                request = offsets_request(self._group, True)
                (found,) = (await connection.ask(request, OFFSETS_VERSION)).groups
            except Disconnected:
                self._coordinators.pop(GROUP, None)
                await self.pause(0.06)
                continue
            if found.error_code and found.error_code not in GROUP_AGAIN:
                raise Violation(f"OffsetFetch was answered with {ErrorCode(found.error_code).name}")
            if not found.error_code:
                position = self.play.check_position(self._group, before, found.topics[0].partitions[0])
                if position is not None:
                    return position
            await self._try_again(GROUP, ErrorCode.NOT_COORDINATOR)

    async def _send_offsets(self, attempt: Attempt, position: int, end: int) -> None:
        member = self._membership
        if member is not None and self.rng.random() < 0.4:
            await member.stand_still()
        if not self._versions.is_newer:
            request = AddOffsetsToTxnRequest(
                self.transactional_id, attempt.producer_id, attempt.epoch, self._group
            )
            await self._until_done(
                attempt,
                TRANSACTION,
                request,
                min(3, self._versions.end),
                lambda response: [response.error_code],
            )
        attempt.start, attempt.end = position, end
        topic, index = CONSUMED
        partitions = [TxnOffsetCommitRequestPartition(index, end, committed_metadata=attempt.metadata)]
        commit = TxnOffsetCommitRequest(
            self.transactional_id,
            self._group,
            attempt.producer_id,
            attempt.epoch,
            topics=[TxnOffsetCommitRequestTopic(topic, partitions)],
        )
        owner = self.play.owners.get(self._group)
        if member is not None:
            commit.generation_id, commit.member_id = member.generation, member.member_id
            commit.group_instance_id = member.instance_id
        await self._until_done(
            attempt,
            GROUP,
            commit,
            self._versions.offsets,
            lambda response: [
                partition.error_code for topic in response.topics for partition in topic.partitions
            ],
        )
        if member is not None:
            member.check_taken(owner, f"an offset of {attempt}", commit.member_id, commit.generation_id)
        attempt.offsets_acknowledged = True

    # --- the end of a transaction ---

    async def _end(self, attempt: Attempt, is_commit: bool) -> None:
        request = EndTxnRequest(self.transactional_id, attempt.producer_id, attempt.epoch, is_commit)
        attempt.asked = is_commit
        newest = self.play.ledger.initialized.get(self.transactional_id)
        tries = 0
        while True:
            self._check_alive()
            try:
                connection = await self._coordinator(TRANSACTION)
                response = connection.send(request, self._versions.end)
                if tries < 2 and self.rng.random() < 0.12:
                    await self._lose_response(connection)
                ended = await connection.until(response)
            except Disconnected:
                tries += 1
                self._coordinators.pop(TRANSACTION, None)
                await self.pause(0.06)
                continue
            code = ended.error_code
            if code == ErrorCode.NONE:
                break
            if code not in COORDINATOR_AGAIN:
                self.play.ledger.take_refusal(attempt, is_commit, code)
                if code not in FENCED and code != ErrorCode.INVALID_TXN_STATE:
                    raise Violation(f"the end of {attempt} was answered with {ErrorCode(code).name}")
                self._check_is_fenced(attempt, "the end", code)
                raise Fenced
            await self._try_again(TRANSACTION, code)
        await self._ended(attempt, is_commit, ended, request, None if tries else newest)

    async def _ended(
        self,
        attempt: Attempt,
        is_commit: bool,
        response: Any,
        request: EndTxnRequest,
        newest: tuple[int, int] | None,
    ) -> None:
        self.play.ledger.check_accepted(attempt, newest, "the end")
        if not self.play.witness.has_decided(attempt, is_commit):
            raise Violation(f"T7: {attempt} was answered as ended before that was committed")
        after = self.play.ledger.take_end(attempt, is_commit, response)
        if self._versions.is_newer:
            if self.rng.random() < 0.15:
                self._send_late_end(request)
            self._begin_epoch(*after)
        elif self._is_in_doubt:
            await self._initialize()

    async def _lose_response(self, connection: Connection) -> None:
        await self.pause(0.02)
        self.play.count("lost ends")
        connection.close("the client loses it")

    # --- frames that come late ---

    async def _hold(self, attempt: Attempt) -> None:
        """A batch that was sent in this transaction, which is aborted, arrives some time from now."""
        partition = self.rng.choice(self.play.partitions())
        if not self._versions.is_newer and partition not in self._added and self.rng.random() < 0.8:
            await self._add(attempt, partition)
        _, _, request = self._batch(attempt, partition)
        self._is_in_doubt = True
        self._send_late(attempt, partition, request, None)

    def _send_late(
        self, attempt: Attempt, partition: PartitionHistory, request: Any, base_offset: int | None
    ) -> None:
        self.play.world.spawn(self._arrive_late(attempt, partition, request, base_offset))

    async def _arrive_late(
        self, attempt: Attempt, partition: PartitionHistory, request: Any, base_offset: int | None
    ) -> None:
        """Let it arrive late; with `base_offset`, it got a response with that before."""
        await asyncio.sleep(self.rng.choice([0.0, 0.02, 0.1, 0.5, 1.5]) * self.rng.random())
        leader = self.play.log_of(partition).registration.leader
        machines = self.play.cluster.machines
        if leader not in machines or self.play.is_over:
            return
        try:
            connection = await self.play.world.connect(f"{self.name}-late", machines[leader])
            response = await connection.ask(request, self._versions.produce)
            connection.close()
        except Disconnected:
            return
        (result,) = response.responses[0].partition_responses
        self.play.count("late batches taken" if not result.error_code else "late batches refused")
        if not partition.topic.is_stable:
            return  # the next topic of that name may have taken it
        if result.error_code == ErrorCode.NONE and base_offset not in (None, result.base_offset):
            raise Violation(
                f"T1: a batch of {attempt} was acknowledged at {base_offset} of {partition.name}, and when it came "
                f"again at {result.base_offset}"
            )

    def _send_late_end(self, request: EndTxnRequest) -> None:
        self.play.world.spawn(self._arrive_late_end(request))

    async def _arrive_late_end(self, request: EndTxnRequest) -> None:
        await asyncio.sleep(self.rng.random() * 0.5)
        if self.play.is_over:
            return
        try:
            coordinator = await self.router.coordinator_of(self.transactional_id, TRANSACTION)
            if coordinator is None:
                return
            machine = self.play.cluster.machines[coordinator]
            connection = await self.play.world.connect(f"{self.name}-late", machine)
            response = await connection.ask(request, self._versions.end)
            connection.close()
        except Disconnected:
            return
        self.play.count("late ends taken" if not response.error_code else "late ends refused")


class Worker:
    """Whoever runs the instances of one transactional id: at least one, but for some time after a death."""

    def __init__(
        self,
        play: TransactionPlay,
        transactional_id: str,
        versions: tuple[Versions, ...],
        consumes: bool,
        new_membership: NewMembership | None = None,
    ) -> None:
        self._play = play
        self._new_membership = new_membership
        self.transactional_id = transactional_id
        self._rng = play.world.new_rng()
        self._versions = versions
        if new_membership is not None:
            self._versions = tuple(each for each in versions if each.offsets >= MEMBERS_SINCE)
        self._consumes = consumes
        self._count = 0

    async def live(self) -> None:
        tasks = []
        while not self._play.is_over:
            instance = self._new_instance()
            tasks.append(self._play.world.spawn(instance.serve()))
            while not (instance.is_gone or instance.is_stalled or self._play.is_over):
                await asyncio.sleep(0.03)
            if instance.died and self._rng.random() < 0.5:
                await asyncio.sleep(TIMEOUT_MS / 1000 + 0.3)
            else:
                await asyncio.sleep(self._rng.random() * 0.2)
        for task in tasks:
            await task

    def _new_instance(self) -> Instance:
        self._count += 1
        versions = self._rng.choice(self._versions)
        name = f"{self.transactional_id}.{self._count}"
        membership = self._new_membership(f"{name}-member") if self._new_membership is not None else None
        return Instance(self._play, name, self.transactional_id, versions, self._consumes, membership)
