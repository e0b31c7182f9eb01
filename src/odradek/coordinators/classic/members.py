"""SyncGroup, Heartbeat and LeaveGroup, every version: what members of a classic group do between joins."""

from __future__ import annotations

from functools import partial

from odradek.coordinators.classic.group import ClassicGroup, State
from odradek.coordinators.classic.rebalance import Rebalancer
from odradek.coordinators.runtime import Decision, Timers, Token
from odradek.errors import ErrorCode, KafkaError
from odradek.model import Caller
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek.wording import duration, one_line

MANY_LEAVERS_SINCE = 3
MAX_REASON = 200  # characters of what a client says


class MemberHandlers:
    def __init__(self, rebalancer: Rebalancer, timers: Timers) -> None:
        self._rebalancer = rebalancer
        self._timers = timers

    def _group_of(self, group_id: str) -> ClassicGroup:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        group = self._rebalancer.find(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    # --- SyncGroup ---

    def sync(
        self, request: SyncGroupRequest, version: int, caller: Caller, token: Token, now_ms: int
    ) -> Decision:
        group = self._group_of(request.group_id)
        group.check_member(request.member_id, request.group_instance_id)
        group.check_generation(request.generation_id)
        _check_protocol(request.protocol_type, group.protocol_type)
        _check_protocol(request.protocol_name, group.protocol)
        if group.state is State.PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        member = group.members[request.member_id]
        group.pending_sync.discard(member.member_id)
        if not group.pending_sync:
            self._timers.cancel(("sync", group.group_id))
        if group.state is State.STABLE:
            group.start_session(
                member, now_ms
            )  # unlike Kafka: the response to its JoinGroup may have arrived late
            return Decision(responses=[(token, _assignment(group, member.assignment))])
        decision = Decision()
        retry = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        group.answer_sync(member, retry, decision)
        member.sync_token = token
        if member.member_id == group.leader:
            self._store_assignments(group, request, now_ms, decision)
        return decision

    def _store_assignments(
        self, group: ClassicGroup, request: SyncGroupRequest, now_ms: int, decision: Decision
    ) -> None:
        """The leader has spoken: the generation is complete once this is in the log."""
        assignments = {given.member_id: given.assignment for given in request.assignments}
        decision.records.append(group.as_record(now_ms, assignments))
        for member in group.members.values():
            if member.sync_token is not None:
                group.start_session(member, now_ms)
            assignment = assignments.get(member.member_id, b"")
            group.answer_sync(member, _assignment(group, assignment), decision)
        took = duration((now_ms - group.rebalancing_since_ms) / 1000)
        decision.note(group.group_id, f"generation {group.generation} is stable; the rebalance took {took}")
        failed = "its assignment could not be written"
        decision.undo = partial(self._rebalancer.prepare, group, now_ms, Decision(), failed)

    # --- Heartbeat ---

    def heartbeat(
        self, request: HeartbeatRequest, version: int, caller: Caller, token: Token, now_ms: int
    ) -> Decision:
        group = self._group_of(request.group_id)
        group.check_member(request.member_id, request.group_instance_id)
        group.check_generation(request.generation_id)
        group.start_session(group.members[request.member_id], now_ms)
        rebalancing = group.state is State.PREPARING_REBALANCE
        error = ErrorCode.REBALANCE_IN_PROGRESS if rebalancing else ErrorCode.NONE
        return Decision(responses=[(token, HeartbeatResponse(error_code=error))])

    # --- LeaveGroup ---

    def leave(
        self, request: LeaveGroupRequest, version: int, caller: Caller, token: Token, now_ms: int
    ) -> Decision:
        group = self._group_of(request.group_id)
        decision = Decision()
        leavers = request.members
        if version < MANY_LEAVERS_SINCE:
            leavers = [MemberIdentity(member_id=request.member_id)]
        results = [
            MemberResponse(leaver.member_id, leaver.group_instance_id, self._leave(group, leaver, decision))
            for leaver in leavers
        ]
        response = LeaveGroupResponse(members=results)
        if version < MANY_LEAVERS_SINCE:
            response = LeaveGroupResponse(error_code=results[0].error_code)
        decision.responses.append((token, response))
        if any(result.error_code == ErrorCode.NONE for result in results) and not group.is_empty:
            self._rebalancer.rebalance(group, now_ms, decision, "members left")
        return decision

    def _leave(self, group: ClassicGroup, leaver: MemberIdentity, decision: Decision) -> ErrorCode:
        member_id = leaver.member_id
        if not member_id:
            # A tool removes a static member by its instance id alone.
            member_id = group.static_members.get(leaver.group_instance_id or "", "")
        if member_id in group.pending_members:
            group.remove(member_id)
            return ErrorCode.NONE
        try:
            group.check_member(member_id, leaver.group_instance_id)
        except KafkaError as error:
            return error.code
        member = group.members[member_id]
        decision.note(group.group_id, f"{member} left{because(leaver.reason)}")
        self._rebalancer.drop_member(group, member, decision)
        return ErrorCode.NONE


def because(reason: str | None) -> str:
    """The reason that a client gives, such as that it was not polled in time."""
    return f": {one_line(reason, MAX_REASON)}" if reason else ""


def _check_protocol(named: str | None, actual: str | None) -> None:
    if named is not None and actual is not None and named != actual:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _assignment(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=assignment
    )
