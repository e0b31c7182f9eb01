"""`odradek cluster remove-broker`: empty a broker, so that it can be stopped for good, and forget it.

The steps, each of which looks at the cluster first, so that the command can be run again:

1. Refuse if the other brokers cannot take its replicas, or it is the only voter. Say what the cluster may lose
   afterwards, and ask if that is less.
2. Cordon it (KIP-1066), so that it gets nothing new; a cluster that cannot do that is watched instead.
3. Move its replicas to the others.
4. Take its vote. If another controller waits for one, that gets it first.
5. Once the process has stopped, unregister it: a broker that is alive would only register again.
"""

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

from odradek.cli.access import Access
from odradek.cli.arguments import JsonOutput
from odradek.cli.cluster_grow import DEFAULT_TIMEOUT_S, LOOK_AGAIN_S, ROUNDS
from odradek.cli.danger import Yes, confirm
from odradek.cli.failures import CommandError
from odradek.cli.framework import Argument, Option
from odradek.cli.output import counted, note, print_json, print_line
from odradek.cli.reassignment_plan import ImpossiblePlan, Move, Wish, make_plan
from odradek.cli.tolerance import tolerance
from odradek.cli.topic_reassign import Throttle

if TYPE_CHECKING:
    from odradek.cli.cluster_layout import ClusterState
    from odradek.cli.cluster_voters import QuorumState

CORDONED = "cordoned.log.dirs"
ALL_DIRECTORIES = "*"


@dataclass
class Removal:
    """What was done; its fields are those of the JSON output."""

    broker: int
    moved_partitions: int
    is_cordoned: bool
    lost_vote: bool
    is_unregistered: bool


def remove_broker(
    cluster: Access,
    broker: Annotated[int, Argument(metavar="ID", help="The broker's node.id.")],
    throttle: Throttle = None,
    no_wait: Annotated[
        bool, Option("--no-wait", help="Do not wait until the broker has stopped, and do not unregister it.")
    ] = False,
    timeout: Annotated[
        int, Option("--timeout", metavar="SECONDS", min=1, help="How long to wait until it has stopped.")
    ] = DEFAULT_TIMEOUT_S,
    yes: Yes = False,
    as_json: JsonOutput = False,
) -> None:
    """Move everything away from a broker, take its vote, and unregister it once it has stopped.

    It says what the cluster may lose afterwards, and asks first if that is less than before, unless --yes is given.
    It refuses if the other brokers are too few for the replicas that topics have: lower their replication first
    ('odradek topic reassign --replication-factor'). The broker goes on serving while it is emptied. Then stop it: the
    command waits for that, and unregisters it. A broker that is dead already is removed in the same way. Name other
    brokers with -b than the one that leaves.
    """
    removal = carry_out_removal(cluster, broker, throttle, None if no_wait else timeout, yes)
    if as_json:
        print_json(asdict(removal))
    elif removal.is_unregistered:
        print_line(f"Removed broker {broker}.")
    else:
        print_line(f"Broker {broker} is empty: stop it, and run this command again to unregister it.")


def carry_out_removal(
    cluster: Access, broker: int, throttle: int | None, timeout_s: int | None, yes: bool
) -> Removal:
    from odradek.cli.cluster_layout import look_at

    state = look_at(cluster)
    if broker not in state.brokers:
        raise CommandError(f"there is no broker {broker}")
    moves = plan_moves(state, broker)
    quorum = check_vote(cluster, broker)
    tell_result(cluster, state, moves, quorum, broker, yes)
    is_cordoned = cordon(cluster, broker)
    moved = drain(cluster, broker, throttle)
    lost_vote = take_vote(cluster, state.cluster_id, broker)
    is_unregistered = timeout_s is not None or state.brokers[broker].is_fenced
    if is_unregistered:
        await_stop(cluster, broker, timeout_s or 0)
        unregister(cluster, broker, is_cordoned)
    return Removal(broker, moved, is_cordoned, lost_vote, is_unregistered)


def plan_moves(state: "ClusterState", broker: int) -> list[Move]:
    """Raises CommandError if the others cannot take what this one has."""
    layout = state.layout()
    others = layout.racks.keys() - {broker}
    places = [place for place, one in state.partitions.items() if broker in one.replicas]
    try:
        return make_plan(layout, Wish(places, others))
    except ImpossiblePlan as error:
        raise CommandError(
            f"broker {broker} cannot be removed: {error}. Add a broker, or lower the replication of its topics first: "
            f"odradek topic reassign --all --replication-factor {len(others)}"
        ) from None


def check_vote(cluster: Access, broker: int) -> "QuorumState":
    from odradek.cli.cluster_voters import find_quorum

    quorum = find_quorum(cluster)
    if [one.node_id for one in quorum.voters] == [broker] and not quorum.wanted([broker]):
        raise CommandError(
            f"broker {broker} cannot be removed: it is the only controller with a vote. Add another controller first"
        )
    return quorum


