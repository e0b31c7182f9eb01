"""A cluster that grows: spread over all its nodes what it has on some of them.

The steps, each of which looks at the cluster first and does only what is left to do. So the command can be interrupted
and run again, and a cluster that has grown already stays as it is:

1. Wait for the new brokers, and for moves that are under way.
2. Give votes to controllers that have none, up to an odd number of voters.
3. Raise the replication of every topic, internal ones too, to three or the number of brokers, and even out replicas
   and preferred leaders. Clients go on meanwhile: a partition changes its leader when the new replicas are in sync.
4. Once they are, raise the cluster's min.insync.replicas to two where there are three: earlier, writes would fail.
5. Elect preferred leaders.
"""

import time
from dataclasses import dataclass

from odradek.admin.access import Access
from odradek.admin.failures import AdminError
from odradek.admin.layout import look_at
from odradek.admin.reassignment_plan import ImpossiblePlan, Wish, make_plan
from odradek.admin.reassignment_requests import list_all
from odradek.admin.reassignment_run import carry_out, prefer_first, wait
from odradek.admin.resources import RESOURCE_CODES, Kind
from odradek.admin.settings import alter_configs, describe_configs
from odradek.admin.voters import add_voter, find_quorum, remove_voter
from odradek.admin.watching import SILENT, Watcher
from odradek.wording import counted, joined, readable_size

MOST_REPLICAS = 3
MIN_IN_SYNC = "min.insync.replicas"
DEFAULT_FACTOR = "default.replication.factor"
LOOK_AGAIN_S = 0.2
ROUNDS = 5  # topics may be created meanwhile


@dataclass
class Growth:
    """The changes that were made; the fields are those of the JSON output."""

    brokers: list[int]
    added_voters: list[int]
    removed_voters: list[int]
    moved_partitions: int
    replication_factor: int
    min_insync_replicas: int
    elected_leaders: int


def carry_out_growth(
    cluster: Access,
    brokers: int | None,
    factor: int | None,
    throttle: int | None,
    timeout_s: int,
    watcher: Watcher = SILENT,
) -> Growth:

    active = wait_for_brokers(cluster, brokers, timeout_s, watcher)
    if moving := list_all(cluster):
        verb = "is" if len(moving) == 1 else "are"
        watcher.note(f"Waiting for {counted(len(moving), 'partition')} that {verb} moving already.")
        wait(cluster, moving, watcher)
    added, removed = settle_voters(cluster, watcher)
    if factor is not None and factor > len(active):
        raise AdminError(f"{factor} replicas do not fit on {counted(len(active), 'broker')}")
    wanted = factor or min(MOST_REPLICAS, len(active))
    moved = spread(cluster, wanted, throttle, watcher)
    in_sync = raise_min_in_sync(cluster, wanted, watcher)
    elected = prefer_first(cluster, None, watcher)
    tell_default_factor(cluster, active, wanted, watcher)
    return Growth(active, added, removed, moved, wanted, in_sync, elected)


def wait_for_brokers(cluster: Access, count: int | None, timeout_s: float, watcher: Watcher) -> list[int]:
    """The brokers, once there are so many and none is fenced."""

    deadline, is_told = time.monotonic() + timeout_s, False
    while True:
        state = look_at(cluster)
        fenced = sorted(state.brokers.keys() - set(state.active))
        if not fenced and len(state.active) >= (count or 1):
            return state.active
        reason = (
            f"broker {joined(fenced)} is down"
            if fenced
            else f"there are {len(state.active)} of {count} brokers"
        )
        if time.monotonic() > deadline:
            hint = ": start it, or remove it with 'odradek cluster remove-broker'" if fenced else ""
            raise AdminError(f"{reason}{hint}")
        if not is_told:
            watcher.note(f"Waiting: {reason}.")
            is_told = True
        time.sleep(LOOK_AGAIN_S)


def settle_voters(cluster: Access, watcher: Watcher) -> tuple[list[int], list[int]]:
    """The nodes that got a vote, and those whose lost disk no longer has one."""

    quorum = find_quorum(cluster)
    wanted, replaced = quorum.wanted(), quorum.replaced()
    if not wanted and not replaced:
        return [], []
    cluster_id = look_at(cluster).cluster_id
    for one in replaced:
        watcher.note(f"Removing the vote of controller {one.node_id}'s lost disk.")
        remove_voter(cluster, cluster_id, one)
    for one in wanted:
        watcher.note(f"Giving controller {one.node_id} a vote.")
        add_voter(cluster, cluster_id, quorum, one)
    return [one.node_id for one in wanted], [one.node_id for one in replaced]


def spread(cluster: Access, factor: int, throttle: int | None, watcher: Watcher) -> int:
    """Spread replicas over all brokers, and return how many partitions moved."""

    moved = 0
    for _ in range(ROUNDS):
        state = look_at(cluster, with_logs=True)
        layout = state.layout()
        wish = Wish(state.partitions, layout.racks, factor, is_even=True, may_shrink=False)
        try:
            moves = make_plan(layout, wish)
        except ImpossiblePlan as error:
            raise AdminError(str(error)) from None
        if not moves:
            break
        copied = sum(len(move.added) * state.size(move.place) for move in moves)
        watcher.note(f"Moving {counted(len(moves), 'partition')}, {readable_size(copied)} to copy.")
        carry_out(cluster, moves, throttle, watcher)
        moved += len(moves)
    return moved


def raise_min_in_sync(cluster: Access, factor: int, watcher: Watcher) -> int:
    """The cluster's min.insync.replicas afterwards."""

    state = look_at(cluster)
    address = state.brokers[state.active[0]].address
    kind = RESOURCE_CODES[Kind.BROKER]
    (result,) = describe_configs(cluster, address, kind, [str(state.active[0])], [MIN_IN_SYNC])
    now = next((int(one.value) for one in result.configs if one.value), 1)
    if factor < MOST_REPLICAS or now >= 2:
        return now
    few = [place for place, one in state.partitions.items() if len(one.isr) < 2]
    if few:
        raise AdminError(
            f"{MIN_IN_SYNC} stays {now}: {few[0]} has fewer than two in-sync replicas. Run "
            "the command again when they have caught up"
        )
    alter_configs(cluster, address, kind, "", {MIN_IN_SYNC: "2"})
    watcher.note(f"Set {MIN_IN_SYNC} of the cluster to 2.")
    return 2


def tell_default_factor(cluster: Access, active: list[int], factor: int, watcher: Watcher) -> None:
    """New topics get as many replicas by default, unless the controllers' settings say otherwise; those can only be
    changed in files."""

    state = look_at(cluster)
    lower = []
    for broker in active:
        address = state.brokers[broker].address
        (result,) = describe_configs(
            cluster, address, RESOURCE_CODES[Kind.BROKER], [str(broker)], [DEFAULT_FACTOR]
        )
        if any(one.value and int(one.value) < factor for one in result.configs):
            lower.append(broker)
    if lower:
        watcher.note(
            f"New topics get {DEFAULT_FACTOR} replicas, which is less than {factor} in the settings of broker "
            f"{joined(lower)}: raise it there for the next start, or give topics a number when you create them."
        )
