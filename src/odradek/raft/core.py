"""The quorum's state machine: who leads, in which epoch, and what is committed.

It touches neither disk nor network nor clock. Every call answers with a `Ready`: what the driver must now
do, in the order of its fields. The driver tells of what it has done by `step`.

    Raft.tick ──► Ready(election, appends) ──► driver writes quorum-state, appends
    Raft.step(Appended), Raft.step(Synced) ──► Ready(high_watermark) ──► driver applies what is committed

A new leader opens its epoch with a LEADER_CHANGE record. Only once an entry of its own epoch is on a majority
of voters is anything committed, with all that lies before it: an entry of an earlier epoch may be on a
majority and still be overwritten.

There is one role class for each role that holds data of its own. A quorum of one voter elects itself at the
first tick; Vote, BeginQuorumEpoch and Fetch, which a larger one needs, would be further events of `step`, and
messages a further field of `Ready`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek.errors import ErrorCode, KafkaError
from odradek.raft.election import ElectionState
from odradek.records.control import LeaderChange, Voter

FIRST_EPOCH = 0  # of a voter that has never heard of another; its first leader has the next one


class Append(NamedTuple):
    """One batch: either the record that opens an epoch, or what was proposed."""

    epoch: int
    records: tuple[bytes, ...] = ()
    leader_change: LeaderChange | None = None


class Ready(NamedTuple):
    election: ElectionState | None = None  # first to disk, before all else
    append: Append | None = None  # then to the log
    high_watermark: int | None = None  # moved here: what lies below is committed


class Appended(NamedTuple):
    """An event: the log now ends here."""

    end_offset: int


class Synced(NamedTuple):
    """An event: the log is on this node's disk up to here."""

    end_offset: int


Event = Appended | Synced


@dataclass(slots=True)
class Unattached:
    """Knows of no leader in its epoch."""

    epoch: int


@dataclass(slots=True)
class Leader:
    epoch: int
    epoch_start_offset: int  # of its LEADER_CHANGE record
    synced: dict[Voter, int] = field(default_factory=dict)  # how far each voter has the log on disk

    def majority_offset(self) -> int:
        """The highest offset up to which more than half of the voters have the log."""
        offsets = sorted(self.synced.values(), reverse=True)
        return offsets[len(offsets) // 2]


class Raft:
    """`high_watermark` never goes back; `epoch` never goes back, over restarts neither."""

    def __init__(
        self,
        node: Voter,
        voters: Sequence[Voter],
        election: ElectionState | None,
        end_offset: int,
        last_epoch: int,
    ) -> None:
        """`election` is what quorum-state holds; `end_offset` and `last_epoch` are the log's."""
        if tuple(voters) != (node,):
            raise ValueError("a quorum of several voters is not supported yet")
        self._node = node
        self._voters = tuple(voters)
        self._end_offset = end_offset
        self.high_watermark = 0
        epoch = max(FIRST_EPOCH, last_epoch, election.leader_epoch if election else FIRST_EPOCH)
        self.role: Unattached | Leader = Unattached(epoch)

    @property
    def epoch(self) -> int:
        return self.role.epoch

    @property
    def leader_id(self) -> int | None:
        return self._node.node_id if isinstance(self.role, Leader) else None

    def tick(self) -> Ready:
        """Time has passed. An only voter without a leader need not wait for anybody."""
        if isinstance(self.role, Leader):
            return Ready()
        return self._become_leader()

    def propose(self, records: Sequence[bytes]) -> Ready:
        """Append these together, as one batch; NOT_CONTROLLER unless this node leads."""
        if not isinstance(self.role, Leader):
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "This node does not lead the quorum.")
        return Ready(append=Append(self.epoch, tuple(records)))

    def step(self, event: Event) -> Ready:
        if isinstance(event, Appended):
            self._end_offset = event.end_offset
            return Ready()
        return self._handle_synced(self._node, event.end_offset)

    def _become_leader(self) -> Ready:
        epoch = self.epoch + 1
        self.role = Leader(epoch, self._end_offset, dict.fromkeys(self._voters, 0))
        change = LeaderChange(self._node.node_id, self._voters, granting_voters=(self._node,))
        return Ready(
            election=ElectionState(epoch, leader_id=self._node.node_id),
            append=Append(epoch, leader_change=change),
        )

    def _handle_synced(self, voter: Voter, end_offset: int) -> Ready:
        assert isinstance(self.role, Leader), "only a leader counts who has what"
        assert end_offset <= self._end_offset, "nothing is synced that was not appended"
        self.role.synced[voter] = end_offset
        majority = self.role.majority_offset()
        if majority <= max(self.role.epoch_start_offset, self.high_watermark):
            return Ready()
        self.high_watermark = majority
        return Ready(high_watermark=majority)