def tell_result(
    cluster: Access, state: "ClusterState", moves: list[Move], quorum: "QuorumState", broker: int, yes: bool
) -> None:
    """Say what the cluster may lose without this broker; ask, if that is less than what it may lose with it."""
    from odradek.cli.cluster_layout import copies_after, fewest_in_sync

    voters = {one.node_id for one in quorum.voters}
    left = (
        (voters - {broker}) | {one.node_id for one in quorum.wanted([broker])} if broker in voters else voters
    )
    fewest = fewest_in_sync(cluster, state, state.topics())
    before = tolerance(copies_after(state, [], fewest), len(voters))
    after = tolerance(copies_after(state, moves, fewest), len(left))
    note(f"Without broker {broker}, the cluster {after}.")
    if after.is_worse_than(before) or tolerance([], len(left)).is_worse_than(tolerance([], len(voters))):
        note(f"With it, the cluster {before}.")
        confirm(f"Remove broker {broker}?", yes)


def cordon(cluster: Access, broker: int) -> bool:
    """Whether the cluster can do that."""
    from odradek.cli.cluster_layout import look_at
    from odradek.cli.config import RESOURCE_CODES, Kind
    from odradek.cli.own_client import alter_configs

    state = look_at(cluster)
    address = next(state.brokers[one].address for one in state.active)
    try:
        alter_configs(cluster, address, RESOURCE_CODES[Kind.BROKER], str(broker), {CORDONED: ALL_DIRECTORIES})
    except CommandError as error:
        note(f"Broker {broker} cannot be cordoned ({error}): create no topics until it is removed.")
        return False
    return True


def drain(cluster: Access, broker: int, throttle: int | None) -> int:
    """How many partitions moved. Topics that are created meanwhile may need another round."""
    from odradek.cli.cluster_layout import look_at
    from odradek.cli.reassignment_requests import list_all
    from odradek.cli.reassignment_run import carry_out, wait

    if moving := list_all(cluster):
        verb = "is" if len(moving) == 1 else "are"
        note(f"Waiting for {counted(len(moving), 'partition')} that {verb} moving already.")
        wait(cluster, moving)
    moved = 0
    for _ in range(ROUNDS):
        moves = plan_moves(look_at(cluster, with_logs=True), broker)
        if not moves:
            return moved
        note(f"Moving {counted(len(moves), 'partition')} away from broker {broker}.")
        carry_out(cluster, moves, throttle)
        moved += len(moves)
    raise CommandError(
        f"broker {broker} gets new partitions all the time: stop creating topics, and try again"
    )


def take_vote(cluster: Access, cluster_id: str, broker: int) -> bool:
    from odradek.cli.cluster_voters import add_voter, find_quorum, remove_voter

    quorum = find_quorum(cluster)
    own = [one for one in quorum.voters if one.node_id == broker]
    if not own:
        return False
    for one in quorum.wanted([broker]):
        note(f"Giving controller {one.node_id} a vote.")
        add_voter(cluster, cluster_id, quorum, one)
    note(f"Taking the vote of controller {broker}.")
    remove_voter(cluster, cluster_id, own[0])
    return True


def await_stop(cluster: Access, broker: int, timeout_s: float) -> None:
    from odradek.cli.cluster_layout import look_at

    deadline, is_told = time.monotonic() + timeout_s, False
    while broker in look_at(cluster).active:
        if time.monotonic() > deadline:
            raise CommandError(f"broker {broker} is empty, but has not stopped: stop it, and run this again")
        if not is_told:
            note(f"Broker {broker} is empty. Stop it now; this command waits for that.")
            is_told = True
        time.sleep(LOOK_AGAIN_S)


def unregister(cluster: Access, broker: int, is_cordoned: bool) -> None:
    from odradek.cli.cluster_layout import ask_any, look_at
    from odradek.cli.config import RESOURCE_CODES, Kind
    from odradek.cli.own_client import alter_configs
    from odradek.cli.reassignment_requests import words
    from odradek.errors import ErrorCode
    from odradek.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

    if is_cordoned:  # a later broker of this id should not be
        state = look_at(cluster)
        address = next(state.brokers[one].address for one in state.active)
        alter_configs(cluster, address, RESOURCE_CODES[Kind.BROKER], str(broker), {CORDONED: None})
    answer = ask_any(cluster, UnregisterBrokerRequest(broker), UnregisterBrokerResponse)
    if answer.error_code not in (ErrorCode.NONE, ErrorCode.BROKER_ID_NOT_REGISTERED):
        raise CommandError(answer.error_message or words(answer.error_code))
