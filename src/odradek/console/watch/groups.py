"""Groups and their lag. A broker lists the groups that it coordinates, and is then asked for their offsets, many groups
in one request."""

from collections.abc import Iterator, Mapping, Sequence

from odradek.admin.access import Access, Address
from odradek.admin.failures import AdminError, NoContact
from odradek.admin.offsets import committed_offsets
from odradek.admin.places import Place
from odradek.admin.requests import ask
from odradek.console.watch.seen import GroupSeen, Offsets
from odradek.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

GROUPS_AT_ONCE = 200
SEVERAL_GROUPS_SINCE = 8  # OffsetFetch
POINTS_KEPT = 60
SHARE = "Share"


def ask_groups(
    access: Access, brokers: Mapping[int, Address], ends: Offsets | None, before: Mapping[str, GroupSeen]
) -> dict[str, GroupSeen]:
    found: dict[str, GroupSeen] = {}
    for broker, address in brokers.items():
        try:
            response = ask(access, address, ListGroupsRequest([], []), ListGroupsResponse)
        except NoContact:
            continue
        names = [one.group_id for one in response.groups if one.group_type.capitalize() != SHARE]
        committed = dict(committed_on(access, address, names))
        for one in response.groups:
            offsets = committed.get(one.group_id, {})
            lag = lag_of(offsets, ends)
            found[one.group_id] = GroupSeen(
                one.group_id,
                one.group_type.capitalize() or "Unknown",
                one.group_state or "Unknown",
                one.protocol_type,
                broker,
                lag,
                tuple(sorted({place.topic for place in offsets})),
                _history(before.get(one.group_id), lag),
            )
    return dict(sorted(found.items()))


def lag_of(committed: Mapping[Place, int], ends: Offsets | None) -> int | None:
    if ends is None:
        return None
    behind = [
        max(end - offset, 0) for place, offset in committed.items() if (end := ends.end_of(place)) is not None
    ]
    return sum(behind) if behind else None


def _history(before: GroupSeen | None, lag: int | None) -> tuple[int, ...]:
    points = before.history if before is not None else ()
    return points if lag is None else (*points, lag)[-POINTS_KEPT:]


def committed_on(
    access: Access, address: Address, names: Sequence[str]
) -> Iterator[tuple[str, dict[Place, int]]]:
    """Offsets of groups that one broker coordinates."""
    for at in range(0, len(names), GROUPS_AT_ONCE):
        some = names[at : at + GROUPS_AT_ONCE]
        request = OffsetFetchRequest([OffsetFetchRequestGroup(name, topics=None) for name in some])
        try:
            response = ask(access, address, request, OffsetFetchResponse, SEVERAL_GROUPS_SINCE)
        except NoContact:
            return
        except AdminError:  # an older broker takes one group in a request
            yield from ((name, committed_offsets(access, name)) for name in some)
            continue
        for group in response.groups:
            yield (
                group.group_id,
                {
                    Place(topic.name, one.partition_index): one.committed_offset
                    for topic in group.topics
                    for one in topic.partitions
                    if one.committed_offset >= 0
                },
            )
