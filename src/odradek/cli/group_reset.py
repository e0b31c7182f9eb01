"""`odradek group reset-offsets`: move a group's offsets, to read records again or to skip them.

It makes a plan first: the partitions, and the new offset of each, kept within the log. It prints the plan, and stops
there unless `--execute` is given.

Brokers accept offsets from outside a group only while it has no members: a member knows its own position, and would
commit over them.
"""

import re
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from odradek.admin.access import Access
from odradek.admin.message_text import TIME_UNITS_MS
from odradek.cli.arguments import MOST_OFFSET, JsonOutput, TopicsAndPartitions, time_ms_of
from odradek.cli.completion import complete_groups
from odradek.cli.failures import CommandError
from odradek.cli.framework import Argument, BadParameter, Option
from odradek.cli.output import note, print_columns, print_json, warn

if TYPE_CHECKING:
    from odradek.admin.offset_reset import Move

ISO_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)
SHORT_DURATION = re.compile(r"(\d+)(ms|s|m|h|d)")


def time_before(duration: str) -> int:
    return max(round(time.time() * 1000) - duration_ms(duration), 0)


def duration_ms(text: str) -> int:
    """Read an ISO 8601 duration, as Kafka's tool takes it (P1DT2H), or a short one like 90s, in milliseconds."""
    if short := SHORT_DURATION.fullmatch(text):
        return int(short[1]) * TIME_UNITS_MS[short[2]]
    parts = ISO_DURATION.fullmatch(text)
    if parts is None or not any(parts.groups()):
        raise BadParameter(f"{text!r} is not a duration: give one like P1DT2H or 90s")
    days, hours, minutes, seconds = (float(part or 0) for part in parts.groups())
    return round(((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1000)


GroupName = Annotated[str | None, Argument(metavar="GROUP", complete=complete_groups)]
AllTopics = Annotated[
    bool, Option("--all-topics", help="All topics that the group has committed offsets for.")
]
ToEarliest = Annotated[bool, Option("--to-earliest", help="To the first record.")]
ToLatest = Annotated[bool, Option("--to-latest", help="To the end of the log.")]
ToCurrent = Annotated[bool, Option("--to-current", help="To the offsets that the group has committed.")]
ToOffset = Annotated[int | None, Option("--to-offset", min=0, max=MOST_OFFSET, help="To this offset.")]
ToTime = Annotated[
    int | None,
    Option(
        *("--to-datetime", "--to-timestamp"),
        parser=time_ms_of,
        metavar="TIME",
        help="To the first record of that time or later: ISO 8601, milliseconds, or one like -1h.",
    ),
]
ByDuration = Annotated[
    int | None,
    Option("--by-duration", parser=time_before, metavar="DURATION", help="To this long ago: P1DT2H, or 90s."),
]
ShiftBy = Annotated[
    int | None,
    Option("--shift-by", min=-MOST_OFFSET, max=MOST_OFFSET, help="By this many records, back if negative."),
]
Execute = Annotated[bool, Option("--execute/--dry-run", help="Do it, or only show what would be done.")]


def reset_offsets(
    cluster: Access,
    name: GroupName = None,
    topic: TopicsAndPartitions = None,
    all_topics: AllTopics = False,
    to_earliest: ToEarliest = False,
    to_latest: ToLatest = False,
    to_current: ToCurrent = False,
    to_offset: ToOffset = None,
    to_time: ToTime = None,
    by_duration: ByDuration = None,
    shift_by: ShiftBy = None,
    execute: Execute = False,
    as_json: JsonOutput = False,
    group: Annotated[str | None, Option("--group", hidden=True)] = None,
) -> None:
    """Set the offsets of a group without members. Shows what it would do; --execute does it."""
    name = name or group
    if not name:
        raise BadParameter("name a group", param_hint="GROUP")
    if bool(topic) == all_topics:
        raise BadParameter("give either --topic or --all-topics")
    if to_time is not None and by_duration is not None:
        raise BadParameter("give either --to-datetime or --by-duration")
    from odradek.admin.groups import check_no_members
    from odradek.admin.offset_reset import Target, plan_reset
    from odradek.admin.offsets import commit_offsets, committed_offsets, named_places
    from odradek.admin.places import Place

    time_ms = by_duration if to_time is None else to_time
    target = Target(to_earliest, to_latest, to_current, to_offset, shift_by, time_ms)
    if target.count != 1:
        raise BadParameter(
            "give exactly one of --to-earliest, --to-latest, --to-current, --to-offset, --to-datetime, "
            "--by-duration or --shift-by"
        )
    check_no_members(cluster, name)
    committed = committed_offsets(cluster, name)
    places = named_places(cluster, topic) if topic else sorted(committed)
    if not places:
        raise CommandError(f"{name} has committed no offsets: name topics with --topic")
    plan = plan_reset(cluster, target, places, committed)
    for warning in plan.warnings:
        warn(warning)
    moves = plan.moves
    if execute:
        commit_offsets(cluster, name, {Place(one.topic, one.partition): one.new_offset for one in moves})
    show_moves(name, moves, execute, as_json)


def show_moves(name: str, moves: "Sequence[Move]", executed: bool, as_json: bool) -> None:
    if as_json:
        facts = {"group": name, "executed": executed, "partitions": [asdict(move) for move in moves]}
        print_json(facts)
        return
    rows = [(name, *asdict(move).values()) for move in moves]
    print_columns(("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"), rows)
    if not executed:
        note("nothing was changed: add --execute to do it")
