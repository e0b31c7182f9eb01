"""A producer whose batches belong to transactions, by the older of Kafka's two protocols.

Before a partition gets its first batch of a transaction, it is added to it (AddPartitionsToTxn); EndTxn leaves the
epoch as it is, so a retry looks like the request itself. That protocol is served by every cluster, also by those that
offer the newer one (`connection.HIGHEST_VERSIONS` keeps to it).

There is no abort by EndTxn: a batch of the aborted transaction that arrives late would begin one that nobody ends.
Whoever wants to abort initializes again, which raises the epoch first.

Each producer has its own id and sequences, and never those that a cluster keeps for the producers without transactions.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from odradek.client.cluster import TRANSACTION, Cluster, Node, ProducerId
from odradek.client.connection import Connection, ConnectionLost
from odradek.client.producing import EncodedRecords, Producer, ProducerState, TransactionalState
from odradek.client.settings import ProduceSettings
from odradek.errors import ErrorCode, KafkaError
from odradek.model import TopicPartition
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from odradek.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from odradek.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

SHORT_PAUSE_S = 0.02  # a transaction that is being completed takes milliseconds
LEAST_TIMEOUT_MS = 1000
FENCED_CODES = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
GONE_CODES = frozenset(
    {
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.TRANSACTION_ABORTABLE,
    }
)
ABORTING = frozenset({"PrepareAbort", "CompleteAbort", "PrepareEpochFence"})
ADVICE = {
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "grant WRITE on the transactional id to this user",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "grant WRITE on the topic to this user",
}

Result = TypeVar("Result")


class ProducerFenced(Exception):
    """Somebody else initialized the transactional id, or the coordinator ended a transaction that took too long."""


class TransactionGone(Exception):
    """The transaction is not open any more; what became of it is not known here."""


class TransactionalProducer:
    """A transactional producer for one thread. Call `initialize` first, and again after every error."""

    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        settings: ProduceSettings,
        timeout_ms: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.transactional_id, self.timeout_ms = transactional_id, timeout_ms
        self._cluster, self._settings, self._clock = cluster, settings, clock
        self._identity: ProducerId | None = None
        self._producer: Producer | None = None
        self._coordinator: Node | None = None
        self._partitions: set[TopicPartition] = set()  # of the open transaction
        self._opened_s: float | None = None
        self._may_commit_late = False  # a copy of the last EndTxn may still be on its way to the coordinator

    @property
    def open_ms(self) -> int:
        """The age of the transaction, never less than its coordinator thinks."""
        return 0 if self._opened_s is None else int((self._clock() - self._opened_s) * 1000)

    # Requests to the coordinator

    def initialize(self) -> ProducerId:
        """Fence whoever used the id before, and wait until what was open is ended."""
        self._producer, self._opened_s, self._partitions = None, None, set()

        def ask() -> ProducerId:
            request = InitProducerIdRequest(
                transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms
            )
            response = self._connection().call(request, InitProducerIdResponse)
            if response.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
                self._halve_timeout()
                return ask()
            self._check(response.error_code)
            return ProducerId(response.producer_id, response.producer_epoch)

        self._identity = self._retrying(f"initialize transactional id {self.transactional_id}", ask)
        own = TransactionalState(self.transactional_id, ProducerState(self._identity))
        self._producer = Producer(self._cluster, self._settings, own)
        self._may_commit_late = False  # it has the old epoch
        return self._identity

    def _halve_timeout(self) -> None:
        """The broker's transaction.max.timeout.ms, which we may not be allowed to see, is lower."""
        if self.timeout_ms <= LEAST_TIMEOUT_MS:
            self._check(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        self.timeout_ms //= 2

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Add those partitions to the transaction that are not in it yet; the first ones open it. Whoever names all
        of them before the first batch saves a request, and a wait, for each later one."""
        added = set(partitions) - self._partitions
        if added:
            self.flush()  # the coordinator may lead some partitions: responses share its connection
            self._add(added)

    def _add(self, partitions: set[TopicPartition]) -> None:
        by_topic: defaultdict[str, list[int]] = defaultdict(list)
        for partition in sorted(partitions):
            by_topic[partition.topic].append(partition.partition)
        identity = self._known_identity
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name, found) for name, found in by_topic.items()],
        )

        def ask() -> None:
            response = self._connection().call(request, AddPartitionsToTxnResponse)
            refused = {
                (topic.name, one.partition_index): ErrorCode(one.partition_error_code)
                for topic in response.results_by_topic_v3_and_below
                for one in topic.results_by_partition
                if one.partition_error_code
            }
            for (name, number), code in refused.items():
                if code is not ErrorCode.OPERATION_NOT_ATTEMPTED or len(set(refused.values())) == 1:
                    self._check(code, f"{name}-{number}")

        if self._opened_s is None:
            self._check_no_commit_is_late()
            self._opened_s = self._clock()
        self._retrying(f"add partitions to the transaction of {self.transactional_id}", ask)
        self._partitions |= partitions

    def _check_no_commit_is_late(self) -> None:
        """In the older protocol all transactions of an epoch look alike, so a copy that arrives late would commit the
        next one, before its last rows are sent."""
        if self._may_commit_late:
            raise TransactionGone("the last commit was sent twice, and may arrive twice")

    def commit(self) -> None:
        """Everything that was sent becomes visible. Once this returns it is decided, for good."""
        self.flush()
        identity = self._known_identity
        request = EndTxnRequest(self.transactional_id, identity.producer_id, identity.epoch, committed=True)

        def ask() -> None:
            connection = self._connection()
            try:
                self._check(connection.call(request, EndTxnResponse).error_code)
            except ConnectionLost:
                self._may_commit_late = True
                raise

        self._retrying(f"commit the transaction of {self.transactional_id}", ask)
        self._opened_s, self._partitions = None, set()
        self._sending().forget_offsets()

    def was_timed_out(self) -> bool:
        """True if the coordinator aborted our transaction, and nobody has initialized the id since. Brokers that cannot
        tell (before Kafka 3.0) are taken to say so."""
        identity = self._known_identity
        request = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])

        def ask() -> bool:
            state = self._connection().call(request, DescribeTransactionsResponse).transaction_states[0]
            if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                return False
            self._check(state.error_code)
            same = (state.producer_id, state.producer_epoch) == (identity.producer_id, identity.epoch + 1)
            return same and state.transaction_state in ABORTING

        try:
            return self._retrying(f"describe the transaction of {self.transactional_id}", ask)
        except KafkaError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                return True
            raise

    # Batches

    def send(self, records: Sequence[EncodedRecords]) -> None:
        """Send in order, and wait for the responses to what was sent before."""
        assert self._producer is not None, "initialize comes first"
        self.add(one.partition for one in records)
        self._translating(lambda: self._sending().send(records))

    def flush(self) -> None:
        self._translating(lambda: self._sending().flush())

    def first_offset(self, partition: TopicPartition) -> int | None:
        """The offset of the transaction's first batch in a partition, once it is acknowledged; None if its leader did
        not say."""
        return self._sending().first_offsets.get(partition)

    def _sending(self) -> Producer:
        assert self._producer is not None, "initialize comes first"
        return self._producer

    def _translating(self, work: Callable[[], None]) -> None:
        try:
            work()
        except KafkaError as error:
            raise _translated(error) from error

    # The coordinator

    @property
    def _known_identity(self) -> ProducerId:
        assert self._identity is not None, "initialize comes first"
        return self._identity

    def _connection(self) -> Connection:
        if self._coordinator is None:
            try:
                self._coordinator = self._cluster.coordinator(TRANSACTION, self.transactional_id)
            except KafkaError as error:
                if error.code in ADVICE:
                    self._check(error.code)
                raise
        return self._cluster.connection(self._coordinator)

    def _check(self, error_code: int, what: str = "") -> None:
        if error_code:
            code = ErrorCode(error_code)
            advice = f"; {ADVICE[code]}" if code in ADVICE else ""
            subject = what or f"transactional id {self.transactional_id}"
            raise KafkaError(code, f"{subject}: {code.name}{advice}")

    def _retrying(self, purpose: str, attempt: Callable[[], Result]) -> Result:
        backoff_s = min(SHORT_PAUSE_S, self._cluster.settings.retry_backoff_s)
        deadline = self._cluster.deadline(purpose, backoff_s=backoff_s)
        while True:
            try:
                result = attempt()
                self._cluster.was_reached = True
                deadline.met()
                return result
            except ConnectionLost as error:
                self._coordinator = None
                deadline.pause(error)
            except KafkaError as error:
                if not error.code.retriable:
                    raise _translated(error) from error
                if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    self._coordinator = None
                deadline.pause(error)


def _translated(error: KafkaError) -> Exception:
    if error.code in FENCED_CODES:
        return ProducerFenced(str(error))
    if error.code in GONE_CODES:
        return TransactionGone(str(error))
    return error
