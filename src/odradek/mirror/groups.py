"""Offsets of groups, translated from the source to the copies, and back.

While a mirror runs, groups that the file names are carried over: their offsets are committed on the target, as long as
the group has no members there, and never backwards. So after a failover a group goes on where it was, or a few records
before (`translation` says how many).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from odradek.admin.access import Access
from odradek.admin.failures import AdminError, Refused
from odradek.admin.groups import group_names
from odradek.admin.offsets import commit_offsets, committed_offsets, start_offsets
from odradek.admin.places import Place
from odradek.errors import ErrorCode, KafkaError
from odradek.mirror.names import Choice, Direction
from odradek.mirror.position import Copy, UnreadablePosition
from odradek.mirror.positions import Positions
from odradek.mirror.rights import needing
from odradek.mirror.translation import to_source, to_target

ACTIVE = (ErrorCode.NON_EMPTY_GROUP, ErrorCode.UNKNOWN_MEMBER_ID)


@dataclass(frozen=True)
class Translated:
    """A group's offset in a partition, and the one that stands for it on the other side. The fields are those of the
    JSON output."""

    topic: str
    partition: int
    offset: int
    to_topic: str
    to_offset: int
    current: int | None  # what the group has committed there


@dataclass(frozen=True)
class Sides:
    """The cluster that offsets come from and the one that they go to: `is_back` from the copies to the source."""

    source: Access
    target: Access
    direction: Direction
    positions: Positions
    is_back: bool = False

    @property
    def origin(self) -> Access:
        return self.target if self.is_back else self.source

    @property
    def destination(self) -> Access:
        return self.source if self.is_back else self.target

    @property
    def names(self) -> tuple[str, str]:
        """The names of the clusters that offsets come from, and go to."""
        direction = self.direction.reversed() if self.is_back else self.direction
        return direction.source, direction.target

    def copy_at(self, place: Place) -> tuple[Copy, Place] | None:
        """Return the copy that the place belongs to, as original or as copy, with the place on the other side."""
        source = self.direction.source
        if not self.is_back:
            return Copy(source, *place), Place(self.direction.copy_of(place.topic), place.partition)
        prefix = self.direction.copy_of("")
        if not place.topic.startswith(prefix):
            return None
        topic = place.topic.removeprefix(prefix)
        return Copy(source, topic, place.partition), Place(topic, place.partition)


def translated(sides: Sides, group: str) -> list[Translated]:
    """Translate the group's offsets in the partitions that have positions."""
    origin, destination = sides.names
    with needing(f"DESCRIBE on the group at {origin}"):
        there = committed_offsets(sides.origin, group)
    with needing(f"READ on the group at {destination}"):
        current = committed_offsets(sides.destination, group) if there else {}
    pairs = {place: pair for place in sorted(there) if (pair := sides.copy_at(place)) is not None}
    kept = sides.positions.kept_of([copy for copy, _ in pairs.values()])
    translate = to_source if sides.is_back else to_target
    found = [
        (place, other, translate(kept[copy], there[place]))
        for place, (copy, other) in pairs.items()
        if kept[copy]
    ]
    starts = start_offsets(sides.destination, [other for _, other, _ in found]) if found else {}
    return [
        Translated(*place, there[place], other.topic, max(offset or 0, starts[other]), current.get(other))
        for place, other, offset in found
        if other in starts
    ]


def commit(sides: Sides, group: str, moves: Iterable[Translated]) -> None:
    """Raises Refused if the group has members there."""
    offsets = {Place(one.to_topic, one.partition): one.to_offset for one in moves}
    if not offsets:
        return
    with needing(f"READ on the group and on the topics at {sides.names[1]}"):
        commit_offsets(sides.destination, group, offsets)


def carry_over(sides: Sides, groups: Iterable[str]) -> Mapping[str, str]:
    """Bring the target's groups forward; why it could not be done, by group. A group that has members at the target
    keeps its own offsets."""
    problems: dict[str, str] = {}
    for group in groups:
        try:
            moves = [
                one for one in translated(sides, group) if one.current is None or one.to_offset > one.current
            ]
            commit(sides, group, moves)
        except Refused as error:
            if error.code not in ACTIVE:
                problems[group] = str(error)
        except (AdminError, KafkaError, UnreadablePosition) as error:
            problems[group] = str(error)
    return problems


def carried_groups(choice: Choice, source: Access) -> list[str]:
    """The groups that are named, and of those that there are the ones that match the pattern."""
    there = group_names(source) if choice.pattern else ()
    return sorted(one for one in {*choice.names, *there} if choice.has(one))
