"""A cluster as one object, at the level of requests: what Kafka does with transactions of the older protocol.

The client above it is the product's, with `Connection` taken out. Every request that arrives is counted, and a test
says what happens at which of them: the client dies before or after it took effect, the connection breaks, roles move,
time passes. It is written from Kafka's rules and shares no code with the broker.
"""

import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from odradek.client.cluster import Cluster
from odradek.client.connection import ConnectionLost
from odradek.client.settings import ClientSettings
from odradek.errors import ErrorCode
from odradek.records.control import build_marker_batch
from odradek.records.record import Record, decode_batch, header_of
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from odradek.wire.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from odradek.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from odradek.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

LAST_EPOCH = 32766
Place = tuple[str, int]


class Crashed(BaseException):
    """The client's process was killed."""


@dataclass
class Stored:
    """A batch in a log; `commit` is set for markers."""

    offset: int
    count: int
    producer: int
    epoch: int
    data: bytes
    is_transactional: bool
    commit: bool | None = None


@dataclass
class Log:
    batches: list[Stored] = field(default_factory=list)
    sequences: dict[int, tuple[int, int, int]] = field(default_factory=dict)  # epoch, last first and next
    open: dict[int, int] = field(default_factory=dict)  # first offset, by producer
    aborted: list[tuple[int, int]] = field(default_factory=list)  # producer and first offset

    @property
    def end(self) -> int:
        return self.batches[-1].offset + self.batches[-1].count if self.batches else 0

    @property
    def stable(self) -> int:
        return min(self.open.values(), default=self.end)

    def append(self, data: bytes) -> ErrorCode:
        header = header_of(data)
        epoch, first, following = self.sequences.get(header.producer_id, (-1, -1, 0))
        if header.producer_epoch < epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if header.producer_epoch > epoch:
            first, following = -1, 0
        if header.base_sequence == first:
            return ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        if header.base_sequence != following:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        following += header.record_count
        self.sequences[header.producer_id] = (header.producer_epoch, header.base_sequence, following)
        if header.is_transactional:
            self.open.setdefault(header.producer_id, self.end)
        self._store(data, header.producer_id, header.producer_epoch, header.is_transactional, None)
        return ErrorCode.NONE

    def mark(self, producer: int, epoch: int, commit: bool) -> None:
        began = self.open.pop(producer, None)
        if began is not None and not commit:
            self.aborted.append((producer, began))
        old = self.sequences.get(producer, (-1, -1, 0))
        self.sequences[producer] = old if old[0] == epoch else (epoch, -1, 0)
        data = build_marker_batch(
            commit=commit, coordinator_epoch=0, producer_id=producer, producer_epoch=epoch, timestamp=0
        )
        self._store(bytes(data), producer, epoch, True, commit)

    def _store(
        self, data: bytes, producer: int, epoch: int, transactional: bool, commit: bool | None
    ) -> None:
        offset, count = self.end, header_of(data).record_count
        patched = struct.pack(">q", offset) + data[8:]
        self.batches.append(Stored(offset, count, producer, epoch, patched, transactional, commit))

    def aborted_from(self, offset: int) -> list[AbortedTransaction]:
        """Return those whose marker is at the offset or after it."""
        return [
            AbortedTransaction(producer, first)
            for producer, first in self.aborted
            if any(
                one.commit is False and one.producer == producer and one.offset >= max(first, offset)
                for one in self.batches
            )
            and not any(
                one.commit is False and one.producer == producer and first <= one.offset < offset
                for one in self.batches
            )
        ]

    def visible(self) -> list[Record]:
        """Return what a reader of committed data sees: an oracle that goes by each batch's own marker."""
        found = []
        for position, batch in enumerate(self.batches):
            if batch.commit is not None or batch.offset >= self.stable:
                continue
            marker = next(
                (
                    one.commit
                    for one in self.batches[position:]
                    if one.commit is not None and one.producer == batch.producer
                ),
                None,
            )
            if marker or not batch.is_transactional:
                found += decode_batch(batch.data)
        return found


@dataclass
class Transaction:
    producer: int
    epoch: int
    timeout_s: float = 0.0
    state: str = "Empty"
    places: set[Place] = field(default_factory=set)
    began_s: float = 0.0


