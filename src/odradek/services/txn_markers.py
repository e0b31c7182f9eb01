"""Brings the markers of decided transactions to the leaders of their partitions, by WriteTxnMarkers.

What is to be sent to a broker waits in a queue; those that come in one turn of the event loop, or while enough requests
are under way, travel together. Nothing gives up: a broker that does not respond, a partition without a leader or one
that has moved is tried again where the metadata then says, after a pause that grows. A job ends when every partition
has its marker, when it is not wanted any more because this broker no longer coordinates the transaction, or when a
partition has heard from a newer coordinator.

A partition whose topic was deleted needs no marker. One that knows a newer epoch of the producer needs none either:
the transaction is over there.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from odradek.coordinators.transactions.effects import WriteMarkers
from odradek.coordinators.transactions.records import by_topic
from odradek.errors import ErrorCode, ProtocolError
from odradek.host.log_lines import counted
from odradek.metadata.image import NO_LEADER
from odradek.model import TopicPartition
from odradek.requests.services import Services
from odradek.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.wording import shown

log = logging.getLogger(__name__)

# A broker that lost its power says nothing any more, and its partitions have other leaders soon.
REQUEST_TIMEOUT_SECONDS = 5.0
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0
MOST_REQUESTS = 4  # under way to one broker
MOST_PARTITIONS = 1_000  # in one request, unless one transaction has more

WRITTEN = frozenset({ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})


@dataclass(eq=False, slots=True)
class MarkerJob:
    """The markers of one transaction. `done` is called once all are written, unless it is not wanted any more."""

    markers: WriteMarkers
    coordinator_epoch: int
    is_wanted: Callable[[], bool]
    done: Callable[[], None]
    missing: set[TopicPartition] = field(init=False)
    failures: int = 0
    is_over: bool = False

    def __post_init__(self) -> None:
        self.missing = set(self.markers.partitions)

    def pause_seconds(self) -> float:
        self.failures += 1
        return min(FIRST_PAUSE_SECONDS * (1 << min(self.failures - 1, 10)), LONGEST_PAUSE_SECONDS)


class Queue:
    """Of one broker."""

    def __init__(self) -> None:
        self.waiting: dict[MarkerJob, list[TopicPartition]] = {}
        self.under_way = 0

    def take(self) -> dict[MarkerJob, list[TopicPartition]]:
        taken: dict[MarkerJob, list[TopicPartition]] = {}
        count = 0
        for job, partitions in self.waiting.items():
            count += len(partitions)
            if taken and count > MOST_PARTITIONS:
                break
            taken[job] = partitions
        for job in taken:
            del self.waiting[job]
        return {job: partitions for job, partitions in taken.items() if job.is_wanted()}


class MarkerSender:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._host = services.host
        self._queues: dict[int, Queue] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}

    def send(self, job: MarkerJob) -> None:
        self._route(job, job.markers.partitions)

    def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    # --- where to ---

    def _route(self, job: MarkerJob, partitions: Iterable[TopicPartition]) -> None:
        """To those who lead them now."""
        if job.is_over or not job.is_wanted():
            return
        by_broker: dict[int, list[TopicPartition]] = {}
        for each in partitions:
            topic = self._services.image.topics.get(each.topic)
            partition = topic.partitions.get(each.partition) if topic is not None else None
            if partition is None:
                job.missing.discard(each)  # deleted
            else:
                by_broker.setdefault(partition.leader, []).append(each)
        leaderless = by_broker.pop(NO_LEADER, [])
        if leaderless:
            self._try_again(job, leaderless)
        for broker_id, some in by_broker.items():
            queue = self._queues.setdefault(broker_id, Queue())
            queue.waiting.setdefault(job, []).extend(some)
            self._flush(broker_id, queue)
        self._maybe_finish(job)

    def _try_again(self, job: MarkerJob, partitions: list[TopicPartition]) -> None:
        self._host.call_later(job.pause_seconds(), self._route, job, partitions)

    def _maybe_finish(self, job: MarkerJob) -> None:
        if not job.missing and not job.is_over:
            job.is_over = True
            job.done()

    # --- one request ---

    def _flush(self, broker_id: int, queue: Queue) -> None:
        if queue.waiting and queue.under_way < MOST_REQUESTS:
            queue.under_way += 1
            task = self._host.create_task(self._send(broker_id, queue))
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)

    async def _send(self, broker_id: int, queue: Queue) -> None:
        """Begins in the next turn, so that those which come in this one travel with it."""
        sent = queue.take()
        try:
            codes = await self._ask(broker_id, sent) if sent else {}
        finally:
            queue.under_way -= 1
        for job, partitions in sent.items():
            try:
                self._heard(job, partitions, codes.get(job.markers.producer_id, {}))
            except Exception:
                log.exception(
                    "the markers of transactional id %s failed: this is a bug",
                    shown(job.markers.transactional_id),
                )
        self._flush(broker_id, queue)

    async def _ask(
        self, broker_id: int, sent: dict[MarkerJob, list[TopicPartition]]
    ) -> dict[int, dict[TopicPartition, ErrorCode]]:
        """By producer id. Of a broker that does not respond nothing is known."""
        message = WriteTxnMarkersRequest([_marker_of(job, partitions) for job, partitions in sent.items()])
        try:
            response = await self._services.peers.ask(
                broker_id, message, message.MAX_VERSION, REQUEST_TIMEOUT_SECONDS
            )
        except (OSError, ProtocolError) as error:
            self._tell_of_failure(f"broker {broker_id}", str(error) or type(error).__name__)
            return {}
        assert isinstance(response, WriteTxnMarkersResponse)
        return {
            marker.producer_id: {
                TopicPartition(topic.name, each.partition_index): ErrorCode(each.error_code)
                for topic in marker.topics
                for each in topic.partitions
            }
            for marker in response.markers
        }

    def _heard(
        self, job: MarkerJob, partitions: list[TopicPartition], codes: dict[TopicPartition, ErrorCode]
    ) -> None:
        again: list[TopicPartition] = []
        for each in partitions:
            code = codes.get(each, ErrorCode.UNKNOWN_SERVER_ERROR)
            if code in WRITTEN:
                job.missing.discard(each)
            elif code is ErrorCode.INVALID_PRODUCER_EPOCH:
                self._tell_of_failure(str(each), "it knows a newer epoch of the producer, so this is over")
                job.missing.discard(each)
            elif code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                self._tell_of_failure(str(each), "it has heard from a newer coordinator, so that one ends it")
                job.is_over = True
            else:
                if codes:
                    self._tell_of_failure(str(each), code.name)
                again.append(each)
        if again and not job.is_over:
            self._try_again(job, again)
        self._maybe_finish(job)

    def _tell_of_failure(self, whose: str, reason: str) -> None:
        message = "the markers of transactions do not reach %s: %s"
        counted(log, logging.WARNING, whose, reason, message, whose, reason)


def _marker_of(job: MarkerJob, partitions: list[TopicPartition]) -> WritableTxnMarker:
    markers = job.markers
    return WritableTxnMarker(
        producer_id=markers.producer_id,
        producer_epoch=markers.producer_epoch,
        transaction_result=markers.is_commit,
        topics=[WritableTxnMarkerTopic(topic, indexes) for topic, indexes in by_topic(partitions)],
        coordinator_epoch=job.coordinator_epoch,
        transaction_version=markers.transaction_version,
    )
