"""Count the nodes that a cluster may lose.

Two numbers, because they differ: a cluster may refuse writes long before it loses a record.

- Writes go on while every partition has as many in-sync replicas as `min.insync.replicas` asks for (or as it has
  replicas, if that is less), and while more than half of the voters are there to elect leaders.
- Records are safe while an in-sync replica of each partition is left, and the cluster's metadata while a voter is left
  that has all of it: what is committed is on more than half of them.

Any nodes may be the ones that are lost, so the partition and the quorum that bear least decide.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from odradek.wording import counted

TOPICS_SHOWN = 3
NEEDED = re.compile(r", \d+ needed")


class Copies(NamedTuple):
    """A partition."""

    topic: str
    in_sync: int
    needed: int  # in-sync replicas, for acks=all


class Tolerance(NamedTuple):
    """Its fields are those of the JSON output."""

    writes: int  # nodes that may be lost without a refused write
    data: int  # nodes that may be lost for good without a lost record
    writes_limited_by: list[str]
    data_limited_by: list[str]

    def __str__(self) -> str:
        said = {
            NEEDED.sub("", reason) for reason in self.writes_limited_by
        }  # the same partitions need no second word
        limits = [*self.writes_limited_by, *(one for one in self.data_limited_by if one not in said)]
        return (
            f"may lose {counted(self.writes, 'node')} without refusing writes, {self.data} without losing data"
            + (f" (limited by {'; '.join(limits)})" if limits else "")
        )

    def is_worse_than(self, other: "Tolerance") -> bool:
        return self.writes < other.writes or self.data < other.data


class Limit(NamedTuple):
    nodes: int
    reason: str


QUORUM_LOST = Limit(0, "the metadata quorum, which has no leader or cannot be asked")


def tolerance(
    partitions: Iterable[Copies],
    voters: int,
    voters_alive: int | None = None,
    *,
    is_quorum_lost: bool = False,
) -> Tolerance:
    """Count the nodes that may be lost. `voters` is 0 for a cluster that does not report its quorum."""
    partitions = list(partitions)
    alive = voters if voters_alive is None else voters_alive
    for_writes = [Limit(one.in_sync - one.needed, _copies(one, with_needed=True)) for one in partitions]
    for_data = [Limit(one.in_sync - 1, _copies(one, with_needed=False)) for one in partitions]
    writes, writes_by = _least(for_writes, partitions)
    data, data_by = _least(for_data, partitions)
    if voters:
        majority = voters // 2 + 1
        gone = (
            f", of which {voters - alive} {'is' if voters - alive == 1 else 'are'} gone"
            if alive < voters
            else ""
        )
        quorum = f"{counted(voters, 'voter')} in the metadata quorum{gone}"
        writes, writes_by = _with_quorum(writes, writes_by, Limit(alive - majority, quorum))
        data, data_by = _with_quorum(data, data_by, Limit(min(voters // 2, alive - 1), quorum))
    if is_quorum_lost:
        writes, writes_by = _with_quorum(writes, writes_by, QUORUM_LOST)
        data, data_by = _with_quorum(data, data_by, QUORUM_LOST)
    return Tolerance(max(writes or 0, 0), max(data or 0, 0), writes_by, data_by)


def _copies(one: Copies, *, with_needed: bool) -> str:
    needed = f", {one.needed} needed" if with_needed else ""
    return f"{counted(one.in_sync, 'in-sync replica')}{needed}"


def _least(limits: list[Limit], partitions: list[Copies]) -> tuple[int | None, list[str]]:
    """The partitions that bear least, by what limits them and in which topics."""
    least = min((one.nodes for one in limits), default=None)
    topics: dict[str, list[str]] = {}
    for limit, partition in zip(limits, partitions, strict=True):
        if limit.nodes == least:
            topics.setdefault(limit.reason, []).append(partition.topic)
    return least, [f"{reason} ({_named(names)})" for reason, names in topics.items()]


def _named(topics: list[str]) -> str:
    names = list(dict.fromkeys(topics))
    more = len(names) - TOPICS_SHOWN
    return ", ".join(names[:TOPICS_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _with_quorum(least: int | None, reasons: list[str], quorum: Limit) -> tuple[int, list[str]]:
    if least is None or quorum.nodes < least:
        return quorum.nodes, [quorum.reason]
    return least, [*reasons, quorum.reason] if quorum.nodes == least else reasons
