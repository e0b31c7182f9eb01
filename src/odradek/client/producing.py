"""Batches to the leaders of their partitions, in order and each of them once.

Every batch of a partition carries the producer's id and the sequence of its first record; a leader that has
seen that sequence responds again instead of writing again, so a batch whose response was lost can simply be sent
again. A round of batches is sent while the responses of the last one are still due (`send` collects those
first), so that the caller can prepare the next round meanwhile. At most five requests are in flight on a
connection, because a leader remembers the last five batches of a producer.

A producer id outlives its user, together with the cluster it came from, unless something went wrong: a leader
keeps state per id, and a new one for every task would pile up there.
"""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.client.cluster import Cluster, Node, ProducerId
from odradek.client.connection import Connection, ConnectionLost
from odradek.client.settings import ProduceSettings
from odradek.errors import ErrorCode, KafkaError
from odradek.model import TopicPartition
from odradek.records.batch import MAGIC, TRANSACTIONAL, BatchHeader, Buffer
from odradek.records.compression import Codec
from odradek.records.record import NO_LEADER_EPOCH, pack_batch, pack_compressed
from odradek.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

MAX_IN_FLIGHT = 5
ACKS_ALL = -1
SEQUENCE_MASK = 0x7FFFFFFF

ADVICE = {
    ErrorCode.MESSAGE_TOO_LARGE: "raise the topic's max.message.bytes, lower kafka.batch.size, or cut the rows",
    ErrorCode.RECORD_LIST_TOO_LARGE: "lower kafka.batch.size below the topic's segment.bytes",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "grant WRITE on the topic to this user",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "grant IDEMPOTENT_WRITE on the cluster, or WRITE on the topic",
    ErrorCode.INVALID_TIMESTAMP: "raise the topic's message.timestamp.before.max.ms and message.timestamp.after.max.ms",
    ErrorCode.INVALID_RECORD: "a compacted topic takes only rows that have a key",
}


class EncodedRecords(NamedTuple):
    """Records for one partition, encoded with deltas that start at 0. `codec`: they are compressed with it already."""

    partition: TopicPartition
    records: Buffer
    row_count: int
    base_timestamp: int
    max_timestamp: int
    codec: Codec | None = None


class _Outgoing(NamedTuple):
    partition: TopicPartition
    batch: bytearray
    is_first: bool = False  # since `forget_offsets`


class _PartitionResponse(NamedTuple):
    code: ErrorCode
    base_offset: int  # negative: not said


NO_RESPONSE = _PartitionResponse(ErrorCode.UNKNOWN_SERVER_ERROR, -1)


class _Lane:
    """The requests of one round to one leader. If it fails, the fate of those in flight is not known."""

    def __init__(
        self,
        connection: Connection,
        requests: list[list[_Outgoing]],
        timeout_ms: int,
        transactional_id: str | None,
    ) -> None:
        self._connection, self._timeout_ms, self._transactional_id = connection, timeout_ms, transactional_id
        self._waiting, self._sent = deque(requests), deque[list[_Outgoing]]()

    def send(self) -> None:
        while self._waiting and len(self._sent) < MAX_IN_FLIGHT:
            batches = self._waiting.popleft()
            self._sent.append(batches)
            request = _request(batches, self._timeout_ms, self._transactional_id)
            self._connection.send(request, ProduceResponse)

    def responses(self) -> Iterator[tuple[_Outgoing, _PartitionResponse]]:
        while self._sent:
            response = self._connection.receive()
            assert isinstance(response, ProduceResponse)
            responses = _responses_of(response)
            for outgoing in self._sent.popleft():
                yield outgoing, responses.get(outgoing.partition, NO_RESPONSE)
            self.send()


@dataclass(slots=True)
class ProducerState:
    """Our producer id, and the sequence of the next record in each partition."""

    identity: ProducerId
    next_sequences: dict[TopicPartition, int] = field(default_factory=dict)


class TransactionalState(NamedTuple):
    """A producer's own id and sequences, which are nobody else's: never those that a cluster keeps."""

    transactional_id: str
    state: ProducerState


def _kept_state(cluster: Cluster) -> ProducerState:
    state, cluster.kept_producer = cluster.kept_producer, None  # kept again once all went well
    return state if isinstance(state, ProducerState) else ProducerState(cluster.new_producer_id())


