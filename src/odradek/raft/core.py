"""The quorum's state machine: who leads, in which epoch, and what is committed.

The protocol is KRaft's (KIP-595, 853, 996), the shape is that of etcd's raft. The core touches no disk, network or
clock. Every call returns a `Ready`: what the driver must do now, in the order of its fields. The driver reports with
`step` what it did to the log, like every other event.

    tick(now) ──┐             ┌─► quorum-state ─► truncate ─► append ─► sync ─► messages
    step(event) ┼──► Ready ───┤
    propose() ──┘             └─► step(Appended), step(Synced) ──► Ready …

Followers pull. The offset that a follower fetches from tells the leader what it has on disk, so it fetches again only
after its own sync. The leader parks a fetch until there is something to send, learns every replica's progress from the
fetch offsets, and resigns if a majority has not fetched for a while. The high watermark travels in fetch responses.

A leader opens its epoch with a LEADER_CHANGE record. It commits nothing before a majority of the voters has that
record, which commits everything before it too: a record of an earlier epoch may be on a majority and still be
overwritten.

No message is sent before the epoch and the vote that it depends on are on disk, because `Ready.election` comes first.
"""

from collections.abc import Iterator, Sequence

from odradek.errors import ErrorCode, KafkaError
from odradek.raft.leadership import Leadership
from odradek.raft.log_view import Batch
from odradek.raft.messages import (
    NONE,
    REQUESTS,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Message,
    OffsetAndEpoch,
    ReadFrom,
    ReadSnapshot,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from odradek.raft.ready import (
    Append,
    Appended,
    AppendFetched,
    Event,
    LogStartMoved,
    QuorumBroken,
    Ready,
    SnapshotInstalled,
    SnapshotPart,
    SnapshotWritten,
    Synced,
    Unreachable,
)
from odradek.raft.reconfiguration import VoterChange, change_voters
from odradek.raft.roles import (
    Candidate,
    FetchedSnapshot,
    Follower,
    Leader,
    ParkedFetch,
    Progress,
    Prospective,
    Resigned,
    Unattached,
)
from odradek.raft.voters import ReplicaKey

ADVICE = (
    "This node stops, so that nothing is lost. Compare the data directories of the voters: one of them was restored "
    "from an old copy, or wiped."
)


class Raft(Leadership):
    """The core: `tick`, `step`, `propose`, and what is replicated and committed."""

    @property
    def may_stop(self) -> bool:
        """True once all voters that can be reached know that this replica does not lead."""
        return not self.is_leader and not (isinstance(self.role, Resigned) and self.role.unacknowledged)

    @property
    def next_tick_ms(self) -> int | None:
        """The time when `tick` must be called, if no other event comes first."""
        return min(self._deadlines(), default=None)

    # Events

    def tick(self, now_ms: int) -> Ready:
        """Time has passed. `now_ms` comes from a clock that never goes back."""
        self._now_ms = now_ms
        self._handle_time()
        return self._ready()

    def step(self, event: Event, now_ms: int) -> Ready:
        self._now_ms = now_ms
        if isinstance(event, Message):
            if isinstance(event.body, REQUESTS):
                self._handle_request(event, event.body)
            elif self._outgoing.requests.complete(event.sender, event.correlation_id):
                self._handle_response(event.sender, event.body)
        elif isinstance(event, Appended):
            self._handle_appended(event.batches)
        elif isinstance(event, Synced):
            self._handle_synced(event.offset)
        elif isinstance(event, LogStartMoved):
            self.log.start_at(event.start_offset, event.snapshot_id)
        elif isinstance(event, SnapshotWritten):
            self._handle_snapshot_written(event)
        elif isinstance(event, SnapshotInstalled):
            self._handle_snapshot_installed(event)
        elif isinstance(event, Unreachable):
            self._handle_unreachable(event)
        else:
            self._handle_append_failed()
        return self._ready()

    def propose(self, records: Sequence[bytes], now_ms: int) -> Ready:
        """Append these as one batch. Raises NOT_CONTROLLER unless this node leads."""
        if not isinstance(self.role, Leader):
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This node does not lead the quorum.")
        self._now_ms = now_ms
        self._work.append = Append(self.epoch, tuple(records))
        return self._ready()

    def propose_voters(self, change: VoterChange, now_ms: int) -> Ready:
        """Add, remove or update one voter. The new set is in effect once appended, and final once committed. Raises
        KafkaError if the change is refused."""
        if not isinstance(self.role, Leader):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "This node does not lead the quorum.")
        self._now_ms = now_ms
        voters = change_voters(change, self.role, self.log, self.high_watermark, now_ms)
        self._work.append = Append(self.epoch, control=(voters,))
        return self._ready()

    def resign(self, now_ms: int) -> Ready:
        """Give up the leadership, and ask the other voters to elect a new leader."""
        self._now_ms = now_ms
        if self.is_leader:
            self._become_resigned()
        return self._ready()

    def stop(self, now_ms: int) -> Ready:
        """A clean stop: resign, and do not stand for election again. See `may_stop`."""
        self._is_stopping = True
        return self.resign(now_ms)

    # Time

    def _handle_time(self) -> None:
        role = self.role
        if isinstance(role, Leader):
            self._handle_time_as_leader(role)
        elif self.is_only_voter and not self._is_stopping:
            self._become_prospective()
        elif self._now_ms >= role.deadline_ms:
            self._handle_deadline(role)

    def _handle_deadline(self, role: Unattached | Prospective | Candidate | Follower | Resigned) -> None:
        if isinstance(role, Prospective):
            self._give_up_pre_vote(role)
        elif isinstance(role, Candidate) and not role.has_lost:
            self._lose_election(role)
        elif self._is_stopping:
            return
        elif isinstance(role, Resigned):
            self._become_unattached(self.epoch + 1)
        elif self.may_stand:
            self._become_prospective()

    def _handle_time_as_leader(self, role: Leader) -> None:
        if self._is_removed or self._now_ms >= self._quorum_deadline_ms(role):
            self._become_resigned()
            return
        self._serve(role, [fetch for fetch in role.parked if fetch.deadline_ms <= self._now_ms])

    @property
    def _is_removed(self) -> bool:
        """A leader that was removed from the voters leads until that is committed, without counting itself."""
        return not self.is_voter and self.log.voters.last_offset < self.high_watermark

    def _quorum_deadline_ms(self, role: Leader) -> int:
        """Return when the leader resigns, unless voters fetch before."""
        return role.contact_ms(self.voters, self.node, self._now_ms) + self._settings.check_quorum_ms

    def _deadlines(self) -> Iterator[int]:
        role = self.role
        yield from self._outgoing.deadlines(role, self._now_ms)
        if isinstance(role, Leader):
            yield from (fetch.deadline_ms for fetch in role.parked)
            if self._is_removed:
                yield self._now_ms
            if not self.is_only_voter:
                yield self._quorum_deadline_ms(role)
        elif not self._is_stopping and (self.may_stand or isinstance(role, Resigned)):
            yield role.deadline_ms

    # Leading

    def _handle_fetch(self, message: Message, request: FetchRequest) -> FetchResponse | None:
        """Respond to a fetch; None if it is parked."""
        role, error = self.role, self._check_fetch(request)
        if error is not NONE:
            return self._refuse_fetch(error)
        assert isinstance(role, Leader)
        agreement = self.log.check(request.fetch_offset, request.last_fetched_epoch)
        self._note_fetch(role, request, agrees=not any(agreement))
        if any(agreement) or self._has_news(request) or request.max_wait_ms == 0:
            return self._fetched(request)
        self._serve(role, [fetch for fetch in role.parked if fetch.request.replica == request.replica])
        deadline_ms = self._now_ms + request.max_wait_ms
        role.parked.append(ParkedFetch(message.sender, message.correlation_id, request, deadline_ms))
        return None

    def _handle_fetch_snapshot(self, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
        """Only the driver knows whether the snapshot still exists: it may be older than the newest."""
        error = self._check_leader_request(request)
        response = FetchSnapshotResponse(error, self.role.leader_id, self.epoch, request.snapshot_id)
        if error is not NONE:
            return response
        assert isinstance(self.role, Leader)
        self._note_contact(self.role, request.replica)
        data = ReadSnapshot(request.position, request.max_bytes)
        return response._replace(position=request.position, data=data)

    def _check_leader_request(self, request: FetchRequest | FetchSnapshotRequest) -> ErrorCode:
        error = self._check_request(request.cluster_id, request.epoch, request.replica.node_id)
        if error is not NONE:
            return error
        if request.epoch > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return NONE if self.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _check_fetch(self, request: FetchRequest) -> ErrorCode:
        error = self._check_leader_request(request)
        if error is not NONE:
            return error
        is_legal = request.fetch_offset >= 0 and 0 <= request.last_fetched_epoch <= request.epoch
        return NONE if is_legal and request.max_wait_ms >= 0 else ErrorCode.INVALID_REQUEST

    def _note_contact(self, role: Leader, replica: ReplicaKey) -> Progress:
        voter = self.voters.get(replica.node_id)
        key = voter.key if voter is not None and voter.key.names(replica) else replica
        if key not in role.progress:
            role.forget_observers(self.voters, self._now_ms)
        progress = role.progress.setdefault(key, Progress())
        progress.fetched_ms = self._now_ms
        return progress

    def _note_fetch(self, role: Leader, request: FetchRequest, agrees: bool) -> None:
        progress = self._note_contact(role, request.replica)
        if not agrees:
            return
        progress.end_offset = request.fetch_offset
        if request.fetch_offset >= self.log.end_offset:
            progress.caught_up_ms = self._now_ms
        self._maybe_advance(role)

    def _maybe_advance(self, role: Leader) -> None:
        """Commit what a majority has, if that includes a record of this epoch."""
        majority_offset = role.majority_offset(self.voters, self.node, self.log.synced_offset)
        if majority_offset > max(role.epoch_start_offset, self.high_watermark):
            self.high_watermark = majority_offset
            self._serve_parked(role)

    def _has_news(self, request: FetchRequest) -> bool:
        return request.fetch_offset < self.log.end_offset or request.high_watermark < self.high_watermark

    def _serve_parked(self, role: Leader) -> None:
        self._serve(role, [fetch for fetch in role.parked if self._has_news(fetch.request)])

    def _serve(self, role: Leader, fetches: Sequence[ParkedFetch]) -> None:
        for fetch in fetches:
            role.parked.remove(fetch)
            self._respond(fetch.sender, fetch.correlation_id, self._fetched(fetch.request))

    def _fetched(self, request: FetchRequest) -> FetchResponse:
        """The response, checked again: while the fetch was parked, the log start may have moved."""
        diverging, snapshot_id = self.log.check(request.fetch_offset, request.last_fetched_epoch)
        records: bytes | ReadFrom = b""
        if diverging is None and snapshot_id is None and request.fetch_offset < self.log.end_offset:
            records = ReadFrom(request.fetch_offset, request.max_bytes)
        return FetchResponse(
            NONE, self.role.leader_id, self.epoch, self.high_watermark, records, diverging, snapshot_id
        )

    def _handle_appended(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            self.log.append(batch)
        self._work.sync = not self.log.is_synced
        if isinstance(self.role, Leader):
            self._serve_parked(self.role)
            self._maybe_advance(self.role)
        else:
            self._follow_high_watermark()

    def _handle_synced(self, offset: int) -> None:
        assert offset <= self.log.end_offset, "nothing is synced that was not appended"
        self.log.synced_offset = offset
        if isinstance(self.role, Leader):
            self._maybe_advance(self.role)

    def _handle_append_failed(self) -> None:
        role = self.role
        has_opened = isinstance(role, Leader) and role.epoch_start_offset < self.log.end_offset
        if isinstance(role, Leader) and not (has_opened and self.is_only_voter):
            self._become_resigned()  # another voter's disk may have room; and without a record nothing is committed
        elif isinstance(role, Follower):
            role.snapshot = None
            self._outgoing.requests.back_off(role.leader_id, self._now_ms)

    # Following

    def _handle_fetch_response(self, sender: int, response: FetchResponse) -> None:
        role = self._followed(sender, response)
        if role is None:
            return
        if response.diverging is not None:
            self._truncate(role, response.diverging)
        elif response.snapshot_id is not None:
            self._begin_snapshot(role, response.snapshot_id)
        else:
            role.leader_high_watermark = response.high_watermark
            if response.records:
                assert isinstance(response.records, bytes), "the driver of the leader has read them"
                self._work.append = AppendFetched(self.epoch, response.records)
            else:
                self._follow_high_watermark()

    def _followed(self, sender: int, response: FetchResponse | FetchSnapshotResponse) -> Follower | None:
        """The role, if this is a successful response of the leader that it follows."""
        role = self.role
        if not isinstance(role, Follower) or response.epoch != self.epoch or sender != role.leader_id:
            return None
        if response.error is not NONE:
            role.snapshot = None  # the leader may have deleted it: the next fetch names the current one
            if not self.may_stand:
                role.deadline_ms = self._now_ms  # an observer need not wait: it asks other nodes at once
            return None
        if not role.is_abandoned:
            role.has_fetched = True
            role.deadline_ms = self._fetch_deadline_ms()
        return role

    def _begin_snapshot(self, role: Follower, snapshot_id: OffsetAndEpoch) -> None:
        if snapshot_id.offset < self.high_watermark:
            raise QuorumBroken(
                f"Leader {role.leader_id} of epoch {role.epoch} offers a snapshot of the metadata that ends at offset "
                f"{snapshot_id.offset}, but everything below {self.high_watermark} is committed. {ADVICE}"
            )
        role.snapshot = FetchedSnapshot(snapshot_id)

    def _handle_fetch_snapshot_response(self, sender: int, response: FetchSnapshotResponse) -> None:
        role = self._followed(sender, response)
        if role is None or role.snapshot != (response.snapshot_id, response.position):
            return
        assert isinstance(response.data, bytes), "the driver of the leader has read it"
        is_last = response.position + len(response.data) >= response.size
        if response.data or is_last:
            self._work.snapshot = SnapshotPart(*role.snapshot, response.data, is_last)
        else:
            self._outgoing.requests.back_off(sender, self._now_ms)

    def _handle_snapshot_written(self, event: SnapshotWritten) -> None:
        if isinstance(self.role, Follower):
            self.role.snapshot = FetchedSnapshot(*event)

    def _handle_snapshot_installed(self, event: SnapshotInstalled) -> None:
        """Everything in a snapshot is committed."""
        self.log.replace_by(event.snapshot_id, event.voters)
        self.high_watermark = event.snapshot_id.offset
        if isinstance(self.role, Follower):
            self.role.snapshot = None

    def _truncate(self, role: Follower, diverging: OffsetAndEpoch) -> None:
        offset = self.log.truncation_for(diverging)
        if offset < self.high_watermark:
            raise QuorumBroken(
                f"Leader {role.leader_id} of epoch {role.epoch} asks to truncate the metadata log to offset {offset}, "
                f"but everything below {self.high_watermark} is committed. {ADVICE}"
            )
        if offset < self.log.end_offset:
            self.log.truncate_to(offset)
            self._work.truncate_to = offset
        else:  # there is nothing to cut, so a fetch at once would get the same response
            self._outgoing.requests.back_off(role.leader_id, self._now_ms)

    def _follow_high_watermark(self) -> None:
        if isinstance(self.role, Follower):
            known = min(self.role.leader_high_watermark, self.log.end_offset)
            self.high_watermark = max(self.high_watermark, known)

    # Requests and responses

    def _handle_request(self, message: Message, request: Request) -> None:
        response: Response | None
        if isinstance(request, VoteRequest):
            response = self._handle_vote(request)
        elif isinstance(request, BeginQuorumEpochRequest):
            response = self._handle_begin_epoch(request)
        elif isinstance(request, EndQuorumEpochRequest):
            response = self._handle_end_epoch(request)
        elif isinstance(request, FetchRequest):
            response = self._handle_fetch(message, request)
        else:
            response = self._handle_fetch_snapshot(request)
        if response is not None:
            self._respond(message.sender, message.correlation_id, response)

    def _handle_unreachable(self, event: Unreachable) -> None:
        """Treated like a request that timed out: if servers are asked in turn, the next one is asked at once. If the
        leader is gone, a voter need not wait for its fetch timeout, and grants pre-votes. But it waits for its turn, so
        that the voters do not all stand at once and split the vote."""
        if not self._outgoing.requests.complete(event.node_id, event.correlation_id):
            return
        self._outgoing.requests.back_off(event.node_id, self._now_ms)
        role = self.role
        if event.is_gone and isinstance(role, Follower) and role.leader_id == event.node_id:
            role.has_fetched = False
            soon_ms = self._now_ms + self._turn_after_ms(event.node_id)
            role.deadline_ms = min(role.deadline_ms, soon_ms)
        elif event.is_gone and isinstance(role, Resigned):
            role.unacknowledged.discard(event.node_id)  # its process has ended, so it need not know

    def _turn_after_ms(self, gone_leader_id: int) -> int:
        """Return how long to wait, by the order of the voters' ids. A voter that cannot win, because its log is
        behind, costs only its turn.
        """
        others = [key for key in self.voters.keys if key.node_id != gone_leader_id]
        turn = others.index(self.node) if self.node in others else len(others)
        jitter_ms = self._rng.randrange(self._settings.gone_turn_ms) // 10
        return turn * self._settings.gone_turn_ms + jitter_ms

    def _handle_response(self, sender: int, response: Response) -> None:
        """Every response, even an error, names the epoch and its leader; those of another cluster do not count."""
        if response.error is ErrorCode.INCONSISTENT_CLUSTER_ID:
            self._outgoing.requests.back_off_from_foreign(sender, self._now_ms)
            return
        if response.error is not NONE:
            self._outgoing.requests.back_off(sender, self._now_ms)
        self._learn(response.epoch, response.leader_id)
        if isinstance(response, VoteResponse):
            self._handle_vote_response(sender, response)
        elif isinstance(response, EndQuorumEpochResponse):
            self._handle_end_epoch_response(sender, response)
        elif isinstance(response, FetchResponse):
            self._handle_fetch_response(sender, response)
        elif isinstance(response, FetchSnapshotResponse):
            self._handle_fetch_snapshot_response(sender, response)
