"""The steps from one generation to the next: what starts a rebalance, when the join phase ends, what timers do.

The methods add their responses and records to the decision they are given, so that one event, for example a
leave that completes the join phase, stays one decision.

There are three timers per group or member. A member's session ends if it sends nothing. The join phase ends at
the members' largest rebalance timeout; from Empty it ends after `group.initial.rebalance.delay.ms` instead,
prolonged while new members keep joining. And members that joined have the same time to send SyncGroup, or they are
removed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from logging import DEBUG

from odradek.coordinators.classic.group import ClassicGroup, Member, State
from odradek.coordinators.group import Group, GroupSettings
from odradek.coordinators.runtime import Decision, Timers
from odradek.errors import ErrorCode
from odradek.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from odradek.wire.messages.sync_group import SyncGroupResponse
from odradek.wording import count_of, duration, shown


class Rebalancer:
    def __init__(self, groups: dict[str, Group], timers: Timers, settings: GroupSettings) -> None:
        self._groups = groups
        self._timers = timers
        self._settings = settings

    def new_group(self, group_id: str) -> ClassicGroup:
        return ClassicGroup(group_id, self._timers, self._session_end)

    def find(self, group_id: str) -> ClassicGroup | None:
        group = self._groups.get(group_id)
        return group if isinstance(group, ClassicGroup) else None

    # --- the join phase ---

    def rebalance(self, group: ClassicGroup, now_ms: int, decision: Decision, reason: str) -> None:
        """The members changed: start a rebalance, or see whether the one under way can end."""
        if group.state is State.PREPARING_REBALANCE:
            self.maybe_complete(group, now_ms, decision)
        else:
            self.prepare(group, now_ms, decision, reason)

    def prepare(self, group: ClassicGroup, now_ms: int, decision: Decision, reason: str) -> None:
        if group.state is not State.COMPLETING_REBALANCE:
            group.rebalancing_since_ms = now_ms
        decision.note(group.group_id, f"rebalancing in generation {group.generation}, because {reason}")
        if group.state is State.COMPLETING_REBALANCE:
            self._refuse_syncs(group, now_ms, decision)
        group.pending_sync.clear()
        self._timers.cancel(("sync", group.group_id))
        group.is_initial_rebalance = group.state is State.EMPTY
        group.new_member_added = False
        group.move_to(State.PREPARING_REBALANCE)
        if group.is_initial_rebalance:
            delay_ms = self._settings.group_initial_rebalance_delay_ms
            remaining_ms = max(group.rebalance_timeout_ms() - delay_ms, 0)
            self._delay_initial(group, now_ms, delay_ms, remaining_ms)
        elif group.has_all_joined():
            self.complete(group, now_ms, decision)
        else:
            self._limit_join_phase(group, now_ms)

    def maybe_complete(self, group: ClassicGroup, now_ms: int, decision: Decision) -> None:
        in_time = group.state is State.PREPARING_REBALANCE and not group.is_initial_rebalance
        if in_time and group.has_all_joined():
            self.complete(group, now_ms, decision)

    def complete(self, group: ClassicGroup, now_ms: int, decision: Decision) -> None:
        """End the join phase with the members that have joined."""
        self._timers.cancel(("join", group.group_id))
        late = duration(group.rebalance_timeout_ms() / 1000)
        for member in list(group.members.values()):
            if member.join_token is None and not member.is_static:
                decision.note(
                    group.group_id,
                    f"{member} was removed: it did not join again within the rebalance timeout of {late}",
                )
                group.remove(member.member_id)
        if not group.members:
            self._become_empty(group, now_ms, decision)
        elif not group.elect_joined_leader():
            # Only static members, and none has joined: wait until one does or their sessions end.
            self._limit_join_phase(group, now_ms)
        else:
            self._begin_generation(group, now_ms, decision)

    def _begin_generation(self, group: ClassicGroup, now_ms: int, decision: Decision) -> None:
        group.begin_generation()
        took = duration((now_ms - group.rebalancing_since_ms) / 1000)
        decision.note(
            group.group_id,
            f"generation {group.generation} has {count_of(len(group.members), 'member')}, leader "
            f"{shown(group.leader)} and protocol {shown(group.protocol)}; joining took {took}",
        )
        for member in group.members.values():
            group.answer_join(member, join_response(group, member.member_id), decision)
            member.is_new = False
            group.start_session(member, now_ms)
        deadline_ms = now_ms + group.rebalance_timeout_ms()
        expire = partial(self._expire_sync, group.group_id, group.generation)
        self._timers.schedule(("sync", group.group_id), deadline_ms, expire)

    def _become_empty(self, group: ClassicGroup, now_ms: int, decision: Decision) -> None:
        key, value = group.as_empty_record(now_ms)
        decision.records.append((key, value))
        decision.note(group.group_id, f"generation {value.generation} has no members")
        # If the log does not accept it, the old generation would come back after a restart, and its sessions
        # would time out then: there is no member that it could mislead, so memory may change already.
        decision.undo = partial(group.replay, value)

    def _refuse_syncs(self, group: ClassicGroup, now_ms: int, decision: Decision) -> None:
        for member in group.members.values():
            if member.sync_token is not None:
                group.start_session(member, now_ms)
            refusal = SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
            group.answer_sync(member, refusal, decision)

    # --- timers ---

    def _limit_join_phase(self, group: ClassicGroup, now_ms: int) -> None:
        expire = partial(self._expire_join, group.group_id)
        self._timers.schedule(("join", group.group_id), now_ms + group.rebalance_timeout_ms(), expire)

    def _delay_initial(self, group: ClassicGroup, now_ms: int, delay_ms: int, remaining_ms: int) -> None:
        expire = partial(self._expire_initial, group.group_id, delay_ms, remaining_ms)
        self._timers.schedule(("join", group.group_id), now_ms + delay_ms, expire)

    def _expire_initial(
        self, group_id: str, delay_ms: int, remaining_ms: int, now_ms: int
    ) -> Decision | None:
        group = self.find(group_id)
        if group is None or group.state is not State.PREPARING_REBALANCE:
            return None
        decision = Decision()
        if group.new_member_added and remaining_ms:
            group.new_member_added = False
            next_delay_ms = min(self._settings.group_initial_rebalance_delay_ms, remaining_ms)
            self._delay_initial(group, now_ms, next_delay_ms, max(remaining_ms - delay_ms, 0))
        else:
            self.complete(group, now_ms, decision)
        return decision

    def _expire_join(self, group_id: str, now_ms: int) -> Decision | None:
        group = self.find(group_id)
        if group is None or group.state is not State.PREPARING_REBALANCE:
            return None
        decision = Decision()
        self.complete(group, now_ms, decision)
        return decision

    def _expire_sync(self, group_id: str, generation: int, now_ms: int) -> Decision | None:
        group = self.find(group_id)
        if group is None or group.generation != generation or not group.pending_sync:
            return None
        decision = Decision()
        late = duration(group.rebalance_timeout_ms() / 1000)
        for member_id in sorted(group.pending_sync):
            member = group.members.get(member_id, f"member {shown(member_id)}")
            decision.note(
                group_id,
                f"{member} was removed: it did not send SyncGroup within the rebalance timeout of {late}",
            )
            group.remove(member_id)
        self.prepare(group, now_ms, decision, "members were removed")
        return decision

    def _session_end(self, group_id: str, member_id: str) -> Callable[[int], Decision | None]:
        return partial(self._expire_session, group_id, member_id)

    def _expire_session(self, group_id: str, member_id: str, now_ms: int) -> Decision | None:
        group = self.find(group_id)
        if group is None:
            return None
        decision = Decision()
        member = group.members.get(member_id)
        if member is None:
            group.remove(member_id)  # a pending one
            decision.note(group_id, f"forgot {shown(member_id)}: it never joined with its member id", DEBUG)
            self.maybe_complete(group, now_ms, decision)
        elif not member.needs_no_heartbeat:
            timeout = duration(member.session_timeout_ms / 1000)
            decision.note(
                group_id,
                f"{member} was removed: no heartbeat arrived within its session timeout of {timeout}",
            )
            self.drop_member(group, member, decision)
            self.rebalance(group, now_ms, decision, f"{member} was removed")
        return decision

    def drop_member(self, group: ClassicGroup, member: Member, decision: Decision) -> None:
        """Remove it, and respond to its waiting requests, so that a live client tries again."""
        unknown = JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        group.answer_join(member, unknown, decision)
        group.answer_sync(member, SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID), decision)
        group.remove(member.member_id)

    # --- after loading ---

    def loaded(self, now_ms: int) -> None:
        """A new coordinator does not know when members last sent a heartbeat: all sessions start now."""
        for group in self._groups.values():
            if isinstance(group, ClassicGroup):
                for member in group.members.values():
                    group.start_session(member, now_ms)


def join_response(group: ClassicGroup, member_id: str, skip_assignment: bool = False) -> JoinGroupResponse:
    """The current generation; the leader also gets the list of members."""
    members = []
    if member_id == group.leader:
        protocol = group.protocol or ""
        members = [
            JoinGroupResponseMember(member.member_id, member.instance_id, member.protocols[protocol])
            for member in group.members.values()
        ]
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol,
        leader=group.leader or "",
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=members,
    )
