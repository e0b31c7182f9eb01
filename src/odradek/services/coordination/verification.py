"""Before the first batch of a transaction is appended to a partition, the transaction's coordinator is asked.

A batch of a transaction that its coordinator does not know of would never be committed or aborted, and would hold back
`read_committed` consumers for ever. Clients of the older protocol have added the partition themselves, and the
coordinator only verifies that; with `transaction.version` 2 the first Produce (version 12) or TxnOffsetCommit
(version 5) adds it.

What is asked in one turn of the event loop goes to a coordinator in one AddPartitionsToTxn, and no more than
`MAX_UNDER_WAY` of them wait for a response: what is asked meanwhile goes with the next. A transactional id is named
once in each request. A coordinator on this broker is asked at once, and mostly answers at once: then the batch is
appended in the turn of the event loop in which it came.

The guard against a transaction that ends between the response and the append is in the log: see
`storage.producers.verification`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence

from odradek.coordinators.routing import partition_of
from odradek.errors import ErrorCode, KafkaError, ProtocolError
from odradek.host.log_lines import counted
from odradek.metadata.image import NO_LEADER
from odradek.model import (
    EPOCH_FOR_EACH_TRANSACTION,
    OFFSETS_TOPIC,
    TRANSACTIONS_TOPIC,
    TopicPartition,
)
from odradek.records.batch import NO_SEQUENCE
from odradek.replication.leader import Leader
from odradek.serving.coordination import FirstBatch
from odradek.serving.services import Services
from odradek.storage.producers.verification import NOT_REQUIRED, Verification
from odradek.wire.codec import Message
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

log = logging.getLogger(__name__)

# Since these versions a request adds partitions, if the cluster agrees.
PRODUCE_ADDS_SINCE = 12
OFFSETS_ADD_SINCE = 5
# Since these versions clients know TRANSACTION_ABORTABLE.
PRODUCE_KNOWS_ABORTABLE_SINCE = 11
OFFSETS_KNOW_ABORTABLE_SINCE = 4
ADD_PARTITIONS_VERSION = 5  # knows TRANSACTION_ABORTABLE too
MAX_UNDER_WAY = 20  # requests to one coordinator
# How long a coordinator may take, if `request.timeout.ms` is not shorter: the client asks again, and perhaps another
# broker has become the coordinator meanwhile.
LONGEST_WAIT_SECONDS = 5.0
# A transaction may begin while the markers of the one before it are still written: that takes a moment, and clients
# that were told of it would wait longer.
FIRST_PAUSE_SECONDS = 0.001  # twice as long after each further one
LONGEST_PAUSE_SECONDS = 0.02
CONCURRENT_PATIENCE_SECONDS = 0.1

Errors = Mapping[TopicPartition, ErrorCode]  # of the partitions that were not verified
Outcomes = ErrorCode | Mapping[str, Errors]  # by transactional id, or one for all

# Producers of all ages retry NOT_ENOUGH_REPLICAS, and do not look for another leader because of it.
TRY_AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
# The same for TxnOffsetCommit, whose clients know the errors of a coordinator.
SEEN_BY_GROUPS = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}


Verified = list[Verification | KafkaError]  # for each batch: what it is appended with, or why it must not be
Begun = Sequence[tuple[Leader, Verification]]  # verifications under way, of one transaction


class Question:
    """About one transaction, which has the partitions or gets them."""

    __slots__ = ("_when_answered", "errors", "partitions", "transaction")

    def __init__(
        self, transaction: AddPartitionsToTxnTransaction, partitions: Collection[TopicPartition]
    ) -> None:
        self.transaction = transaction
        self.partitions = partitions
        self.errors: Errors | None = None  # the response, once it is there
        self._when_answered: asyncio.Future[None] | None = None

    def refuse(self, code: ErrorCode) -> None:
        self.reply(dict.fromkeys(self.partitions, code))

    def reply(self, errors: Errors) -> None:
        self.errors = errors
        if self._when_answered is not None and not self._when_answered.done():
            self._when_answered.set_result(None)

    async def answer(self) -> Errors:
        if self.errors is None:
            self._when_answered = asyncio.get_running_loop().create_future()
            await self._when_answered
        assert self.errors is not None
        return self.errors


class Verifier:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._coordinators: dict[int, AskedCoordinator] = {}  # by broker id

    # --- Produce ---

    def verify(
        self, version: int, transactional_id: str, batches: Sequence[FirstBatch]
    ) -> Verified | Awaitable[Verified]:
        """Verify the first batches of one transaction in some partitions, all of one producer, sent in a Produce of
        this version: what each is appended with, or why it must not be.
        """
        adds = self._adds(version >= PRODUCE_ADDS_SINCE)
        if not adds and not self._is_required:
            return [NOT_REQUIRED] * len(batches)
        begun = [self._begin(batch, adds) for batch in batches]
        question = self._ask(transactional_id, begun, adds)
        if question.errors is not None and not _may_ask_again(question.errors, adds):
            return _verified(version, begun, question.errors)
        return self._verify_later(version, begun, adds, question)

    async def _verify_later(self, version: int, begun: Begun, adds: bool, question: Question) -> Verified:
        return _verified(version, begun, await self._settle(begun, adds, question))

    # --- TxnOffsetCommit ---

    async def verify_offsets(
        self,
        version: int,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partition: int,
    ) -> ErrorCode:
        """Before offsets of a group whose coordinator has this partition become part of a transaction. The caller must
        append them in the same turn of the event loop: later, the transaction may have ended."""
        adds = self._adds(version >= OFFSETS_ADD_SINCE)
        if not adds and not self._is_required:
            return ErrorCode.NONE
        try:
            leader = self._services.partitions.replicas.leader(OFFSETS_TOPIC, partition)
            if leader.log.producers.has_open_transaction(producer_id, producer_epoch):
                return ErrorCode.NONE
            begun = self._begin(FirstBatch(leader, producer_id, producer_epoch, NO_SEQUENCE), adds)
        except KafkaError as error:
            return SEEN_BY_GROUPS.get(error.code, error.code)
        errors = await self._settle([begun], adds, self._ask(transactional_id, [begun], adds))
        _give_up_refused([begun], errors)
        code = errors.get(leader.topic_partition)
        if code is not None:
            code = _seen_by_client(code, version >= OFFSETS_KNOW_ABORTABLE_SINCE)
            return SEEN_BY_GROUPS.get(code, code)
        producers = leader.log.producers
        is_open = producers.is_known(begun[1]) or producers.has_open_transaction(producer_id, producer_epoch)
        return ErrorCode.NONE if is_open else ErrorCode.INVALID_TXN_STATE

    # --- both ---

    @property
    def _is_required(self) -> bool:
        return bool(self._services.node.config["transaction.partition.verification.enable"])

    def _adds(self, is_new_enough: bool) -> bool:
        """The level that the cluster agrees on decides, and the client's version."""
        return is_new_enough and self._services.cluster.transaction_version >= EPOCH_FOR_EACH_TRANSACTION

    def _begin(self, batch: FirstBatch, adds: bool) -> tuple[Leader, Verification]:
        leader, producer_id, producer_epoch, sequence = batch
        now_ms = self._services.node.host.now_ms()
        verification = leader.log.producers.begin_verification(
            producer_id, producer_epoch, sequence, now_ms, expects_sequence_zero=adds
        )
        return leader, verification

    def _ask(self, transactional_id: str, begun: Begun, adds: bool) -> Question:
        _, first = begun[0]
        partitions = {leader.topic_partition: None for leader, _ in begun}
        transaction = AddPartitionsToTxnTransaction(
            transactional_id,
            first.producer_id,
            first.producer_epoch,
            verify_only=not adds,
            topics=_by_topic(partitions),
        )
        question = Question(transaction, partitions)
        broker_id = self._coordinator_of(transactional_id)
        if broker_id == NO_LEADER:
            question.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            coordinator = self._coordinators.get(broker_id)
            if coordinator is None:
                coordinator = self._coordinators[broker_id] = AskedCoordinator(self._services, broker_id)
            coordinator.ask(question)
        return question

    async def _settle(self, begun: Begun, adds: bool, question: Question) -> Errors:
        """The response. The question is asked again if the transaction before is still being ended."""
        patience_ends = self._services.node.host.monotonic() + CONCURRENT_PATIENCE_SECONDS
        pause_seconds = FIRST_PAUSE_SECONDS
        while True:
            errors = await question.answer()
            if not _may_ask_again(errors, adds) or self._services.node.host.monotonic() >= patience_ends:
                return errors
            await asyncio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)
            question = self._ask(question.transaction.transactional_id, begun, adds)

    def _coordinator_of(self, transactional_id: str) -> int:
        """The leader of the partition that has this id, from the metadata: as FindCoordinator finds it."""
        topic = self._services.cluster.image.topics.get(TRANSACTIONS_TOPIC)
        if topic is None or not topic.partitions:
            return NO_LEADER
        return topic.partitions[partition_of(transactional_id, len(topic.partitions))].leader


