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
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from odradek.coordinators.transactions.effects import WriteMarkers
from odradek.coordinators.transactions.records import by_topic
from odradek.errors import ErrorCode, ProtocolError
from odradek.host.log_lines import counted
from odradek.metadata.image import NO_LEADER
from odradek.model import TopicPartition
from odradek.serving.services import Services
from odradek.wire.codec import Message
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


Sent = dict[MarkerJob, list[TopicPartition]]  # what is in a request
Codes = dict[int, dict[TopicPartition, ErrorCode]]  # what came back, by producer id


class Queue:
    """The markers of one broker: those that wait, and those under way."""

    def __init__(self) -> None:
        self.waiting: Sent = {}
        self.under_way = 0

    def take(self) -> Sent:
        taken: Sent = {}
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
        self._host = services.node.host
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
        topics = self._services.cluster.image.topics
        for each in partitions:
            topic = topics.get(each.topic)
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
            self._host.call_soon(self._send, broker_id, queue)

    def _send(self, broker_id: int, queue: Queue) -> None:
        """In the next turn, so that those which come in this one travel with it."""
        sent = queue.take()
        if not sent:
            self._heard_from(broker_id, queue, sent, {})
            return
        message = WriteTxnMarkersRequest([_marker_of(job, partitions) for job, partitions in sent.items()])
        try:
            response = self._services.coordination.peers.ask(
                broker_id, message, message.MAX_VERSION, REQUEST_TIMEOUT_SECONDS
            )
        except Exception as error:
            self._heard_from(broker_id, queue, sent, self._nothing_known(broker_id, error))
            return
        if isinstance(response, WriteTxnMarkersResponse):
            self._heard_from(broker_id, queue, sent, _codes_of(response))
        else:
            assert isinstance(response, Awaitable)
            task = self._host.create_task(self._hear(broker_id, queue, sent, response))
            self._tasks[task] = None
            task.add_done_callback(self._tasks.pop)

    async def _hear(self, broker_id: int, queue: Queue, sent: Sent, response: Awaitable[Message]) -> None:
        try:
            codes = _codes_of(await response)
        except Exception as error:
            codes = self._nothing_known(broker_id, error)
        self._heard_from(broker_id, queue, sent, codes)

    def _nothing_known(self, broker_id: int, error: Exception) -> Codes:
        """The outcome for a broker that does not respond: nothing is known, so all is sent again."""
        if isinstance(error, (OSError, ProtocolError)):
            self._tell_of_failure(f"broker {broker_id}", str(error) or type(error).__name__)
        else:
            log.error(
                "cannot send markers to broker %d, trying again: this is a bug", broker_id, exc_info=error
            )
        return {}

    def _heard_from(self, broker_id: int, queue: Queue, sent: Sent, codes: Codes) -> None:
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


def _codes_of(response: Message) -> Codes:
    assert isinstance(response, WriteTxnMarkersResponse)
    return {
        marker.producer_id: {
            TopicPartition(topic.name, each.partition_index): (
                ErrorCode(each.error_code) if each.error_code else ErrorCode.NONE
            )
            for topic in marker.topics
            for each in topic.partitions
        }
        for marker in response.markers
    }


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
