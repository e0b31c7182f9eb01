"""`odradek group`: list, describe and delete consumer groups, and set back where they are.

A group is described with its lag, partition by partition: what its members hold, then what was committed for partitions
that nobody holds now. The columns are those of `kafka-consumer-groups.sh`.

librdkafka does not know all states of the newer group protocol; a group that is assigning or reconciling shows as
`Unknown`.
"""

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer
from confluent_kafka import ConsumerGroupState, ConsumerGroupType
from confluent_kafka.admin import AdminClient

from odradek.cli.clients import (
    DEFAULT_BOOTSTRAP_SERVER,
    REQUEST_TIMEOUT_S,
    BootstrapServer,
    CommandConfig,
    CommandError,
    JsonOutput,
    connect,
    failures_told,
    print_columns,
)
from odradek.cli.group_offsets import Place, committed_offsets, end_offsets
from odradek.cli.group_reset import reset_offsets

app = typer.Typer(
    help="List, describe and delete consumer groups; reset their offsets.", no_args_is_help=True
)
app.command("reset-offsets")(reset_offsets)

STATE_NAMES = {
    ConsumerGroupState.UNKNOWN: "Unknown",
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.DEAD: "Dead",
    ConsumerGroupState.EMPTY: "Empty",
}
TYPE_NAMES = {
    ConsumerGroupType.UNKNOWN: "Unknown",
    ConsumerGroupType.CONSUMER: "Consumer",
    ConsumerGroupType.CLASSIC: "Classic",
}
REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Unknown")

GroupsArgument = Annotated[list[str] | None, typer.Argument(metavar="GROUP...", show_default=False)]
GroupOption = Annotated[list[str] | None, typer.Option("--group", hidden=True)]


@dataclass(frozen=True)
class MemberView:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[Place]


@dataclass(frozen=True)
class PartitionView:
    """Where the group is in a partition. None is what nobody knows: nothing committed, or the topic gone."""

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
    """What `describe` tells of a group; its fields are those of the JSON output."""

    group: str
    type: str
    state: str
    assignor: str
    coordinator: str
    members: list[MemberView]
    partitions: list[PartitionView]


