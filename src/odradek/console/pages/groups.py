"""Groups: found, described with members and lag, their offsets reset after a preview, deleted.

The name of a group may contain anything, a slash too, so it is never part of a path.
"""

import time
from dataclasses import dataclass
from typing import Any

from odradek.admin.failures import AdminError, BadRequest
from odradek.admin.groups import GroupView, MemberView, check_no_members, delete_groups, view_groups
from odradek.admin.message_text import parse_time_ms
from odradek.admin.offset_reset import Move, Plan, Target, plan_reset
from odradek.admin.offsets import commit_offsets, committed_offsets, named_places
from odradek.admin.places import Place
from odradek.console.paging import cut
from odradek.console.registry import Action, Page
from odradek.console.requests import Ask, doc
from odradek.console.users import Role
from odradek.console.watch.lag import LagHistory, caught_up_in_s
from odradek.console.watch.seen import GroupSeen, Seen
from odradek.wording import count_of

PAGE_SIZE = 50
PARTITIONS_SHOWN = 300
SHARE = "Share"


@dataclass(frozen=True)
class GroupsQuery:
    search: str = doc("Only groups whose names contain this.", "")
    sort: str = doc("group, lag, state or type; with - before it, the largest first.", "-lag")
    page: int = doc("From 1; a page has 50 groups.", 1)


@dataclass(frozen=True)
class GroupList:
    groups: list[GroupSeen]
    count: int  # that match
    total: int
    is_known: bool
    page: int
    pages: int
    query: GroupsQuery


SORTS: dict[str, Any] = {
    "group": lambda one: one.group,
    "lag": lambda one: -1 if one.lag is None else one.lag,
    "state": lambda one: one.state,
    "type": lambda one: one.type,
}


def list_view(ask: Ask) -> GroupList:
    return find_groups(ask.cluster.seen, ask.query)


def find_groups(seen: Seen, query: GroupsQuery) -> GroupList:
    """Search what was seen last: typing in the search asks nothing of the cluster."""
    name = query.sort.removeprefix("-")
    if name not in SORTS:
        raise BadRequest(f"sort by {', '.join(SORTS)}")
    there = list((seen.groups or {}).values())
    wanted = query.search.strip().lower()
    found = [one for one in there if wanted in one.group.lower()] if wanted else there
    found.sort(key=SORTS[name], reverse=query.sort.startswith("-"))
    shown, page, pages = cut(found, query.page, PAGE_SIZE)
    return GroupList(shown, len(found), len(there), seen.groups is not None, page, pages, query)


# One group


@dataclass(frozen=True)
class GroupQuery:
    name: str = doc("The name of the group.")


@dataclass(frozen=True)
class PartitionRow:
    topic: str
    partition: int
    current_offset: int | None
    log_end_offset: int | None
    lag: int | None
    reader: str | None
    history: list[int]  # of the lag, the oldest first


@dataclass(frozen=True)
class GroupPage:
    group: str
    type: str
    state: str
    assignor: str
    coordinator: str
    total_lag: int | None
    caught_up_in_s: float | None
    is_trend_known: bool
    history: list[int]
    members: list[MemberView]
    partitions: list[PartitionRow]
    partition_count: int
    topics: list[str]
    is_share: bool


def group_view(ask: Ask) -> GroupPage:
    name = ask.query.name
    seen = (ask.cluster.seen.groups or {}).get(name)
    if seen is not None and seen.type == SHARE:
        return _share_group(seen)
    (found,) = ask.recent(f"group {name}", lambda access: view_groups(access, [name]))
    lags = {Place(one.topic, one.partition): one.lag for one in found.partitions if one.lag is not None}
    return _group_page(found, ask.cluster.lags.note(name, lags, time.monotonic()))


def _group_page(found: GroupView, history: LagHistory) -> GroupPage:
    points = history.total()
    rows = [
        PartitionRow(
            *(one.topic, one.partition, one.current_offset, one.log_end_offset, one.lag),
            one.client_id,
            list(history.lags.get(Place(one.topic, one.partition), ())),
        )
        for one in found.partitions
    ]
    rows.sort(key=lambda row: (-(row.lag or 0), row.topic, row.partition))
    return GroupPage(
        *(found.group, found.type, found.state, found.assignor, found.coordinator, found.total_lag),
        caught_up_in_s(points),
        len(points) > 1,
        [lag for _, lag in points],
        found.members,
        rows[:PARTITIONS_SHOWN],
        len(rows),
        sorted({row.topic for row in rows}),
        is_share=False,
    )


def _share_group(seen: GroupSeen) -> GroupPage:
    """Share groups have no offsets of this kind; their name and state are what can be told."""
    coordinator = f"broker {seen.coordinator}"
    return GroupPage(
        *(seen.group, seen.type, seen.state, "", coordinator, None, None, False, [], [], [], 0, []),
        is_share=True,
    )


