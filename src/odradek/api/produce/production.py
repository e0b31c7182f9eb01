"""One Produce request on its way to its response: what became of its batches, and the wait for their commit.

Requests that wait for the same partitions wait as one (`Acknowledgement`).
"""

from collections.abc import Container, Sequence
from functools import partial

from odradek.apis.row import Operation, Resource
from odradek.errors import ErrorCode, KafkaError
from odradek.host.interface import Timer
from odradek.net.transport import Part
from odradek.records.batch import NO_PRODUCER_ID
from odradek.records.record import TimestampType
from odradek.records.validation import NotOneBatch, RejectedRecords
from odradek.replication.leader import Leader
from odradek.serving.authorizer import may_of
from odradek.serving.cluster import Cluster
from odradek.serving.leader_hints import leader_hint
from odradek.serving.refused import log_refused_batch
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.storage.log.run import AppendResult
from odradek.wire.codec import Steps
from odradek.wire.produce import (
    ProducedPartition,
    ProducedTopic,
    ProduceRequest,
    encode_produce_response,
    encode_responses_in_steps,
)
from odradek.wording import count_of, shown, some

ALL = -1
HINTS_SINCE = 10
MANY_PARTITIONS = 200  # more are appended, and answered, in several turns of the event loop
# Refusals that do not say where the log starts.
TELL_NOTHING = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.INVALID_REQUIRED_ACKS,
    }
)


class ProduceParts:
    """The parts of a node that every Produce works with, looked up once."""

    __slots__ = (
        "asks",
        "authorizer",
        "cluster",
        "coordination",
        "deadlines",
        "disk",
        "in_thread",
        "now_ms",
        "replicas",
        "turns",
    )

    def __init__(self, services: Services) -> None:
        self.cluster = services.cluster
        self.coordination = services.coordination
        self.replicas = services.partitions.replicas
        self.disk = services.partitions.disk
        self.deadlines = services.node.deadlines
        self.now_ms = services.node.host.now_ms
        self.in_thread = services.node.host.in_thread
        self.turns = services.node.turns
        self.authorizer = services.authorizer
        self.asks = not services.authorizer.allows_all  # whether a client may do what it asks for

    def may_write(self, request: Request, resource: Resource, name: str) -> bool:
        return may_of(self.authorizer, request)(Operation.WRITE, resource, name)


class NotVerified(KafkaError):
    """The coordinator of the transaction said no: refused before the log is looked at."""


class BatchResponse(ProducedPartition):
    """The result of one batch: the response, and the offset that its acknowledgement waits for."""

    __slots__ = ("last_offset", "leader")

    def __init__(self, index: int, leader: Leader) -> None:
        ProducedPartition.__init__(self, index, log_start_offset=leader.log.log_start_offset)
        self.leader = leader
        self.last_offset = -1

    def appended(self, result: AppendResult | KafkaError) -> None:
        if isinstance(result, KafkaError):
            log_refused_batch(self.leader.topic_partition, result)
            self.refuse(result)
            return
        self.base_offset, self.last_offset, is_duplicate, timestamp = result
        rules = self.leader.settings.rules
        if is_duplicate or rules.message_timestamp_type is TimestampType.LOG_APPEND_TIME:
            self.time_ms = timestamp

    def refuse(self, error: KafkaError) -> None:
        self.error_code = error.code
        self.error_message = error.message or None
        if error.code in TELL_NOTHING or isinstance(error, NotOneBatch | NotVerified):
            self.log_start_offset = -1
        if isinstance(error, RejectedRecords):
            self.record_errors = error.record_errors

    @property
    def is_committed(self) -> bool:
        return self.last_offset < self.leader.high_watermark

    def fail(self, error: ErrorCode) -> None:
        """It was appended, and is not known to be committed: as in Kafka, the response says where it is."""
        self.error_code = error


