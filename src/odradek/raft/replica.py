"""A replica of the quorum: its state, and its moves from one role to another.

This is the base of the core. `Leadership` adds elections, `Raft` adds replication and commit.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from odradek.errors import ErrorCode
from odradek.raft.election import NO_NODE, ElectionState
from odradek.raft.log_view import LogView
from odradek.raft.messages import NONE, NOT_SAID, FetchResponse, Message, Response
from odradek.raft.outgoing import Outgoing, Settings
from odradek.raft.ready import Append, AppendFetched, Ready, SnapshotPart
from odradek.raft.roles import Follower, Leader, Resigned, Role, Unattached, check_move, election_of
from odradek.raft.voters import ReplicaKey, VoterSet

DEFAULTS = Settings()


@dataclass(slots=True, eq=False)
class _Work:
    """The next `Ready`, while it is being made."""

    truncate_to: int | None = None
    snapshot: SnapshotPart | None = None
    append: Append | AppendFetched | None = None
    sync: bool = False
    messages: list[Message] = field(default_factory=list)


class Replica:
    """`epoch` never decreases, not even across restarts; `high_watermark` never decreases until a restart."""

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
        """`log` and `election` are what is on disk. A leader upgrades a log below `kraft_version`; from version 1 on it
        writes the voters into a log that does not have them. `bootstrap` are the ids, below -1, of servers besides the
        voters to ask for the leader."""
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
            return self._resigned(epoch, ())
        voted = election.voted
        if election.leader_id != NO_NODE:
            return Follower(epoch, election.leader_id, self._fetch_deadline_ms(), voted)
        return Unattached(epoch, self._election_deadline_ms(), voted)

    @property
    def epoch(self) -> int:
        return self.role.epoch

    @property
    def leader_id(self) -> int | None:
        """The leader of this epoch; None if it is unknown, or if this replica led and resigned."""
        if self.role.leader_id == NO_NODE or isinstance(self.role, Resigned):
            return None
        return self.role.leader_id

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
    def may_stand(self) -> bool:
        """Voters may stand for election. So may a replica whose log has its own removal, if that may not be committed:
        the remaining voters may lack the record, and could not win against a longer log."""
        history = self.log.voters
        return self.is_voter or (
            history.last_offset >= self.high_watermark
            and history.before(history.last_offset)[0].includes(self.node)
        )

    @property
    def is_only_voter(self) -> bool:
        return self.is_voter and len(self.voters) == 1

    def _election_deadline_ms(self) -> int:
        timeout_ms = self._settings.election_timeout_ms
        return self._now_ms + timeout_ms + self._rng.randrange(timeout_ms)

    def _fetch_deadline_ms(self) -> int:
        return self._now_ms + self._settings.fetch_timeout_ms

    def _ready(self) -> Ready:
        work, self._work = self._work, _Work()
        if work.append is None and work.snapshot is None:  # otherwise the log changes first
            work.messages += self._outgoing.send(self.role, self.high_watermark, self._now_ms)
        election: ElectionState | None = election_of(self.role)
        if election == self._persisted:
            election = None
        else:
            self._persisted = election
        high_watermark = None
        if self.high_watermark != self._told_high_watermark:
            high_watermark = self._told_high_watermark = self.high_watermark
        return Ready(
            election,
            work.truncate_to,
            work.snapshot,
            work.append,
            work.sync,
            tuple(work.messages),
            high_watermark,
        )

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

    def _become_resigned(self) -> None:
        assert isinstance(self.role, Leader)
        others = [key for key in self.voters.keys if key.node_id != self.node.node_id]
        successors = self.role.by_descending_offset(others)
        self._become(self._resigned(self.epoch, successors))

    def _resigned(self, epoch: int, successors: tuple[ReplicaKey, ...]) -> Resigned:
        others = set(self._outgoing.other_voters)
        return Resigned(epoch, self.node.node_id, self._election_deadline_ms(), successors, others)

    def _learn(self, epoch: int, leader_id: int) -> None:
        """A message names an epoch, and perhaps its leader. Older epochs are ignored."""
        is_elsewhere = leader_id not in (NO_NODE, self.node.node_id)
        if epoch > self.epoch:
            if is_elsewhere:
                self._become_follower(epoch, leader_id)
            else:
                self._become_unattached(epoch)
        elif epoch == self.epoch and is_elsewhere and self.role.leader_id == NO_NODE:
            self._become_follower(epoch, leader_id)

    # Requests and responses

    def _check_request(self, cluster_id: str, epoch: int, sender: int) -> ErrorCode:
        if cluster_id not in (NOT_SAID, self._cluster_id):
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return NONE if sender >= 0 else ErrorCode.INVALID_REQUEST

    def _is_meant_by(self, voter: ReplicaKey) -> bool:
        """True if a request to this voter is for this replica; old versions of the RPCs do not name the voter."""
        return voter.node_id == NO_NODE or voter.names(self.node)

    def _respond(self, receiver: int, correlation_id: int, response: Response) -> None:
        self._work.messages.append(Message(self.node.node_id, receiver, correlation_id, response))

    def _refuse_fetch(self, error: ErrorCode) -> FetchResponse:
        return FetchResponse(error, self.role.leader_id, self.epoch)
