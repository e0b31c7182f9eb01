"""kafka-consumer-groups.sh: list, describe and delete consumer groups, reset and delete their offsets."""

import csv
import re
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from odradek.admin.access import Access
from odradek.admin.failures import AdminError, Refused
from odradek.admin.groups import Group, delete_groups, describe_group, group_names, list_groups
from odradek.admin.offset_reset import Target, plan_reset
from odradek.admin.offsets import (
    Committed,
    commit_offsets,
    committed,
    delete_offsets,
    end_offsets,
    named_places,
)
from odradek.admin.places import Place
from odradek.errors import ErrorCode
from odradek.scripts.options import Exit, Flag, Given, Parser
from odradek.scripts.running import BOOTSTRAP, COMMAND_CONFIG, print_line, run_action, said, warn

MISSING = "-"
ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex")
TARGETS = (
    *("to-offset", "shift-by", "to-datetime", "by-duration", "to-earliest", "to-latest", "to-current"),
    "from-file",
)
STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", "Assigning", "Reconciling")
TYPES = ("Consumer", "Classic", "Share", "Streams")
REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)
PARSER = Parser(
    "This tool helps to list all consumer groups, describe a consumer group, delete consumer group info, or reset "
    "consumer group offsets.",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Flag("group", "The consumer group we wish to act on.", "consumer group"),
        Flag("topic", "A topic, or topic1:0,1,2 for some of its partitions.", "topic"),
        Flag("all-topics", "Consider all topics assigned to a group."),
        Flag("list", "List all consumer groups."),
        Flag("describe", "Describe consumer group and list offset lag."),
        Flag("all-groups", "Apply to all consumer groups."),
        Flag("delete", "Pass in groups to delete."),
        Flag("timeout", "How long to wait for a group, in ms.", "timeout (ms)", int, 30_000),
        Flag("reset-offsets", "Reset offsets of consumer group."),
        Flag("delete-offsets", "Delete offsets of consumer group."),
        Flag("dry-run", "Only show results without executing changes."),
        Flag("execute", "Execute operation."),
        Flag("export", "Export operation execution to a CSV file."),
        Flag("to-offset", "Reset offsets to a specific offset.", "offset", int),
        Flag("from-file", "Reset offsets to values defined in CSV file.", "path to CSV file"),
        Flag("to-datetime", "Reset offsets to YYYY-MM-DDThh:mm:ss.sss.", "datetime"),
        Flag("by-duration", "Reset offsets by PnDTnHnMnS from now.", "duration"),
        Flag("to-earliest", "Reset offsets to earliest offset."),
        Flag("to-latest", "Reset offsets to latest offset."),
        Flag("to-current", "Reset offsets to current offset."),
        Flag("shift-by", "Reset offsets shifting current offset by n.", "number-of-offsets", int),
        Flag("members", "Describe members of the group."),
        Flag("verbose", "Provide additional information, if any, when describing the group."),
        Flag("offsets", "Describe the group and list its offset lag, the default."),
        Flag("state", "Describe the state, or list groups in these states.", "String", is_optional=True),
        Flag("type", "List groups of these types.", "String", is_optional=True),
        Flag("validate-regex", "Validate a regular expression.", "regex", is_unsupported=True),
    ],
)


def main(arguments: Sequence[str]) -> int:
    given = PARSER.parse(arguments)
    check(given)
    actions: dict[str, Callable[[Access, Given], None]] = {
        "list": show_list,
        "describe": describe,
        "delete": delete,
        "reset-offsets": reset,
        "delete-offsets": delete_some,
    }
    try:
        run_action(given, actions)
    except AdminError as error:
        print_error(f"Executing consumer group command failed due to {said(error)}")  # and exit 0, as Kafka's
    return 0


