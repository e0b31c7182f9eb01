"""Fetch sessions (KIP-227): a client names its partitions once, then only what changes.

A session remembers, for each of its partitions, what the client asked for and what it was last told. An
incremental response then has only the partitions with news. Partitions that were just sent with data go
to the end of the order, so that a small response does not starve the others.

Pure: random session ids come from the `rng` given.
"""

from collections import OrderedDict
from collections.abc import Iterable
from random import Random
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from odradek.errors import ErrorCode, KafkaError
from odradek.replication.leader import Leader
from odradek.replication.source import Fetched

if TYPE_CHECKING:  # a broker that starts should not pay for messages that nobody has sent yet
    from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

NO_SESSION = 0
FINAL_EPOCH = -1
INITIAL_EPOCH = 0
MAX_EPOCH = 2**31 - 1

TopicKey = bytes | str  # its id (version 13 on) or its name
PartitionKey = tuple[TopicKey, int]


class Wanted:
    """One partition as the client requested it, and what it was last told about it."""

    __slots__ = (
        "asked",
        "leader",
        "told_high_watermark",
        "told_log_start_offset",
        "topic",
        "topic_id",
        "topic_key",
    )

    def __init__(self, topic_key: TopicKey, topic_id: UUID, topic: str, asked: "FetchPartition") -> None:
        self.topic_key = topic_key
        self.topic_id = topic_id
        self.topic = topic
        self.asked = asked
        self.leader: Leader | None = None  # as it was found last; it may be closed by now
        self.told_high_watermark = -1
        self.told_log_start_offset = -1

    def has_news(self, response: Fetched) -> bool:
        return bool(
            response.length
            or response.error_code
            or response.divergence
            or response.preferred_replica >= 0
            or response.high_watermark != self.told_high_watermark
            or response.log_start_offset != self.told_log_start_offset
        )

    def told(self, response: Fetched) -> None:
        """After an error everything is news again. So it is after a divergence: a replica then cuts its log, and takes
        nothing else from the response."""
        is_lost = response.error_code or response.divergence is not None
        self.told_high_watermark = -1 if is_lost else response.high_watermark
        self.told_log_start_offset = -1 if is_lost else response.log_start_offset

    def ask(self, asked: "FetchPartition") -> None:
        """Note what the client wants now. In another leader epoch it may have thrown away what it was told in the
        last.
        """
        if asked.current_leader_epoch != self.asked.current_leader_epoch:
            self.told_high_watermark = self.told_log_start_offset = -1
        self.asked = asked


class Keeper(Protocol):
    """Whoever keeps something for the partitions of a session."""

    def forgotten(self, wanted: Wanted) -> None: ...

    def end(self) -> None: ...


class FetchSession:
    """The partitions of one Fetch. Without an id it exists only as long as the request."""

    def __init__(self, session_id: int, uses_topic_ids: bool) -> None:
        self.id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.next_epoch = 1
        self.is_incremental = False
        self.partitions: OrderedDict[PartitionKey, Wanted] = OrderedDict()
        self.replica_id = -1  # that of a consumer
        self.keeper: Keeper | None = None  # of a replica's session

    def update(self, message: "FetchRequest") -> list[Wanted]:
        """Returns the partitions that the request names, and wants."""
        named: list[Wanted] = []
        for topic in message.topics:
            self.want(topic, named, topic.partitions)
        return self.forget(message, named) if message.forgotten_topics_data else named

    def want(self, topic: "FetchTopic", named: list[Wanted], partitions: Iterable["FetchPartition"]) -> None:
        """The request names these partitions of a topic: add them to those named so far."""
        topic_key = topic.topic or topic.topic_id.bytes
        for asked in partitions:
            key = topic_key, asked.partition
            wanted = self.partitions.get(key)
            if wanted is None:
                wanted = self.partitions[key] = Wanted(topic_key, topic.topic_id, topic.topic, asked)
            else:
                wanted.ask(asked)
            named.append(wanted)

    def forget(self, message: "FetchRequest", named: list[Wanted]) -> list[Wanted]:
        """Returns what is left of those named."""
        for forgotten in message.forgotten_topics_data:
            topic_key = forgotten.topic or forgotten.topic_id.bytes
            for partition in forgotten.partitions:
                wanted = self.partitions.pop((topic_key, partition), None)
                if wanted is not None and self.keeper is not None:
                    self.keeper.forgotten(wanted)
        left = self.partitions
        return [wanted for wanted in named if (wanted.topic_key, wanted.asked.partition) in left]

    def end(self) -> None:
        if self.keeper is not None:
            self.keeper.end()

    def move_to_end(self, wanted: Wanted) -> None:
        self.partitions.move_to_end((wanted.topic_key, wanted.asked.partition))


class FetchSessions:
    """The sessions of all clients, at most `slots` of them; the consumer's that was not used for longest is evicted. A
    replica has one: it fetches everything that it follows here in the same session, and begins a new one if that is
    lost."""

    def __init__(self, slots: int, rng: Random) -> None:
        self._slots = slots
        self._rng = rng
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self._of_replicas: dict[int, int] = {}  # the session of each

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, session_id: int) -> FetchSession | None:
        """To look at: the session is not used by this."""
        return self._sessions.get(session_id)

    def open(self, message: "FetchRequest", uses_topic_ids: bool) -> FetchSession:
        """The session that a request belongs to, brought up to date with it."""
        session = self.find(message, uses_topic_ids)
        session.update(message)
        self.keep(session, message)
        return session

    def find(self, message: "FetchRequest", uses_topic_ids: bool) -> FetchSession:
        """The session as it was before the request. A full fetch ends the one that it names."""
        if message.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._end(message.session_id)
            return FetchSession(NO_SESSION, uses_topic_ids)
        session = self._find(message, uses_topic_ids)
        session.is_incremental = True
        session.next_epoch = 1 if session.next_epoch == MAX_EPOCH else session.next_epoch + 1
        return session

    def keep(self, session: FetchSession, message: "FetchRequest") -> None:
        """A full fetch starts a session, unless it is the final one."""
        if message.session_epoch != INITIAL_EPOCH or not session.partitions or self._slots <= 0:
            return
        session.replica_id = max(message.replica_id, message.replica_state.replica_id)
        if session.replica_id >= 0:
            self._end(self._of_replicas.get(session.replica_id, NO_SESSION))
        while len(self._sessions) >= self._slots:
            evicted = self._first_of_consumers()
            if evicted == NO_SESSION and session.replica_id < 0:
                return
            self._end(evicted or next(iter(self._sessions)))
        session.id = self._new_id()
        self._sessions[session.id] = session
        if session.replica_id >= 0:
            self._of_replicas[session.replica_id] = session.id

    def _first_of_consumers(self) -> int:
        """The one that was not used for longest; NO_SESSION if there is none. Consumers evict no replica: whoever
        fetches at all could otherwise keep replicas busy with new sessions."""
        return next((one.id for one in self._sessions.values() if one.replica_id < 0), NO_SESSION)

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._of_replicas.pop(session.replica_id, None)
            session.end()

    def _new_id(self) -> int:
        return next(iter(self._unused_ids()))

    def _unused_ids(self) -> Iterable[int]:
        while True:
            candidate = self._rng.randrange(1, 2**31)
            if candidate not in self._sessions:
                yield candidate

    def _find(self, message: "FetchRequest", uses_topic_ids: bool) -> FetchSession:
        session = self._sessions.get(message.session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if message.session_epoch != session.next_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        self._sessions.move_to_end(message.session_id)
        return session
