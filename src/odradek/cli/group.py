"""`odradek group`: list, describe and delete consumer groups, and reset their offsets.

A group is described with its lag, partition by partition: first the partitions that are assigned to members, then
others with committed offsets. The columns are those of `kafka-consumer-groups.sh`.
"""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from odradek.admin.access import Access
from odradek.cli.access import on_cluster
from odradek.cli.arguments import JsonOutput
from odradek.cli.completion import complete_groups
from odradek.cli.danger import Yes, confirm
from odradek.cli.failures import CommandError
from odradek.cli.framework import Argument, BadParameter, Group, Option
from odradek.cli.group_delete_offsets import delete_offsets
from odradek.cli.group_reset import reset_offsets
from odradek.cli.output import (
    lag_cell,
    note,
    print_columns,
    print_json,
    print_json_line,
    print_line,
    state_cell,
    warn,
)
from odradek.wording import counted

if TYPE_CHECKING:
    from odradek.admin.groups import GroupView
    from odradek.admin.places import Place

app = Group(help="List, describe and delete consumer groups; reset and delete their offsets.")
app.command("reset-offsets")(on_cluster(reset_offsets))
app.command("delete-offsets")(on_cluster(delete_offsets))

STATES = (
    "Unknown",
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Empty",
    "Assigning",
    "Reconciling",
)
TYPES = ("Unknown", "Consumer", "Classic", "Share", "Streams")
REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Unknown")

GroupsArgument = Annotated[
    list[str] | None,
    Argument(metavar="GROUP...", complete=complete_groups),
]
GroupOption = Annotated[list[str] | None, Option("--group", hidden=True)]


@app.command("list")
@on_cluster
def list_(
    cluster: Access,
    state: Annotated[
        list[str] | None, Option("--state", metavar="STATE", help="Only groups in this state; repeatable.")
    ] = None,
    type_: Annotated[
        list[str] | None,
        Option("--type", metavar="TYPE", help="Only 'classic' or 'consumer' groups; repeatable."),
    ] = None,
    long: Annotated[bool, Option("--long", "-l", help="Show type and state, as at a terminal.")] = False,
    as_json: JsonOutput = False,
) -> None:
    """List groups. At a terminal, and with --long, it also shows type and state."""
    from odradek.admin.groups import list_groups

    listing = list_groups(cluster, _chosen("state", state, STATES), _chosen("type", type_, TYPES))
    rows = [(one.group, one.type, one.state) for one in listing.groups]
    if as_json:
        print_json([{"group": name, "type": kind, "state": how} for name, kind, how in rows])
    elif long or sys.stdout.isatty():
        print_columns(("GROUP", "TYPE", "STATE"), [(name, kind, state_cell(how)) for name, kind, how in rows])
    else:
        sys.stdout.writelines(f"{name}\n" for name, _, _ in rows)
    if listing.failures:
        raise CommandError(f"not all brokers responded: {listing.failures[0]}")


def _chosen(what: str, texts: list[str] | None, names: Sequence[str]) -> set[str]:
    """The names that a user has given, in any case."""
    by_name = {name.lower(): name for name in names}
    for text in texts or ():
        if text.lower() not in by_name:
            raise BadParameter(f"{text!r} is not a {what}: choose from {', '.join(names)}")
    return {by_name[text.lower()] for text in texts or ()}


@app.command()
@on_cluster
def describe(
    cluster: Access,
    names: GroupsArgument = None,
    all_groups: Annotated[bool, Option("--all-groups", help="All groups.")] = False,
    members: Annotated[bool, Option("--members", help="Show the members instead of the offsets.")] = False,
    state: Annotated[bool, Option("--state", help="Show the state instead of the offsets.")] = False,
    watch: Annotated[
        float | None,
        Option("--watch", "-w", metavar="SECONDS", min=0.1, help="Repeat this often, until Ctrl-C."),
    ] = None,
    as_json: JsonOutput = False,
    group: GroupOption = None,
) -> None:
    """Describe groups. It shows offset, lag and consumer of each partition, or members, or state."""
    wanted = [*(names or ()), *(group or ())]
    if bool(wanted) == all_groups:
        raise BadParameter("name groups, or give --all-groups")
    if members and state:
        raise BadParameter("choose one of --members and --state")
    from odradek.admin.groups import group_names, view_groups

    show: Callable[[Sequence[GroupView]], None] = show_offsets
    if members or state:
        show = show_members if members else show_states
    while True:
        views = view_groups(cluster, wanted or group_names(cluster))
        if watch is None:
            print_json([as_facts(view) for view in views]) if as_json else show(views)
            return
        print_json_line([as_facts(view) for view in views]) if as_json else _show_again(show, views)
        sys.stdout.flush()
        time.sleep(watch)


