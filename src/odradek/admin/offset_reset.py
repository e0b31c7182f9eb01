"""Plans where a group's offsets go, to read records again or to skip them: the new offset of each partition, kept
within its log.

Brokers accept offsets from outside a group only while it has no members: a member knows its own position, and would
commit over them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from odradek.admin.access import Access
from odradek.admin.failures import AdminError
from odradek.admin.offsets import NO_RECORD_SO_LATE, end_offsets, find_offsets, start_offsets
from odradek.admin.places import Place


@dataclass(frozen=True)
class Target:
    """The place to reset to: exactly one of these is given."""

    earliest: bool = False
    latest: bool = False
    current: bool = False
    offset: int | None = None
    shift: int | None = None
    time_ms: int | None = None

    @property
    def count(self) -> int:
        return sum(value is not None and value is not False for value in asdict(self).values())


@dataclass(frozen=True)
class Move:
    """The plan for a partition; its fields are those of the JSON output."""

    topic: str
    partition: int
    current_offset: int | None
    new_offset: int


@dataclass(frozen=True)
class Plan:
    moves: list[Move]
    warnings: list[str]  # about partitions that are left out, or that get another offset than asked for


def plan_reset(
    cluster: Access, target: Target, places: Sequence[Place], committed: Mapping[Place, int]
) -> Plan:
    starts, ends = start_offsets(cluster, places), end_offsets(cluster, places)
    there = [place for place in places if place in starts and place in ends]
    wanted = _wanted(
        cluster,
        target,
        {place: starts[place] for place in there},
        {place: ends[place] for place in there},
        committed,
    )
    plan = Plan([], [f"{place} no longer exists, leaving it out" for place in places if place not in there])
    for place in there:
        new_offset = min(max(wanted[place], starts[place]), ends[place])
        if new_offset != wanted[place]:
            plan.warnings.append(
                f"{place} holds {starts[place]} to {ends[place]}: {new_offset} is taken for {wanted[place]}"
            )
        plan.moves.append(Move(*place, committed.get(place), new_offset))
    return plan


def _wanted(
    cluster: Access,
    target: Target,
    starts: Mapping[Place, int],
    ends: Mapping[Place, int],
    committed: Mapping[Place, int],
) -> Mapping[Place, int]:
    """Find the wanted offsets, before they are checked against the log."""
    if target.earliest:
        return starts
    if target.latest:
        return ends
    if target.time_ms is not None:
        found = find_offsets(cluster, dict.fromkeys(starts, target.time_ms))
        return {
            place: ends[place] if found.get(place, NO_RECORD_SO_LATE) == NO_RECORD_SO_LATE else found[place]
            for place in starts
        }
    if target.offset is not None:
        return dict.fromkeys(starts, target.offset)
    if target.shift is not None:
        return {place: _current(place, committed) + target.shift for place in starts}
    return {place: committed.get(place, ends[place]) for place in starts}


def _current(place: Place, committed: Mapping[Place, int]) -> int:
    if place not in committed:
        raise AdminError(f"{place} has no committed offset to shift")
    return committed[place]