def check(given: Given) -> None:
    if sum(map(given.has, ACTIONS)) != 1:
        PARSER.fail(
            "Command must include exactly one action: --list, --describe, --delete, --reset-offsets, "
            "--delete-offsets, --validate-regex"
        )
    PARSER.require(given, "bootstrap-server")
    for action in ("describe", "delete", "reset-offsets"):
        if given.has(action) and not (given.has("group") or given.has("all-groups")):
            PARSER.fail(f"Option [{action}] takes one of these options: [group], [all-groups]")
    PARSER.exclude(given, "group", "all-groups", "list")
    if given.has("describe"):
        if sum(map(given.has, ("members", "offsets", "state"))) > 1:
            PARSER.fail("Option [describe] takes at most one of these options: [members], [offsets], [state]")
        if given.values("state"):
            PARSER.fail("Option [describe] does not take a value for [state]")
    if given.has("delete") and given.has("topic"):
        PARSER.fail("The consumer does not support topic-specific offset deletion from a consumer group.")
    if given.has("delete-offsets") and not (given.has("group") and given.has("topic")):
        PARSER.fail("Option [delete-offsets] takes the following options: [group], [topic]")
    if given.has("reset-offsets"):
        check_reset(given)


def check_reset(given: Given) -> None:
    if given.has("dry-run") and given.has("execute"):
        PARSER.fail("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if not given.has("dry-run") and not given.has("execute"):
        sys.stderr.write("WARN: No action will be performed as the --execute option is missing.\n")
    if sum(map(given.has, TARGETS)) != 1:
        listed = ", ".join(f"[{one}]" for one in TARGETS)
        PARSER.fail(f"Option [reset-offsets] takes exactly one of the following options: {listed}")
    if not given.has("from-file") and not given.has("topic") and not given.has("all-topics"):
        PARSER.fail("One of the reset scopes should be defined: --all-topics, --topic.")


def print_error(text: str) -> None:
    print_line(f"\nError: {text}")


def chosen_groups(cluster: Access, given: Given) -> list[str]:
    return group_names(cluster) if given.has("all-groups") else given.values("group")


# Listing


def show_list(cluster: Access, given: Given) -> None:
    states = named(given.text("state"), STATES, "state")
    types = named(given.text("type"), TYPES, "types")
    found = list_groups(cluster, states, types)
    if found.failures:
        raise AdminError(found.failures[0])
    groups = [one for one in found.groups if one.type in ("Consumer", "Classic", "Unknown")]
    if not given.has("state") and not given.has("type"):
        for one in groups:
            print_line(one.group)
        return
    width = max([15, *(len(one.group) for one in groups)]) + 10
    wants_type, wants_state = given.has("type"), given.has("state")

    def line(name: str, kind: str, state: str) -> str:
        return (
            f"{name:<{width}}"
            + (f" {kind:<20}" if wants_type else "")
            + (f" {state:<20}" if wants_state else "")
        )

    print_line(line("GROUP", "TYPE", "STATE"))
    for one in groups:
        print_line(line(one.group, one.type, one.state))


def named(text: str | None, known: Sequence[str], what: str) -> set[str]:
    by_name = {name.lower(): name for name in known}
    wanted = [one.strip().lower() for one in text.split(",")] if text else []
    if any(one not in by_name for one in wanted):
        PARSER.fail(f"Invalid {what} list '{text}'. Valid {what} are: {', '.join(known)}")
    return {by_name[one] for one in wanted}


# Describing


def describe(cluster: Access, given: Given) -> None:
    for name in sorted(chosen_groups(cluster, given)):
        try:
            group = describe_group(cluster, name)
        except Refused as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            raise AdminError(
                "org.apache.kafka.common.errors.GroupIdNotFoundException: "
                f"Group {name} is not a consumer group."
            ) from None
        if given.has("members"):
            show_members(group, given.has("verbose"))
        elif given.has("state"):
            show_state(group, given.has("verbose"))
        else:
            show_offsets(cluster, group, given.has("verbose"))


def tell_state(group: Group) -> None:
    if group.state == "Empty":
        sys.stderr.write(f"\nConsumer group '{group.group}' has no active members.\n")
    elif group.state in REBALANCING:
        sys.stderr.write(f"\nWarning: Consumer group '{group.group}' is rebalancing.\n")
    sys.stderr.flush()


def show_offsets(cluster: Access, group: Group, verbose: bool) -> None:
    positions = committed(cluster, group.group)
    owned = {place for member in group.members for place in member.partitions}
    ends = end_offsets(cluster, owned | positions.keys())
    rows = []
    for member in group.members:
        who = (f"{member.member_id}", member.host, member.client_id)
        rows += [_offset_row(group, place, positions, ends, who) for place in sorted(member.partitions)]
        if not member.partitions:
            rows.append((group.group, *[MISSING] * 6, *who))
    rest = sorted(positions.keys() - owned)
    rows += [_offset_row(group, place, positions, ends, (MISSING,) * 3) for place in rest]
    tell_state(group)
    header = (
        *("GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"),
        *("CONSUMER-ID", "HOST", "CLIENT-ID"),
    )
    widths = (15, 15, 10, 15, 15, 15, 15, 15, 15, 0)
    if rows:
        hidden = () if verbose else (3,)
        print_rows([header, *rows], widths, hidden)


def _offset_row(
    group: Group,
    place: Place,
    positions: dict[Place, Committed],
    ends: dict[Place, int],
    who: tuple[str, ...],
) -> tuple[str, ...]:
    position, end = positions.get(place), ends.get(place)
    lag = None if position is None or end is None else end - position.offset
    return (
        *(group.group, place.topic, str(place.partition)),
        _or_missing(None if position is None else position.leader_epoch),
        _or_missing(None if position is None else position.offset),
        *(_or_missing(end), _or_missing(lag), *who),
    )


def _or_missing(value: object) -> str:
    return MISSING if value is None else str(value)


def show_members(group: Group, verbose: bool) -> None:
    tell_state(group)
    has_instances = any(one.instance_id for one in group.members)
    header = ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    header += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
    rows = [
        (
            *(group.group, one.member_id, one.instance_id or MISSING, one.host, one.client_id),
            *(str(len(one.partitions)), _or_missing(one.epoch), _assigned(one.partitions)),
            *(_or_missing(group.target_epoch), _assigned(one.target or [])),
        )
        for one in group.members
    ]
    hidden = {*(() if has_instances else (2,)), *(() if verbose else range(6, 10))}
    print_rows([header, *rows], (15, 15, 17, 15, 15, 15, 15, 20, 15, 0), hidden)


def _assigned(places: Sequence[Place]) -> str:
    topics: dict[str, list[str]] = {}
    for place in sorted(places):
        topics.setdefault(place.topic, []).append(str(place.partition))
    return ";".join(f"{topic}:{','.join(numbers)}" for topic, numbers in topics.items()) or MISSING


def show_state(group: Group, verbose: bool) -> None:
    tell_state(group)
    coordinator = f"{group.coordinator.address} ({group.coordinator.id})"
    header = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "GROUP-EPOCH")
    row = (group.group, coordinator, group.assignor or MISSING, group.state, _or_missing(group.epoch))
    hidden = () if verbose else (4, 5)
    rows = [
        (*header, "TARGET-ASSIGNMENT-EPOCH", "#MEMBERS"),
        (*row, _or_missing(group.target_epoch), str(len(group.members))),
    ]
    print_rows(rows, (25, 25, 20, 20, 15, 25, 0), hidden)


