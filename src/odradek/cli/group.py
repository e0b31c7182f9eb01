"""`odradek group`: list, describe and delete consumer groups, and reset their offsets.

A group is described with its lag, partition by partition: first the partitions that are assigned to members, then
others with committed offsets. The columns are those of `kafka-consumer-groups.sh`.

librdkafka does not know all states of the newer group protocol; a group that is assigning or reconciling shows as
`Unknown`.
"""

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

from odradek.cli.access import REQUEST_TIMEOUT_S, Access, on_cluster
from odradek.cli.arguments import JsonOutput
from odradek.cli.completion import complete_groups
from odradek.cli.danger import Yes, confirm
from odradek.cli.failures import CommandError
from odradek.cli.framework import Argument, BadParameter, Group, Option
from odradek.cli.group_delete_offsets import delete_offsets
from odradek.cli.group_offsets import Place, committed_offsets, end_offsets
from odradek.cli.group_reset import reset_offsets
from odradek.cli.librdkafka import kafka
from odradek.cli.output import (
    counted,
    lag_cell,
    note,
    print_columns,
    print_json,
    print_json_line,
    print_line,
    state_cell,
    warn,
)

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


app = Group(help="List, describe and delete consumer groups; reset and delete their offsets.")
app.command("reset-offsets")(on_cluster(reset_offsets))
app.command("delete-offsets")(on_cluster(delete_offsets))

# By the names that librdkafka has for them.
STATE_NAMES = {
    "UNKNOWN": "Unknown",
    "PREPARING_REBALANCING": "PreparingRebalance",
    "COMPLETING_REBALANCING": "CompletingRebalance",
    "STABLE": "Stable",
    "DEAD": "Dead",
    "EMPTY": "Empty",
}
TYPE_NAMES = {
    "UNKNOWN": "Unknown",
    "CONSUMER": "Consumer",
    "CLASSIC": "Classic",
}
REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Unknown")

GroupsArgument = Annotated[
    list[str] | None,
    Argument(metavar="GROUP...", complete=complete_groups),
]
GroupOption = Annotated[list[str] | None, Option("--group", hidden=True)]


@dataclass(frozen=True)
class MemberView:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[Place]


@dataclass(frozen=True)
class PartitionView:
    """The group's position in a partition. None: not known, because nothing is committed or the topic is gone."""

    topic: str
    partition: int
    current_offset: int | None
    log_end_offset: int | None
    lag: int | None
    member_id: str | None
    host: str | None
    client_id: str | None


@dataclass(frozen=True)
class GroupView:
    """The output of `describe` for a group; its fields are those of the JSON output."""

    group: str
    type: str
    state: str
    assignor: str
    coordinator: str
    total_lag: int | None  # None where no partition's lag is known
    members: list[MemberView]
    partitions: list[PartitionView]


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
    states = {kafka.ConsumerGroupState[name] for name in _chosen("state", state, STATE_NAMES)}
    types = {kafka.ConsumerGroupType[name] for name in _chosen("type", type_, TYPE_NAMES)}
    future = cluster.admin.list_consumer_groups(states=states, types=types, request_timeout=REQUEST_TIMEOUT_S)
    listing = future.result(REQUEST_TIMEOUT_S)
    rows = sorted(
        (found.group_id, TYPE_NAMES[found.type.name], STATE_NAMES[found.state.name])
        for found in listing.valid
    )
    if as_json:
        print_json([{"group": name, "type": kind, "state": how} for name, kind, how in rows])
    elif long or sys.stdout.isatty():
        print_columns(("GROUP", "TYPE", "STATE"), [(name, kind, state_cell(how)) for name, kind, how in rows])
    else:
        sys.stdout.writelines(f"{name}\n" for name, _, _ in rows)
    if listing.errors:
        raise CommandError(f"not all brokers responded: {listing.errors[0]}")


def _chosen(what: str, texts: list[str] | None, names: dict[str, str]) -> set[str]:
    """The members of an enumeration that a user has named, in any case."""
    by_name = {name.lower(): member for member, name in names.items()}
    for text in texts or ():
        if text.lower() not in by_name:
            raise BadParameter(f"{text!r} is not a {what}: choose from {', '.join(names.values())}")
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
    show: Callable[[Sequence[GroupView]], None] = show_offsets
    if members or state:
        show = show_members if members else show_states
    while True:
        views = view_groups(cluster, wanted or all_names(cluster.admin))
        if watch is None:
            print_json([as_facts(view) for view in views]) if as_json else show(views)
            return
        print_json_line([as_facts(view) for view in views]) if as_json else _show_again(show, views)
        sys.stdout.flush()
        time.sleep(watch)


