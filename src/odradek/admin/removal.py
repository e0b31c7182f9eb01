"""The removal of a broker: empty it, so that it can be stopped for good, and forget it.

The steps, each of which looks at the cluster first, so that the command can be run again:

1. Refuse if the other brokers cannot take its replicas, or it is the only voter. Say what the cluster may lose
   afterwards, and ask if that is less.
2. Cordon it (KIP-1066), so that it gets nothing new; a cluster that cannot do that is watched instead.
3. Move its replicas to the others.
4. Take its vote. If another controller waits for one, that gets it first.
5. Once the process has stopped, unregister it: a broker that is alive would only register again.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from odradek.admin.access import Access
from odradek.admin.failures import AdminError, check
from odradek.admin.growth import LOOK_AGAIN_S, ROUNDS
from odradek.admin.layout import ClusterState, copies_after, fewest_in_sync, look_at
from odradek.admin.reassignment_plan import ImpossiblePlan, Move, Wish, make_plan
from odradek.admin.reassignment_requests import list_all
from odradek.admin.reassignment_run import carry_out, wait
from odradek.admin.requests import ask_any
from odradek.admin.resources import RESOURCE_CODES, Kind
from odradek.admin.settings import alter_configs
from odradek.admin.tolerance import tolerance
from odradek.admin.voters import QuorumState, add_voter, find_quorum, remove_voter
from odradek.admin.watching import SILENT, Watcher
from odradek.errors import ErrorCode
from odradek.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from odradek.wording import counted

CORDONED = "cordoned.log.dirs"
ALL_DIRECTORIES = "*"

Confirm = Callable[[str], None]


@dataclass
class Removal:
    """The changes that were made; the fields are those of the JSON output."""

    broker: int
    moved_partitions: int
    is_cordoned: bool
    lost_vote: bool
    is_unregistered: bool


def carry_out_removal(
    cluster: Access,
    broker: int,
    throttle: int | None,
    timeout_s: int | None,
    confirm: Confirm,
    watcher: Watcher = SILENT,
) -> Removal:
    """Remove a broker. `confirm` is asked if the cluster may lose less afterwards; it raises to end it. Without a time,
    this does not wait until the broker has stopped."""

    state = look_at(cluster)
    if broker not in state.brokers:
        raise AdminError(f"there is no broker {broker}")
    moves = plan_moves(state, broker)
    quorum = check_vote(cluster, broker)
    tell_result(cluster, state, moves, quorum, broker, confirm, watcher)
    is_cordoned = cordon(cluster, broker, watcher)
    moved = drain(cluster, broker, throttle, watcher)
    lost_vote = take_vote(cluster, state.cluster_id, broker, watcher)
    is_unregistered = timeout_s is not None or state.brokers[broker].is_fenced
    if is_unregistered:
        await_stop(cluster, broker, timeout_s or 0, watcher)
        unregister(cluster, broker, is_cordoned)
    return Removal(broker, moved, is_cordoned, lost_vote, is_unregistered)


def plan_moves(state: ClusterState, broker: int) -> list[Move]:
    """Plan to move away what this broker has. Raises AdminError if the others cannot take it."""
    layout = state.layout()
    others = layout.racks.keys() - {broker}
    if not others:
        raise AdminError(
            f"broker {broker} cannot be removed: no other broker can take replicas. Let one join first: "
            "odradek up --join HOST:PORT --data-dir DIR"
        )
    places = [place for place, one in state.partitions.items() if broker in one.replicas]
    try:
        return make_plan(layout, Wish(places, others))
    except ImpossiblePlan as error:
        raise AdminError(
            f"broker {broker} cannot be removed: {error}. Add a broker, or lower the replication of its topics first: "
            f"odradek topic reassign --all --replication-factor {len(others)}"
        ) from None


def check_vote(cluster: Access, broker: int) -> QuorumState:

    quorum = find_quorum(cluster)
    if [one.node_id for one in quorum.voters] == [broker] and not quorum.wanted([broker]):
        raise AdminError(
            f"broker {broker} cannot be removed: it is the only controller with a vote. Add another controller first"
        )
    return quorum


def tell_result(
    cluster: Access,
    state: ClusterState,
    moves: list[Move],
    quorum: QuorumState,
    broker: int,
    confirm: Confirm,
    watcher: Watcher,
) -> None:
    """Say what the cluster may lose without this broker; ask, if that is less than what it may lose with it."""

    voters = {one.node_id for one in quorum.voters}
    left = (
        (voters - {broker}) | {one.node_id for one in quorum.wanted([broker])} if broker in voters else voters
    )
    fewest = fewest_in_sync(cluster, state, state.topics())
    before = tolerance(copies_after(state, [], fewest), len(voters))
    after = tolerance(copies_after(state, moves, fewest), len(left))
    watcher.note(f"Without broker {broker}, the cluster {after}.")
    if after.is_worse_than(before) or tolerance([], len(left)).is_worse_than(tolerance([], len(voters))):
        watcher.note(f"With it, the cluster {before}.")
        confirm(f"Remove broker {broker}?")


def cordon(cluster: Access, broker: int, watcher: Watcher) -> bool:
    """Cordon a broker; returns False if the cluster cannot do that."""

    state = look_at(cluster)
    address = next(state.brokers[one].address for one in state.active)
    try:
        alter_configs(cluster, address, RESOURCE_CODES[Kind.BROKER], str(broker), {CORDONED: ALL_DIRECTORIES})
    except AdminError as error:
        watcher.note(f"Broker {broker} cannot be cordoned ({error}): create no topics until it is removed.")
        return False
    return True


def drain(cluster: Access, broker: int, throttle: int | None, watcher: Watcher) -> int:
    """Move all partitions away, and return how many moved. Topics that are created meanwhile may need another round."""

    if moving := list_all(cluster):
        verb = "is" if len(moving) == 1 else "are"
        watcher.note(f"Waiting for {counted(len(moving), 'partition')} that {verb} moving already.")
        wait(cluster, moving, watcher)
    moved = 0
    for _ in range(ROUNDS):
        moves = plan_moves(look_at(cluster, with_logs=True), broker)
        if not moves:
            return moved
        watcher.note(f"Moving {counted(len(moves), 'partition')} away from broker {broker}.")
        carry_out(cluster, moves, throttle, watcher)
        moved += len(moves)
    raise AdminError(f"broker {broker} gets new partitions all the time: stop creating topics, and try again")


def take_vote(cluster: Access, cluster_id: str, broker: int, watcher: Watcher) -> bool:

    quorum = find_quorum(cluster)
    own = [one for one in quorum.voters if one.node_id == broker]
    if not own:
        return False
    for one in quorum.wanted([broker]):
        watcher.note(f"Giving controller {one.node_id} a vote.")
        add_voter(cluster, cluster_id, quorum, one)
    watcher.note(f"Taking the vote of controller {broker}.")
    remove_voter(cluster, cluster_id, own[0])
    return True


def await_stop(cluster: Access, broker: int, timeout_s: float, watcher: Watcher) -> None:

    deadline, is_told = time.monotonic() + timeout_s, False
    while broker in look_at(cluster).active:
        if time.monotonic() > deadline:
            raise AdminError(f"broker {broker} is empty, but has not stopped: stop it, and run this again")
        if not is_told:
            watcher.note(f"Broker {broker} is empty. Stop it now; this command waits for that.")
            is_told = True
        time.sleep(LOOK_AGAIN_S)


def unregister(cluster: Access, broker: int, is_cordoned: bool) -> None:

    if is_cordoned:  # a later broker of this id should not be
        state = look_at(cluster)
        address = next(state.brokers[one].address for one in state.active)
        alter_configs(cluster, address, RESOURCE_CODES[Kind.BROKER], str(broker), {CORDONED: None})
    response = ask_any(cluster, UnregisterBrokerRequest(broker), UnregisterBrokerResponse)
    if response.error_code != ErrorCode.BROKER_ID_NOT_REGISTERED:
        check(response.error_code, response.error_message)
