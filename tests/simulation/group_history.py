"""A history of what clients were told about groups, and a check whether it can all be true.

- C1 no partition belongs to two members in one generation
- C2 a commit of an older generation, or of a member that has left, is refused
- C3 the offset that is read is one that was committed, and no older than the last that was acknowledged
- C4 so it is after power cuts and compaction
- a member that was heard of within its session timeout is a member, whatever is done to the clock

A committed offset is a register: commits and reads overlap, and a read may return any commit that is not certainly
older than another. Every commit carries a number in its metadata, so that a read says which one it found. Deleting a
topic writes "nothing" to the registers of its partitions.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any

from tests.simulation.connection import Violation

NOTHING = ""


@dataclass(eq=False, slots=True)
class Commit:
    number: str  # in its metadata; NOTHING: the offset was deleted
    offset: int
    sent: float
    acknowledged: float = inf
    is_over: float = inf  # it has had its effect by now, or never will
    is_refused: bool = False


class Register:
    """The committed offset of one partition, in one group."""

    def __init__(self, name: str, deletions: list[Commit]) -> None:
        self.name = name
        self._commits = [Commit(NOTHING, -1, -1.0, -1.0, -1.0)]
        self._deletions = deletions  # of its topic: other registers have the same

    def add(self, commit: Commit) -> None:
        self._commits.append(commit)

    def crashed(self, now: float) -> None:
        for commit in self._all():
            commit.is_over = min(commit.is_over, now)

    def _all(self) -> list[Commit]:
        return self._commits + self._deletions

    def check(self, sent: float, number: str, offset: int) -> None:
        """A read that was sent at this time found this."""
        commits = [commit for commit in self._all() if not commit.is_refused]
        found = [commit for commit in commits if commit.number == number]
        if not found or offset != found[0].offset:
            raise Violation(f"C3: {self.name} has {offset} ({number!r}), which was never committed")
        overwriting = max((commit.sent for commit in commits if commit.acknowledged < sent), default=-1.0)
        if all(commit.is_over < overwriting for commit in found):
            newest = max((c for c in commits if c.acknowledged < sent), key=lambda c: c.sent)
            raise Violation(
                f"C3: {self.name} has {offset} ({number!r}), after {newest.offset} ({newest.number!r}) was committed"
            )


@dataclass(slots=True)
class Session:
    """A member's knowledge of its place in a group."""

    member_id: str = ""
    generation: int = -1
    last_heard: float = (
        -inf
    )  # when the last heartbeat that succeeded was sent; a commit tells of no rebalance
    last_lost: float = -inf  # when a response was lost: it may not know what it has to do
    may_have_left: bool = False  # it asked for that
    has_left: bool = False  # and got a response
    left_in: int = -1  # the node's number of starts, or of coordinators, when it asked to leave


class GroupHistory:
    def __init__(
        self, name: str, now: Callable[[], float], session_seconds: float, rebalance_seconds: float
    ) -> None:
        self.name = name
        self._now = now
        self._session_seconds = session_seconds
        self._rebalance_seconds = rebalance_seconds
        self.registers: dict[tuple[str, int], Register] = {}
        self._deletions: dict[str, list[Commit]] = {}  # of each topic's name
        self._owners: dict[tuple[int, object], str] = {}
        self.generation = -1  # the newest of which an assignment was seen
        self.rebalances = 0
        self.acknowledged = 0  # commits

    def register(self, topic: str, index: int) -> Register:
        if (topic, index) not in self.registers:
            deletions = self._deletions.setdefault(topic, [])
            self.registers[topic, index] = Register(f"group {self.name}, {topic}-{index}", deletions)
        return self.registers[topic, index]

    # --- offsets ---

    def committing(self, topic: str, index: int, number: str, offset: int) -> Commit:
        commit = Commit(number, offset, self._now())
        self.register(topic, index).add(commit)
        return commit

    def committed(self, commit: Commit, session: Session, newest: int) -> None:
        """`newest` generation was seen before the commit was sent."""
        if session.has_left:
            raise Violation(f"C2: group {self.name} took a commit of {session.member_id}, which had left")
        if session.generation < newest:
            raise Violation(
                f"C2: group {self.name} took a commit of generation {session.generation}, after {newest}"
            )
        commit.acknowledged = commit.is_over = self._now()
        self.acknowledged += 1

    def deleting_topic(self, topic: str) -> Commit:
        """A request for that is sent: offsets of a deleted topic are forgotten."""
        deletion = Commit(NOTHING, -1, self._now())
        self._deletions.setdefault(topic, []).append(deletion)
        return deletion

    def crashed(self) -> None:
        for register in self.registers.values():
            register.crashed(self._now())

    def check(self, sent: float, found: dict[tuple[str, int], tuple[int, str]]) -> None:
        """All that an OffsetFetch, sent at this time, says."""
        for place in found:
            self.register(*place)
        for place, register in self.registers.items():
            offset, number = found.get(place, (-1, NOTHING))
            register.check(sent, number, offset)

    # --- members ---

    def assigned(self, session: Session, generation: int, places: list[object]) -> None:
        """A member was given these partitions, in this generation or member epoch."""
        for place in places:
            owner = self._owners.setdefault((generation, place), session.member_id)
            if owner != session.member_id:
                raise Violation(
                    f"C1: group {self.name}, generation {generation}: {place} belongs to {owner} and to "
                    f"{session.member_id}"
                )
        if generation > self.generation:
            self.generation = generation
            self.rebalances += 1

    def heard(self, session: Session, sent: float) -> None:
        session.last_heard = max(session.last_heard, sent)

    def check_unknown(self, session: Session) -> None:
        """A member was told that it is none, in response to a request that has just been answered."""
        # One that could not be told to give up partitions was put out for that, at some time since it was heard.
        is_informed = session.last_lost + self._rebalance_seconds < session.last_heard
        is_heard = self._now() < session.last_heard + self._session_seconds
        if is_heard and is_informed and not session.may_have_left:
            silent = self._now() - session.last_heard
            raise Violation(f"{session.member_id} was put out of group {self.name} after {silent:.3f} s")


@dataclass
class GroupHistories:
    groups: dict[str, GroupHistory] = field(default_factory=dict)

    def crashed(self) -> None:
        for group in self.groups.values():
            group.crashed()


def committed_offsets(found: Any) -> dict[tuple[str, int], tuple[int, str]]:
    """Return what an OffsetFetch response says of one group: offsets and their metadata, by topic and partition."""
    return {
        (topic.name, part.partition_index): (part.committed_offset, part.metadata or "")
        for topic in found.topics
        for part in topic.partitions
    }