def _show_again(show: "Callable[[Sequence[GroupView]], None]", views: "Sequence[GroupView]") -> None:
    """Replace the last picture on a terminal; elsewhere, print one below the other."""
    if sys.stdout.isatty():
        sys.stdout.write("\x1b[H\x1b[2J")
    print_line(time.strftime("%Y-%m-%d %H:%M:%S"))
    show(views)


def as_facts(view: "GroupView") -> dict[str, Any]:
    """Return the facts for JSON, where a place is a topic and a partition, as everywhere."""
    facts = asdict(view)
    for member in facts["members"]:
        member["partitions"] = [place._asdict() for place in member["partitions"]]
    return facts


def show_offsets(views: "Sequence[GroupView]") -> None:
    header = ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")
    for view in views:
        tell_condition(view)
        rows: list[Sequence[object]] = [
            (
                *(view.group, one.topic, one.partition, one.current_offset, one.log_end_offset),
                *(lag_cell(one.lag), one.member_id, one.host, one.client_id),
            )
            for one in view.partitions
        ]
        idle = [member for member in view.members if not member.partitions]
        rows += [
            (view.group, *[None] * 5, member.member_id, member.host, member.client_id) for member in idle
        ]
        if rows:
            print_columns((*header, "CONSUMER-ID", "HOST", "CLIENT-ID"), rows)


def show_members(views: "Sequence[GroupView]") -> None:
    header = ("GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT")
    for view in views:
        tell_condition(view)
        rows = [
            (
                *(view.group, member.member_id, member.instance_id, member.host, member.client_id),
                *(len(member.partitions), _joined(member.partitions)),
            )
            for member in view.members
        ]
        if rows:
            print_columns(header, rows)


def _joined(places: "Iterable[Place]") -> str:
    return ",".join(f"{place.topic}:{place.partition}" for place in places)


def show_states(views: "Sequence[GroupView]") -> None:
    rows = [
        (view.group, view.coordinator, view.assignor, view.type, state_cell(view.state), len(view.members))
        for view in views
    ]
    print_columns(("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "TYPE", "STATE", "#MEMBERS"), rows)


def tell_condition(view: "GroupView") -> None:
    lag = "" if view.total_lag is None else f", total lag {view.total_lag}"
    members = "no active members" if not view.members else counted(len(view.members), "active member")
    if view.state in REBALANCING:
        warn(f"group {view.group} is rebalancing")
    note(f"group {view.group}: {members}{lag}")


@app.command()
@on_cluster
def delete(
    cluster: Access,
    names: GroupsArgument = None,
    yes: Yes = False,
    as_json: JsonOutput = False,
    group: GroupOption = None,
) -> None:
    """Delete groups with their committed offsets. Asks first, unless --yes is given."""
    names = list(dict.fromkeys([*(names or ()), *(group or ())]))
    if not names:
        raise BadParameter("name a group", param_hint="GROUP")
    confirm(f"Delete {', '.join(names)} and all offsets they committed?", yes)
    from odradek.admin.groups import delete_groups

    outcomes = delete_groups(cluster, names)
    failures = {name: refusal.reason for name, refusal in outcomes.items() if refusal is not None}
    if as_json:
        told = [{"group": name, "deleted": name not in failures} for name in names]
        print_json(
            [
                one | ({"error": failures[name]} if name in failures else {})
                for one, name in zip(told, names, strict=True)
            ]
        )
    else:
        for name in (name for name in names if name not in failures):
            print_line(f"Deleted group {name}.")
    if failures:
        raise CommandError("; ".join(f"{name}: {reason}" for name, reason in failures.items()))
