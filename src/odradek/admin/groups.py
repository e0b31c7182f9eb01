"""Consumer groups: listed, described with members and lag, deleted. Groups of both protocols, classic and KIP-848."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from odradek.admin.access import Access, Address
from odradek.admin.failures import AdminError, NoContact, Refused, check
from odradek.admin.metadata import broker_addresses
from odradek.admin.offsets import committed_offsets, end_offsets
from odradek.admin.places import Place
from odradek.admin.requests import Node, ask, ask_coordinator, coordinator_of, retried
from odradek.errors import ErrorCode
from odradek.wire.codec import read_message
from odradek.wire.messages import consumer_group_describe as modern
from odradek.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from odradek.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from odradek.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from odradek.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse

CONSUMER, CLASSIC = "Consumer", "Classic"
CONSUMER_PROTOCOL = "consumer"  # the protocol type of classic groups of consumers
DEAD = "Dead"


@dataclass(frozen=True)
class ListedGroup:
    group: str
    type: str  # Classic, Consumer, Share … or Unknown, where an older broker does not say
    state: str
    protocol: str  # "consumer" for groups of consumers, empty for simple ones


@dataclass(frozen=True)
class Listing:
    groups: list[ListedGroup]
    failures: list[str]  # brokers that did not respond


@dataclass(frozen=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[Place]
    target: list[Place] | None = None  # where it is going; the rest is known of KIP-848 groups only
    epoch: int | None = None
    is_classic: bool | None = None


@dataclass(frozen=True)
class Group:
    group: str
    type: str
    state: str
    assignor: str
    protocol: str
    coordinator: Node
    members: list[Member]
    epoch: int | None = None  # of KIP-848 groups
    target_epoch: int | None = None


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
    """A group with its lag; the fields are those of the JSON output of `odradek group describe`."""

    group: str
    type: str
    state: str
    assignor: str
    coordinator: str
    total_lag: int | None  # None where no partition's lag is known
    members: list[MemberView]
    partitions: list[PartitionView]


# Listing


def list_groups(cluster: Access, states: Collection[str] = (), types: Collection[str] = ()) -> Listing:
    """List the groups of all brokers, in these states and of these types, or of any."""
    request = ListGroupsRequest(sorted(states), sorted(one.lower() for one in types))
    found, failures = {}, []
    for address in broker_addresses(cluster).values():
        try:
            response = retried(partial(_listed, cluster, address, request))
        except (NoContact, Refused) as error:
            failures.append(str(error))
            continue
        for one in response.groups:
            kind = one.group_type.capitalize() or "Unknown"
            group = ListedGroup(one.group_id, kind, one.group_state or "Unknown", one.protocol_type)
            if (not states or group.state in states) and (not types or group.type in types):
                found[one.group_id] = group
    return Listing([found[name] for name in sorted(found)], failures)


def _listed(cluster: Access, address: Address, request: ListGroupsRequest) -> ListGroupsResponse:
    response = ask(cluster, address, request, ListGroupsResponse)
    check(response.error_code, None, str(address))
    return response


def group_names(cluster: Access) -> list[str]:
    return [one.group for one in list_groups(cluster).groups]


# Describing


def describe_group(cluster: Access, name: str) -> Group:
    """A group of either protocol. Raises Refused for one that does not exist."""

    def attempt() -> Group:
        return describe_group_at(cluster, coordinator_of(cluster, name), name)

    return retried(attempt)


def describe_group_at(cluster: Access, coordinator: Node, name: str) -> Group:
    """The same at a coordinator that is known, without a second try."""
    return _describe_modern(cluster, coordinator, name) or _describe_classic(cluster, coordinator, name)


def _describe_modern(cluster: Access, coordinator: Node, name: str) -> Group | None:
    """Describe a group of KIP-848; None if it is not one, or brokers do not know that protocol."""
    request = modern.ConsumerGroupDescribeRequest([name])
    try:
        response = ask(cluster, coordinator.address, request, modern.ConsumerGroupDescribeResponse)
    except NoContact as error:
        if "ConsumerGroupDescribe" in str(error):
            return None
        raise
    (found,) = response.groups
    if found.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    check(found.error_code, found.error_message, name)
    members = [
        Member(
            one.member_id,
            one.instance_id,
            one.client_id,
            one.client_host,
            _places(one.assignment),
            _places(one.target_assignment),
            one.member_epoch,
            None if one.member_type < 0 else one.member_type == 0,
        )
        for one in sorted(found.members, key=lambda one: one.member_id)
    ]
    return Group(
        *(name, CONSUMER, found.group_state, found.assignor_name, CONSUMER_PROTOCOL, coordinator, members),
        epoch=found.group_epoch,
        target_epoch=found.assignment_epoch,
    )


def _places(assignment: modern.Assignment) -> list[Place]:
    return sorted(
        Place(topic.topic_name, one) for topic in assignment.topic_partitions for one in topic.partitions
    )


def _describe_classic(cluster: Access, coordinator: Node, name: str) -> Group:
    response = ask(cluster, coordinator.address, DescribeGroupsRequest([name]), DescribeGroupsResponse)
    (found,) = response.groups
    check(found.error_code, found.error_message, name)
    if found.group_state == DEAD:
        check(ErrorCode.GROUP_ID_NOT_FOUND, None, name)
    members = [
        Member(one.member_id, one.group_instance_id, one.client_id, one.client_host, _assigned(found, one))
        for one in sorted(found.members, key=lambda one: one.member_id)
    ]
    return Group(
        name, CLASSIC, found.group_state, found.protocol_data, found.protocol_type, coordinator, members
    )


def _assigned(group: DescribedGroup, member: DescribedGroupMember) -> list[Place]:
    """The partitions of a member of a classic group, if it is a consumer: to brokers, that is a string of bytes."""
    data = memoryview(member.member_assignment)
    if group.protocol_type != CONSUMER_PROTOCOL or len(data) < 2:
        return []
    version = min(int.from_bytes(data[:2], "big"), ConsumerProtocolAssignment.MAX_VERSION)
    try:
        assignment, _ = read_message(ConsumerProtocolAssignment, version, data, 2)
    except Exception:  # another client's bytes: it may have written anything
        return []
    return sorted(
        Place(topic.topic, one) for topic in assignment.assigned_partitions for one in topic.partitions
    )


def view_groups(cluster: Access, names: Sequence[str]) -> list[GroupView]:
    """View each group once; a group that does not exist is the failure of the whole."""
    names = list(dict.fromkeys(names))
    groups = [describe_group(cluster, name) for name in names]
    committed = [committed_offsets(cluster, name) for name in names]
    held = {place for group in groups for member in group.members for place in member.partitions}
    ends = end_offsets(cluster, held.union(*committed)) if groups else {}
    return [
        _view(group, _partitions(group.members, offsets, ends))
        for group, offsets in zip(groups, committed, strict=True)
    ]


def _view(group: Group, partitions: list[PartitionView]) -> GroupView:
    known = [partition.lag for partition in partitions if partition.lag is not None]
    members = [
        MemberView(one.member_id, one.instance_id, one.client_id, one.host, one.partitions)
        for one in group.members
    ]
    return GroupView(
        group=group.group,
        type=group.type,
        state=group.state,
        assignor=group.assignor,
        coordinator=f"{group.coordinator.address} ({group.coordinator.id})",
        total_lag=sum(known) if known else None,
        members=members,
        partitions=partitions,
    )


def _partitions(
    members: Sequence[Member], committed: dict[Place, int], ends: dict[Place, int]
) -> list[PartitionView]:
    owners = {place: member for member in members for place in member.partitions}
    views = []
    for place in sorted({*owners, *committed}):
        owner, current, end = owners.get(place), committed.get(place), ends.get(place)
        lag = None if current is None or end is None else end - current
        who = (owner.member_id, owner.host, owner.client_id) if owner else (None, None, None)
        views.append(PartitionView(place.topic, place.partition, current, end, lag, *who))
    return views


# Changing


def delete_groups(cluster: Access, names: Iterable[str]) -> dict[str, Refused | None]:
    """Delete groups with their offsets; for each None, or why it was refused."""
    outcomes: dict[str, Refused | None] = {}
    for name in dict.fromkeys(names):
        try:
            response = ask_coordinator(
                cluster, name, DeleteGroupsRequest([name]), DeleteGroupsResponse, _first_code
            )
            check(_first_code(response), None, name)
            outcomes[name] = None
        except Refused as error:
            outcomes[name] = error
    return outcomes


def _first_code(response: DeleteGroupsResponse) -> int:
    return response.results[0].error_code


def check_no_members(cluster: Access, name: str) -> None:
    """Raise AdminError if a group has members. One that does not exist yet has none: offsets may be set before its
    first member joins."""
    try:
        count = len(describe_group(cluster, name).members)
    except Refused as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return
    if count:
        raise AdminError(
            f"{name} has {count} active member{'' if count == 1 else 's'}: stop {'it' if count == 1 else 'them'} "
            f"before you reset offsets (see 'odradek group describe {name} --members')"
        )