class AskedCoordinator:
    """One broker, and what is asked of its coordinators."""

    def __init__(self, services: Services, broker_id: int) -> None:
        self._services = services
        self._broker_id = broker_id
        self._is_here = broker_id == services.node.id
        self._waiting: deque[Question] = deque()
        self._under_way = 0
        self._is_due = False  # a request will be sent at the end of this turn of the event loop

    def ask(self, question: Question) -> None:
        self._waiting.append(question)
        if self._is_here and not self._is_due and self._under_way < MAX_UNDER_WAY:
            self._send()
        else:
            self._maybe_send_soon()

    def _maybe_send_soon(self) -> None:
        if not self._is_due and self._waiting and self._under_way < MAX_UNDER_WAY:
            self._is_due = True
            self._services.node.host.call_soon(self._send)

    def _send(self) -> None:
        self._is_due = False
        questions = self._take()
        self._under_way += 1
        message = AddPartitionsToTxnRequest([question.transaction for question in questions.values()])
        timeout_seconds = min(self._services.node.config["request.timeout.ms"] / 1000, LONGEST_WAIT_SECONDS)
        try:
            response = self._services.coordination.peers.ask(
                self._broker_id, message, ADD_PARTITIONS_VERSION, timeout_seconds
            )
        except Exception as error:
            self._heard(questions, self._failed(error))
            return
        if isinstance(response, AddPartitionsToTxnResponse):
            self._heard(questions, _errors_of(response))
        else:
            assert isinstance(response, Awaitable)
            self._services.node.host.create_task(self._hear(questions, response))
            self._maybe_send_soon()

    def _take(self) -> dict[str, Question]:
        """Take questions from the queue, by transactional id, each of which is in a request once."""
        questions: dict[str, Question] = {}
        later: deque[Question] = deque()
        for question in self._waiting:
            known = questions.setdefault(question.transaction.transactional_id, question)
            if known is not question:
                later.append(question)
        self._waiting = later
        return questions

    async def _hear(self, questions: Mapping[str, Question], response: Awaitable[Message]) -> None:
        try:
            errors = _errors_of(await response)
        except Exception as error:
            errors = self._failed(error)
        self._heard(questions, errors)

    def _heard(self, questions: Mapping[str, Question], outcomes: Outcomes) -> None:
        self._under_way -= 1
        self._maybe_send_soon()
        for transactional_id, question in questions.items():
            if isinstance(outcomes, ErrorCode):
                question.refuse(outcomes)
            elif (errors := outcomes.get(transactional_id)) is None:
                question.refuse(ErrorCode.UNKNOWN_SERVER_ERROR)
            else:
                question.reply(errors)

    def _failed(self, error: Exception) -> ErrorCode:
        if isinstance(error, (OSError, ProtocolError)):
            self._tell_of_failure(error)
            return ErrorCode.NETWORK_EXCEPTION
        log.error(
            "a question to broker %d about transactions failed: this is a bug",
            self._broker_id,
            exc_info=error,
        )
        return ErrorCode.UNKNOWN_SERVER_ERROR

    def _tell_of_failure(self, error: Exception) -> None:
        counted(
            log,
            logging.WARNING,
            f"broker {self._broker_id}",
            "a transaction could not be verified",
            "cannot ask broker %d about transactions, so their records are refused until it responds: %s",
            self._broker_id,
            error,
        )