def print_rows(rows: Sequence[Sequence[str]], least: Sequence[int], hidden: Sequence[int] | set[int]) -> None:
    """An empty line before, and each column as wide as its widest value."""
    shown = [number for number in range(len(least)) if number not in hidden]
    widths = {number: max(least[number], *(len(row[number]) for row in rows)) for number in shown}
    print_line()
    for row in rows:
        print_line(" ".join(f"{row[number]:<{widths[number]}}" for number in shown).rstrip())


# Changing


def delete(cluster: Access, given: Given) -> None:
    outcomes = delete_groups(cluster, chosen_groups(cluster, given))
    done = [f"'{name}'" for name, refusal in outcomes.items() if refusal is None]
    failed = {name: refusal for name, refusal in outcomes.items() if refusal is not None}
    if failed:
        print_error("Deletion of some consumer groups failed:")
        for name, refusal in failed.items():
            print_line(f"* Group '{name}' could not be deleted due to: {said(refusal)}")
        if done:
            print_line(f"\nThese consumer groups were deleted successfully: {', '.join(done)}")
    else:
        print_line(f"Deletion of requested consumer groups ({', '.join(done)}) was successful.")


def delete_some(cluster: Access, given: Given) -> None:
    group = given.text("group") or ""
    places = named_places(cluster, given.values("topic"))
    try:
        outcomes = delete_offsets(cluster, group, places)
    except Refused as error:
        print_error(f"Encountered an unknown error: {said(error)}")
        return
    print_line("Request succeed for deleting offsets from group " + group + ".")
    print_line(f"\n{'TOPIC':<30} {'PARTITION':<15} {'STATUS':<15}")
    for place, failure in sorted(outcomes.items()):
        status = "Successful" if failure is None else f"Error: {failure}"
        print_line(f"{place.topic:<30} {place.partition:<15} {status:<15}".rstrip())


