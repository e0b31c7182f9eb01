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

from collections.abc import Iterable, Sequence
from functools import partial

from odradek.apis.row import May, Need, Operation, Resource
from odradek.errors import ErrorCode, KafkaError
from odradek.host.interface import Timer
from odradek.model import OFFSETS_TOPIC, TopicPartition
from odradek.replication.leader import Leader
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.storage.producers.markers import TransactionEnd
from odradek.wire.codec import Steps
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

MOST_TOGETHER = 100  # markers of a partition that are written as one

Place = int  # of a marker among the results of its request


def access(message: WriteTxnMarkersRequest, version: int, may: May) -> tuple[Need, ...]:
    """An administrator may alter the cluster; a broker may act in it."""
    if may(Operation.ALTER, Resource.CLUSTER, ""):
        return ()
    return (Need(Operation.CLUSTER_ACTION, Resource.CLUSTER),)


def handle(services: Services, request: Request, message: WriteTxnMarkersRequest) -> Steps[None]:
    markers = Markers(services, request)
    by_partition: dict[TopicPartition, list[tuple[Place, TransactionEnd]]] = {}
    for marker in message.markers:
        end = _end_of(marker)
        for topic in marker.topics:
            results = markers.results_for(end.producer_id, topic.name)
            for index in topic.partition_indexes:
                place = markers.expect(results, index)
                by_partition.setdefault(TopicPartition(topic.name, index), []).append((place, end))
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
    """The markers of one request, and its response, in which each of them gets its code once that is known."""

    def __init__(self, services: Services, request: Request) -> None:
        self._services = services
        self._request = request
        self._producers: dict[int, WritableTxnMarkerResult] = {}
        self._topics: dict[tuple[int, str], WritableTxnMarkerTopicResult] = {}
        self._results: list[WritableTxnMarkerPartitionResult] = []  # of all producers, by place
        self._uncommitted: set[Place] = set()
        self._is_complete = False  # no more markers will be written
        self._timer: Timer | None = None

    def __str__(self) -> str:
        """Say what the request waits for, for the log if it is slow."""
        return f"{count_of(len(self._uncommitted), 'marker')} to be committed"

    def results_for(self, producer_id: int, topic: str) -> list[WritableTxnMarkerPartitionResult]:
        found = self._topics.get((producer_id, topic))
        if found is None:
            found = self._topics[producer_id, topic] = WritableTxnMarkerTopicResult(topic)
            producer = self._producers.get(producer_id)
            if producer is None:
                producer = self._producers[producer_id] = WritableTxnMarkerResult(producer_id)
            producer.topics.append(found)
        return found.partitions

    def expect(self, results: list[WritableTxnMarkerPartitionResult], index: int) -> Place:
        """A marker, in the order of the request."""
        result = WritableTxnMarkerPartitionResult(index, ErrorCode.NONE)
        results.append(result)
        self._results.append(result)
        place = len(self._results) - 1
        self._uncommitted.add(place)
        return place

    def write(self, name: TopicPartition, markers: Sequence[tuple[Place, TransactionEnd]]) -> None:
        """Markers of one partition."""
        try:
            leader = self._services.partitions.replicas.leader(*name)
            if name.topic == OFFSETS_TOPIC:
                for place, end in markers:
                    self._services.coordination.groups.end_transaction(
                        name.partition, end, partial(self._done, [place])
                    )
            else:
                leader.check_enough_replicas()
                self._append(leader, markers)
        except KafkaError as error:
            self._done([place for place, _ in markers], error.code)

    def _append(self, leader: Leader, markers: Sequence[tuple[Place, TransactionEnd]]) -> None:
        """Append the markers; those that are written wait as one, until the last of them is committed."""
        appended: list[Place] = []
        end_offset = 0
        results = leader.append_markers([end for _, end in markers], self._services.node.host.now_ms())
        for (place, _), result in zip(markers, results, strict=True):
            if isinstance(result, KafkaError):
                self._done([place], result.code)
            else:
                appended.append(place)
                end_offset = max(end_offset, result + 1)
        if appended:
            leader.when_committed(end_offset, partial(self._done, appended))

    def _done(self, places: Iterable[Place], code: ErrorCode) -> None:
        awaited = self._uncommitted.intersection(places)
        if not awaited:
            return
        self._uncommitted -= awaited
        if code:
            self._fail(awaited, ErrorCode.NOT_LEADER_OR_FOLLOWER if code in NOT_READY else code)
        if self._is_complete and not self._uncommitted:
            self._respond()

    def _fail(self, places: Iterable[Place], code: ErrorCode) -> None:
        for place in places:
            self._results[place].error_code = code

    def respond_when_committed(self) -> None:
        self._is_complete = True
        if not self._uncommitted:
            self._respond()
            return
        self._request.subject = self
        timeout_ms = self._services.node.config["request.timeout.ms"]
        self._timer = self._services.node.deadlines.add(timeout_ms, self._time_out)

    def _time_out(self) -> None:
        self._fail(self._uncommitted, ErrorCode.REQUEST_TIMED_OUT)
        self._uncommitted.clear()
        self._respond()

    def _respond(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._request.answer(WriteTxnMarkersResponse(list(self._producers.values())))