def _errors_of(response: Message) -> Outcomes:
    assert isinstance(response, AddPartitionsToTxnResponse)
    if response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return ErrorCode.INVALID_TXN_STATE  # that is between the brokers, and not for the client
    if response.error_code:
        return ErrorCode(response.error_code)
    return {
        result.transactional_id: {
            TopicPartition(topic.name, partition.partition_index): ErrorCode(partition.partition_error_code)
            for topic in result.topic_results
            for partition in topic.results_by_partition
            if partition.partition_error_code
        }
        for result in response.results_by_transaction
    }


def _may_ask_again(errors: Errors, adds: bool) -> bool:
    """The transaction before is still being ended."""
    return adds and ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()


def _give_up_refused(begun: Begun, errors: Errors) -> None:
    """A verification that no retry can bring to an end is forgotten."""
    for leader, verification in begun if errors else ():
        code = errors.get(leader.topic_partition)
        if code is not None and code not in TRY_AGAIN:
            leader.log.producers.give_up(verification)


def _verified(version: int, begun: Begun, errors: Errors) -> Verified:
    _give_up_refused(begun, errors)
    return [
        verification
        if (code := errors.get(leader.topic_partition)) is None
        else _seen_by_producer(code, version)
        for leader, verification in begun
    ]


def _by_topic(partitions: Iterable[TopicPartition]) -> list[AddPartitionsToTxnTopic]:
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for name, index in partitions:
        topics.setdefault(name, AddPartitionsToTxnTopic(name)).partitions.append(index)
    return list(topics.values())


def _seen_by_client(code: ErrorCode, knows_abortable: bool) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code


def _seen_by_producer(code: ErrorCode, version: int) -> KafkaError:
    code = _seen_by_client(code, version >= PRODUCE_KNOWS_ABORTABLE_SINCE)
    if code is ErrorCode.CONCURRENT_TRANSACTIONS and version >= PRODUCE_ADDS_SINCE:
        return KafkaError(code)  # these clients know that their last transaction may still be ending
    if code in TRY_AGAIN:
        reason = f"Unable to verify the partition has been added to the transaction: {code.name}"
        return KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, reason)
    if code is ErrorCode.INVALID_TXN_STATE:
        return KafkaError(code, "Partition was not added to the transaction")
    return KafkaError(code)
