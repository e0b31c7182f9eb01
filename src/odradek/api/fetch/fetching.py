"""One Fetch request, from its first read of the logs to its response."""

from collections.abc import Callable, Iterable, Sequence

from odradek.api.fetch.parked import ParkedFetch
from odradek.api.fetch.reading import Reading
from odradek.api.fetch.replica_reads import ReplicaReads
from odradek.api.fetch.replica_sessions import Answers, ReplicaFetch, ReplicaSession
from odradek.api.fetch.sessions import NO_SESSION, FetchSession, Wanted
from odradek.api.fetch.throttled_reads import ThrottledReads
from odradek.apis.row import Operation, Resource
from odradek.config.broker_definitions import RACK_AWARE_SELECTOR
from odradek.errors import ErrorCode, KafkaError
from odradek.net.transport import Part
from odradek.replication.leader import Leader
from odradek.replication.role import Role
from odradek.replication.selector import NO_PREFERENCE, preferred_replica
from odradek.serving.authorizer import may_of
from odradek.serving.leader_hints import HINTED, leader_hint
from odradek.serving.refused import log_unreadable
from odradek.serving.reply import answer_error
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.storage.disk.shortage import CannotOpen
from odradek.storage.segments.row import Slice
from odradek.wire.codec import Steps
from odradek.wire.fetch_response import (
    Divergence,
    FetchedPartition,
    FetchedTopic,
    encode_fetch_response,
    encode_in_steps,
)
from odradek.wire.messages.fetch import FetchPartition, FetchRequest
from odradek.wording import shown

READ_COMMITTED = 1
MANY_PARTITIONS = 1_000  # are handled in several turns of the event loop
FOLLOWERS_SINCE = 11
HINTS_SINCE = 16
UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class FetchParts:
    """What every Fetch on this node works with, looked up once."""

    __slots__ = (
        "asks",
        "authorizer",
        "cluster",
        "deadlines",
        "leader_quota",
        "max_bytes",
        "replica_fetched",
        "replica_reads",
        "replicas",
        "selects_by_rack",
        "steady_ms",
    )

    def __init__(self, services: Services) -> None:
        config = services.node.config
        self.cluster = services.cluster
        self.replicas = services.partitions.replicas
        self.replica_fetched = services.partitions.replica_fetched
        self.replica_reads = ReplicaReads()
        self.leader_quota = services.partitions.leader_quota
        self.deadlines = services.node.deadlines
        self.steady_ms = services.node.host.steady_ms
        self.max_bytes: int = config["fetch.max.bytes"]
        # Consumers are sent to replicas in their racks.
        self.selects_by_rack: bool = config["replica.selector.class"] == RACK_AWARE_SELECTOR
        self.authorizer = services.authorizer
        self.asks = not services.authorizer.allows_all  # whether a client may do what it asks for


