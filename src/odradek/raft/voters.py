"""The voters: replicas and their keys, the voter set, and its history along the log.

A replica is identified by its node id and the id of the directory that holds its log. A wiped disk gets a new directory
id, so the node that comes back with it is another replica, and must not vote as the old one.

The voter set is part of the log (KIP-853): a VOTERS control record replaces it on every replica that has the record,
from its append on, not from its commit. If the record is truncated, the previous set is valid again. `VoterHistory`
therefore keeps every set with the offset of its record. A log without such a record (kraft.version 0) uses the set it
was opened with, whose voters have no directory ids and are identified by their node ids alone.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple
from uuid import UUID

NO_DIRECTORY_ID = UUID(int=0)


class ReplicaKey(NamedTuple):
    node_id: int
    directory_id: UUID = NO_DIRECTORY_ID

    def names(self, replica: "ReplicaKey") -> bool:
        """True if this key means that replica; a key without a directory id means any directory of its node."""
        return self.node_id == replica.node_id and self.directory_id in (
            NO_DIRECTORY_ID,
            replica.directory_id,
        )


class Endpoint(NamedTuple):
    listener: str
    host: str
    port: int


class VoterNode(NamedTuple):
    """A voter, with what a VOTERS record says about it."""

    key: ReplicaKey
    endpoints: tuple[Endpoint, ...] = ()
    min_kraft_version: int = 0
    max_kraft_version: int = 1


class VoterSet:
    """Immutable, in the order of node ids, with at most one voter of each node id."""

    __slots__ = ("_by_id", "keys", "majority")

    def __init__(self, voters: Iterable[VoterNode]) -> None:
        ordered = sorted(voters, key=lambda voter: voter.key.node_id)
        self._by_id = {voter.key.node_id: voter for voter in ordered}
        assert len(self._by_id) == len(ordered), "two voters of one node id"
        self.keys = tuple(voter.key for voter in ordered)
        self.majority = len(ordered) // 2 + 1

    @classmethod
    def of(cls, *keys: ReplicaKey) -> "VoterSet":
        return cls(VoterNode(key) for key in keys)

    def __iter__(self) -> Iterator[VoterNode]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._by_id == other._by_id

    def __repr__(self) -> str:
        return f"<VoterSet {' '.join(map(str, self._by_id))}>"

    def get(self, node_id: int) -> VoterNode | None:
        return self._by_id.get(node_id)

    def includes(self, replica: ReplicaKey) -> bool:
        voter = self._by_id.get(replica.node_id)
        return voter is not None and voter.key.names(replica)

    def with_voter(self, voter: VoterNode) -> "VoterSet":
        return VoterSet({**self._by_id, voter.key.node_id: voter}.values())

    def without(self, node_id: int) -> "VoterSet":
        return VoterSet(voter for voter in self if voter.key.node_id != node_id)

    def is_one_change_from(self, other: "VoterSet") -> bool:
        """True if one set has at most one voter more than the other, so that all their majorities overlap."""
        return len(set(self.keys) ^ set(other.keys)) <= 1


class KRaftVersion(NamedTuple):
    """The feature level kraft.version: 1 once the voters have directory ids and are in the log."""

    level: int


Change = VoterSet | KRaftVersion  # what a control record may say about the quorum


class VoterHistory:
    """Voter sets and kraft versions, by the rising offsets of their records. `static` is valid before the first.

    Offsets below 0 belong to records that the directory was formatted with: they are beside the log, not in it."""

    def __init__(self, static: VoterSet) -> None:
        self._static = static
        self._sets: list[tuple[int, VoterSet]] = []
        self._versions: list[tuple[int, int]] = []

    @property
    def last(self) -> VoterSet:
        return self._sets[-1][1] if self._sets else self._static

    @property
    def last_offset(self) -> int:
        """The offset of the last set; below 0 if it is not in the log."""
        return self._sets[-1][0] if self._sets else -1

    @property
    def are_in_log(self) -> bool:
        return self.last_offset >= 0

    @property
    def kraft_version(self) -> int:
        return self._versions[-1][1] if self._versions else 0

    def add(self, offset: int, change: Change) -> None:
        known = [entries[-1][0] for entries in (self._sets, self._versions) if entries]
        assert all(offset > other for other in known), "offsets rise"
        if isinstance(change, VoterSet):
            self._sets.append((offset, change))
        else:
            self._versions.append((offset, change.level))

    def before(self, offset: int) -> tuple[VoterSet, int]:
        """The set and the kraft version as of this offset, for a snapshot that ends there."""
        sets = [voters for start, voters in self._sets if start < offset]
        versions = [level for start, level in self._versions if start < offset]
        return (sets[-1] if sets else self._static), (versions[-1] if versions else 0)

    def truncate_to(self, end_offset: int) -> None:
        """Forget the records at or above this offset."""
        while self._sets and self._sets[-1][0] >= end_offset:
            self._sets.pop()
        while self._versions and self._versions[-1][0] >= end_offset:
            self._versions.pop()

    def start_at(self, start_offset: int) -> None:
        """Everything below this offset is in a snapshot: sets that were replaced there are no longer needed."""
        for entries in (self._sets, self._versions):
            below = sum(1 for offset, _ in entries if offset < start_offset)
            del entries[: max(below - 1, 0)]