class Production:
    """One request: its batches, its response, and what it waits for."""

    __slots__ = ("batches", "producer", "request", "responses", "timeout_ms", "transactional_id", "wants")

    def __init__(self, request: Request, message: ProduceRequest) -> None:
        self.request = request
        self.timeout_ms = max(message.timeout_ms, 0)
        self.wants = message.acks
        self.transactional_id = message.transactional_id
        self.producer = NO_PRODUCER_ID, -1  # id and epoch of the transactional batches
        self.responses: list[ProducedTopic] = []
        self.batches: list[BatchResponse] = []  # of the batches that were taken

    @property
    def waits_for(self) -> tuple[int, list[Leader]]:
        """Its timeout, and the partitions that have not committed its batches yet."""
        if self.wants != ALL:
            return 0, []
        return self.timeout_ms, [
            response.leader
            for response in self.batches
            if response.last_offset >= response.leader.high_watermark
        ]

    def refused(self, topic: str | None, index: int, error: KafkaError) -> None:
        self.request.refused(f"{shown(topic)}, partition {index}", error.code, error.message)

    def send(self) -> None:
        request = self.request
        if request.metered is not None:
            request.metered.produced(request, has_response=True)
        if len(self.responses) > MANY_PARTITIONS or len(self.batches) > MANY_PARTITIONS:
            request.answer_in_steps(self._encode())
            return
        frame = encode_produce_response(
            request.version, request.correlation_id, self.responses, request.throttle_ms
        )
        request.answer_parts((frame,))

    def _encode(self) -> Steps[Sequence[Part]]:
        request = self.request
        frame = yield from encode_responses_in_steps(
            request.version, request.correlation_id, self.responses, request.throttle_ms
        )
        return (frame,)

    def finish_without_response(self) -> str:
        """acks=0: an error closes the client's connection. Returns the errors, if any."""
        codes = {
            response.error_code
            for topic in self.responses
            for response in topic.partitions
            if response.error_code
        }
        if self.request.metered is not None:
            self.request.metered.produced(self.request, has_response=False)
        self.request.answer_nothing()
        return ", ".join(sorted(ErrorCode(code).name for code in codes))


class Acknowledgement:
    """Responses that wait until all their batches are committed, or until they time out."""

    __slots__ = ("_parts", "_productions", "_remaining", "_timer")

    def __init__(self, productions: list[Production]) -> None:
        self._productions = productions
        self._remaining: dict[Leader, int] = {}  # the offset that each one's high watermark has to reach
        self._timer: Timer | None = None

    def __str__(self) -> str:
        """Say what the request waits for, for the log if it is slow."""
        names = [str(leader.topic_partition) for leader in self._remaining]
        return f"{count_of(len(names), 'partition')} to commit its records: {some(names)}"

    def wait(self, parts: ProduceParts, timeout_ms: int) -> None:
        self._parts = parts
        remaining = self._remaining
        for production in self._productions:
            production.request.subject = self
            for response in production.batches:
                leader, last_offset = response.leader, response.last_offset
                if last_offset >= leader.high_watermark and last_offset >= remaining.get(leader, 0):
                    remaining[leader] = last_offset + 1
        self._timer = parts.deadlines.add(timeout_ms, self._time_out)
        for leader, offset in list(remaining.items()):
            leader.when_committed(offset, partial(self._committed, leader))

    def _committed(self, leader: Leader, error: ErrorCode) -> None:
        if self._remaining.pop(leader, None) is None:
            return
        if error:
            self._fail_uncommitted([leader], error)
        if not self._remaining:
            self._send()

    def _time_out(self) -> None:
        for production in self._productions:
            uncommitted = [leader.topic_partition for leader in production.waits_for[1]]
            production.request.refused(
                some([str(each) for each in uncommitted]),
                ErrorCode.REQUEST_TIMED_OUT,
                f"its records are written, but were not committed within its timeout of {production.timeout_ms} ms",
            )
        self._fail_uncommitted(self._remaining, ErrorCode.REQUEST_TIMED_OUT)
        self._remaining = {}
        self._send()

    def _fail_uncommitted(self, leaders: Container[Leader], error: ErrorCode) -> None:
        for production in self._productions:
            for response in production.batches:
                if response.leader in leaders and not response.is_committed:
                    response.fail(error)
                    topic = response.leader.topic_partition.topic
                    maybe_hint(self._parts.cluster, production.request, topic, response)

    def _send(self) -> None:
        assert self._timer is not None
        self._timer.cancel()
        for production in self._productions:
            production.send()


def maybe_hint(cluster: Cluster, request: Request, topic: str | None, response: ProducedPartition) -> None:
    """Name the leader if another broker leads the partition."""
    if response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and request.version >= HINTS_SINCE and topic:
        response.leader_hint = leader_hint(cluster, request, topic, response.index)