class Producer:
    """A producer for one thread. Close it: only then is everything that was sent also written."""

    def __init__(
        self, cluster: Cluster, settings: ProduceSettings, transaction: "TransactionalState | None" = None
    ) -> None:
        """`transaction`: the batches belong to transactions; such a producer is flushed, never closed."""
        self._cluster, self._settings, self._transaction = cluster, settings, transaction
        self._state = _kept_state(cluster) if transaction is None else transaction.state
        self._unanswered: list[_Outgoing] = []
        self._lanes: list[_Lane] = []
        self._problem: Exception | None = None
        self._begun: set[TopicPartition] = set()
        self.first_offsets: dict[TopicPartition, int] = {}

    def send(self, records: Sequence[EncodedRecords]) -> None:
        packed = [self._packed(one) for one in records]  # while the last round is on the way
        self.flush()
        self._unanswered = packed
        self._start_round()

    def flush(self) -> None:
        """Wait until every batch that was sent is acknowledged by all in-sync replicas."""
        deadline = self._cluster.deadline(
            f"write to {_names(self._unanswered)}", self._settings.delivery_timeout_s
        )
        while True:
            self._finish_round()
            if not self._unanswered:
                deadline.met()
                return
            deadline.pause(self._problem or ConnectionLost("no response"))
            for outgoing in self._unanswered:
                self._cluster.forget_leader(outgoing.partition)
            self._start_round()

    def forget_offsets(self) -> None:
        """Forget `first_offsets`, which now gets the offset of the next batch sent to each partition, once its leader
        has said it.
        """
        self._begun, self.first_offsets = set(), {}

    def close(self) -> None:
        assert self._transaction is None
        self.flush()
        self._cluster.kept_producer = self._state

    def _packed(self, encoded: EncodedRecords) -> _Outgoing:
        state, partition = self._state, encoded.partition
        sequence = state.next_sequences.get(partition, 0)
        state.next_sequences[partition] = (sequence + encoded.row_count) & SEQUENCE_MASK
        codec = self._settings.codec if encoded.codec is None else encoded.codec
        header = BatchHeader(
            base_offset=0,
            length=0,
            leader_epoch=NO_LEADER_EPOCH,
            magic=MAGIC,
            crc=0,
            attributes=int(codec) | (TRANSACTIONAL if self._transaction is not None else 0),
            last_offset_delta=encoded.row_count - 1,
            base_timestamp=encoded.base_timestamp,
            max_timestamp=encoded.max_timestamp,
            producer_id=state.identity.producer_id,
            producer_epoch=state.identity.epoch,
            base_sequence=sequence,
            record_count=encoded.row_count,
        )
        if encoded.codec is None:
            batch = pack_batch(header, encoded.records, level=self._settings.compression_level)
        else:
            batch = pack_compressed(header, encoded.records)
        is_first = partition not in self._begun
        self._begun.add(partition)
        return _Outgoing(partition, batch, is_first)

    def _start_round(self) -> None:
        """Send the batches without a response. Those that cannot be sent stay without one."""
        self._lanes, self._problem = [], None
        for node, requests in self._requests_by_leader().items():
            try:
                timeout_ms, transaction = self._settings.request_timeout_ms, self._transaction
                transactional_id = None if transaction is None else transaction.transactional_id
                lane = _Lane(self._cluster.connection(node), requests, timeout_ms, transactional_id)
                lane.send()
                self._lanes.append(lane)
            except ConnectionLost as error:
                self._problem = error

    def _requests_by_leader(self) -> dict[Node, list[list[_Outgoing]]]:
        """A request takes one batch of a partition: the second batches of all make the second request."""
        requests: dict[Node, list[list[_Outgoing]]] = {}
        counts: Counter[TopicPartition] = Counter()
        for outgoing in self._unanswered:
            try:
                lane = requests.setdefault(self._cluster.leader(outgoing.partition).node, [])
            except KafkaError as error:
                self._problem = error
                continue
            except (
                ConnectionLost
            ) as error:  # no broker can be asked for leaders: the other batches would wait for the same
                self._problem = error
                break
            if counts[outgoing.partition] == len(lane):
                lane.append([])
            lane[counts[outgoing.partition]].append(outgoing)
            counts[outgoing.partition] += 1
        return requests

    def _finish_round(self) -> None:
        """Collect all responses; batches to retry are left without one, in order."""
        written: set[int] = set()
        failed: set[TopicPartition] = set()
        for lane in self._lanes:
            try:
                for outgoing, response in lane.responses():
                    self._cluster.was_reached = True
                    if self._is_written(outgoing, response.code, after_failure=outgoing.partition in failed):
                        written.add(id(outgoing))
                        self._note_offset(outgoing, response)
                    else:
                        failed.add(outgoing.partition)
            except ConnectionLost as error:
                self._problem = error
        self._lanes = []
        self._unanswered = [outgoing for outgoing in self._unanswered if id(outgoing) not in written]

    def _note_offset(self, outgoing: _Outgoing, response: _PartitionResponse) -> None:
        if outgoing.is_first and response.code is ErrorCode.NONE and response.base_offset >= 0:
            self.first_offsets[outgoing.partition] = response.base_offset

    def _is_written(self, outgoing: _Outgoing, code: ErrorCode, after_failure: bool) -> bool:
        """False: worth a retry. Raises an error that no retry can change."""
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            return True
        advice = f"; {ADVICE[code]}" if code in ADVICE else ""
        error = KafkaError(code, f"cannot write to {outgoing.partition}: {code.name}{advice}")
        if code.retriable or (code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and after_failure):
            self._problem = error
            return False
        raise error


def _request(batches: list[_Outgoing], timeout_ms: int, transactional_id: str | None) -> ProduceRequest:
    topics: dict[str, TopicProduceData] = {}
    for partition, batch, _ in batches:
        topic = topics.setdefault(partition.topic, TopicProduceData(name=partition.topic))
        topic.partition_data.append(PartitionProduceData(partition.partition, memoryview(batch)))
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=ACKS_ALL,
        timeout_ms=timeout_ms,
        topic_data=list(topics.values()),
    )


def _responses_of(response: ProduceResponse) -> dict[TopicPartition, _PartitionResponse]:
    return {
        TopicPartition(topic.name, one.index): _PartitionResponse(ErrorCode(one.error_code), one.base_offset)
        for topic in response.responses
        for one in topic.partition_responses
    }


def _names(batches: list[_Outgoing]) -> str:
    return ", ".join(sorted({outgoing.partition.topic for outgoing in batches}))
