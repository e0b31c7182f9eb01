"""Fetch (1): record batches from an offset on, as they lie on disk.

- A fetch whose offset lies inside a batch gets the whole batch; the first batch of an answer is whole even if it
  is larger than every limit; later ones may be cut at the limit, and clients drop the cut end.
- Sessions (KIP-227), topic ids, leader epoch fencing, divergence by last fetched epoch.
- Long polling: with fewer than `min_bytes` to send, the answer waits for data or for `max_wait_ms`. An error of
  any partition is answered at once.
- Consumers see what is committed, `read_committed` ones what lies below every open transaction.

Left out: fetching as a replica (NOT_LEADER_OR_FOLLOWER; there is one broker), preferred read replicas.
"""

from odradek.api.dispatch import answer_error
from odradek.api.fetch_sessions import NO_SESSION, Session, Wanted
from odradek.api.refused import log_refused_partition, log_unreadable
from odradek.api.request import Request
from odradek.api.services import Services
from odradek.errors import ErrorCode, KafkaError
from odradek.host.interface import Timer
from odradek.net.transport import Part
from odradek.replication.partition import Partition
from odradek.storage.shortage import CannotOpen
from odradek.wire.codec import Steps
from odradek.wire.fetch_response import (
    Divergence,
    PartitionAnswer,
    TopicAnswer,
    encode_fetch_response,
    encode_in_steps,
)
from odradek.wire.messages.fetch import FetchRequest

READ_COMMITTED = 1
MANY_PARTITIONS = 1_000  # are read, and answered, in several turns of the event loop
TOPIC_IDS_SINCE = 13
UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


def handle(services: Services, request: Request, message: FetchRequest) -> Steps[None] | None:
    try:
        session = services.fetch_sessions.find(message, request.version >= TOPIC_IDS_SINCE)
    except KafkaError as error:
        send(request, error.code, NO_SESSION, [])
        return None
    if len(session.partitions) > MANY_PARTITIONS or _names_many(message):
        return _fetch_in_steps(services, request, message, session)
    session.update(message)
    services.fetch_sessions.keep(session, message)
    fetch = Fetching(services, request, message, session)
    _answer_or_park(fetch, message, fetch.read())
    return None


def _names_many(message: FetchRequest) -> bool:
    for topic in message.topics:
        if len(topic.partitions) > MANY_PARTITIONS:
            return True
    return len(message.topics) > MANY_PARTITIONS


def _fetch_in_steps(
    services: Services, request: Request, message: FetchRequest, session: Session
) -> Steps[None]:
    yield from session.update_in_steps(message)
    services.fetch_sessions.keep(session, message)
    fetch = Fetching(services, request, message, session)
    _answer_or_park(fetch, message, (yield from fetch.read_in_steps()))


def _answer_or_park(fetch: "Fetching", message: FetchRequest, outcome: "Outcome") -> None:
    if outcome.size >= message.min_bytes or outcome.has_error or message.max_wait_ms <= 0 or fetch.is_empty:
        fetch.answer(outcome)
    else:
        fetch.park()


class Outcome:
    """What was read of each partition."""

    __slots__ = ("answers", "has_error", "size")

    def __init__(self) -> None:
        self.answers: list[tuple[Wanted, PartitionAnswer]] = []
        self.size = 0
        self.has_error = False

    def add(self, wanted: Wanted, answer: PartitionAnswer) -> None:
        self.answers.append((wanted, answer))
        self.size += answer.length
        if answer.error_code or answer.divergence is not None:
            self.has_error = True


