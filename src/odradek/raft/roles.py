"""The roles of a replica, each with its own state, and the moves between them.

An observer (a replica that is not a voter) is always unattached or a follower, unless it is a voter that is being
removed.

    unattached ──► prospective ──► candidate ──► leader ──► resigned
        ▲               │              │           │            │
        └── follower ◄──┴──────────────┴───────────┴────────────┘

The vote is a field. Every role decides whether it grants a vote, because each has its own reason to refuse one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from odradek.raft.election import NO_NODE, ElectionState
from odradek.raft.messages import FetchRequest, OffsetAndEpoch
from odradek.raft.voters import ReplicaKey, VoterSet

OBSERVER_SESSION_MS = 300_000


class Epochs(Enum):
    """The effect of a move on the epoch, which never decreases."""

    SAME = "same"
    HIGHER = "higher"
    EITHER = "either"

    def allow(self, before: int, after: int) -> bool:
        return {Epochs.SAME: after == before, Epochs.HIGHER: after > before}.get(self, after >= before)


@dataclass(slots=True, eq=False)
class Unattached:
    """Knows no leader of its epoch. May have voted in it."""

    epoch: int
    deadline_ms: int  # a voter stands for election then
    voted: ReplicaKey | None = None

    leader_id = NO_NODE

    def grants(self, candidate: ReplicaKey, is_pre_vote: bool, is_up_to_date: bool) -> bool:
        if is_pre_vote or self.voted is None:
            return is_up_to_date
        return self.voted == candidate


@dataclass(slots=True, eq=False)
class Votes:
    """The votes of an election or a pre-vote; voters that have not responded yet are in neither set."""

    granted: set[ReplicaKey] = field(default_factory=set)
    rejected: set[ReplicaKey] = field(default_factory=set)

    def is_won(self, voters: VoterSet) -> bool:
        return sum(key in self.granted for key in voters.keys) >= voters.majority

    def is_lost(self, voters: VoterSet) -> bool:
        return len(voters) - sum(key in self.rejected for key in voters.keys) < voters.majority

    def unanswered(self, voters: VoterSet) -> list[ReplicaKey]:
        return [key for key in voters.keys if key not in self.granted and key not in self.rejected]


@dataclass(slots=True, eq=False)
class Prospective:
    """Asks the voters whether it could win an election, before it begins one (pre-vote).

    It keeps its epoch, its former leader, and its vote."""

    epoch: int
    deadline_ms: int  # it gives up then
    leader_id: int = NO_NODE
    voted: ReplicaKey | None = None
    votes: Votes = field(default_factory=Votes)

    def grants(self, candidate: ReplicaKey, is_pre_vote: bool, is_up_to_date: bool) -> bool:
        if is_pre_vote:
            return is_up_to_date
        if self.voted is not None:
            return self.voted == candidate
        return self.leader_id == NO_NODE and is_up_to_date


@dataclass(slots=True, eq=False)
class Candidate:
    """Has opened an epoch, and voted for itself in it."""

    epoch: int
    deadline_ms: int  # when the election is lost; after that, when it may try again
    voted: ReplicaKey
    votes: Votes = field(default_factory=Votes)
    has_lost: bool = False

    leader_id = NO_NODE

    def grants(self, candidate: ReplicaKey, is_pre_vote: bool, is_up_to_date: bool) -> bool:
        return is_pre_vote and is_up_to_date


@dataclass(slots=True, eq=False)
class Progress:
    """The state of a replica as its fetches show it to the leader."""

    end_offset: int = -1  # the replica has everything below on disk; -1 until it fetches in this epoch
    fetched_ms: int | None = None  # when it last fetched
    caught_up_ms: int | None = None  # when it last fetched from the end of the log


class ParkedFetch(NamedTuple):
    """A fetch that waits for records, or for a higher high watermark."""

    sender: int
    correlation_id: int
    request: FetchRequest
    deadline_ms: int


@dataclass(slots=True, eq=False)
class Leader:
    """At most one in each epoch. `progress` has the replicas that fetched; voters by their keys in the voter set."""

    epoch: int
    leader_id: int
    epoch_start_offset: int  # of its LEADER_CHANGE: nothing is committed before that record is
    elected_ms: int
    begin_deadline_ms: int  # when BeginQuorumEpoch is sent again to voters that do not fetch
    progress: dict[ReplicaKey, Progress] = field(default_factory=dict)
    parked: list[ParkedFetch] = field(default_factory=list)  # at most one of each replica

    voted = None

    def grants(self, candidate: ReplicaKey, is_pre_vote: bool, is_up_to_date: bool) -> bool:
        return False

    def majority_offset(self, voters: VoterSet, node: ReplicaKey, synced_offset: int) -> int:
        """The highest offset up to which a majority of the voters has the log on disk; -1 if there is none.

        The leader counts as far as it is synced, and not at all if it is not (or no longer) a voter."""
        offsets = [
            synced_offset if key.names(node) else self.progress_of(key).end_offset for key in voters.keys
        ]
        return sorted(offsets, reverse=True)[voters.majority - 1]

    def contact_ms(self, voters: VoterSet, node: ReplicaKey, now_ms: int) -> int:
        """The last time at which a majority of the voters had fetched: the leader checks its quorum by it."""
        times = [now_ms if key.names(node) else self._fetched_ms(key) for key in voters.keys]
        return sorted(times, reverse=True)[voters.majority - 1]

    def _fetched_ms(self, voter: ReplicaKey) -> int:
        fetched_ms = self.progress_of(voter).fetched_ms
        return self.elected_ms if fetched_ms is None else fetched_ms

    def progress_of(self, replica: ReplicaKey) -> Progress:
        return self.progress.get(replica, _NEVER_SEEN)

    def forget_observers(self, voters: VoterSet, now_ms: int) -> None:
        """Forget observers that have not fetched for a while."""
        self.progress = {
            key: item
            for key, item in self.progress.items()
            if voters.includes(key) or now_ms - (item.fetched_ms or 0) < OBSERVER_SESSION_MS
        }

    def by_descending_offset(self, keys: Iterable[ReplicaKey]) -> tuple[ReplicaKey, ...]:
        return tuple(sorted(keys, key=lambda key: -self.progress_of(key).end_offset))


_NEVER_SEEN = Progress()


class FetchedSnapshot(NamedTuple):
    """The part of a snapshot that has arrived."""

    snapshot_id: OffsetAndEpoch
    position: int = 0


@dataclass(slots=True, eq=False)
class Follower:
    """Fetches from a leader. It refuses pre-votes while that leader responds (`has_fetched`)."""

    epoch: int
    leader_id: int
    deadline_ms: int  # without a response until then, a voter stands for election, an observer asks others
    voted: ReplicaKey | None = None
    has_fetched: bool = False  # the leader has responded at least once
    is_abandoned: bool = False  # the leader has ended its epoch: its responses no longer count
    leader_high_watermark: int = -1
    snapshot: "FetchedSnapshot | None" = None  # fetched first, because the leader's log starts after our end

    def grants(self, candidate: ReplicaKey, is_pre_vote: bool, is_up_to_date: bool) -> bool:
        if is_pre_vote:
            return is_up_to_date and not self.has_fetched
        return self.voted == candidate


@dataclass(slots=True, eq=False)
class Resigned:
    """Led this epoch, and no longer does: after a clean stop, a lost quorum, or a restart."""

    epoch: int
    leader_id: int
    deadline_ms: int  # it becomes unattached then, in the next epoch
    successors: tuple[ReplicaKey, ...] = ()
    unacknowledged: set[int] = field(default_factory=set)  # voters that have not acknowledged it yet

    voted = None

    def grants(self, candidate: ReplicaKey, is_pre_vote: bool, is_up_to_date: bool) -> bool:
        return is_pre_vote and is_up_to_date


Role = Unattached | Prospective | Candidate | Leader | Follower | Resigned

MOVES: Mapping[type[Role], Mapping[type[Role], Epochs]] = {
    Unattached: {
        Unattached: Epochs.HIGHER,
        Prospective: Epochs.SAME,
        Follower: Epochs.EITHER,
    },
    Prospective: {
        Unattached: Epochs.EITHER,  # it cannot win, or another voter began an election
        Candidate: Epochs.HIGHER,
        Follower: Epochs.EITHER,  # of its former leader, or another
    },
    Candidate: {
        Unattached: Epochs.HIGHER,
        Prospective: Epochs.SAME,
        Leader: Epochs.SAME,
        Follower: Epochs.EITHER,
    },
    Leader: {
        Unattached: Epochs.HIGHER,
        Follower: Epochs.HIGHER,
        Resigned: Epochs.SAME,
    },
    Follower: {
        Unattached: Epochs.HIGHER,
        Prospective: Epochs.SAME,
        Follower: Epochs.HIGHER,
    },
    Resigned: {
        Unattached: Epochs.HIGHER,
        Prospective: Epochs.SAME,  # the only voter, which need not wait for others
        Follower: Epochs.HIGHER,
    },
}


def check_move(before: Role, after: Role) -> None:
    epochs = MOVES[type(before)].get(type(after))
    assert epochs is not None and epochs.allow(before.epoch, after.epoch), f"{before} cannot become {after}"


def election_of(role: Role) -> ElectionState:
    """The part of a role that must survive a crash."""
    if role.voted is None:
        return ElectionState(role.epoch, role.leader_id)
    return ElectionState(role.epoch, role.leader_id, role.voted.node_id, role.voted.directory_id)
