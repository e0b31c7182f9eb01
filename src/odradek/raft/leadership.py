"""Leadership: how a replica becomes leader, how others learn of it, and how it hands over.

A voter that hears from no leader first asks whether it could win an election (pre-vote, KIP-996), so that a voter with
a bad link does not depose a leader that all others can reach. Only if a majority says so does it open an epoch.
"""

from collections.abc import Iterable, Sequence

from odradek.errors import ErrorCode
from odradek.raft.control import ControlRecord, LeaderChange
from odradek.raft.election import NO_NODE
from odradek.raft.messages import (
    NONE,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    VoteRequest,
    VoteResponse,
)
from odradek.raft.ready import Append
from odradek.raft.replica import Replica
from odradek.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from odradek.raft.voters import KRaftVersion, ReplicaKey


class Leadership(Replica):
    def _become_prospective(self) -> None:
        role = Prospective(self.epoch, self._election_deadline_ms(), self.role.leader_id, self.role.voted)
        self._become(role)
        self._vote_for_myself()

    def _give_up_pre_vote(self, role: Prospective) -> None:
        """Return to the former leader, if there was one: the pre-vote changed nothing elsewhere."""
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
        level = self.log.voters.kraft_version
        if level < self._kraft_version or (level and not self.log.voters.are_in_log):
            control = (change, KRaftVersion(max(level, self._kraft_version)), self.voters)
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

    # Votes

    def _vote_for_myself(self) -> None:
        """Vote for this node if it is a voter: a replica that is being removed needs the votes of the others."""
        voter = self.voters.get(self.node.node_id)
        if voter is not None and self.is_voter:
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
        if not self._is_meant_by(request.voter):
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

    # The beginning and the end of an epoch

    def _handle_begin_epoch(self, request: BeginQuorumEpochRequest) -> BeginQuorumEpochResponse:
        error = self._check_request(request.cluster_id, request.epoch, request.leader_id)
        if error is NONE:
            self._learn(request.epoch, request.leader_id)
            if isinstance(self.role, Prospective) and self.role.leader_id == request.leader_id:
                self._become_follower(request.epoch, request.leader_id)  # the leader is still there
            if self.role.leader_id != request.leader_id:
                error = ErrorCode.INVALID_REQUEST  # another node leads this epoch
            elif not self._is_meant_by(request.voter):
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
        """Return how long to wait before standing for election: the first successor not at all, each of the others
        twice as long as the one before it.
        """
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
