"""ListGroups, DescribeGroups and DeleteGroups, for the groups of one shard."""

from __future__ import annotations

from odradek.coordinators.classic.group import ClassicGroup, Member, State
from odradek.coordinators.group import Group
from odradek.coordinators.offsets import Offsets
from odradek.coordinators.runtime import Decision, Token
from odradek.errors import ErrorCode, KafkaError
from odradek.model import Caller
from odradek.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from odradek.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from odradek.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from odradek.wording import shown

GROUP_ID_NOT_FOUND_SINCE = 6  # DescribeGroups; before, an unknown group is a Dead one


class Administration:
    def __init__(self, groups: dict[str, Group], offsets: Offsets) -> None:
        self._groups = groups
        self._offsets = offsets

    def list(
        self, request: ListGroupsRequest, version: int, caller: Caller, token: Token, now_ms: int
    ) -> Decision:
        states = {state.lower() for state in request.states_filter}
        types = {name.lower() for name in request.types_filter}
        listed = [
            ListedGroup(group.group_id, group.protocol_type, group.state_name, group.type.value)
            for group in self._groups.values()
            if (not states or group.state_name.lower() in states) and (not types or group.type.value in types)
        ]
        return Decision(responses=[(token, ListGroupsResponse(groups=listed))])

    # --- DescribeGroups ---

    def describe(
        self, request: DescribeGroupsRequest, version: int, caller: Caller, token: Token, now_ms: int
    ) -> Decision:
        described = [self._describe(group_id, version) for group_id in request.groups]
        return Decision(responses=[(token, DescribeGroupsResponse(groups=described))])

    def _describe(self, group_id: str, api_version: int) -> DescribedGroup:
        group = self._groups.get(group_id)
        if isinstance(group, ClassicGroup):
            return _described(group)
        dead = DescribedGroup(group_id=group_id, group_state=State.DEAD.value)
        if api_version >= GROUP_ID_NOT_FOUND_SINCE:
            dead.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            what = "not found" if group is None else "is not a classic group"
            dead.error_message = f"Group {group_id} {what}."
        return dead

    # --- DeleteGroups ---

    def delete(
        self, request: DeleteGroupsRequest, version: int, caller: Caller, token: Token, now_ms: int
    ) -> Decision:
        decision = Decision()
        results = [
            DeletableGroupResult(group_id, self._delete(group_id, caller, decision))
            for group_id in request.groups_names
        ]
        decision.responses.append((token, DeleteGroupsResponse(results=results)))
        return decision

    def _delete(self, group_id: str, caller: Caller, decision: Decision) -> ErrorCode:
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        try:
            group.check_delete()
        except KafkaError as error:
            return error.code
        decision.records += self._offsets.tombstones(group_id)
        decision.records += group.tombstones()
        who = f"{caller.host} (client {shown(caller.client_id)})"
        decision.note(group_id, f"deleted by {who}, with its offsets")
        return ErrorCode.NONE


def _described(group: ClassicGroup) -> DescribedGroup:
    """Subscriptions are only shown once the members agree on a protocol and on their assignment."""
    protocol = (group.protocol or "") if group.state is State.STABLE else None
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        protocol_type=group.protocol_type,
        protocol_data=protocol or "",
        members=[_described_member(member, protocol) for member in group.members.values()],
    )


def _described_member(member: Member, protocol: str | None) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.protocols.get(protocol, b"") if protocol is not None else b"",
        member_assignment=member.assignment,
    )