@app.command("list")
def list_(
    state: Annotated[list[str] | None, typer.Option("--state", help="Only groups in it; repeatable.")] = None,
    type_: Annotated[
        list[str] | None, typer.Option("--type", help="Only 'classic' or 'consumer' groups; repeatable.")
    ] = None,
    as_json: JsonOutput = False,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """List groups by name; with type and state at a terminal."""
    states, types = _chosen("state", state, STATE_NAMES), _chosen("type", type_, TYPE_NAMES)
    with failures_told(bootstrap_server):
        admin = connect(bootstrap_server, command_config)
        listing = admin.list_consumer_groups(
            states=states, types=types, request_timeout=REQUEST_TIMEOUT_S
        ).result(REQUEST_TIMEOUT_S)
    rows = sorted(
        (found.group_id, TYPE_NAMES[found.type], STATE_NAMES[found.state]) for found in listing.valid
    )
    if as_json:
        typer.echo(json.dumps([{"group": name, "type": kind, "state": how} for name, kind, how in rows]))
    elif sys.stdout.isatty():
        print_columns(("GROUP", "TYPE", "STATE"), rows)
    else:
        sys.stdout.writelines(f"{name}\n" for name, _, _ in rows)
    if listing.errors:
        raise CommandError(f"not all brokers have answered: {listing.errors[0]}")


def _chosen(what: str, texts: list[str] | None, names: dict[Any, str]) -> set[Any]:
    """The members of an enumeration that a user has named, in any case."""
    by_name = {name.lower(): member for member, name in names.items()}
    for text in texts or ():
        if text.lower() not in by_name:
            raise typer.BadParameter(f"{text!r} is no {what}: there are {', '.join(names.values())}")
    return {by_name[text.lower()] for text in texts or ()}


@app.command()
def describe(
    names: GroupsArgument = None,
    all_groups: Annotated[bool, typer.Option("--all-groups", help="Every group there is.")] = False,
    members: Annotated[bool, typer.Option("--members", help="The members instead of the offsets.")] = False,
    state: Annotated[bool, typer.Option("--state", help="The state instead of the offsets.")] = False,
    as_json: JsonOutput = False,
    group: GroupOption = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """Describe groups: offset and lag of each partition and who reads it, or members, or state."""
    wanted = [*(names or ()), *(group or ())]
    if bool(wanted) == all_groups:
        raise typer.BadParameter("name groups, or give --all-groups")
    if members and state:
        raise typer.BadParameter("choose one of --members and --state")
    with failures_told(bootstrap_server):
        admin = connect(bootstrap_server, command_config)
        views = view_groups(admin, wanted or all_names(admin))
    if as_json:
        typer.echo(json.dumps([asdict(view) for view in views], indent=2))
        return
    show: Callable[[Sequence[GroupView]], None] = show_offsets
    if members or state:
        show = show_members if members else show_states
    show(views)


def all_names(admin: AdminClient) -> list[str]:
    listing = admin.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S).result(REQUEST_TIMEOUT_S)
    return sorted(found.group_id for found in listing.valid)


def view_groups(admin: AdminClient, names: Sequence[str]) -> list[GroupView]:
    """Each name once; a group that does not exist is the failure of the whole command."""
    if not names:
        return []
    names = list(dict.fromkeys(names))
    futures = admin.describe_consumer_groups(names, request_timeout=REQUEST_TIMEOUT_S)
    descriptions = [_description(name, futures[name]) for name in names]
    committed = [committed_offsets(admin, name) for name in names]
    members = [_members(description) for description in descriptions]
    held = {place for of_group in members for member in of_group for place in member.partitions}
    ends = end_offsets(admin, held.union(*committed))
    return [
        GroupView(
            group=description.group_id,
            type=TYPE_NAMES[description.type],
            state=STATE_NAMES[description.state],
            assignor=description.partition_assignor,
            coordinator=f"{description.coordinator.host}:{description.coordinator.port}"
            f" ({description.coordinator.id})",
            members=of_group,
            partitions=_partitions(of_group, offsets, ends),
        )
        for description, of_group, offsets in zip(descriptions, members, committed, strict=True)
    ]


def _description(name: str, future: Any) -> Any:
    with failures_told("the coordinator", name):
        description = future.result(REQUEST_TIMEOUT_S)
    if description.state == ConsumerGroupState.DEAD:
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
        rows = [(view.group, *asdict(partition).values()) for partition in view.partitions]
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
        (view.group, view.coordinator, view.assignor, view.type, view.state, len(view.members))
        for view in views
    ]
    print_columns(("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "TYPE", "STATE", "#MEMBERS"), rows)


def tell_condition(view: GroupView) -> None:
    if not view.members:
        typer.echo(f"group {view.group} has no active members", err=True)
    elif view.state in REBALANCING:
        typer.echo(f"warning: group {view.group} is rebalancing", err=True)


@app.command()
def delete(
    names: GroupsArgument = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOutput = False,
    group: GroupOption = None,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP_SERVER,
    command_config: CommandConfig = None,
) -> None:
    """Delete groups with their committed offsets. Asks first if run from a terminal."""
    names = list(dict.fromkeys([*(names or ()), *(group or ())]))
    if not names:
        raise typer.BadParameter("name a group", param_hint="GROUP")
    if sys.stdin.isatty() and not yes:
        typer.confirm(f"Delete {', '.join(names)} and all offsets they committed?", abort=True)
    with failures_told(bootstrap_server):
        admin = connect(bootstrap_server, command_config)
        futures = admin.delete_consumer_groups(names, request_timeout=REQUEST_TIMEOUT_S)
    deleted, failures = [], []
    for name in names:
        try:
            with failures_told(bootstrap_server, name):
                futures[name].result(REQUEST_TIMEOUT_S)
            deleted.append(name)
        except CommandError as failure:
            failures.append(str(failure))
    typer.echo(json.dumps({"deleted": deleted}) if as_json else f"Deleted {', '.join(deleted) or 'nothing'}.")
    if failures:
        raise CommandError("; ".join(failures))
