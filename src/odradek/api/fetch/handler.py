"""Fetch (1): record batches from an offset on, as they lie on disk.

- A fetch whose offset is inside a batch gets the whole batch; the first batch of a response is whole even if it
  is larger than every limit; later ones may be cut at the limit, and clients drop the cut end.
- Sessions (KIP-227), topic ids, leader epoch fencing, divergence by last fetched epoch.
- Long polling: with fewer than `min_bytes` to send, the response waits for data or for `max_wait_ms`. An error of
  any partition is returned at once.
- Consumers see committed records, `read_committed` ones only those below every open transaction. A record that was
  acknowledged with acks=1 may not be on disk yet, and is not committed before it is: a Fetch for it waits for that as
  for any data, and one that does not wait (`max_wait_ms` 0) may come too early and find nothing yet.

- A replica reads to the end of the log, before it is committed or synced here, and waits for the end to move. The
  offset that it asks for says what it has on its disk (`replication.leader`); a log that has parted from the leader's
  is told where, and does not count. In a session, what has not changed is not looked at (`follower_session`).
- While the quota of throttled replication is exceeded, throttled replicas that are not in sync get nothing (KIP-73).

- A consumer may read from a follower, up to what that knows to be committed (KIP-392, version 11 on). With
  `replica.selector.class`, the leader sends it to the replica in its rack: the response then has no records. An offset
  that the follower does not have is OFFSET_OUT_OF_RANGE, as in Kafka, and the client goes back to the leader.

- A broker that does not lead a partition, or knows a newer epoch of it than the client, says who leads it and where
  (KIP-951, version 16 on).
"""

from functools import partial

from odradek.api.fetch.consumer import ConsumerFetch
from odradek.api.fetch.follower import FollowerFetch
from odradek.api.fetch.parts import FetchParts
from odradek.api.fetch.response import MANY_PARTITIONS, refuse_whole
from odradek.apis.row import May, Need, Operation, Resource
from odradek.errors import KafkaError
from odradek.fetching.sessions import FetchSession, FetchSessions, Wanted
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.serving.turns import in_pieces
from odradek.wire.codec import Steps
from odradek.wire.messages.fetch import FetchRequest

TOPIC_IDS_SINCE = 13


def access(message: FetchRequest, version: int, may: May) -> tuple[Need, ...]:
    """A replica needs access to the cluster, a consumer to the topics."""
    if replica_of(message) >= 0:
        return (Need(Operation.CLUSTER_ACTION, Resource.CLUSTER),)
    return (Need(Operation.READ, Resource.TOPIC),)


class Handler:
    """The handler of Fetch, which keeps the sessions of all clients between requests."""

    def __init__(self, services: Services) -> None:
        slots = services.node.config["max.incremental.fetch.session.cache.slots"]
        self.sessions = FetchSessions(slots, services.node.rng)
        self._of_strangers = FetchSessions(0, services.node.rng)
        self._turns = services.node.turns
        self._parts = FetchParts(services)

    def _sessions_of(self, request: Request, message: FetchRequest) -> FetchSessions:
        """Whoever says that it is a replica, and may not be, has no sessions: a new one ends that of the replica."""
        sources = self._parts.sources
        if (not sources.asks and request.metered is None) or replica_of(message) < 0:
            return self.sessions
        if sources.asks and not sources.may_follow(request):
            return self._of_strangers
        request.metered = None  # quotas are for clients
        return self.sessions

    def handle(self, request: Request, message: FetchRequest) -> None:
        sessions = self._sessions_of(request, message)
        try:
            session = sessions.find(message, request.version >= TOPIC_IDS_SINCE)
        except KafkaError as error:
            refuse_whole(request, error.code)
            return
        if len(session.partitions) > MANY_PARTITIONS or _names_many(message):
            request.then(self._turns.complete(self._fetch_in_steps(request, message, sessions, session)))
            return
        named = session.update(message)
        if not session.is_incremental:
            sessions.keep(session, message)
        fetch = self._fetch_of(request, message, session, named)
        fetch.read(fetch.partitions)
        if fetch.is_enough:
            fetch.answer()
        else:
            fetch.begin_wait()
            fetch.watch(fetch.partitions)

    def _fetch_of(
        self, request: Request, message: FetchRequest, session: FetchSession, named: list[Wanted]
    ) -> ConsumerFetch | FollowerFetch:
        replica_id = replica_of(message)
        if replica_id >= 0:
            return FollowerFetch(self._parts, request, message, session, replica_id, named)
        return ConsumerFetch(self._parts, request, message, session)

    def _fetch_in_steps(
        self, request: Request, message: FetchRequest, sessions: FetchSessions, session: FetchSession
    ) -> Steps[None]:
        """The same for many partitions."""
        named: list[Wanted] = []
        for topic in message.topics:
            yield from in_pieces(topic.partitions, partial(session.want, topic, named))
        if message.forgotten_topics_data:
            named = session.forget(message, named)
        sessions.keep(session, message)
        fetch = self._fetch_of(request, message, session, named)
        yield from in_pieces(fetch.partitions, fetch.read)
        if fetch.is_enough:
            fetch.answer()
        else:
            fetch.begin_wait()
            yield from in_pieces(fetch.partitions, fetch.watch)


def replica_of(message: FetchRequest) -> int:
    """The broker that asks; negative if it is a consumer."""
    return max(message.replica_id, message.replica_state.replica_id)


def _names_many(message: FetchRequest) -> bool:
    for topic in message.topics:
        if len(topic.partitions) > MANY_PARTITIONS:
            return True
    return len(message.topics) > MANY_PARTITIONS
