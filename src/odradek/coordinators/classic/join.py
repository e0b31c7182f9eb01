"""JoinGroup, every version: how a member joins and rejoins.

A new member that sends no member id is given one. From version 4 on it must join again with it
(MEMBER_ID_REQUIRED): a client that gives up in between then leaves a pending id behind, not a ghost member
that blocks a rebalance. A static member (`group.instance.id`) takes over its old place at once, and if
the group is Stable and would choose the same protocol again, without a rebalance.

A group beyond `group.max.size` is reduced at the next rebalance, newest members first. Unlike Kafka, no record
is written for a group that has only been joined: only its first generation is worth storing.
"""

from __future__ import annotations

from functools import partial
from random import Random
from uuid import UUID

from odradek.coordinators.classic.group import ClassicGroup, Member, State
from odradek.coordinators.classic.members import because
from odradek.coordinators.classic.rebalance import Rebalancer, join_response
from odradek.coordinators.group import Group, GroupSettings
from odradek.coordinators.runtime import Decision, Token
from odradek.errors import ErrorCode, KafkaError
from odradek.model import Caller
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from odradek.wire.messages.sync_group import SyncGroupResponse
from odradek.wording import duration, shown

MEMBER_ID_REQUIRED_SINCE = 4
SKIP_ASSIGNMENT_SINCE = 9
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60_000


class JoinHandler:
    def __init__(
        self, groups: dict[str, Group], rebalancer: Rebalancer, settings: GroupSettings, rng: Random
    ) -> None:
        self._groups = groups
        self._rebalancer = rebalancer
        self._settings = settings
        self._rng = rng

    def handle(
        self, request: JoinGroupRequest, version: int, caller: Caller, token: Token, now_ms: int
    ) -> Decision:
        self._check(request)
        decision = Decision()
        group = self._group_to_join(request, decision)
        protocols = {protocol.name: protocol.metadata for protocol in request.protocols}
        if not self._has_room(group, request.member_id):
            group.remove(request.member_id)
            refusal = JoinGroupResponse(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED)
            decision.responses.append((token, refusal))
        elif not group.supports(request.protocol_type, protocols):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        else:
            self._groups[group.group_id] = group
            join = _Join(
                self._rebalancer, group, request, protocols, version, caller, token, now_ms, decision
            )
            if request.member_id:
                join.as_known_member()
            else:
                join.as_newcomer(UUID(int=self._rng.getrandbits(128), version=4))
        return decision

    def _check(self, request: JoinGroupRequest) -> None:
        if not request.group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        lowest, highest = (
            self._settings.group_min_session_timeout_ms,
            self._settings.group_max_session_timeout_ms,
        )
        if not lowest <= request.session_timeout_ms <= highest:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)

    def _group_to_join(self, request: JoinGroupRequest, decision: Decision) -> ClassicGroup:
        """The existing group, or a new one, which may also replace an empty group of another type if a new member
        joins."""
        group = self._groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            return group
        if request.member_id:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if group is not None:
            decision.records.extend(group.tombstones())
            decision.undo = partial(self._groups.__setitem__, group.group_id, group)
        return self._rebalancer.new_group(request.group_id)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        limit = self._settings.group_max_size
        member = group.members.get(member_id)
        if group.state is State.EMPTY:
            return True
        if group.state is State.PREPARING_REBALANCE:
            # Members that wait are counted, so if the group is too large the last to rejoin are refused.
            return (member is not None and member.join_token is not None) or group.awaiting_join < limit
        return member is not None or len(group.members) < limit


