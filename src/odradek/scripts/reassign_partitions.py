"""kafka-reassign-partitions.sh: move replicas between brokers."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from odradek.admin import throttle
from odradek.admin.access import Access
from odradek.admin.failures import AdminError
from odradek.admin.layout import ClusterState, look_at
from odradek.admin.places import Place
from odradek.admin.reassignment_files import moves_of, read_plan
from odradek.admin.reassignment_plan import ImpossiblePlan, Layout, Wish, make_plan
from odradek.admin.reassignment_requests import alter, list_all
from odradek.admin.reassignment_run import remove_throttles
from odradek.scripts.options import Exit, Flag, Given, Parser
from odradek.scripts.running import COMMAND_CONFIG, print_line, run_action, said

ACTIONS = ("generate", "execute", "verify", "cancel", "list")
Replicas = tuple[int, ...]
PARSER = Parser(
    "This tool helps to move topic partitions between replicas.",
    [
        Flag("bootstrap-server", "The server(s) to use for bootstrapping.", "Server(s)"),
        COMMAND_CONFIG,
        Flag("verify", "Verify if the reassignment completed as specified by the --reassignment-json-file."),
        Flag("generate", "Generate a candidate partition reassignment configuration."),
        Flag("execute", "Kick off the reassignment as specified by the --reassignment-json-file option."),
        Flag("cancel", "Cancel an active reassignment."),
        Flag("list", "List all active partition reassignments."),
        Flag(
            "reassignment-json-file",
            "The JSON file with the reassignment.",
            "manual assignment json file path",
        ),
        Flag("topics-to-move-json-file", "The JSON file with the topics to move.", "topics json file path"),
        Flag("broker-list", "The brokers to which the partitions need to be reassigned.", "brokerlist"),
        Flag("disable-rack-aware", "Disable rack aware replica assignment."),
        Flag("throttle", "Bytes per second that each broker copies at most.", "throttle", int, -1),
        Flag("timeout", "Of no effect: directories are not changed.", "timeout", int, 10_000),
        Flag("additional", "Execute this reassignment in addition to any other ongoing ones."),
        Flag("preserve-throttles", "Do not modify broker or topic throttles."),
        Flag(
            "disallow-replication-factor-change",
            "Denies a change of replication factor during a reassignment.",
        ),
        Flag(
            "bootstrap-controller",
            "Controllers instead of brokers.",
            "String",
            is_optional=True,
            is_unsupported=True,
        ),
        Flag("replica-alter-log-dirs-throttle", "Within a broker.", "throttle", int, is_unsupported=True),
    ],
)


def main(arguments: Sequence[str]) -> int:
    given = PARSER.parse(arguments)
    if sum(map(given.has, ACTIONS)) != 1:
        PARSER.fail(
            "Command must include exactly one action: --generate, --execute, --verify, --cancel, --list"
        )
    if not given.has("bootstrap-server"):
        PARSER.fail("Please specify --bootstrap-server")
    needed = {"generate": ("topics-to-move-json-file", "broker-list"), "list": ()}
    for action in ACTIONS:
        if given.has(action):
            PARSER.require(given, *needed.get(action, ("reassignment-json-file",)))
    actions = {
        "generate": generate,
        "execute": execute,
        "verify": verify,
        "cancel": cancel,
        "list": show_list,
    }
    try:
        run_action(given, actions)
    except (AdminError, OSError) as error:
        raise Exit(1, f"Error: {said(error) if isinstance(error, AdminError) else error}") from None
    return 0


def plan_in(given: Given) -> dict[Place, Replicas]:
    return read_plan(Path(given.text("reassignment-json-file") or ""))


def as_json(replicas: Mapping[Place, Sequence[int]]) -> str:
    partitions = [
        {
            "topic": place.topic,
            "partition": place.partition,
            "replicas": list(one),
            "log_dirs": ["any"] * len(one),
        }
        for place, one in sorted(replicas.items())
    ]
    return json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":"))


def generate(cluster: Access, given: Given) -> None:
    state = look_at(cluster, with_logs=True)
    topics = topics_in(Path(given.text("topics-to-move-json-file") or ""))
    if missing := sorted(topics - set(state.topics())):
        raise AdminError(f"Topic {missing[0]} not found.")
    try:
        brokers = [int(one) for one in (given.text("broker-list") or "").split(",")]
    except ValueError:
        raise AdminError(f"Invalid broker list {given.text('broker-list')}") from None
    places = [place for place in state.partitions if place.topic in topics]
    layout = state.layout()
    if given.has("disable-rack-aware"):
        layout = Layout(dict.fromkeys(layout.racks), layout.replicas, layout.sizes)
    try:
        moves = make_plan(layout, Wish(places, brokers, is_even=True))
    except ImpossiblePlan as error:
        raise AdminError(str(error)) from None
    now = {place: state.partitions[place].replicas for place in places}
    print_line(f"Current partition replica assignment\n{as_json(now)}\n")
    print_line(
        f"Proposed partition reassignment configuration\n{as_json(now | {one.place: one.after for one in moves})}"
    )


def topics_in(file: Path) -> set[str]:
    try:
        return {str(one["topic"]) for one in json.loads(file.read_text("utf-8"))["topics"]}
    except (ValueError, KeyError, TypeError) as error:
        raise AdminError(f"{file} does not name topics: {error}") from None


def execute(cluster: Access, given: Given) -> None:
    if list_all(cluster) and not given.has("additional"):
        raise AdminError(
            "Cannot execute because there is an existing partition assignment. Use --additional to override this and "
            "create a new partition assignment in addition to the existing one."
        )
    state, wanted = look_at(cluster), plan_in(given)
    moves = moves_of(state, wanted)
    changed = [one for one in moves if len(one.before) != len(one.after)]
    if changed and given.has("disallow-replication-factor-change"):
        raise AdminError(f"The replication factor of {changed[0].place} would change")
    now = {place: state.partitions[place].replicas for place in wanted}
    print_line(f"Current partition replica assignment\n\n{as_json(now)}\n")
    print_line("Save this to use as the --reassignment-json-file option during rollback")
    rate = given.number("throttle") or -1
    if rate >= 0:
        throttle.apply(cluster, throttle.throttle(moves, rate))
        print_line(
            "Warning: You must run --verify periodically, until the reassignment completes, to ensure the throttle "
            "is removed."
        )
        print_line(f"The inter-broker throttle limit was set to {rate} B/s")
    refused = alter(cluster, wanted)
    if refused:
        place, reason = min(refused.items())
        raise AdminError(f"Error reassigning partition(s):\n{place}: {reason}")
    listed = ",".join(map(str, sorted(wanted)))
    print_line(f"Successfully started partition reassignment{'' if len(wanted) == 1 else 's'} for {listed}")


def verify(cluster: Access, given: Given) -> None:
    state, moving, wanted = look_at(cluster), list_all(cluster), plan_in(given)
    print_line("Status of partition reassignment:")
    for place, replicas in sorted(wanted.items()):
        print_line(status_of(state, place, replicas, is_moving=place in moving))
    if not moving and not given.has("preserve-throttles") and remove_throttles(cluster):
        print_line("\nClearing broker-level throttles\nClearing topic-level throttles")


def status_of(state: ClusterState, place: Place, replicas: Replicas, *, is_moving: bool) -> str:
    if is_moving:
        return f"Reassignment of partition {place} is still in progress."
    if place not in state.partitions:
        return f"Reassignment of partition {place} is completed, but the partition no longer exists."
    now = state.partitions[place].replicas
    if now == replicas:
        return f"Reassignment of partition {place} is completed."
    return (
        f"There is no active reassignment of partition {place}, but replica set is {','.join(map(str, now))} rather "
        f"than {','.join(map(str, replicas))}."
    )


def cancel(cluster: Access, given: Given) -> None:
    places = [place for place in sorted(list_all(cluster)) if place in plan_in(given)]
    if not places:
        print_line("None of the specified partition moves are active.")
    else:
        if refused := alter(cluster, dict.fromkeys(places)):
            place, reason = min(refused.items())
            raise AdminError(f"Error cancelling partition reassignment for: {place}: {reason}")
        print_line(f"Successfully cancelled partition reassignments for: {','.join(map(str, places))}")
    if not given.has("preserve-throttles") and remove_throttles(cluster):
        print_line("Clearing broker-level throttles\nClearing topic-level throttles")


def show_list(cluster: Access, given: Given) -> None:
    moving = list_all(cluster)
    if not moving:
        print_line("No partition reassignments found.")
        return
    print_line("Current partition reassignments:")
    for place, one in moving.items():
        adding = f" adding: {','.join(map(str, one.adding))}." if one.adding else ""
        removing = f" removing: {','.join(map(str, one.removing))}." if one.removing else ""
        print_line(f"{place}: replicas: {','.join(map(str, one.replicas))}.{adding}{removing}")
