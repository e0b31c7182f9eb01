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

from collections.abc import Sequence
from functools import partial

from odradek.errors import ErrorCode, KafkaError
from odradek.host.interface import Timer
from odradek.model import OFFSETS_TOPIC, TopicPartition
from odradek.replication.leader import Leader
from odradek.requests.request import Request
from odradek.requests.services import Services
from odradek.storage.producers.markers import TransactionEnd
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
MOST_TOGETHER = 100  # markers of a partition that are written as one

Place = tuple[int, TopicPartition]  # a producer, and the partition where its transaction ends


def handle(services: Services, request: Request, message: WriteTxnMarkersRequest) -> Steps[None]:
    markers = Markers(services, request)
    by_partition: dict[TopicPartition, list[TransactionEnd]] = {}
    for marker in message.markers:
        end = _end_of(marker)
        for topic in marker.topics:
            for index in topic.partition_indexes:
                name = TopicPartition(topic.name, index)
                markers.expect(end, name)
                by_partition.setdefault(name, []).append(end)
                yield
    for name, ends in by_partition.items():
        for first in range(0, len(ends), MOST_TOGETHER):
            markers.write(name, ends[first : first + MOST_TOGETHER])
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

    def expect(self, end: TransactionEnd, name: TopicPartition) -> None:
        """A marker, in the order of the request."""
        place = end.producer_id, name
        self._results[place] = ErrorCode.NONE
        self._uncommitted.add(place)

    def write(self, name: TopicPartition, ends: Sequence[TransactionEnd]) -> None:
        """Markers of one partition."""
        places = [(end.producer_id, name) for end in ends]
        try:
            leader = self._services.replicas.leader(*name)
            if name.topic == OFFSETS_TOPIC:
                for end, place in zip(ends, places, strict=True):
                    self._services.groups.end_transaction(name.partition, end, partial(self._done, [place]))
            else:
                leader.check_enough_replicas()
                self._append(leader, ends, places)
        except KafkaError as error:
            self._done(places, error.code)

    def _append(self, leader: Leader, ends: Sequence[TransactionEnd], places: Sequence[Place]) -> None:
        """Those that are written wait as one, until the last of them is committed."""
        appended: list[Place] = []
        end_offset = 0
        results = leader.append_markers(ends, self._services.now_ms())
        for place, result in zip(places, results, strict=True):
            if isinstance(result, KafkaError):
                self._done([place], result.code)
            else:
                appended.append(place)
                end_offset = max(end_offset, result + 1)
        if appended:
            leader.when_committed(end_offset, partial(self._done, appended))

    def _done(self, places: Sequence[Place], code: ErrorCode) -> None:
        awaited = self._uncommitted.intersection(places)
        if awaited:
            self._uncommitted -= awaited
            seen = ErrorCode.NOT_LEADER_OR_FOLLOWER if code in NOT_READY else code
            self._results.update(dict.fromkeys(awaited, seen))
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