class Fetching:
    """One Fetch request, from its first look at the logs to its answer."""

    def __init__(self, services: Services, request: Request, message: FetchRequest, session: Session) -> None:
        self._services = services
        self._request = request
        self._message = message
        self._session = session
        self._wanted = list(session.partitions.values())
        self._limit = min(message.max_bytes, services.max_fetch_bytes)
        self._min_bytes = message.min_bytes
        self._max_wait_ms = message.max_wait_ms
        self._committed_only = message.isolation_level == READ_COMMITTED
        self._is_replica = max(message.replica_id, message.replica_state.replica_id) >= 0
        self._timer: Timer | None = None
        self._watched: list[Partition] = []  # those that will call us; none once the wait is over

    @property
    def is_empty(self) -> bool:
        return not self._wanted

    # --- reading ---

    def read(self) -> Outcome:
        outcome = Outcome()
        for wanted in self._wanted:
            outcome.add(wanted, self._read_partition(wanted, outcome.size))
        return outcome

    def read_in_steps(self) -> Steps[Outcome]:
        outcome = Outcome()
        for wanted in self._wanted:
            outcome.add(wanted, self._read_partition(wanted, outcome.size))
            yield
        return outcome

    def _read_partition(self, wanted: Wanted, size_so_far: int) -> PartitionAnswer:
        asked = wanted.asked
        room, minimum_one = self._limit - size_so_far, size_so_far == 0
        try:
            partition = self._find(wanted)
            partition.check_leader_epoch(asked.current_leader_epoch)
            divergence = self._divergence(partition, asked.last_fetched_epoch, asked.fetch_offset)
            if divergence is not None:
                return self._describe(partition, asked.partition)._replace(divergence=divergence)
            return self._read_log(partition, wanted, min(asked.partition_max_bytes, room), minimum_one)
        except KafkaError as error:
            topic = wanted.topic or self._services.topic_name(wanted.topic_id) or str(wanted.topic_id)
            log_refused_partition(self._request, topic, asked.partition, error)
            aborted: list[tuple[int, int]] | None = [] if error.code in UNKNOWN else None
            return PartitionAnswer(asked.partition, error.code, aborted=aborted)
        except CannotOpen:  # which is logged where files are opened, once and not for each request
            return PartitionAnswer(asked.partition, ErrorCode.KAFKA_STORAGE_ERROR)
        except OSError as error:
            log_unreadable(wanted.topic or str(wanted.topic_id), asked.partition, error)
            return PartitionAnswer(asked.partition, ErrorCode.KAFKA_STORAGE_ERROR)

    def _find(self, wanted: Wanted) -> Partition:
        topic: str | None = wanted.topic
        if self._session.uses_topic_ids:
            topic = self._services.topic_name(wanted.topic_id)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        assert topic is not None
        partition = self._services.replicas.get(topic, wanted.asked.partition)
        if self._is_replica:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if partition.closed_with:
            raise KafkaError(partition.closed_with)
        return partition

    @staticmethod
    def _divergence(partition: Partition, last_fetched_epoch: int, fetch_offset: int) -> Divergence | None:
        if last_fetched_epoch < 0:
            return None
        epoch, end_offset = partition.end_offset_for_epoch(last_fetched_epoch)
        if epoch < 0 or end_offset < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch < last_fetched_epoch or end_offset < fetch_offset:
            return Divergence(epoch, end_offset)
        return None

    def _describe(self, partition: Partition, index: int) -> PartitionAnswer:
        return PartitionAnswer(
            index, 0, partition.high_watermark, partition.last_stable_offset, partition.log.log_start_offset
        )

    def _read_log(
        self, partition: Partition, wanted: Wanted, max_bytes: int, minimum_one: bool
    ) -> PartitionAnswer:
        offset, log = wanted.asked.fetch_offset, partition.log
        stable_offset = partition.last_stable_offset
        end = stable_offset if self._committed_only else partition.high_watermark
        piece = log.read(offset, max_bytes, end, minimum_one) if max_bytes > 0 or minimum_one else None
        if piece is not None:
            piece.file.ensure_open()
        aborted = None
        if self._committed_only:
            aborted = [
                (transaction.producer_id, transaction.first_offset)
                for transaction in (log.aborted_transactions(offset, end) if piece else ())
            ]
        return PartitionAnswer(
            wanted.asked.partition,
            0,
            partition.high_watermark,
            stable_offset,
            log.log_start_offset,
            aborted,
            piece,
            piece.length if piece else 0,
        )

    # --- waiting ---

    def park(self) -> None:
        """Wait for data, an error or the deadline, whichever comes first; it alone is answered.

        What is watched are the partitions themselves, not their names: when a topic is deleted the names are gone
        before its partitions are closed, and those of other topics deleted with it are closed later still.
        """
        self._timer = self._services.deadlines.add(self._max_wait_ms, self._finish)
        self._request.on_abandoned = self._end_waiting
        self._watched = [self._find(wanted) for wanted in self._wanted]
        self._watch()

    def _watch(self) -> None:
        for partition in self._watched:
            partition.when_data_arrives(self._data_arrived)

    def _data_arrived(self, error: ErrorCode) -> None:
        outcome = self.read()
        if error or outcome.has_error or outcome.size >= self._min_bytes:
            self._finish(outcome)
        else:
            self._watch()

    def _finish(self, outcome: Outcome | None = None) -> None:
        self._end_waiting()
        try:
            self.answer(outcome or self.read())
        except Exception as error:
            answer_error(self._request, self._message, error)

    def _end_waiting(self) -> None:
        assert self._timer is not None
        self._timer.cancel()
        watched, self._watched = self._watched, []
        for partition in watched:
            partition.forget_data_waiter(self._data_arrived)

    # --- answering ---

    def answer(self, outcome: Outcome) -> None:
        if len(outcome.answers) > MANY_PARTITIONS:
            self._request.answer_in_steps(self._answer_in_steps(outcome))
            return
        topics: dict[object, TopicAnswer] = {}
        for wanted, answer in outcome.answers:
            self._tell(topics, wanted, answer)
        send(self._request, ErrorCode.NONE, self._session.id, list(topics.values()))

    def _answer_in_steps(self, outcome: Outcome) -> Steps[list[Part]]:
        topics: dict[object, TopicAnswer] = {}
        for wanted, answer in outcome.answers:
            self._tell(topics, wanted, answer)
            yield
        version, correlation_id = self._request.version, self._request.correlation_id
        parts = yield from encode_in_steps(
            version, correlation_id, ErrorCode.NONE, self._session.id, list(topics.values())
        )
        return parts  # type: ignore[return-value]

    def _tell(self, topics: dict[object, TopicAnswer], wanted: Wanted, answer: PartitionAnswer) -> None:
        """What is news to the client, which its session remembers."""
        session = self._session
        if session.is_incremental and not wanted.has_news(answer):
            return
        if session.id:
            wanted.told(answer)
            if answer.length:
                session.move_to_end(wanted)
        topic = topics.get(wanted.topic_key)
        if topic is None:
            topic = topics[wanted.topic_key] = TopicAnswer(wanted.topic, wanted.topic_id, [])
        topic.partitions.append(answer)


def send(request: Request, error: ErrorCode, session_id: int, topics: list[TopicAnswer]) -> None:
    parts: list[Part] = encode_fetch_response(  # type: ignore[assignment]
        request.version, request.correlation_id, error, session_id, topics
    )
    request.answer_parts(parts)
