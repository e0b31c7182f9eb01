"""The quorum's state machine: who leads, in which epoch, and what is committed.

The protocol is KRaft's (KIP-595, 853, 996), the shape is that of etcd's raft. The core touches neither disk nor network
nor clock. Every call returns a `Ready`: what the driver must do now, in the order of its fields. The driver reports
what it did to the log by `step`, like anything else that happens.

    tick(now) ──┐             ┌─► quorum-state ─► truncate ─► append ─► sync ─► messages
    step(event) ┼──► Ready ───┤
    propose() ──┘             └─► step(Appended), step(Synced) ──► Ready …

Replication is pulled. Followers fetch; the offset that a follower fetches from says what it has on disk, so it fetches
on only after its own sync. The leader parks a fetch until there is something to send, learns everybody's progress from
the offsets, and resigns when a majority has not fetched for a while. The high watermark travels in fetch responses.

A leader opens its epoch with a LEADER_CHANGE record. Only once that record is on a majority of voters is anything
committed, with everything before it: an entry of an earlier epoch may be on a majority and still be overwritten.

No message leaves before the epoch and the vote that it speaks of are on disk, because `Ready.election` comes first.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from odradek.errors import ErrorCode, KafkaError
from odradek.raft.control import ControlRecord, LeaderChange
from odradek.raft.election import NO_NODE, ElectionState
from odradek.raft.log_view import Batch, LogView
from odradek.raft.messages import (
    NONE,
    REQUESTS,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    Message,
    OffsetAndEpoch,
    ReadFrom,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)
from odradek.raft.outgoing import Outgoing, Settings
from odradek.raft.ready import (
    Append,
    Appended,
    AppendFetched,
    Event,
    LogStartMoved,
    QuorumBroken,
    Ready,
    Synced,
)
from odradek.raft.reconfiguration import VoterChange, change_voters
from odradek.raft.roles import (
    Candidate,
    Follower,
    Leader,
    ParkedFetch,
    Progress,
    Prospective,
    Resigned,
    Role,
    Unattached,
    check_move,
    election_of,
)
from odradek.raft.voters import KRaftVersion, ReplicaKey, VoterSet

DEFAULTS = Settings()


@dataclass(slots=True)
class _Work:
    """The next `Ready`, while it is being made."""

    truncate_to: int | None = None
    append: Append | AppendFetched | None = None
    sync: bool = False
    messages: list[Message] = field(default_factory=list)


class Raft:
    """`epoch` never decreases, not even across restarts; `high_watermark` never decreases in one life."""

    def __init__(
        self,
        node: ReplicaKey,
        cluster_id: str,
        log: LogView,
        election: ElectionState | None,
        *,
        rng: Random,
        now_ms: int,
        settings: Settings = DEFAULTS,
        kraft_version: int = 0,
        bootstrap: Sequence[int] = (),
    ) -> None:
        """`log` and `election` are what the disk holds. A leader upgrades a log below `kraft_version`, so that the
        voters are in it. `bootstrap` are servers to ask for the leader besides the voters, as ids below -1."""
        self.node = node
        self.log = log
        self._cluster_id = cluster_id
        self._settings = settings
        self._rng = rng
        self._now_ms = now_ms
        self._kraft_version = kraft_version
        self._outgoing = Outgoing(node, cluster_id, log, settings, bootstrap, rng)
        self._is_stopping = False
        self._work = _Work()
        self.high_watermark = log.snapshot_id.offset if log.snapshot_id is not None else 0
        self._told_high_watermark = self.high_watermark
        self._persisted = election
        self.role: Role = self._first_role(election)

    def _first_role(self, election: ElectionState | None) -> Role:
        if election is None or election.leader_epoch < self.log.last_epoch:
            return Unattached(self.log.last_epoch, self._election_deadline_ms())
        epoch = election.leader_epoch
        if election.leader_id == self.node.node_id:
            return Resigned(
                epoch, self.node.node_id, self._election_deadline_ms(), (), set(self._outgoing.other_voters)
            )
        voted = election.voted
        if election.leader_id != NO_NODE:
            return Follower(epoch, election.leader_id, self._fetch_deadline_ms(), voted)
        return Unattached(epoch, self._election_deadline_ms(), voted)

    @property
    def epoch(self) -> int:
        return self.role.epoch

    @property
    def leader_id(self) -> int | None:
        """Who leads this epoch, as far as this replica knows; None too if it led itself and resigned."""
        leader_id = self.role.leader_id
        return (
            None
            if leader_id == NO_NODE or (leader_id == self.node.node_id and not self.is_leader)
            else leader_id
        )

    @property
    def is_leader(self) -> bool:
        return isinstance(self.role, Leader)

    @property
    def voters(self) -> VoterSet:
        return self.log.voters.last

    @property
    def is_voter(self) -> bool:
        return self.voters.includes(self.node)

    @property
    def may_stop(self) -> bool:
        """True once nobody needs to be told any more that this replica does not lead."""
        return not self.is_leader and not (isinstance(self.role, Resigned) and self.role.unacknowledged)

    @property
    def next_tick_ms(self) -> int | None:
        """When `tick` has something to do, if nothing else happens before."""
        return min(self._deadlines(), default=None)

    # What happens

    def tick(self, now_ms: int) -> Ready:
        """Time has passed. `now_ms` is of a clock that never goes back."""
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
        else:
            self._handle_append_failed()
        return self._ready()

    def propose(self, records: Sequence[bytes], now_ms: int) -> Ready:
        """Append these together, as one batch; NOT_CONTROLLER unless this node leads."""
        if not isinstance(self.role, Leader):
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This node does not lead the quorum.")
        self._now_ms = now_ms
        self._work.append = Append(self.epoch, tuple(records))
        return self._ready()

    def propose_voters(self, change: VoterChange, now_ms: int) -> Ready:
        """Add, remove or update one voter, or refuse to. It is in effect once appended, and done once committed."""
        if not isinstance(self.role, Leader):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "This node does not lead the quorum.")
        self._now_ms = now_ms
        voters = change_voters(change, self.role, self.log, self.high_watermark, now_ms)
        self._work.append = Append(self.epoch, control=(voters,))
        return self._ready()

    def resign(self, now_ms: int) -> Ready:
        """Lead no more, and ask the others to elect somebody else."""
        self._now_ms = now_ms
        if self.is_leader:
            self._become_resigned()
        return self._ready()

    def stop(self, now_ms: int) -> Ready:
        """A clean stop: resign, and never again stand for election. See `may_stop`."""
        self._is_stopping = True
        return self.resign(now_ms)

    def _ready(self) -> Ready:
        work, self._work = self._work, _Work()
        if work.append is None:  # else the log is about to change, and with it what is to be sent
            work.messages += self._outgoing.send(self.role, self.high_watermark, self._now_ms)
        election: ElectionState | None = election_of(self.role)
        if election == self._persisted:
            election = None
        else:
            self._persisted = election
        high_watermark = None
        if self.high_watermark != self._told_high_watermark:
            high_watermark = self._told_high_watermark = self.high_watermark
        return Ready(election, work.truncate_to, work.append, work.sync, tuple(work.messages), high_watermark)

    # Time

    @property
    def _is_only_voter(self) -> bool:
        return self.is_voter and len(self.voters) == 1

    def _election_deadline_ms(self) -> int:
        timeout_ms = self._settings.election_timeout_ms
        return self._now_ms + timeout_ms + self._rng.randrange(timeout_ms)

    def _fetch_deadline_ms(self) -> int:
        return self._now_ms + self._settings.fetch_timeout_ms

    def _handle_time(self) -> None:
        role = self.role
        if isinstance(role, Leader):
            self._handle_time_as_leader(role)
        elif self._is_only_voter and not self._is_stopping:
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
        elif self.is_voter:
            self._become_prospective()

    def _handle_time_as_leader(self, role: Leader) -> None:
        if self._is_removed or self._now_ms >= self._quorum_deadline_ms(role):
            self._become_resigned()
            return
        for fetch in [fetch for fetch in role.parked if fetch.deadline_ms <= self._now_ms]:
            role.parked.remove(fetch)
            self._respond(fetch.sender, fetch.correlation_id, self._fetched(fetch.request))

    @property
    def _is_removed(self) -> bool:
        """A leader that was removed from the voters leads on until that is committed, without counting itself."""
        return not self.is_voter and self.log.voters.last_offset < self.high_watermark

    def _quorum_deadline_ms(self, role: Leader) -> int:
        """When the leader resigns if nobody fetches."""
        return role.contact_ms(self.voters, self.node, self._now_ms) + self._settings.check_quorum_ms

    def _deadlines(self) -> Iterator[int]:
        role = self.role
        yield from self._outgoing.deadlines(role, self._now_ms)
        if isinstance(role, Leader):
            yield from (fetch.deadline_ms for fetch in role.parked)
            if self._is_removed:
                yield self._now_ms
            if not self._is_only_voter:
                yield self._quorum_deadline_ms(role)
        elif not self._is_stopping and (self.is_voter or isinstance(role, Resigned)):
            yield role.deadline_ms

    # Moves between roles

    def _become(self, role: Role) -> None:
        check_move(self.role, role)
        before, self.role = self.role, role
        self._outgoing.requests.reset()
        if isinstance(before, Leader):
            for fetch in before.parked:
                refusal = self._refuse_fetch(ErrorCode.NOT_LEADER_OR_FOLLOWER)
                self._respond(fetch.sender, fetch.correlation_id, refusal)

    def _become_unattached(self, epoch: int) -> None:
        voted = self.role.voted if epoch == self.epoch else None
        self._become(Unattached(epoch, self._election_deadline_ms(), voted))

    def _become_follower(self, epoch: int, leader_id: int) -> None:
        voted = self.role.voted if epoch == self.epoch else None
        self._become(Follower(epoch, leader_id, self._fetch_deadline_ms(), voted))

    def _become_prospective(self) -> None:
        role = Prospective(self.epoch, self._election_deadline_ms(), self.role.leader_id, self.role.voted)
        self._become(role)
        self._vote_for_myself()

    def _give_up_pre_vote(self, role: Prospective) -> None:
        """Back to the leader that it had, if it had one: nobody was disturbed."""
        if role.leader_id == NO_NODE:
            self._become_unattached(self.epoch)
        else:
            self._become_follower(self.epoch, role.leader_id)

    def _become_candidate(self) -> None:
        self._become(Candidate(self.epoch + 1, self._election_deadline_ms(), self.node))
        self._vote_for_myself()

    def _lose_election(self, role: Candidate) -> None:
        role.has_lost = True
        role.deadline_ms = self._now_ms + self._rng.randrange(self._settings.election_backoff_max_ms)

    def _become_leader(self, granting: Iterable[ReplicaKey]) -> None:
        change = LeaderChange(self.node.node_id, self.voters.keys, tuple(sorted(granting)))
        control: tuple[ControlRecord, ...] = (change,)
        if self.log.voters.kraft_version < self._kraft_version:
            control = (change, KRaftVersion(self._kraft_version), self.voters)
        self._become(
            Leader(
                self.epoch,
                self.node.node_id,
                self.log.end_offset,
                self._now_ms,
                begin_deadline_ms=self._now_ms,
            )
        )
        self._work.append = Append(self.epoch, control=control)

    def _become_resigned(self) -> None:
        assert isinstance(self.role, Leader)
        others = [key for key in self.voters.keys if key.node_id != self.node.node_id]
        successors = self.role.by_descending_offset(others)
        deadline_ms = self._election_deadline_ms()
        self._become(
            Resigned(self.epoch, self.node.node_id, deadline_ms, successors, set(self._outgoing.other_voters))
        )

    def _learn(self, epoch: int, leader_id: int) -> None:
        """Somebody says who leads in which epoch. What is older than what is known here is not news."""
        is_elsewhere = leader_id not in (NO_NODE, self.node.node_id)
        if epoch > self.epoch:
            if is_elsewhere:
                self._become_follower(epoch, leader_id)
            else:
                self._become_unattached(epoch)
        elif epoch == self.epoch and is_elsewhere and self.role.leader_id == NO_NODE:
            self._become_follower(epoch, leader_id)

    # Elections

    def _vote_for_myself(self) -> None:
        voter = self.voters.get(self.node.node_id)
        assert voter is not None, "only voters stand for election"
        self._count_vote(voter.key, is_granted=True)

    def _count_vote(self, voter: ReplicaKey, is_granted: bool) -> None:
        role, voters = self.role, self.voters
        assert isinstance(role, Prospective | Candidate)
        (role.votes.granted if is_granted else role.votes.rejected).add(voter)
        if role.votes.is_won(voters):
            if isinstance(role, Prospective):
                self._become_candidate()
            else:
                self._become_leader(role.votes.granted)
        elif role.votes.is_lost(voters):
            if isinstance(role, Prospective):
                self._give_up_pre_vote(role)
            elif not role.has_lost:
                self._lose_election(role)

    def _handle_vote(self, request: VoteRequest) -> VoteResponse:
        error = self._check_request(request.cluster_id, request.epoch, request.candidate.node_id)
        last_legal_epoch = request.epoch if request.is_pre_vote else request.epoch - 1
        if error is NONE and (request.end_offset < 0 or not 0 <= request.last_epoch <= last_legal_epoch):
            error = ErrorCode.INVALID_REQUEST
        if error is not NONE:
            return self._voted(error)
        self._learn(request.epoch, NO_NODE)
        if not request.voter.names(self.node):
            return self._voted(ErrorCode.INVALID_VOTER_KEY)
        is_up_to_date = self.log.is_up_to_date(request.last_epoch, request.end_offset)
        is_granted = self.role.grants(request.candidate, request.is_pre_vote, is_up_to_date)
        if is_granted and not request.is_pre_vote and isinstance(self.role, Unattached | Prospective):
            self.role.voted = request.candidate
        return self._voted(NONE, is_granted)

    def _voted(self, error: ErrorCode, is_granted: bool = False) -> VoteResponse:
        return VoteResponse(error, self.role.leader_id, self.epoch, is_granted)

    def _handle_vote_response(self, sender: int, response: VoteResponse) -> None:
        role, voter = self.role, self.voters.get(sender)
        if self._is_stopping or voter is None or response.epoch != self.epoch:
            return
        if isinstance(role, Prospective | Candidate):
            self._count_vote(voter.key, response.is_granted)

    def _handle_begin_epoch(self, request: BeginQuorumEpochRequest) -> BeginQuorumEpochResponse:
        error = self._check_request(request.cluster_id, request.epoch, request.leader_id)
        if error is NONE:
            self._learn(request.epoch, request.leader_id)
            if isinstance(self.role, Prospective) and self.role.leader_id == request.leader_id:
                self._become_follower(request.epoch, request.leader_id)  # it was not lost
            if self.role.leader_id != request.leader_id:
                error = ErrorCode.INVALID_REQUEST  # another one leads this epoch
            elif not request.voter.names(self.node):
                error = ErrorCode.INVALID_VOTER_KEY
        return BeginQuorumEpochResponse(error, self.role.leader_id, self.epoch)

    def _handle_end_epoch(self, request: EndQuorumEpochRequest) -> EndQuorumEpochResponse:
        error = self._check_request(request.cluster_id, request.epoch, request.leader_id)
        if error is NONE:
            self._learn(request.epoch, request.leader_id)
            if isinstance(self.role, Follower) and self.role.leader_id == request.leader_id:
                self.role.deadline_ms = self._now_ms + self._succession_ms(request.preferred_successors)
                self.role.has_fetched = False
                self.role.is_abandoned = True
        return EndQuorumEpochResponse(error, self.role.leader_id, self.epoch)

    def _succession_ms(self, successors: Sequence[ReplicaKey]) -> int:
        """How long to wait before standing for election: the first successor not at all, each other twice as long."""
        position = next(
            (slot for slot, key in enumerate(successors) if key.names(self.node)), len(successors)
        )
        if position == 0:
            return 0
        longest_ms = self._settings.election_backoff_max_ms
        return min(longest_ms, (longest_ms >> max(len(successors) - 1, 0)) << (position - 1))

    def _handle_end_epoch_response(self, sender: int, response: EndQuorumEpochResponse) -> None:
        if isinstance(self.role, Resigned) and response.error is NONE:
            self.role.unacknowledged.discard(sender)

    # Leading

    def _handle_fetch(self, message: Message, request: FetchRequest) -> FetchResponse | None:
        """None if the fetch is parked."""
        error = self._check_leader_request(request.cluster_id, request.epoch)
        if (
            request.fetch_offset < 0
            or request.max_wait_ms < 0
            or not 0 <= request.last_fetched_epoch <= request.epoch
        ):
            error = ErrorCode.INVALID_REQUEST
        if error is not NONE:
            return self._refuse_fetch(error)
        assert isinstance(self.role, Leader)
        agreement = self.log.check(request.fetch_offset, request.last_fetched_epoch)
        self._note_fetch(self.role, request, agrees=not any(agreement))
        if any(agreement) or self._has_news(request) or request.max_wait_ms == 0:
            return self._fetched(request)
        deadline_ms = self._now_ms + request.max_wait_ms
        self.role.parked.append(ParkedFetch(message.sender, message.correlation_id, request, deadline_ms))
        return None

    def _note_fetch(self, role: Leader, request: FetchRequest, agrees: bool) -> None:
        voter = self.voters.get(request.replica.node_id)
        key = voter.key if voter is not None and voter.key.names(request.replica) else request.replica
        progress = role.progress.setdefault(key, Progress())
        progress.fetched_ms = self._now_ms
        if not agrees:
            return
        progress.end_offset = request.fetch_offset
        if request.fetch_offset >= self.log.end_offset:
            progress.caught_up_ms = self._now_ms
        self._maybe_advance(role)

    def _maybe_advance(self, role: Leader) -> None:
        """Commit what a majority has, if that includes an entry of this epoch."""
        majority_offset = role.majority_offset(self.voters, self.node, self.log.synced_offset)
        if majority_offset > max(role.epoch_start_offset, self.high_watermark):
            self.high_watermark = majority_offset
            self._serve_parked(role)

    def _has_news(self, request: FetchRequest) -> bool:
        return request.fetch_offset < self.log.end_offset or request.high_watermark < self.high_watermark

    def _serve_parked(self, role: Leader) -> None:
        served = [fetch for fetch in role.parked if self._has_news(fetch.request)]
        if served:
            role.parked = [fetch for fetch in role.parked if fetch not in served]
            for fetch in served:
                self._respond(fetch.sender, fetch.correlation_id, self._fetched(fetch.request))

    def _fetched(self, request: FetchRequest) -> FetchResponse:
        """Checked anew: while the fetch was parked, the log may have lost its beginning."""
        diverging, snapshot_id = self.log.check(request.fetch_offset, request.last_fetched_epoch)
        records: bytes | ReadFrom = b""
        if diverging is None and snapshot_id is None and request.fetch_offset < self.log.end_offset:
            records = ReadFrom(request.fetch_offset, request.max_bytes)
        return FetchResponse(
            NONE, self.role.leader_id, self.epoch, self.high_watermark, records, diverging, snapshot_id
        )

    def _refuse_fetch(self, error: ErrorCode) -> FetchResponse:
        return FetchResponse(error, self.role.leader_id, self.epoch)

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
        if isinstance(role, Leader) and role.epoch_start_offset == self.log.end_offset:
            self._become_resigned()  # without the record that opens its epoch it can commit nothing
        elif isinstance(role, Follower):
            self._outgoing.requests.back_off(role.leader_id, self._now_ms)

    # Following

    def _handle_fetch_response(self, sender: int, response: FetchResponse) -> None:
        role = self.role
        if not isinstance(role, Follower) or response.epoch != self.epoch or sender != role.leader_id:
            return
        if response.error is not NONE:
            return
        if not role.is_abandoned:
            role.has_fetched = True
            role.deadline_ms = self._fetch_deadline_ms()
        if response.diverging is not None:
            self._truncate(role, response.diverging)
        elif response.snapshot_id is not None:
            role.snapshot_id = response.snapshot_id
        else:
            role.leader_high_watermark = response.high_watermark
            if response.records:
                assert isinstance(response.records, bytes), "the driver of the leader has read them"
                self._work.append = AppendFetched(self.epoch, response.records)
            else:
                self._follow_high_watermark()

    def _truncate(self, role: Follower, diverging: OffsetAndEpoch) -> None:
        offset = self.log.truncation_for(diverging)
        if offset < self.high_watermark:
            raise QuorumBroken(
                f"Leader {role.leader_id} of epoch {role.epoch} asks to truncate the metadata log to offset {offset}, "
                f"but everything below {self.high_watermark} is committed. This node stops, so that nothing is lost. "
                "Compare the data directories of the voters: one of them was restored from an old copy or wiped."
            )
        if offset >= self.log.end_offset:
            self._outgoing.requests.back_off(
                role.leader_id, self._now_ms
            )  # nothing to cut: asking at once would not help
            return
        self.log.truncate_to(offset)
        self._work.truncate_to = offset

    def _follow_high_watermark(self) -> None:
        if isinstance(self.role, Follower):
            known = min(self.role.leader_high_watermark, self.log.end_offset)
            self.high_watermark = max(self.high_watermark, known)

    # Requests and responses

    def _check_request(self, cluster_id: str, epoch: int, sender: int) -> ErrorCode:
        if cluster_id != self._cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return NONE if sender >= 0 else ErrorCode.INVALID_REQUEST

    def _check_leader_request(self, cluster_id: str, epoch: int) -> ErrorCode:
        error = self._check_request(cluster_id, epoch, self.node.node_id)
        if error is not NONE:
            return error
        if epoch > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return NONE if self.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _handle_request(self, message: Message, request: Request) -> None:
        response: Response | None
        if isinstance(request, VoteRequest):
            response = self._handle_vote(request)
        elif isinstance(request, BeginQuorumEpochRequest):
            response = self._handle_begin_epoch(request)
        elif isinstance(request, EndQuorumEpochRequest):
            response = self._handle_end_epoch(request)
        else:
            response = self._handle_fetch(message, request)
        if response is not None:
            self._respond(message.sender, message.correlation_id, response)

    def _handle_response(self, sender: int, response: Response) -> None:
        """Every response says who leads in which epoch, errors included; those of another cluster do not count."""
        if response.error is not ErrorCode.INCONSISTENT_CLUSTER_ID:
            self._learn(response.epoch, response.leader_id)
        if isinstance(response, VoteResponse):
            self._handle_vote_response(sender, response)
        elif isinstance(response, EndQuorumEpochResponse):
            self._handle_end_epoch_response(sender, response)
        elif isinstance(response, FetchResponse):
            self._handle_fetch_response(sender, response)
        if response.error is not NONE:
            self._outgoing.requests.back_off(sender, self._now_ms)

    def _respond(self, receiver: int, correlation_id: int, response: Response) -> None:
        self._work.messages.append(Message(self.node.node_id, receiver, correlation_id, response))
