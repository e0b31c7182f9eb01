"""WriteTxnMarkers (27): the coordinator of a transaction has decided, and its partitions learn how it ended.

- A marker is a control batch. The response is sent once all markers of the request are committed, or refused, or after
  `request.timeout.ms`.
- Markers for partitions of committed offsets go to the group coordinator, which has to learn of them too.
- The producer epoch of a marker is not below that of the data. With the transaction version in the marker (version 2 of
  the request) it is above it: so a marker that comes late cannot end the producer's next transaction, and one that
  comes twice is not written twice (KIP-1228).
- A marker of a coordinator that was replaced is refused with TRANSACTION_COORDINATOR_FENCED.
- Brokers send it; so does an administrator who ends a transaction that was left hanging.
"""

from functools import partial

from odradek.errors import ErrorCode, KafkaError
from odradek.host.interface import Timer
from odradek.model import OFFSETS_TOPIC, TopicPartition
from odradek.requests.request import Request
from odradek.requests.services import Services, TransactionEnd
from odradek.wire.codec import Steps, drain
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.wording import count_of

# The coordinator of a transaction knows the errors of partitions, not those of other coordinators.
NOT_READY = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)

MANY_MARKERS = 200  # are answered in several turns of the event loop

Place = tuple[int, TopicPartition]  # a producer, and the partition where its transaction ends


def handle(services: Services, request: Request, message: WriteTxnMarkersRequest) -> Steps[None]:
    markers = Markers(services, request)
    for marker in message.markers:
        end = _end_of(marker)
        for topic in marker.topics:
            for index in topic.partition_indexes:
                markers.write(end, TopicPartition(topic.name, index))
                yield
    markers.respond_when_committed()


def _end_of(marker: WritableTxnMarker) -> TransactionEnd:
    return TransactionEnd(
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        marker.transaction_result,
        marker.transaction_version,
    )


class Markers:
    """The markers of one request."""

    def __init__(self, services: Services, request: Request) -> None:
        self._services = services
        self._request = request
        self._results: dict[Place, ErrorCode] = {}
        self._uncommitted: set[Place] = set()
        self._is_complete = False  # no more markers will be written
        self._timer: Timer | None = None

    def __str__(self) -> str:
        """What the request waits for, for the log if it is slow."""
        return f"{count_of(len(self._uncommitted), 'marker')} to be committed"

    def write(self, end: TransactionEnd, name: TopicPartition) -> None:
        place = end.producer_id, name
        done = partial(self._done, place)
        self._results[place] = ErrorCode.NONE  # in the order of the request
        self._uncommitted.add(place)
        try:
            if name.topic == OFFSETS_TOPIC:
                self._services.replicas.leader(*name)  # the topic exists, and is led here
                self._services.groups.end_transaction(name.partition, end, done)
            else:
                self._append(end, name, done)
        except KafkaError as error:
            done(error.code)

    def _append(self, end: TransactionEnd, name: TopicPartition, done: "partial[None]") -> None:
        leader = self._services.replicas.leader(*name)
        leader.check_enough_replicas()
        last_offset = leader.append_marker(
            producer_id=end.producer_id,
            producer_epoch=end.producer_epoch,
            coordinator_epoch=end.coordinator_epoch,
            is_commit=end.is_commit,
            transaction_version=end.transaction_version,
            now_ms=self._services.now_ms(),
        )
        leader.when_committed(last_offset + 1, done)

    def _done(self, place: Place, code: ErrorCode) -> None:
        if place in self._uncommitted:
            self._uncommitted.remove(place)
            self._results[place] = ErrorCode.NOT_LEADER_OR_FOLLOWER if code in NOT_READY else code
            if self._is_complete and not self._uncommitted:
                self._respond()

    def respond_when_committed(self) -> None:
        self._is_complete = True
        if not self._uncommitted:
            self._respond()
            return
        self._request.subject = self
        timeout_ms = self._services.config["request.timeout.ms"]
        self._timer = self._services.deadlines.add(timeout_ms, self._time_out)

    def _time_out(self) -> None:
        uncommitted, self._uncommitted = self._uncommitted, set()
        self._results.update(dict.fromkeys(uncommitted, ErrorCode.REQUEST_TIMED_OUT))
        self._respond()

    def _respond(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if len(self._results) > MANY_MARKERS:
            self._request.answer_when_made(self._response())
        else:
            self._request.answer(drain(self._response()))

    def _response(self) -> Steps[WriteTxnMarkersResponse]:
        markers: dict[int, WritableTxnMarkerResult] = {}
        topics: dict[tuple[int, str], WritableTxnMarkerTopicResult] = {}
        for (producer_id, name), code in self._results.items():
            topic = topics.get((producer_id, name.topic))
            if topic is None:
                topic = topics[producer_id, name.topic] = WritableTxnMarkerTopicResult(name.topic)
                marker = markers.setdefault(producer_id, WritableTxnMarkerResult(producer_id))
                marker.topics.append(topic)
            topic.partitions.append(WritableTxnMarkerPartitionResult(name.partition, code))
            yield
        return WriteTxnMarkersResponse(list(markers.values()))
