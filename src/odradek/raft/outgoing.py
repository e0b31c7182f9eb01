"""The requests that a replica sends in its role.

After every event, `Outgoing` sends what the role wants to every node that has no request under way (`Requests`). So no
other code has to remember to send anything, and a lost request is sent again after its timeout.
"""

from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

from odradek.raft.election import NO_NODE
from odradek.raft.log_view import LogView
from odradek.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    Message,
    Request,
    VoteRequest,
)
from odradek.raft.requests import Requests
from odradek.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Role, Unattached
from odradek.raft.voters import ReplicaKey


class Settings(NamedTuple):
    """Kafka's `controller.quorum.*` settings, with its defaults."""

    election_timeout_ms: int = 1000  # at least; at random up to twice as long
    election_backoff_max_ms: int = 1000
    fetch_timeout_ms: int = 2000  # a voter whose fetches failed for this long stands for election
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 8 << 20

    @property
    def request_seconds(self) -> float:
        return self.request_timeout_ms / 1000

    @property
    def fetch_wait_ms(self) -> int:
        """The time for which a leader may hold a fetch until there is something new. Well before its follower gives
        up: a quorum without work would go on electing.
        """
        return min(self.fetch_max_wait_ms, self.fetch_timeout_ms // 4, self.request_timeout_ms // 4)

    @property
    def gone_turn_ms(self) -> int:
        """The time that each voter has to be elected, once the leader's process has ended, before the next one
        stands.
        """
        return max(self.election_timeout_ms // 5, 1)

    @property
    def check_quorum_ms(self) -> int:
        """A leader resigns if a majority has not fetched for this long: followers have given it up by then."""
        return self.fetch_timeout_ms * 3 // 2


class Outgoing:
    def __init__(
        self,
        node: ReplicaKey,
        cluster_id: str,
        log: LogView,
        settings: Settings,
        bootstrap: Sequence[int],
        rng: Random,
    ) -> None:
        self._node = node
        self._cluster_id = cluster_id
        self._log = log
        self._settings = settings
        self._bootstrap = tuple(bootstrap)
        self._asked = NO_NODE  # the server that was last asked for the leader
        self.requests = Requests(settings.request_timeout_ms, settings.retry_backoff_ms, rng.getrandbits(40))

    def send(self, role: Role, high_watermark: int, now_ms: int) -> Iterator[Message]:
        """The requests that this role wants, except those under way."""
        self.requests.expire(now_ms)
        for receiver, request in list(self._wanted(role, high_watermark, now_ms)):
            if self.requests.may_send(receiver, now_ms):
                correlation_id = self.requests.start(receiver, now_ms)
                yield Message(self._node.node_id, receiver, correlation_id, request)

    def deadlines(self, role: Role, now_ms: int) -> Iterator[int]:
        """Yield when there is something to send, if no other event comes first."""
        due_ms = self.requests.due_ms
        if isinstance(role, Leader):
            if self.other_voters:
                yield role.begin_deadline_ms
        elif isinstance(role, Prospective | Candidate):
            if not _has_lost(role):
                yield from (due_ms(key.node_id) for key in role.votes.unanswered(self._log.voters.last))
        elif isinstance(role, Resigned):
            yield from map(due_ms, sorted(role.unacknowledged))
        elif self._log.is_synced:
            if isinstance(role, Unattached):
                yield from self._asking_due_ms(role)
            elif isinstance(role, Follower):
                if self._is_voter:
                    yield due_ms(role.leader_id)
                elif now_ms < role.deadline_ms:
                    yield from (due_ms(role.leader_id), role.deadline_ms)
                else:
                    yield from self._asking_due_ms(role)

    @property
    def other_voters(self) -> list[int]:
        return [key.node_id for key in self._log.voters.last.keys if key.node_id != self._node.node_id]

    def _servers(self, role: Role) -> list[int]:
        """Servers that may know the leader. The last known leader is added: it may be a voter that an old log does not
        know yet."""
        servers = [*self._bootstrap, *self.other_voters]
        is_stranger = role.leader_id != NO_NODE and role.leader_id not in servers
        return [*servers, role.leader_id] if is_stranger else servers

    @property
    def _is_voter(self) -> bool:
        return self._log.voters.last.includes(self._node)

    def _wanted(self, role: Role, high_watermark: int, now_ms: int) -> Iterator[tuple[int, Request]]:
        if isinstance(role, Prospective | Candidate):
            if not _has_lost(role):
                for key in role.votes.unanswered(self._log.voters.last):
                    yield key.node_id, self._vote_request(key, role)
        elif isinstance(role, Leader):
            yield from self._begin_requests(role, now_ms)
        elif isinstance(role, Resigned):
            request = EndQuorumEpochRequest(self._cluster_id, role.leader_id, role.epoch, role.successors)
            for node_id in sorted(role.unacknowledged):
                yield node_id, request
        elif self._log.is_synced:
            server = self._server_to_fetch_from(role, now_ms)
            if server is not None:
                yield server, self._fetch_request(role, high_watermark)

    def _vote_request(self, voter: ReplicaKey, role: Prospective | Candidate) -> VoteRequest:
        end_offset, last_epoch = self._log.end
        is_pre_vote = isinstance(role, Prospective)
        return VoteRequest(
            self._cluster_id, voter, self._node, role.epoch, last_epoch, end_offset, is_pre_vote
        )

    def _begin_requests(self, role: Leader, now_ms: int) -> Iterator[tuple[int, Request]]:
        """To voters that do not fetch: those that fetch know their leader."""
        if now_ms < role.begin_deadline_ms:
            return
        period_ms = self._settings.fetch_timeout_ms // 2
        role.begin_deadline_ms = now_ms + period_ms
        for key in self._log.voters.last.keys:
            fetched_ms = role.progress_of(key).fetched_ms
            if not key.names(self._node) and (fetched_ms is None or now_ms - fetched_ms >= period_ms):
                yield (
                    key.node_id,
                    BeginQuorumEpochRequest(self._cluster_id, key, role.leader_id, role.epoch),
                )

    def _server_to_fetch_from(self, role: Unattached | Follower, now_ms: int) -> int | None:
        """The leader. If it is not known, or does not respond to an observer, each server in turn."""
        if isinstance(role, Follower) and (self._is_voter or now_ms < role.deadline_ms):
            return role.leader_id
        servers = self._servers(role)
        if self.requests.is_under_way(self._asked):
            return None
        start = servers.index(self._asked) + 1 if self._asked in servers else 0
        for server in servers[start:] + servers[:start]:
            if self.requests.may_send(server, now_ms):
                self._asked = server
                return server
        return None

    def _asking_due_ms(self, role: Role) -> Iterator[int]:
        if self.requests.is_under_way(self._asked):
            yield self.requests.due_ms(self._asked)
        elif servers := self._servers(role):
            yield min(map(self.requests.due_ms, servers))

    def _fetch_request(self, role: Role, high_watermark: int) -> FetchRequest | FetchSnapshotRequest:
        if isinstance(role, Follower) and role.snapshot is not None:
            max_bytes = self._settings.fetch_max_bytes
            return FetchSnapshotRequest(self._cluster_id, self._node, role.epoch, *role.snapshot, max_bytes)
        end_offset, last_epoch = self._log.end
        return FetchRequest(
            self._cluster_id,
            self._node,
            role.epoch,
            end_offset,
            last_epoch,
            high_watermark,
            self._settings.fetch_wait_ms,
            self._settings.fetch_max_bytes,
        )


def _has_lost(role: Prospective | Candidate) -> bool:
    return isinstance(role, Candidate) and role.has_lost