def reset(cluster: Access, given: Given) -> None:
    plans = {name: planned(cluster, given, name) for name in chosen_groups(cluster, given)}
    for name, offsets in plans.items():
        if given.has("execute") and offsets:
            commit_offsets(cluster, name, offsets)
    if given.has("export"):
        writer = csv.writer(sys.stdout, lineterminator="\n")
        for name, offsets in plans.items():
            for place, offset in offsets.items():
                writer.writerow([*([name] if len(plans) > 1 else []), *place, offset])
        return
    if any(plans.values()):
        print_line(f"\n{'GROUP':<30} {'TOPIC':<30} {'PARTITION':<10} {'NEW-OFFSET':<15}".rstrip())
    for name, offsets in plans.items():
        for place, offset in sorted(offsets.items()):
            print_line(f"{name:<30} {place.topic:<30} {place.partition:<10} {offset:<15}".rstrip())


def planned(cluster: Access, given: Given, name: str) -> dict[Place, int]:
    """The new offsets of a group; none, and a word about it, if it has members."""
    try:
        group = describe_group(cluster, name)
    except Refused as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
    else:
        if group.state not in ("Empty", "Dead"):
            print_error(
                f"Assignments can only be reset if the group '{name}' is inactive, but the current state is "
                f"{group.state}."
            )
            return {}
    positions = {place: one.offset for place, one in committed(cluster, name).items()}
    wanted = from_file(given, name) if given.has("from-file") else None
    if wanted is not None:
        places = sorted(wanted)
    elif given.has("topic"):
        places = named_places(cluster, given.values("topic"))
    else:
        places = sorted(positions)
    plan = plan_reset(cluster, target_of(given), places, positions)
    for warning in plan.warnings:
        warn(warning)
    moves = {Place(one.topic, one.partition): one.new_offset for one in plan.moves}
    return {place: wanted[place] for place in moves} if wanted is not None else moves


def target_of(given: Given) -> Target:
    if given.has("to-datetime"):
        return Target(time_ms=datetime_ms(given.text("to-datetime") or ""))
    if given.has("by-duration"):
        return Target(time_ms=time.time_ns() // 1_000_000 - duration_ms(given.text("by-duration") or ""))
    return Target(
        earliest=given.has("to-earliest"),
        latest=given.has("to-latest"),
        current=given.has("to-current") or given.has("from-file"),
        offset=given.number("to-offset"),
        shift=given.number("shift-by"),
    )


def datetime_ms(text: str) -> int:
    """Read a date and time, in UTC unless it names a zone."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise Exit(1, f"Unparseable date: {text!r}") from None
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)


def duration_ms(text: str) -> int:
    parts = DURATION.fullmatch(text)
    if parts is None or not any(parts.groups()):
        raise Exit(1, f"Text cannot be parsed to a Duration: {text}")
    days, hours, minutes, seconds = (float(part or 0) for part in parts.groups())
    return round(((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1000)


def from_file(given: Given, name: str) -> dict[Place, int]:
    """Read lines of topic,partition,offset, or with several groups group,topic,partition,offset."""
    file = Path(given.text("from-file") or "")
    found: dict[Place, int] = {}
    try:
        for row in csv.reader(file.read_text("utf-8").splitlines()):
            *group, topic, partition, offset = row
            if not group or group == [name]:
                found[Place(topic, int(partition))] = int(offset)
    except (OSError, ValueError) as error:
        raise Exit(1, f"{file}: {error}") from None
    return found
