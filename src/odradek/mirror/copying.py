"""Carries out the steps of `protocol` for one partition, on a thread of its own.

While a fetch is written, the next one is under way (`Reading`). A transaction is what one fetch brought, so a partition
needs memory for two fetches, and for the batches that are sent.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import dataclass

from odradek.client.cluster import EARLIEST, LATEST, Cluster, MissingTopic
from odradek.client.connection import ConnectionLost
from odradek.client.deadline import TimedOut
from odradek.client.fetching import Chunk, OffsetsGone, RangeReader
from odradek.client.producing import EncodedRecords
from odradek.client.settings import FetchSettings, ProduceSettings
from odradek.client.transaction_steps import (
    Commit,
    Fenced,
    Initialize,
    Look,
    Lost,
    Outcome,
    Refused,
    Seen,
    Step,
    Stop,
    Succeeded,
)
from odradek.client.transactions import ProducerFenced, TransactionalProducer, TransactionGone
from odradek.errors import ErrorCode, KafkaError
from odradek.mirror import protocol as steps
from odradek.mirror.position import NO_TARGET, Copy, Position, UnreadablePosition
from odradek.mirror.positions import Positions
from odradek.mirror.protocol import CopyProtocol
from odradek.mirror.reframing import reframed
from odradek.model import TopicPartition

ENDLESS = 2**63 - 1
OWN = "(name it in own_settings of the mirror's file, or it is kept in step with the source's)"
ADVICE = {
    ErrorCode.MESSAGE_TOO_LARGE: (
        f"raise max.message.bytes of the copy {OWN}, or message.max.bytes of the target's brokers"
    ),
    ErrorCode.RECORD_LIST_TOO_LARGE: f"raise segment.bytes of the copy {OWN}",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "grant WRITE on transactional ids that begin with odradek-mirror. at the target"
    ),
    ErrorCode.INVALID_TIMESTAMP: (
        f"raise message.timestamp.before.max.ms, or message.timestamp.after.max.ms {OWN}, of the copy"
    ),
    ErrorCode.INVALID_RECORD: "the copy is compacted, and the source has records without a key",
}
RIGHTS: Mapping[type[Step], str] = {  # on the topic that the refusal names
    steps.Locate: "grant READ on the topic",
    steps.Fetch: "grant READ on the topic at the source",
    steps.Write: "grant WRITE on the topic at the target",
    steps.Record: "grant WRITE on the topic at the target",
}

log = logging.getLogger("odradek.mirror")


@dataclass
class Progress:
    """The state of a partition; written by its thread, read by others."""

    state: str = "starting"  # then copying, waiting, stopped, parked, finished, left
    reason: str = ""
    records: int = 0
    bytes: int = 0
    transactions: int = 0
    next_offset: int | None = None  # of the source
    source_end: int | None = None
    copied_until_ms: int | None = None  # the time of the newest record of the last transaction

    @property
    def lag(self) -> int | None:
        """Offsets of the source that are not copied, markers among them."""
        if self.next_offset is None or self.source_end is None:
            return None
        return max(self.source_end - self.next_offset, 0)

    def behind_ms(self, now_ms: int) -> int | None:
        """Return the greatest possible age of the oldest record that is not copied."""
        if self.lag == 0:
            return 0
        return None if self.copied_until_ms is None else max(now_ms - self.copied_until_ms, 0)


@dataclass(frozen=True)
class Clients:
    """The connections of one partition: a cluster is used by one thread at a time."""

    reading: Cluster  # of the source, by the thread that fetches ahead
    source: Cluster
    target: Cluster


class Reading:
    """A partition of the source from an offset on, one fetch ahead."""

    def __init__(
        self, cluster: Cluster, partition: TopicPartition, settings: FetchSettings, executor: Executor
    ) -> None:
        self._cluster, self._partition, self._settings = cluster, partition, settings
        self._executor = executor
        self._reader: RangeReader | None = None
        self._ahead: Future[Chunk] | None = None
        self._expected = -1

    def next(self, offset: int, epoch: int) -> Chunk:
        """Return what there is from the offset on: perhaps nothing."""
        if self._reader is None or self._expected != offset:
            self.close()
            self._reader = RangeReader(
                self._cluster, self._partition, offset, ENDLESS, self._settings, 0.0, last_epoch=epoch
            )
        ahead, self._ahead = self._ahead or self._submit(), None
        try:
            chunk = ahead.result()
        except BaseException:
            self._reader = None
            raise
        self._expected = chunk.next_offset
        if chunk.batches:
            self._ahead = self._submit()
        return chunk

    def interrupt(self) -> None:
        """Stop waiting for a cluster that is away; called by another thread."""
        reader = self._reader
        if reader is not None:
            reader.stopped = True

    def _submit(self) -> "Future[Chunk]":
        assert self._reader is not None
        return self._executor.submit(self._reader.poll)

    def close(self) -> None:
        """Until nothing is under way."""
        if self._reader is not None and self._ahead is not None:
            self._reader.stop()
            self._ahead.exception()
        self._reader = self._ahead = None


class Copier:
    """`run` ends when the protocol does, or soon after `stop`."""

    def __init__(
        self,
        copy: Copy,
        copy_name: str,
        clients: Clients,
        positions: Positions,
        executor: Executor,
        *,
        fetch: FetchSettings,
        produce: ProduceSettings,
        once: bool = False,
        accepts_loss: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.copy, self.progress = copy, Progress()
        self._target = TopicPartition(copy_name, copy.partition)
        self._clients, self._positions = clients, positions
        self._reading = Reading(clients.reading, copy.origin, fetch, executor)
        self._producer = TransactionalProducer(
            clients.target, copy.transactional_id, produce, produce.transaction_timeout_ms, clock
        )
        self._protocol = CopyProtocol(copy, copy_name, once=once, accepts_loss=accepts_loss)
        self._stopping = threading.Event()
        self._ids = ("", "")
        self._batches: list[EncodedRecords] = []
        self._sent_next = 0
        self.initialized_s = 0.0
        for cluster in (clients.reading, clients.source, clients.target):
            cluster.give_up_when(self._may_leave)

    def _may_leave(self) -> bool:
        """True if requests that wait for a cluster or for a partition are not to be retried."""
        return self._stopping.is_set() and not self._protocol.is_in_transaction

    def stop(self) -> None:
        """At the end of the transaction that is open."""
        self._stopping.set()
        self._reading.interrupt()

    def run(self) -> Progress:
        try:
            step = self._protocol.start()
            while not isinstance(step, steps.Finish | steps.Park | Stop):
                if self._may_leave():
                    return self._tell("left")
                step = self._protocol.step(self._outcome(step))
            return self._end(step)
        finally:
            self._reading.close()

    def _end(self, step: Step) -> Progress:
        if isinstance(step, Stop):
            log.info("%s stops: %s", self.copy, step.error)
            return self._tell("stopped", str(step.error))
        if isinstance(step, steps.Park):
            log.info("%s: another process copies it; waiting for the group to assign it again", self.copy)
            return self._tell("parked", "another process copies it")
        return self._tell("finished")

    def _tell(self, state: str, reason: str = "") -> Progress:
        self.progress.state, self.progress.reason = state, reason
        return self.progress

    def _outcome(self, step: Step) -> Outcome:
        try:
            return CARRIED_OUT[type(step)](self, step)
        except ProducerFenced:
            return Fenced(self._producer.open_ms, self._producer.timeout_ms)
        except TransactionGone as error:
            log.warning("%s: %s. Trying again", self.copy, error)
            return Lost(str(error))
        except OffsetsGone as error:
            return steps.OutOfRange(error.earliest, error.latest)
        except MissingTopic as error:
            self._tell("waiting", str(error))
            return steps.Changed()
        except (TimedOut, ConnectionLost) as error:
            return self._away(error)
        except KafkaError as error:
            return self._away(error) if error.code.retriable else Refused(_explained(error, step))
        except UnreadablePosition as error:
            return Refused(error)

    def _away(self, error: Exception) -> Outcome:
        if not self._may_leave():
            log.warning("%s: %s. Trying again", self.copy, error)
        self._tell("waiting", str(error))
        return steps.Away(str(error))

    # The steps

    def _initialize(self, _: Step) -> Outcome:
        self._producer.initialize()
        self.initialized_s = time.monotonic()
        return Succeeded()

    def _locate(self, _: Step) -> Outcome:
        clients, origin = self._clients, self.copy.origin
        self._ids = self._present_ids()
        start = clients.source.list_offsets({origin: EARLIEST})[origin]
        end = clients.source.list_offsets({origin: LATEST}, read_committed=True)[origin]
        position = self._positions.read(self.copy)
        is_empty = self._counts(position) or self._is_copy_empty()
        if not is_empty:  # a rival has perhaps begun after we had read the position
            position = self._positions.read(self.copy)
        self.progress.source_end = end
        self.progress.next_offset = position.next if position and self._counts(position) else start
        return steps.Found(position, *self._ids, start, end, is_empty)

    def _counts(self, position: Position | None) -> bool:
        return position is not None and position.target_id == self._ids[1]

    def _present_ids(self) -> tuple[str, str]:
        source = self._clients.source.topic_ids([self.copy.topic])[self.copy.topic]
        target = self._clients.target.topic_ids([self._target.topic])[self._target.topic]
        return str(source), str(target)

    def _is_copy_empty(self) -> bool:
        target, clients = self._target, self._clients
        start = clients.target.list_offsets({target: EARLIEST})[target]
        end = clients.target.list_offsets({target: LATEST}, read_committed=True)[target]
        settings = FetchSettings(read_committed=True, max_wait_ms=100)
        reader = RangeReader(clients.target, target, start, end, settings, 0.0)
        try:
            while reader.position < end:
                if reader.poll().batches:
                    return False
        except OffsetsGone as gone:  # of the copy: deleted while we looked
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, str(gone)) from gone
        return True

    def _fetch(self, step: Step) -> Outcome:
        assert isinstance(step, steps.Fetch)
        chunk = self._reading.next(step.offset, step.epoch)
        self._batches = reframed(chunk.batches, self._target, step.offset)
        self.progress.next_offset, self.progress.source_end = step.offset, chunk.end
        self._tell("copying")
        return steps.Fetched(chunk.next_offset, sum(one.row_count for one in self._batches), chunk.epoch)

    def _write(self, _: Step) -> Outcome:
        partition = self._positions.partition_of(self.copy)
        self._producer.add([partition, self._target] if self._batches else [partition])
        self._producer.send(self._batches)
        self._producer.flush()
        first = self._producer.first_offset(self._target)
        return steps.Written(NO_TARGET if first is None else first)

    def _record(self, step: Step) -> Outcome:
        assert isinstance(step, steps.Record)
        self._sent_next = step.position.next
        self._producer.send([self._positions.encoded(self.copy, step.position)])
        self._producer.flush()
        return Succeeded()

    def _confirm(self, _: Step) -> Outcome:
        return Succeeded() if self._present_ids() == self._ids else steps.Changed()

    def _commit(self, _: Step) -> Outcome:
        self._producer.commit()
        progress = self.progress
        progress.records += sum(one.row_count for one in self._batches)
        progress.bytes += sum(len(one.records) for one in self._batches)
        progress.transactions += 1
        progress.next_offset = self._sent_next
        if self._batches:
            progress.copied_until_ms = max(one.max_timestamp for one in self._batches)
        self._batches = []
        return Succeeded()

    def _look(self, _: Step) -> Outcome:
        return Seen(self._producer.was_timed_out())

    def _pause(self, step: Step) -> Outcome:
        assert isinstance(step, steps.Pause)
        self._stopping.wait(step.seconds)
        return Succeeded()


def _explained(error: KafkaError, step: Step) -> KafkaError:
    is_right = error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    advice = RIGHTS.get(type(step)) if is_right else ADVICE.get(error.code)
    text = str(error).partition(";")[0]
    return KafkaError(error.code, f"{text}; {advice}") if advice else error


CARRIED_OUT: Mapping[type[Step], Callable[[Copier, Step], Outcome]] = {
    Initialize: Copier._initialize,
    steps.Locate: Copier._locate,
    steps.Fetch: Copier._fetch,
    steps.Write: Copier._write,
    steps.Record: Copier._record,
    steps.Confirm: Copier._confirm,
    Commit: Copier._commit,
    Look: Copier._look,
    steps.Pause: Copier._pause,
}