def _show_again(show: Callable[[Sequence[GroupView]], None], views: Sequence[GroupView]) -> None:
    """Replace the last picture on a terminal; elsewhere, print one below the other."""
    if sys.stdout.isatty():
        sys.stdout.write("\x1b[H\x1b[2J")
    print_line(time.strftime("%Y-%m-%d %H:%M:%S"))
    show(views)


def as_facts(view: GroupView) -> dict[str, Any]:
    """For JSON, where a place is a topic and a partition, as everywhere."""
    facts = asdict(view)
    for member in facts["members"]:
        member["partitions"] = [place._asdict() for place in member["partitions"]]
    return facts


def all_names(admin: "AdminClient") -> list[str]:
    listing = admin.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S).result(REQUEST_TIMEOUT_S)
    return sorted(found.group_id for found in listing.valid)


def view_groups(cluster: Access, names: Sequence[str]) -> list[GroupView]:
    """Each name once; a group that does not exist is the failure of the whole command."""
    if not names:
        return []
    admin = cluster.admin
    names = list(dict.fromkeys(names))
    futures = admin.describe_consumer_groups(names, request_timeout=REQUEST_TIMEOUT_S)
    descriptions = [_description(cluster, name, futures[name]) for name in names]
    committed = [committed_offsets(admin, name) for name in names]
    members = [_members(description) for description in descriptions]
    held = {place for of_group in members for member in of_group for place in member.partitions}
    ends = end_offsets(admin, held.union(*committed))
    return [
        _view(description, of_group, _partitions(of_group, offsets, ends))
        for description, of_group, offsets in zip(descriptions, members, committed, strict=True)
    ]


def _view(description: Any, members: list[MemberView], partitions: list[PartitionView]) -> GroupView:
    known = [partition.lag for partition in partitions if partition.lag is not None]
    coordinator = description.coordinator
    return GroupView(
        group=description.group_id,
        type=TYPE_NAMES[description.type.name],
        state=STATE_NAMES[description.state.name],
        assignor=description.partition_assignor,
        coordinator=f"{coordinator.host}:{coordinator.port} ({coordinator.id})",
        total_lag=sum(known) if known else None,
        members=members,
        partitions=partitions,
    )


def _description(cluster: Access, name: str, future: Any) -> Any:
    with cluster.failures_told(name):
        description = future.result(REQUEST_TIMEOUT_S)
    if description.state == kafka.ConsumerGroupState.DEAD:
        raise CommandError(f"{name}: no such group (see 'odradek group list')")
    return description


def _members(description: Any) -> list[MemberView]:
    return [
        MemberView(
            member_id=member.member_id,
            instance_id=member.group_instance_id or None,
            client_id=member.client_id,
            host=member.host,
            partitions=sorted(
                Place(each.topic, each.partition) for each in member.assignment.topic_partitions
            ),
        )
        for member in sorted(description.members, key=lambda member: str(member.member_id))
    ]


def _partitions(
    members: Sequence[MemberView], committed: dict[Place, int], ends: dict[Place, int]
) -> list[PartitionView]:
    owners = {place: member for member in members for place in member.partitions}
    views = []
    for place in sorted({*owners, *committed}):
        owner, current, end = owners.get(place), committed.get(place), ends.get(place)
        lag = None if current is None or end is None else end - current
        who = (owner.member_id, owner.host, owner.client_id) if owner else (None, None, None)
        views.append(PartitionView(place.topic, place.partition, current, end, lag, *who))
    return views


def show_offsets(views: Sequence[GroupView]) -> None:
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


def show_members(views: Sequence[GroupView]) -> None:
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


def _joined(places: Iterable[Place]) -> str:
    return ",".join(f"{place.topic}:{place.partition}" for place in places)


def show_states(views: Sequence[GroupView]) -> None:
    rows = [
        (view.group, view.coordinator, view.assignor, view.type, state_cell(view.state), len(view.members))
        for view in views
    ]
    print_columns(("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "TYPE", "STATE", "#MEMBERS"), rows)


def tell_condition(view: GroupView) -> None:
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
    futures = cluster.admin.delete_consumer_groups(names, request_timeout=REQUEST_TIMEOUT_S)
    failures: dict[str, str] = {}
    for name in names:
        try:
            futures[name].result(REQUEST_TIMEOUT_S)
        except kafka.KafkaException as error:
            failures[name] = cluster.explain(error.args[0], name)
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