# Changes


@dataclass(frozen=True)
class ResetBody:
    group: str = doc("The name of the group.")
    to: str = doc("earliest, latest, offset, shift or time.")
    value: str = doc("The offset, how many records to shift by, or the time.", "")
    topics: list[str] = doc("topic or topic:0,1,2; without any, all that the group has committed.", [])
    expected: dict[str, int] = doc(
        "The offsets that the preview showed, by partition as in orders-0: if they have changed since, nothing is set.",
        {},
    )


@dataclass(frozen=True)
class ResetOutcome:
    group: str
    moves: list[Move]
    warnings: list[str]
    said: str


def target_of(body: ResetBody) -> Target:
    value = body.value.strip()
    match body.to:
        case "earliest":
            return Target(earliest=True)
        case "latest":
            return Target(latest=True)
        case "offset":
            return Target(offset=_whole_number(value, 0))
        case "shift":
            return Target(shift=_whole_number(value, None))
        case "time":
            try:
                return Target(time_ms=parse_time_ms(value, time.time_ns() // 1_000_000))
            except ValueError as error:
                raise BadRequest(str(error)) from None
    raise BadRequest("move offsets to: earliest, latest, offset, shift or time")


def _whole_number(text: str, least: int | None) -> int:
    try:
        number = int(text)
    except ValueError:
        raise BadRequest(f"{text!r} is not a whole number") from None
    if (least is not None and number < least) or abs(number) >= 2**63:
        raise BadRequest(f"{number} is not an offset")
    return number


def _plan(ask: Ask) -> Plan:
    body: ResetBody = ask.body
    access = ask.access()
    if not body.group:
        raise BadRequest("name a group")
    check_no_members(access, body.group)
    committed = committed_offsets(access, body.group)
    places = named_places(access, body.topics) if body.topics else sorted(committed)
    if not places:
        raise BadRequest(f"{body.group} has committed no offsets: name topics")
    return plan_reset(access, target_of(body), places, committed)


def preview(ask: Ask) -> ResetOutcome:
    plan = _plan(ask)
    return ResetOutcome(ask.body.group, plan.moves, plan.warnings, "Nothing was changed yet.")


def reset(ask: Ask) -> ResetOutcome:
    plan, body = _plan(ask), ask.body
    check_expected(plan.moves, body.expected)
    offsets = {Place(one.topic, one.partition): one.new_offset for one in plan.moves}
    commit_offsets(ask.access(), body.group, offsets)
    said = f"Set the offsets of {body.group} in {count_of(len(offsets), 'partition')}."
    return ResetOutcome(body.group, plan.moves, plan.warnings, said)


def check_expected(moves: list[Move], expected: dict[str, int]) -> None:
    """Two people may edit the same offsets: the second is told that the first was there."""
    for move in moves:
        name = f"{move.topic}-{move.partition}"
        if name in expected and expected[name] != move.current_offset:
            raise AdminError(
                f"{name} was at {expected[name]} and is at {move.current_offset} now: somebody else has moved it; "
                "look at a new preview"
            )


@dataclass(frozen=True)
class DeleteGroupBody:
    group: str = doc("The name of the group.")
    confirm: str = doc("The name once more.")


def delete(ask: Ask) -> dict[str, str]:
    name = ask.body.group
    if ask.body.confirm != name:
        raise BadRequest(f"type the name of the group, {name}, to delete it with its offsets")
    for refusal in delete_groups(ask.access(), [name]).values():
        if refusal is not None:
            raise refusal
    return {"said": f"Deleted group {name}."}


PAGES = [
    Page(
        path="groups",
        title="Groups",
        view=list_view,
        template="groups.html",
        summary="List groups with state and lag, a page of them, from what was seen last.",
        query=GroupsQuery,
        nav="Groups",
        live_template="groups_live.html",
        parts=("groups",),
        script="list.js",
    ),
    Page(
        path="group",
        title="Group",
        view=group_view,
        template="group.html",
        summary="Describe a group: members, assignments, lag by partition and over time.",
        query=GroupQuery,
        live_template="group_live.html",
        parts=("groups",),
        script="group.js",
    ),
]
ACTIONS = [
    Action(
        *("POST", "group/offsets/preview", "Show where offsets would go.", preview, Role.EDITOR),
        body=ResetBody,
        is_audited=False,
    ),
    Action(
        *("POST", "group/offsets", "Reset offsets of a group.", reset, Role.EDITOR),
        body=ResetBody,
        target=lambda ask: f"{ask.body.group} to {ask.body.to} {ask.body.value}".strip(),
        refreshes=("groups",),
    ),
    Action(
        *("DELETE", "group", "Delete a group.", delete, Role.ADMIN),
        body=DeleteGroupBody,
        target=lambda ask: ask.body.group,
        refreshes=("groups",),
    ),
]
