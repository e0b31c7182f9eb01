"""Carries out a plan: throttles, begins the moves, tells their progress, waits, elects leaders, removes the throttles.

The cluster does the work, and goes on with it if whoever waits is interrupted: `reassignment_requests.list_all` looks
at it, `alter` with None ends it. A throttle that an interruption left behind is removed by `remove_throttles`, once
nothing is moving.
"""

import time
from collections.abc import Collection, Mapping, Sequence

from odradek.admin import throttle
from odradek.admin.access import Access
from odradek.admin.failures import AdminError
from odradek.admin.layout import ClusterState, look_at
from odradek.admin.places import Place
from odradek.admin.reassignment_plan import Move
from odradek.admin.reassignment_requests import Election, Reassignment, alter, elect, list_all
from odradek.admin.watching import SILENT, Watcher
from odradek.errors import ErrorCode
from odradek.wording import counted, readable_size

LOOK_AGAIN_S = 0.5
FIRST_LOOK_S = 0.05
NAMES_SHOWN = 5


def begin(cluster: Access, moves: Sequence[Move], bytes_per_second: int | None = None) -> None:
    """Begin the moves, and do not wait. All begin or the command fails."""
    if bytes_per_second is not None:
        throttle.apply(cluster, throttle.throttle(moves, bytes_per_second))
    refused = alter(cluster, {move.place: move.after for move in moves})
    if refused:
        begun = [move for move in moves if move.place not in refused]
        if bytes_per_second is not None and not begun:
            throttle.apply(cluster, throttle.without(throttle.throttle(moves, bytes_per_second)))
        raise AdminError(
            f"{counted(len(refused), 'partition')} cannot be moved: {shortened(refused)}"
            + (f"; {counted(len(begun), 'other')} began to move" if begun else "")
        )


def carry_out(
    cluster: Access, moves: Sequence[Move], bytes_per_second: int | None = None, watcher: Watcher = SILENT
) -> None:
    """Begin the moves and wait until they are complete, and preferred replicas lead."""
    if not moves:
        return
    try:
        begin(cluster, moves, bytes_per_second)
        wait(cluster, [move.place for move in moves], watcher)
        if bytes_per_second is not None:
            throttle.apply(cluster, throttle.without(throttle.throttle(moves, bytes_per_second)))
    except KeyboardInterrupt:
        watcher.note(
            "\nThe cluster goes on moving partitions: 'odradek topic reassign --status' shows them, "
            "'odradek topic reassign --cancel --all' ends it."
        )
        raise
    check_outcome(look_at(cluster), moves)
    prefer_first(cluster, [move.place for move in moves], watcher)


def wait(cluster: Access, places: Collection[Place], watcher: Watcher = SILENT) -> None:
    """Wait until none of these partitions is moving."""
    total, pause_s = len(places), FIRST_LOOK_S
    bytes_at_first: int | None = None
    try:
        while moving := {place: one for place, one in list_all(cluster).items() if place in places}:
            left = bytes_left(look_at(cluster, with_logs=True), moving)
            bytes_at_first = max(left, bytes_at_first or 0, 1)
            share = (total - len(moving)) / total
            watcher.progress(
                max(share, 1 - left / bytes_at_first) if left else share,
                f"{total - len(moving)} of {counted(total, 'partition')}, {readable_size(left)} left",
            )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LOOK_AGAIN_S)
    finally:
        watcher.clear()


def bytes_left(state: ClusterState, moving: Mapping[Place, Reassignment]) -> int:
    """Returns how much new replicas still have to copy, as far as brokers say."""
    left = 0
    for place, one in moving.items():
        for broker in one.adding:
            has = state.brokers[broker].sizes.get(place, 0) if broker in state.brokers else 0
            left += max(state.size(place) - has, 0)
    return left


def check_outcome(state: ClusterState, moves: Sequence[Move]) -> None:
    """Check that the replicas are where they should be: somebody else may have cancelled a move, or begun another."""
    wrong = {
        move.place: f"its replicas are {list(state.partitions[move.place].replicas)}"
        for move in moves
        if move.place in state.partitions and set(state.partitions[move.place].replicas) != set(move.after)
    }
    if wrong:
        raise AdminError(
            f"{counted(len(wrong), 'partition')} did not end up as planned, because somebody cancelled or changed "
            f"the move: {shortened(wrong)}"
        )


def prefer_first(cluster: Access, places: Collection[Place] | None, watcher: Watcher = SILENT) -> int:
    """Let the first replica of each partition (None: of all) lead, where it can; returns how many leaders changed."""
    outcomes = elect(cluster, Election.PREFERRED, places)
    unavailable = [
        place
        for place, code in outcomes.items()
        if code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
    ]
    if unavailable:
        watcher.note(
            f"{counted(len(unavailable), 'partition')} still have another leader than the preferred one: "
            "'odradek topic elect-leaders' tries again"
        )
    return sum(code is ErrorCode.NONE for code in outcomes.values())


def shortened(reasons: Mapping[Place, str]) -> str:
    """Name some of the partitions, in one line."""
    shown = [f"{place}: {reason}" for place, reason in sorted(reasons.items())]
    more = f"; and {len(shown) - NAMES_SHOWN} more" if len(shown) > NAMES_SHOWN else ""
    return "; ".join(shown[:NAMES_SHOWN]) + more


def remove_throttles(cluster: Access) -> bool:
    """Remove those that are left behind, if nothing is moving any more; True if there were any."""
    if list_all(cluster):
        return False
    found = throttle.find_throttles(cluster, look_at(cluster))
    throttle.apply(cluster, throttle.without(found))
    return bool(found)