class SimulatedCluster:
    def __init__(self, topics: dict[str, int], max_timeout_ms: int = 900_000) -> None:
        self.topics: dict[str, tuple[uuid.UUID, list[Log]]] = {}
        for name, count in topics.items():
            self.create(name, count)
        self.transactions: dict[str, Transaction] = {}
        self.now_s = 0.0
        self.max_timeout_ms = max_timeout_ms
        self.coordinator, self.leader = 1, 2
        self.slow_commits = 0  # EndTxn decides at once; so many requests later the markers are there
        self._markers_due: list[tuple[int, str]] = []
        self._next_producer = 1000

    def create(self, name: str, count: int) -> None:
        self.topics[name] = (uuid.uuid4(), [Log() for _ in range(count)])

    def log(self, topic: str, partition: int) -> Log:
        return self.topics[topic][1][partition]

    def visible(self, topic: str) -> list[Record]:
        return [record for log in self.topics[topic][1] for record in log.visible()]

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        self.finish_commits()
        for one in self.transactions.values():
            if one.state == "Ongoing" and self.now_s - one.began_s >= one.timeout_s:
                one.epoch += 1
                self._end(one, commit=False)

    def finish_commits(self) -> None:
        for _, name in self._markers_due:
            self._complete(self.transactions[name], commit=True)
        self._markers_due = []

    def _end(self, one: Transaction, commit: bool) -> None:
        one.state = "PrepareCommit" if commit else "PrepareAbort"
        self._complete(one, commit)

    def _complete(self, one: Transaction, commit: bool) -> None:
        for topic, partition in sorted(one.places):
            if topic in self.topics:
                self.log(topic, partition).mark(one.producer, one.epoch, commit)
        one.state, one.places = ("CompleteCommit" if commit else "CompleteAbort"), set()

    def new_producer(self) -> int:
        self._next_producer += 1
        return self._next_producer

    def handle(self, node: int, request: Any) -> Any:
        self._markers_due = [(count - 1, name) for count, name in self._markers_due]
        for count, name in list(self._markers_due):
            if count <= 0:
                self._markers_due.remove((count, name))
                self._complete(self.transactions[name], commit=True)
        return HANDLERS[type(request)](self, node, request)

    # Metadata

    def metadata(self, node: int, request: MetadataRequest) -> MetadataResponse:
        wanted = (
            list(self.topics) if request.topics is None else [topic.name or "" for topic in request.topics]
        )
        topics = []
        for name in wanted:
            if name not in self.topics:
                topics.append(MetadataResponseTopic(error_code=3, name=name))
                continue
            topic_id, logs = self.topics[name]
            partitions = [
                MetadataResponsePartition(partition_index=number, leader_id=self.leader, leader_epoch=0)
                for number in range(len(logs))
            ]
            topics.append(MetadataResponseTopic(name=name, topic_id=topic_id, partitions=partitions))
        brokers = [MetadataResponseBroker(number, "sim", number) for number in (1, 2)]
        return MetadataResponse(brokers=brokers, topics=topics)

    def find(self, node: int, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        key = request.coordinator_keys[0]
        found = Coordinator(key=key, node_id=self.coordinator, host="sim", port=self.coordinator)
        return FindCoordinatorResponse(coordinators=[found])

    def create_topics(self, node: int, request: CreateTopicsRequest) -> CreateTopicsResponse:
        results = []
        for topic in request.topics:
            exists = topic.name in self.topics
            if not exists:
                self.create(topic.name, topic.num_partitions)
            results.append(CreatableTopicResult(name=topic.name, error_code=36 if exists else 0))
        return CreateTopicsResponse(topics=results)

    # The coordinator

    def init(self, node: int, request: InitProducerIdRequest) -> InitProducerIdResponse:
        if node != self.coordinator:
            return InitProducerIdResponse(error_code=ErrorCode.NOT_COORDINATOR)
        if request.transaction_timeout_ms > self.max_timeout_ms:
            return InitProducerIdResponse(error_code=ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        name = request.transactional_id or ""
        one = self.transactions.get(name)
        if one is None:
            one = self.transactions[name] = Transaction(self.new_producer(), -1)
        if one.state.startswith("Prepare"):
            return InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)
        if one.state == "Ongoing":
            one.epoch += 1
            self._end(one, commit=False)
            return InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS)
        if one.epoch >= LAST_EPOCH:
            one.producer, one.epoch = self.new_producer(), -1
        one.epoch, one.state, one.timeout_s = one.epoch + 1, "Empty", request.transaction_timeout_ms / 1000
        return InitProducerIdResponse(producer_id=one.producer, producer_epoch=one.epoch)

    def _judge(self, node: int, name: str, producer: int, epoch: int) -> ErrorCode:
        one = self.transactions.get(name)
        if node != self.coordinator:
            return ErrorCode.NOT_COORDINATOR
        if one is None or one.producer != producer:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if one.epoch != epoch:
            return ErrorCode.PRODUCER_FENCED
        return ErrorCode.CONCURRENT_TRANSACTIONS if one.state.startswith("Prepare") else ErrorCode.NONE

    def add(self, node: int, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        name = request.v3_and_below_transactional_id
        code = self._judge(node, name, request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        places = {(one.name, number) for one in request.v3_and_below_topics for number in one.partitions}
        if code is ErrorCode.NONE:
            one = self.transactions[name]
            if one.state != "Ongoing":
                one.state, one.began_s, one.places = "Ongoing", self.now_s, set()
            one.places |= places
        results = [
            AddPartitionsToTxnTopicResult(topic, [AddPartitionsToTxnPartitionResult(number, int(code))])
            for topic, number in sorted(places)
        ]
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)

    def end(self, node: int, request: EndTxnRequest) -> EndTxnResponse:
        name = request.transactional_id
        code = self._judge(node, name, request.producer_id, request.producer_epoch)
        if code is ErrorCode.NONE:
            one = self.transactions[name]
            wanted = "CompleteCommit" if request.committed else "CompleteAbort"
            if one.state == "Ongoing" and self.slow_commits:
                one.state = "PrepareCommit"
                self._markers_due.append((self.slow_commits, name))
            elif one.state == "Ongoing":
                self._end(one, request.committed)
            elif one.state != wanted:
                code = ErrorCode.INVALID_TXN_STATE
        return EndTxnResponse(error_code=int(code))

    def describe(self, node: int, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
        (name,) = request.transactional_ids
        one = self.transactions[name]
        code = ErrorCode.NONE if node == self.coordinator else ErrorCode.NOT_COORDINATOR
        state = TransactionState(
            error_code=int(code),
            transactional_id=name,
            transaction_state=one.state,
            producer_id=one.producer,
            producer_epoch=one.epoch,
        )
        return DescribeTransactionsResponse(transaction_states=[state])

    # Logs

    def produce(self, node: int, request: ProduceRequest) -> ProduceResponse:
        responses = []
        for topic in request.topic_data:
            results = []
            for data in topic.partition_data:
                log = self.topics[topic.name][1][data.index] if topic.name in self.topics else Log()
                end = log.end
                code = self._append(node, request, topic.name, data.index, bytes(data.records or b""))
                offset = end if log.end > end else -1
                results.append(
                    PartitionProduceResponse(index=data.index, error_code=int(code), base_offset=offset)
                )
            responses.append(TopicProduceResponse(name=topic.name, partition_responses=results))
        return ProduceResponse(responses=responses)

    def _append(
        self, node: int, request: ProduceRequest, topic: str, partition: int, data: bytes
    ) -> ErrorCode:
        if node != self.leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if topic not in self.topics:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if header_of(data).is_transactional:
            one = self.transactions[request.transactional_id or ""]
            is_newest = (
                self.log(topic, partition).sequences.get(one.producer, (-1,))[0]
                <= header_of(data).producer_epoch
            )
            if is_newest and (one.state != "Ongoing" or (topic, partition) not in one.places):
                return ErrorCode.INVALID_TXN_STATE
        return self.log(topic, partition).append(data)

    def list_offsets(self, node: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            results = []
            for wanted in topic.partitions:
                log = self.log(topic.name, wanted.partition_index)
                latest = log.stable if request.isolation_level else log.end
                offset = 0 if wanted.timestamp == -2 else latest
                code = 0 if node == self.leader else int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                results.append(
                    ListOffsetsPartitionResponse(
                        partition_index=wanted.partition_index, error_code=code, offset=offset
                    )
                )
            topics.append(ListOffsetsTopicResponse(topic.name, results))
        return ListOffsetsResponse(topics=topics)

    def fetch(self, node: int, request: FetchRequest) -> FetchResponse:
        self.pass_time(1.0)
        topic, wanted = request.topics[0], request.topics[0].partitions[0]
        log = self.log(topic.topic, wanted.partition)
        end = log.stable if request.isolation_level else log.end
        found = [one for one in log.batches if wanted.fetch_offset < one.offset + one.count <= end]
        while len(found) > 1 and sum(len(one.data) for one in found) > wanted.partition_max_bytes:
            found.pop()
        aborted = log.aborted_from(wanted.fetch_offset)
        code = 0 if node == self.leader else int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        data = PartitionData(
            partition_index=wanted.partition,
            error_code=code,
            high_watermark=log.end,
            last_stable_offset=log.stable,
            aborted_transactions=aborted,
            records=b"".join(one.data for one in found),
        )
        return FetchResponse(responses=[FetchableTopicResponse(topic=topic.topic, partitions=[data])])


HANDLERS: dict[type, Callable[[SimulatedCluster, int, Any], Any]] = {
    MetadataRequest: SimulatedCluster.metadata,
    FindCoordinatorRequest: SimulatedCluster.find,
    CreateTopicsRequest: SimulatedCluster.create_topics,
    InitProducerIdRequest: SimulatedCluster.init,
    AddPartitionsToTxnRequest: SimulatedCluster.add,
    EndTxnRequest: SimulatedCluster.end,
    DescribeTransactionsRequest: SimulatedCluster.describe,
    ProduceRequest: SimulatedCluster.produce,
    ListOffsetsRequest: SimulatedCluster.list_offsets,
    FetchRequest: SimulatedCluster.fetch,
}


class SimulatedConnection:
    """A node as a client sees it."""

    def __init__(self, client: "SimulatedClient", node: int) -> None:
        self._client, self._node = client, node
        self._responses: list[Any] = []
        self._is_open = True

    @property
    def is_idle(self) -> bool:
        return self._is_open and not self._responses

    def call(self, request: Any, response_type: type) -> Any:
        self.send(request, response_type)
        return self.receive()

    def send(self, request: Any, response_type: type) -> None:
        self._responses.append(self._client.arrive(self._node, request))

    def receive(self) -> Any:
        response = self._responses.pop(0)
        if isinstance(response, ConnectionLost):
            self._is_open = False
            raise response
        return response

    def abort(self) -> None:
        self._is_open = False

    def close(self) -> None:
        self._is_open = False


class SimulatedClient(Cluster):
    """One process's client. `script` says what happens at its requests, by their number."""

    def __init__(
        self, simulated: SimulatedCluster, script: dict[int, str] | None = None, **actions: Callable[[], None]
    ) -> None:
        super().__init__(ClientSettings(bootstrap=(("sim", 1),), retry_backoff_s=0.0, api_timeout_s=20.0))
        self.was_reached = True
        self._simulated, self._script, self._actions = simulated, script or {}, actions
        self.requests: list[Any] = []
        self.late_by = 3
        self._late: list[tuple[int, int, Any]] = []

    def _connection(self, host: str, port: int) -> Any:
        connection = self._connections.get((host, port))
        if connection is None or not connection.is_idle:
            connection = self._connections[host, port] = SimulatedConnection(self, port)  # type: ignore[assignment]
        return connection

    def arrive(self, node: int, request: Any) -> Any:
        for due, *delayed in [one for one in self._late if one[0] <= len(self.requests)]:
            self._late.remove((due, *delayed))
            self._simulated.handle(*delayed)
        fault = self._script.get(len(self.requests), "")
        self.requests.append(request)
        if fault == "late":
            self._late.append((len(self.requests) + self.late_by, node, request))
            return ConnectionLost("lost before it arrived; it is still on its way")
        if fault == "crash before":
            raise Crashed
        if fault == "lost before":
            return ConnectionLost("lost before it arrived")
        if fault == "coordinator moves":
            self._simulated.coordinator = 3 - self._simulated.coordinator
        if fault == "leader moves":
            self._simulated.leader = 3 - self._simulated.leader
        if fault == "stopped":
            self._simulated.pass_time(700)
        if fault in self._actions:
            self._actions[fault]()
        response = self._simulated.handle(node, request)
        if fault == "crash after":
            raise Crashed
        if fault == "lost after":
            return ConnectionLost("lost after it had arrived")
        return response
