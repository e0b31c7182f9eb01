"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of members that use the classic protocol in a consumer
group.

While a group migrates, old clients share it with new ones. They do not notice: their generation is their
member epoch, none of them is the leader, and their assignment comes from the coordinator. What a
new client does in one heartbeat takes them a round of three requests:

* a Heartbeat gets REBALANCE_IN_PROGRESS when there is something to catch up with: a new epoch,
  partitions to give up, or partitions that have become free;
* JoinGroup names what they still own (nothing, if they rebalance eagerly), and takes them one step towards
  their target;
* SyncGroup tells them their partitions.

Two more timers enforce this: JoinGroup must follow a REBALANCE_IN_PROGRESS, and SyncGroup a JoinGroup, within
the rebalance timeout.
"""

from collections.abc import Sequence
from dataclasses import replace

from odradek.coordinators.classic.members import because
from odradek.coordinators.consumer.chronicle import step_notes
from odradek.coordinators.consumer.draft import Draft
from odradek.coordinators.consumer.embedded_protocol import (
    named_by_id,
    read_subscription,
    write_assignment,
)
from odradek.coordinators.consumer.group import ConsumerGroup
from odradek.coordinators.consumer.heartbeat import ConsumerGroups, check_instance, replace_static
from odradek.coordinators.consumer.member import ClassicMember, ClassicProtocol, Member, MemberState
from odradek.coordinators.consumer.topics import subscription_of
from odradek.coordinators.group import CONSUMER_PROTOCOL
from odradek.coordinators.runtime import Decision, Token
from odradek.errors import ErrorCode, KafkaError
from odradek.model import Caller
from odradek.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from odradek.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

MEMBER_ID_REQUIRED_SINCE = 4
MANY_LEAVERS_SINCE = 3


class ClassicMembers:
    """Handlers for groups that are consumer groups and not empty."""

    def __init__(self, consumer_groups: ConsumerGroups) -> None:
        self._consumer_groups = consumer_groups

    # --- JoinGroup ---

    def join(
        self, request: JoinGroupRequest, version: int, caller: Caller, token: Token, now_ms: int
    ) -> Decision:
        self._check_join(request)
        group = self._consumer_groups.existing(request.group_id)
        member_id = request.member_id or self._consumer_groups.new_member_id()
        self._consumer_groups.check_size(group, member_id)
        _check_protocols(group, request)
        is_newcomer = not request.member_id and request.group_instance_id is None
        if is_newcomer and version >= MEMBER_ID_REQUIRED_SINCE:
            come_again = JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
            return Decision(responses=[(token, come_again)])
        subscription = read_subscription(request.protocols[0].metadata)
        draft = Draft(group, self._consumer_groups.topics, now_ms)
        member = _find_member(draft, request, member_id)
        updated = _updated(member, request, version, caller, subscription)
        self._consumer_groups.update(draft, member, updated)
        stepped = draft.reconcile(updated, named_by_id(subscription.owned_partitions, draft.image))
        self._await_sync(group.group_id, stepped, now_ms)
        response = _join_response(stepped, request.protocols[0].name)
        notes = step_notes(draft, member, updated, stepped, request.session_timeout_ms)
        return Decision(draft.records, [(token, response)], notes=notes)

    def _check_join(self, request: JoinGroupRequest) -> None:
        settings = self._consumer_groups.settings
        lowest, highest = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
        if not lowest <= request.session_timeout_ms <= highest:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT, "The session timeout is out of range.")

    def _await_sync(self, group_id: str, member: Member, now_ms: int) -> None:
        self._consumer_groups.timers.cancel(("join", group_id, member.member_id))
        self._consumer_groups.start_session_of(group_id, member, now_ms)
        self._consumer_groups.fence_at(
            ("sync", group_id, member.member_id), now_ms + member.rebalance_timeout_ms
        )

    # --- SyncGroup ---

    def sync(
        self, request: SyncGroupRequest, version: int, caller: Caller, token: Token, now_ms: int
    ) -> Decision:
        group = self._consumer_groups.existing(request.group_id)
        member, classic = _known_member(
            group, request.member_id, request.group_instance_id, request.generation_id
        )
        protocol = classic.protocols[0]
        _check_same(request.protocol_type, CONSUMER_PROTOCOL)
        _check_same(request.protocol_name, protocol.name)
        # A member that still has to give up partitions has joined for this rebalance: it may continue and do so.
        if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._call_to_join(group.group_id, member, now_ms)
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "The member has to join again.")
        self._consumer_groups.timers.cancel(("sync", group.group_id, member.member_id))
        self._consumer_groups.start_session_of(group.group_id, member, now_ms)
        image = self._consumer_groups.topics.image
        response = SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=write_assignment(member.assigned, image, protocol.metadata),
        )
        return Decision(responses=[(token, response)])

    # --- Heartbeat ---

    def heartbeat(
        self, request: HeartbeatRequest, version: int, caller: Caller, token: Token, now_ms: int
    ) -> Decision:
        group = self._consumer_groups.existing(request.group_id)
        member, _ = _known_member(group, request.member_id, request.group_instance_id, request.generation_id)
        self._consumer_groups.start_session_of(group.group_id, member, now_ms)
        error = ErrorCode.NONE
        if _has_to_join(group, member):
            self._call_to_join(group.group_id, member, now_ms)
            error = ErrorCode.REBALANCE_IN_PROGRESS
        return Decision(responses=[(token, HeartbeatResponse(error_code=error))])

    def _call_to_join(self, group_id: str, member: Member, now_ms: int) -> None:
        """Call the member to join; it has this long from the first call on."""
        key = ("join", group_id, member.member_id)
        if key not in self._consumer_groups.timers:
            self._consumer_groups.fence_at(key, now_ms + member.rebalance_timeout_ms)

    # --- LeaveGroup ---

    def leave(
        self, request: LeaveGroupRequest, version: int, caller: Caller, token: Token, now_ms: int
    ) -> Decision:
        group = self._consumer_groups.existing(request.group_id)
        if version < MANY_LEAVERS_SINCE:
            leaving = _leaver(group, MemberIdentity(member_id=request.member_id))
            response = LeaveGroupResponse()
            return self._consumer_groups.fence(group, [leaving], [(token, response)], now_ms, "left")
        found = [_try_leaver(group, identity) for identity in request.members]
        leavers = {member.member_id: member for member in found if isinstance(member, Member)}
        response = LeaveGroupResponse(members=_leave_results(request.members, found))
        if not leavers:
            return Decision(responses=[(token, response)])
        what = f"left{because(request.members[0].reason)}"
        return self._consumer_groups.fence(group, list(leavers.values()), [(token, response)], now_ms, what)


def _check_protocols(group: ConsumerGroup, request: JoinGroupRequest) -> None:
    """All classic members must have one in common, as if they had to agree on it."""
    everyone = group.classic_member_count
    names = (protocol.name for protocol in request.protocols)
    if request.protocol_type != CONSUMER_PROTOCOL or not any(
        group.classic_protocols.get(name, 0) == everyone for name in names
    ):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "The member's protocols are not supported.")


def _find_member(draft: Draft, request: JoinGroupRequest, member_id: str) -> Member:
    instance_id = request.group_instance_id
    existing = draft.group.static_member(instance_id)
    if instance_id is None or (existing is None and not request.member_id):
        return draft.group.members.get(member_id) or Member(member_id)
    if request.member_id or existing is None:
        return check_instance(existing, member_id, instance_id)
    return replace_static(draft, existing, member_id)


def _updated(
    member: Member,
    request: JoinGroupRequest,
    version: int,
    caller: Caller,
    subscription: ConsumerProtocolSubscription,
) -> Member:
    protocols = tuple(ClassicProtocol(each.name, bytes(each.metadata)) for each in request.protocols)
    # Version 0 had one timeout for both.
    timeout_ms = request.rebalance_timeout_ms if version else request.session_timeout_ms
    return replace(
        member,
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=timeout_ms,
        subscription=subscription_of(subscription.topics, None),
        client_id=caller.client_id or "",
        client_host=f"/{caller.host}",
        classic=ClassicMember(request.session_timeout_ms, protocols),
    )


def _join_response(member: Member, protocol_name: str) -> JoinGroupResponse:
    return JoinGroupResponse(
        member_id=member.member_id,
        generation_id=member.epoch,
        protocol_type=CONSUMER_PROTOCOL,
        protocol_name=protocol_name,
    )


def _known_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[Member, ClassicMember]:
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = check_instance(group.static_member(instance_id), member_id, instance_id)
    classic = _classic(member)
    if member.epoch != generation:
        raise KafkaError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The generation {generation} is not the epoch {member.epoch} of member {member_id}.",
        )
    return member, classic


def _classic(member: Member) -> ClassicMember:
    if member.classic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member.member_id} does not use the classic protocol."
        )
    return member.classic


def _check_same(named: str | None, actual: str) -> None:
    if named is not None and named != actual:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"{named} is not {actual}.")


def _has_to_join(group: ConsumerGroup, member: Member) -> bool:
    if member.state is MemberState.UNRELEASED_PARTITIONS:
        return member.epoch < group.epoch or not _waits_for_others(group, member)
    return member.epoch < group.epoch or member.state is MemberState.UNREVOKED_PARTITIONS


def _waits_for_others(group: ConsumerGroup, member: Member) -> bool:
    return any(
        group.holder_of(topic, partition) not in (None, member.member_id)
        for topic, partitions in group.targets.get(member.member_id, {}).items()
        for partition in partitions
    )


def _leaver(group: ConsumerGroup, identity: MemberIdentity) -> Member:
    if identity.group_instance_id is None:
        member = group.member(identity.member_id)
    else:
        found = group.static_member(identity.group_instance_id)
        # A tool removes a static member by its instance id alone.
        member_id = identity.member_id or (found.member_id if found is not None else "")
        member = check_instance(found, member_id, identity.group_instance_id)
    _classic(member)
    return member


def _try_leaver(group: ConsumerGroup, identity: MemberIdentity) -> Member | ErrorCode:
    try:
        return _leaver(group, identity)
    except KafkaError as error:
        return error.code


def _leave_results(
    identities: Sequence[MemberIdentity], found: Sequence[Member | ErrorCode]
) -> list[MemberResponse]:
    return [
        MemberResponse(each.member_id, identity.group_instance_id, ErrorCode.NONE)
        if isinstance(each, Member)
        else MemberResponse(identity.member_id, identity.group_instance_id, each)
        for identity, each in zip(identities, found, strict=True)
    ]