class _Join:
    """One JoinGroup request on its way into its group."""

    def __init__(
        self,
        rebalancer: Rebalancer,
        group: ClassicGroup,
        request: JoinGroupRequest,
        protocols: dict[str, bytes],
        version: int,
        caller: Caller,
        token: Token,
        now_ms: int,
        decision: Decision,
    ) -> None:
        self.rebalancer = rebalancer
        self.group = group
        self.request = request
        self.protocols = protocols
        self.version, self.caller = version, caller
        self.token = token
        self.now_ms = now_ms
        self.decision = decision
        # Version 0 had one timeout for both.
        self.rebalance_timeout_ms = request.rebalance_timeout_ms if version else request.session_timeout_ms

    def as_newcomer(self, fresh: UUID) -> None:
        instance_id = self.request.group_instance_id
        if instance_id is not None:
            member_id = f"{instance_id}-{fresh}"
            current_id = self.group.static_members.get(instance_id)
            if current_id is None:
                self._add(member_id)
            else:
                self._take_over(current_id, member_id)
        elif self.version >= MEMBER_ID_REQUIRED_SINCE:
            self._hand_out_id(f"{self.caller.client_id or ''}-{fresh}")
        else:
            self._add(f"{self.caller.client_id or ''}-{fresh}")

    def as_known_member(self) -> None:
        group, member_id = self.group, self.request.member_id
        if member_id in group.pending_members and self.request.group_instance_id is None:
            self._add(member_id)
            return
        group.check_member(member_id, self.request.group_instance_id)
        member = group.members[member_id]
        unchanged = member.offers(self.protocols)
        # A leader that joins a Stable group again asks for a rebalance; a follower may only have missed news.
        if (group.state is State.COMPLETING_REBALANCE and unchanged) or (
            group.state is State.STABLE and unchanged and member_id != group.leader
        ):
            self._answer(join_response(group, member_id))
        else:
            self._wait(member)
            what = "joined again" if unchanged else "changed its subscription"
            self._rebalance(f"{member} {what}{because(self.request.reason)}")

    def _rebalance(self, reason: str) -> None:
        self.rebalancer.rebalance(self.group, self.now_ms, self.decision, reason)

    def _hand_out_id(self, member_id: str) -> None:
        self.group.pending_members.add(member_id)
        self.group.start_session_of(member_id, self.now_ms, self.request.session_timeout_ms)
        self._answer(JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))

    def _add(self, member_id: str) -> None:
        member = Member(
            member_id=member_id,
            instance_id=self.request.group_instance_id,
            client_id=self.caller.client_id or "",
            client_host=f"/{self.caller.host}",
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            session_timeout_ms=self.request.session_timeout_ms,
            protocols=self.protocols,
            is_new=True,
            join_token=self.token,
        )
        group = self.group
        if not group.members:
            group.protocol_type = self.request.protocol_type
        if group.is_initial_rebalance and group.state is State.PREPARING_REBALANCE:
            group.new_member_added = True
        group.add(member)
        # It cannot send heartbeats before it knows its id; a client that gave up must still go some day.
        group.start_session(member, self.now_ms, NEW_MEMBER_JOIN_TIMEOUT_MS)
        self.decision.note(
            group.group_id,
            f"{member} joined from {member.client_host.lstrip('/')} (client {shown(member.client_id)}, "
            f"session timeout {duration(member.session_timeout_ms / 1000)})",
        )
        self._rebalance(f"{member} joined")

    def _wait(self, member: Member) -> None:
        """Park this request with its member."""
        retry = JoinGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
        self.group.answer_join(member, retry, self.decision)
        self._update(member)
        member.join_token = self.token
        self.group.awaiting_join += 1

    def _update(self, member: Member) -> None:
        self.group.set_protocols(member, self.protocols)
        member.rebalance_timeout_ms = self.rebalance_timeout_ms
        member.session_timeout_ms = self.request.session_timeout_ms

    def _answer(self, response: JoinGroupResponse) -> None:
        self.decision.responses.append((self.token, response))

    # --- static members ---

    def _take_over(self, old_id: str, new_id: str) -> None:
        """The instance is back without a member id: the member with its old id is fenced."""
        group = self.group
        member = group.members[old_id]
        before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
        led_by = group.leader
        fenced = ErrorCode.FENCED_INSTANCE_ID
        group.answer_join(member, JoinGroupResponse(error_code=fenced, member_id=old_id), self.decision)
        group.answer_sync(member, SyncGroupResponse(error_code=fenced), self.decision)
        group.rename_static(old_id, new_id)
        self.decision.note(
            group.group_id,
            f"{member} replaced member {shown(old_id)}: its instance came back from "
            f"{self.caller.host} (client {shown(self.caller.client_id)})",
        )
        self._update(member)
        group.start_session(member, self.now_ms)
        if group.state is State.STABLE and group.select_protocol() == group.protocol:
            self._store_takeover(member, led_by)
            self.decision.undo = partial(self._undo_takeover, member, old_id, before)
        else:
            self._wait(member)
            self._rebalance(f"{member} came back")

    def _store_takeover(self, member: Member, led_by: str | None) -> None:
        group = self.group
        assignments = {member.member_id: member.assignment for member in group.members.values()}
        self.decision.records.append(group.as_record(self.now_ms, assignments))
        if self.version >= SKIP_ASSIGNMENT_SINCE:
            is_leader = group.leader == member.member_id
            self._answer(join_response(group, member.member_id, skip_assignment=is_leader))
        else:
            # If the response names its old id as the leader, an older client does not assign again and just syncs.
            response = join_response(group, member.member_id)
            response.leader, response.members = led_by or "", []
            self._answer(response)

    def _undo_takeover(self, member: Member, old_id: str, before: tuple[dict[str, bytes], int, int]) -> None:
        self.group.rename_static(member.member_id, old_id)
        protocols, member.rebalance_timeout_ms, member.session_timeout_ms = before
        self.group.set_protocols(member, protocols)
        self.group.start_session(member, self.now_ms)