class Fetching:
    """One Fetch request, from its first read of the logs to its response."""

    # Most requests have no use for these.
    hurries = False  # a replica, where consumers wait for new high watermarks at the followers: it learns them at once
    _rack = ""  # of a consumer that may be sent to another replica
    _throttled: ThrottledReads | None = None
    _now_ms = 0  # when it came, if it is a replica's

    def __init__(
        self, parts: FetchParts, request: Request, message: FetchRequest, session: FetchSession
    ) -> None:
        self._parts = parts
        self._request = request
        self._message = message
        self._session = session
        self._limit = min(message.max_bytes, parts.max_bytes)
        self._committed_only = message.isolation_level == READ_COMMITTED
        self.replica_id = max(message.replica_id, message.replica_state.replica_id)
        self.is_replica = self.replica_id >= 0
        if self.is_replica:
            self._now_ms = parts.steady_ms()
        if parts.selects_by_rack:
            self.hurries = self.is_replica
            self._rack = "" if self.is_replica else message.rack_id

    def is_enough(self, reading: Reading) -> bool:
        """To respond now: there is nothing to wait for, or the client does not wait."""
        return (
            reading.size >= self._message.min_bytes
            or reading.ends_wait
            or self._message.max_wait_ms <= 0
            or not reading.answers
            or (self.hurries and self._session.id != NO_SESSION)
        )

    # --- reading ---

    def read(self) -> Reading:
        reading = Reading()
        for wanted in list(self._session.partitions.values()):
            reading.add(wanted, self.read_first(wanted, reading.size))
        return reading

    def read_in_steps(self) -> Steps[Reading]:
        reading = Reading()
        for wanted in list(self._session.partitions.values()):
            reading.add(wanted, self.read_first(wanted, reading.size))
            yield
        return reading

    def fetch_what_changed(self, named: list[Wanted]) -> None:
        """Of a replica, in its session."""
        fetch = self._fetch_of_replica(named)
        fetch.read()
        self._answer_or_wait(fetch)

    def fetch_what_changed_in_steps(self, named: list[Wanted]) -> Steps[None]:
        fetch = self._fetch_of_replica(named)
        yield from fetch.read_in_steps()
        self._answer_or_wait(fetch)

    def _fetch_of_replica(self, named: list[Wanted]) -> ReplicaFetch:
        session, now_ms = self._session, self._now_ms
        known = session.keeper
        if not isinstance(known, ReplicaSession) or known.replica_id != self.replica_id:
            session.end()
            known = session.keeper = ReplicaSession(session, self.replica_id, now_ms)
        known.fetched(named, now_ms)
        return ReplicaFetch(self, known, self._message.min_bytes, now_ms + self._message.max_wait_ms)

    def _answer_or_wait(self, fetch: ReplicaFetch) -> None:
        if fetch.is_enough or self._message.max_wait_ms <= 0 or not self._session.partitions:
            fetch.answer()
        else:
            fetch.wait(self._parts)
            self._request.on_abandoned = fetch.end

    def finish(self, answers: Answers) -> None:
        try:
            self.answer(answers)
        except Exception as error:
            answer_error(self._request, self._message, error)

    def finish_with(self, read: Callable[[], Answers]) -> None:
        try:
            self.answer(read())
        except Exception as error:
            answer_error(self._request, self._message, error)

    def read_first(self, wanted: Wanted, size_so_far: int) -> FetchedPartition:
        """For a replica: its fetch counts when it comes, and not again each time that we look for something to send."""
        if self.is_replica:
            try:
                leader = self.leader_of(wanted)
                counts = self._note_fetch(leader, wanted.asked)
            except KafkaError as error:
                return self._refused(wanted, error)
            has_all = wanted.asked.fetch_offset == leader.log.end_offset  # nearly always
            if counts and has_all:
                return self._describe(leader, wanted.asked.partition)
        return self.read_partition(wanted, size_so_far)

    def _note_fetch(self, leader: Leader, asked: FetchPartition) -> bool:
        """Whether it counts: one from a log that has parted from the leader's, or that ends elsewhere, does not."""
        if not self._continues(leader, asked):
            leader.check_leader_epoch(asked.current_leader_epoch)
            if self._divergence(leader, asked.last_fetched_epoch, asked.fetch_offset) is not None:
                return False
        if not leader.log.log_start_offset <= asked.fetch_offset <= leader.log.end_offset:
            return False
        epoch = self._message.replica_state.replica_epoch
        leader.replica_fetched(
            self.replica_id, epoch, asked.fetch_offset, self._now_ms, asked.log_start_offset
        )
        self._parts.replica_fetched(leader)
        return True

    @staticmethod
    def _continues(leader: Leader, asked: FetchPartition) -> bool:
        """Nearly always: the replica's last record is of the leader's own epoch, so its log is the leader's."""
        return (
            asked.last_fetched_epoch == asked.current_leader_epoch == leader.leader_epoch
            and asked.fetch_offset <= leader.log.end_offset
        )

    def look_again(self, reading: Reading, position: int) -> None:
        """Read one partition again, and keep what was read of the others."""
        wanted, before = reading.answers[position]
        reading.replace(position, self.read_partition(wanted, reading.size - before.length))

    def _read_again(self, reading: Reading, positions: Iterable[int]) -> None:
        """Read those with data again: files may have been replaced meanwhile, and there is one limit for all."""
        size = 0
        for position in positions:
            wanted, answer = reading.answers[position]
            if answer.length:
                answer = self.read_partition(wanted, size)
                reading.answers[position] = wanted, answer
                size += answer.length

    def read_partition(self, wanted: Wanted, size_so_far: int) -> FetchedPartition:
        asked = wanted.asked
        room, minimum_one = self._limit - size_so_far, size_so_far == 0
        try:
            if self.is_replica:
                leader = self.leader_of(wanted)
                if self._continues(leader, asked) and not leader.settings.throttled_as_leader:
                    room = min(asked.partition_max_bytes, room)
                    return self._parts.replica_reads.read(leader, asked.fetch_offset, room, minimum_one)
            source = self.source_of(wanted)
            source.check_leader_epoch(asked.current_leader_epoch)
            if self._rack:
                brokers, listener = self._parts.cluster.image.brokers, self._request.caller.listener
                preferred = preferred_replica(self._rack, listener, asked.fetch_offset, source, brokers)
                if preferred != NO_PREFERENCE:
                    return self._describe(source, asked.partition)._replace(preferred_replica=preferred)
            divergence = self._divergence(source, asked.last_fetched_epoch, asked.fetch_offset)
            if divergence is not None:
                return self._describe(source, asked.partition)._replace(divergence=divergence)
            return self._read_log(source, wanted, min(asked.partition_max_bytes, room), minimum_one)
        except KafkaError as error:
            return self._refused(wanted, error)
        except CannotOpen:  # which is logged where files are opened, once and not for each request
            return FetchedPartition(asked.partition, ErrorCode.KAFKA_STORAGE_ERROR)
        except OSError as error:
            log_unreadable(wanted.topic or str(wanted.topic_id), asked.partition, error)
            return FetchedPartition(asked.partition, ErrorCode.KAFKA_STORAGE_ERROR)

    def _refused(self, wanted: Wanted, error: KafkaError) -> FetchedPartition:
        index = wanted.asked.partition
        topic = wanted.topic or self._parts.cluster.topic_name(wanted.topic_id) or str(wanted.topic_id)
        if self.is_replica and error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
            leader = self.leader_of(wanted)  # a follower starts over where our log starts
            return self._describe(leader, index)._replace(error_code=error.code)
        self._request.refused(f"{shown(topic)}, partition {index}", error.code, error.message)
        aborted: list[tuple[int, int]] | None = [] if error.code in UNKNOWN else None
        hint = None
        if error.code in HINTED and self._request.version >= HINTS_SINCE:
            hint = leader_hint(self._parts.cluster, self._request, topic, index)
        return FetchedPartition(index, error.code, aborted=aborted, leader=hint)

    def leader_of(self, wanted: Wanted) -> Leader:
        """For a replica, which reads from nobody else. It is looked up once for each epoch: a leader that is not closed
        is the current one."""
        if self._parts.asks:
            self._check_access("")
        leader = wanted.leader
        if leader is None or leader.closed_with:
            leader = wanted.leader = self._find_source(wanted)  # type: ignore[assignment]
        return leader  # type: ignore[return-value]

    def source_of(self, wanted: Wanted) -> Role:
        """What to read from."""
        return self.leader_of(wanted) if self.is_replica else self._find_source(wanted)

    def _find_source(self, wanted: Wanted) -> Role:
        topic: str | None = wanted.topic
        if self._session.uses_topic_ids:
            topic = self._parts.cluster.topic_name(wanted.topic_id)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        assert topic is not None
        if self._parts.asks:
            self._check_access(topic)
        replicas, index = self._parts.replicas, wanted.asked.partition
        if self.is_replica or self._request.version < FOLLOWERS_SINCE:
            return replicas.leader(topic, index)
        return replicas.leader_or_follower(topic, index)

    def _check_access(self, topic: str) -> None:
        """A replica needs access to the cluster; a partition that it may not have is refused like a consumer's. This is
        asked at each read: the answer may change while the fetch waits."""
        may = may_of(self._parts.authorizer, self._request)
        if self.is_replica:
            is_allowed = may(Operation.CLUSTER_ACTION, Resource.CLUSTER, "")
        else:
            is_allowed = may(Operation.READ, Resource.TOPIC, topic)
        if not is_allowed:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    @staticmethod
    def _divergence(source: Role, last_fetched_epoch: int, fetch_offset: int) -> Divergence | None:
        if last_fetched_epoch < 0:
            return None
        log = source.log
        if last_fetched_epoch == log.leader_epochs.latest and fetch_offset <= log.end_offset:
            return None  # the newest epoch ends where the log does
        epoch, end_offset = source.end_offset_for_epoch(last_fetched_epoch)
        if epoch < 0 or end_offset < 0:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch < last_fetched_epoch or end_offset < fetch_offset:
            return Divergence(epoch, end_offset)
        return None

    def _describe(self, source: Role, index: int) -> FetchedPartition:
        return FetchedPartition(
            index, 0, source.high_watermark, source.last_stable_offset, source.log.log_start_offset
        )

    def _read_log(self, source: Role, wanted: Wanted, max_bytes: int, minimum_one: bool) -> FetchedPartition:
        offset, log = wanted.asked.fetch_offset, source.log
        stable_offset = source.last_stable_offset
        end = stable_offset if self._committed_only else source.high_watermark
        if self.is_replica:
            end = log.end_offset
        piece = log.read(offset, max_bytes, end, minimum_one) if max_bytes > 0 or minimum_one else None
        if self.is_replica and source.settings.throttled_as_leader:
            piece = self._within_quota(source, wanted, piece)
        if piece is not None:
            piece.file.ensure_open()
        aborted = None
        if self._committed_only:
            aborted = [
                (transaction.producer_id, transaction.first_offset)
                for transaction in (log.aborted_transactions(offset, end, piece) if piece else ())
            ]
        return FetchedPartition(
            wanted.asked.partition,
            0,
            source.high_watermark,
            stable_offset,
            log.log_start_offset,
            aborted,
            piece,
            piece.length if piece else 0,
        )

    def _within_quota(self, leader: Role, wanted: Wanted, piece: Slice | None) -> Slice | None:
        """Of a topic with throttled partitions, for a replica."""
        assert isinstance(leader, Leader)
        if self._throttled is None:
            self._throttled = ThrottledReads(self._parts.leader_quota, self.replica_id)
        return self._throttled.within_quota(leader, wanted, piece, self._parts.steady_ms())

    # --- waiting ---

    def park(self, reading: Reading) -> ParkedFetch:
        """Wait for data, an error or the deadline, whichever comes first; the response has only that."""
        parked = ParkedFetch(self, reading, self._message.min_bytes)
        parked.timer = self._parts.deadlines.add(self._message.max_wait_ms, parked.finish)
        self._request.on_abandoned = parked.end
        return parked

    def finish_wait(self, reading: Reading, positions: Sequence[int], is_fresh: bool) -> None:
        """Respond with these partitions, after a wait. `is_fresh` if all that has data was read just now."""
        try:
            if not is_fresh:
                self._read_again(reading, positions)
            answers = reading.answers
            is_all = len(positions) == len(answers)
            self.answer(answers if is_all else [answers[position] for position in positions])
        except Exception as error:
            answer_error(self._request, self._message, error)

    @property
    def wants_news_only(self) -> bool:
        return self._session.is_incremental

    # --- responding ---

    def answer(self, answers: Answers) -> None:
        if self._throttled is not None:
            self._throttled.sent(self._parts.steady_ms())
        if len(answers) > MANY_PARTITIONS:
            self._request.answer_in_steps(self._answer_in_steps(answers))
            return
        topics: dict[object, FetchedTopic] = {}
        for wanted, answer in answers:
            self._tell(topics, wanted, answer)
        send(self._request, ErrorCode.NONE, self._session.id, list(topics.values()))

    def _answer_in_steps(self, answers: Answers) -> Steps[list[Part]]:
        topics: dict[object, FetchedTopic] = {}
        for wanted, answer in answers:
            self._tell(topics, wanted, answer)
            yield
        version, correlation_id = self._request.version, self._request.correlation_id
        parts = yield from encode_in_steps(
            version,
            correlation_id,
            ErrorCode.NONE,
            self._session.id,
            list(topics.values()),
            self._request.throttle_ms,
        )
        return parts  # type: ignore[return-value]

    def _tell(self, topics: dict[object, FetchedTopic], wanted: Wanted, answer: FetchedPartition) -> None:
        """What is new to the client, according to its session."""
        session = self._session
        if session.is_incremental and not answer.length and not wanted.has_news(answer):
            return
        if session.id:
            wanted.told(answer)
            if answer.length:
                session.move_to_end(wanted)
        topic = topics.get(wanted.topic_key)
        if topic is None:
            topic = topics[wanted.topic_key] = FetchedTopic(wanted.topic, wanted.topic_id, [])
        topic.partitions.append(answer)


def send(request: Request, error: ErrorCode, session_id: int, topics: list[FetchedTopic]) -> None:
    parts: list[Part] = encode_fetch_response(  # type: ignore[assignment]
        request.version, request.correlation_id, error, session_id, topics, request.throttle_ms
    )
    request.answer_parts(parts)
