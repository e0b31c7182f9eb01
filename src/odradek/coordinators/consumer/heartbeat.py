"""ConsumerGroupHeartbeat: the one request with which a member joins, stays, changes its subscription and leaves.

Versions 0 and 1 (1: the client generates its member id, and may subscribe by regular expression). A
heartbeat has four steps, and stops at the first that needs no next one:

1. create or update the member; if its subscription or a subscribed topic changed, the group's epoch increases;
2. if the group's epoch is ahead of the assignment's, compute and store a new target assignment; 3. take the
member one step towards its target; 4. respond with its epoch, and with its partitions if they changed or
the client sent a full request.

A member with nothing to report in a group where nothing happens takes none of these steps: `_is_quiet`.

Epoch -1 leaves; -2 leaves temporarily: a static member keeps its partitions until its session times out. A
member that is fenced rejoins with epoch 0, at once and under its own id.

Where there are ACLs, a heartbeat comes with a function that says which topics its sender may describe
(`HeartbeatOfOne`): no others are found by a regular expression. What one member found holds for all members with that
expression, until topics or ACLs change, as in Kafka.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import NamedTuple
from uuid import UUID

from odradek.coordinators.classic.group import ClassicGroup
from odradek.coordinators.consumer.assignment import NO_PARTITIONS, Partitions, is_within
from odradek.coordinators.consumer.assignors import ASSIGNORS
from odradek.coordinators.consumer.chronicle import removal_notes, step_notes, timed_out
from odradek.coordinators.consumer.draft import Draft
from odradek.coordinators.consumer.group import ConsumerGroup
from odradek.coordinators.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    Member,
    MemberState,
)
from odradek.coordinators.consumer.migration import RETRY_MS, dissolve, may_upgrade, upgrade
from odradek.coordinators.consumer.topics import (
    MayDescribe,
    Subscription,
    TopicsNow,
    compiled,
    every_topic,
    subscription_of,
)
from odradek.coordinators.group import Group, GroupSettings
from odradek.coordinators.runtime import Decision, Response, StateRecord, Timers, Token
from odradek.errors import ErrorCode, KafkaError
from odradek.model import Caller, id_to_text
from odradek.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitionsInResponse,
)

CLIENT_MAKES_MEMBER_ID_SINCE = 1


class HeartbeatOfOne(NamedTuple):
    """A heartbeat of somebody who may not describe every topic."""

    request: ConsumerGroupHeartbeatRequest
    may_describe: MayDescribe

    @property
    def group_id(self) -> str:
        return self.request.group_id


class ConsumerGroups:
    """The consumer groups of one shard. `groups` is the shard's registry of groups of every type."""

    def __init__(
        self,
        groups: dict[str, Group],
        topics: TopicsNow,
        settings: GroupSettings,
        timers: Timers,
        rng: Random,
    ) -> None:
        self.groups = groups
        self.topics = topics
        self.settings = settings
        self.timers = timers
        self._rng = rng

    # --- the request ---

    def heartbeat_of_one(
        self, event: HeartbeatOfOne, version: int, caller: Caller, token: Token, now_ms: int
    ) -> Decision:
        return self.heartbeat(event.request, version, caller, token, now_ms, event.may_describe)

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        version: int,
        caller: Caller,
        token: Token,
        now_ms: int,
        may_describe: MayDescribe = every_topic,
    ) -> Decision:
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            member = group.members.get(request.member_id)
            if member is not None and self._is_quiet(request, caller, group, member):
                self.keep_session(request.group_id, request.member_id, now_ms)
                return Decision(responses=[(token, self._answer(group, member))])
        try:
            return self._handle(request, version, caller, token, now_ms, may_describe)
        except KafkaError as error:
            refusal = ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=str(error))
            return Decision(responses=[(token, refusal)])

    def _is_quiet(
        self,
        request: ConsumerGroupHeartbeatRequest,
        caller: Caller,
        group: ConsumerGroup,
        member: Member,
    ) -> bool:
        """Neither the member nor the group has anything to tell the other."""
        return (
            request.member_epoch == member.epoch == group.assignment_epoch == group.epoch
            and member.state is MemberState.STABLE
            and group.topics_version == self.topics.version
            and request.topic_partitions is None
            and request.subscribed_topic_names is None
            and request.subscribed_topic_regex is None
            and request.rebalance_timeout_ms == -1
            and request.server_assignor is None
            and request.rack_id is None
            and request.instance_id == member.instance_id
            and (caller.client_id or "") == member.client_id
            and f"/{caller.host}" == member.client_host
            and member.classic is None
        )

    def _handle(
        self,
        request: ConsumerGroupHeartbeatRequest,
        version: int,
        caller: Caller,
        token: Token,
        now_ms: int,
        may_describe: MayDescribe,
    ) -> Decision:
        self._check(request, version)
        if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            return self._leave(request, token, now_ms)
        group, records = self._group_for(request, now_ms)
        if not request.member_id:
            request = replace(request, member_id=self.new_member_id())
        self.check_size(group, request.member_id)
        draft = Draft(group, self.topics, now_ms, may_describe)
        member = self._find_member(draft, request)
        updated = _updated(member, request, caller)
        self.update(draft, member, updated)
        # A member that has not received its epoch does not know the partitions that came with it.
        is_up_to_date = request.member_epoch in (member.epoch, JOIN_EPOCH)
        stepped = draft.reconcile(updated, request.topic_partitions if is_up_to_date else None)
        self._schedule_timers(group.group_id, stepped, updated, now_ms)
        is_full = _is_full(request) or stepped.assigned != member.assigned
        decision = Decision([*records, *draft.records], [(token, self._answer(group, stepped, is_full))])
        timeout_ms = self._session_timeout_ms(group.group_id)
        decision.notes = step_notes(draft, member, updated, stepped, timeout_ms)
        self._take_over(group, decision, now_ms)
        return decision

    def _answer(
        self, group: ConsumerGroup, member: Member, with_assignment: bool = False
    ) -> ConsumerGroupHeartbeatResponse:
        interval_ms = self.settings.group_consumer_heartbeat_interval_ms
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self._set_for(
                group.group_id, "consumer.heartbeat.interval.ms", interval_ms
            ),
            assignment=_assignment(member.assigned) if with_assignment else None,
        )

    # --- checks ---

    def _check(self, request: ConsumerGroupHeartbeatRequest, api_version: int) -> None:
        epoch = request.member_epoch
        _require(bool(request.group_id.strip()), "GroupId can't be empty.")
        _require(_is_absent_or_filled(request.instance_id), "InstanceId can't be empty.")
        _require(_is_absent_or_filled(request.rack_id), "RackId can't be empty.")
        _require(epoch >= LEAVE_STATIC_EPOCH, "MemberEpoch is invalid.")
        if epoch != JOIN_EPOCH or api_version >= CLIENT_MAKES_MEMBER_ID_SINCE:
            _require(bool(request.member_id.strip()), "MemberId can't be empty.")
        if epoch == JOIN_EPOCH:
            _check_join(request)
        if epoch == LEAVE_STATIC_EPOCH:
            _require(request.instance_id is not None, "InstanceId can't be null.")
        self._check_assignor(request.server_assignor)
        if request.subscribed_topic_regex:
            compiled(request.subscribed_topic_regex)

    def _check_assignor(self, name: str | None) -> None:
        supported = self.settings.group_consumer_assignors
        if name is not None and (name not in supported or name not in ASSIGNORS):
            raise KafkaError(
                ErrorCode.UNSUPPORTED_ASSIGNOR,
                f"ServerAssignor {name} is not supported. Supported assignors: {', '.join(supported)}.",
            )

    def check_size(self, group: ConsumerGroup, member_id: str) -> None:
        limit = self.settings.group_consumer_max_size
        if len(group.members) >= limit and member_id not in group.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {limit} members.",
            )

    # --- the group and the member of a request ---

    def _group_for(
        self, request: ConsumerGroupHeartbeatRequest, now_ms: int
    ) -> tuple[ConsumerGroup, list[StateRecord]]:
        """The group, and the records that create it or convert it from another type."""
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return group, []
        if request.member_epoch == JOIN_EPOCH:
            if group is None or group.is_empty:
                return ConsumerGroup(request.group_id), group.tombstones() if group is not None else []
            if isinstance(group, ClassicGroup) and may_upgrade(group, self.settings):
                return upgrade(group, self.topics.image, now_ms)
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a consumer group.")

    def _take_over(self, group: ConsumerGroup, decision: Decision, now_ms: int) -> None:
        """Take over the members of a classic group if this decision converts it."""
        classic = self.groups.get(group.group_id)
        if isinstance(classic, ClassicGroup):
            for member in group.members.values():
                self.start_session_of(group.group_id, member, now_ms)
            dissolve(classic, decision, now_ms)
            if classic.members:
                decision.note(
                    group.group_id, "became a consumer group: a member joined with the consumer protocol"
                )

    def existing(self, group_id: str) -> ConsumerGroup:
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
        return group

    def new_member_id(self) -> str:
        return id_to_text(UUID(int=self._rng.getrandbits(128), version=4))

    def _find_member(self, draft: Draft, request: ConsumerGroupHeartbeatRequest) -> Member:
        is_joining = request.member_epoch == JOIN_EPOCH
        if request.instance_id is not None:
            return self._find_static_member(draft, request, is_joining)
        member = draft.group.members.get(request.member_id)
        if member is None and is_joining:
            return Member(request.member_id)
        member = member or draft.group.member(request.member_id)
        _check_epoch(member, request)
        return member

    def _find_static_member(
        self, draft: Draft, request: ConsumerGroupHeartbeatRequest, is_joining: bool
    ) -> Member:
        instance_id = request.instance_id
        existing = draft.group.static_member(instance_id)
        if not is_joining:
            existing = check_instance(existing, request.member_id, instance_id)
            _check_epoch(existing, request)
            return existing
        if existing is None:
            return draft.group.members.get(request.member_id) or Member(request.member_id)
        if existing.member_id == request.member_id:
            return existing
        if existing.epoch != LEAVE_STATIC_EPOCH and existing.classic is None:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {request.member_id} with instance id {instance_id} cannot join the group "
                f"because the instance id is owned by member {existing.member_id}.",
            )
        return replace_static(draft, existing, request.member_id)

    # --- how a member's changes affect the group ---

    def update(self, draft: Draft, member: Member, updated: Member) -> None:
        """Steps 1 and 2: the member's new metadata, the group's epoch, the assignment."""
        group = draft.group
        if updated != member:
            draft.put(updated)
        must_bump = updated.subscription != member.subscription
        if must_bump or group.topics_version != self.topics.version:
            has_changed = draft.refresh_topics(must_bump)
            if not has_changed and draft.has_looked:
                # Need not be looked at again. Topics that did change will be, once this is in the log.
                group.topics_version = self.topics.version
        if draft.epoch > draft.assignment_epoch:
            draft.assign(self.settings.group_consumer_assignors[0])

    # --- leaving and being removed ---

    def _leave(self, request: ConsumerGroupHeartbeatRequest, token: Token, now_ms: int) -> Decision:
        group = self.existing(request.group_id)
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            member = check_instance(
                group.static_member(request.instance_id), request.member_id, request.instance_id
            )
        response = (
            token,
            ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch),
        )
        if request.member_epoch == LEAVE_EPOCH:
            return self.fence(group, [member], [response], now_ms, "left")
        draft = Draft(group, self.topics, now_ms)
        draft.set_current(
            replace(
                member,
                epoch=LEAVE_STATIC_EPOCH,
                previous_epoch=LEAVE_STATIC_EPOCH,
                revoking=NO_PARTITIONS,
            )
        )
        decision = Decision(draft.records, [response])
        decision.note(
            group.group_id, f"{member} left temporarily: it keeps its partitions until its session times out"
        )
        return decision

    def fence(
        self,
        group: ConsumerGroup,
        members: Sequence[Member],
        responses: list[Response],
        now_ms: int,
        what: str,
    ) -> Decision:
        """Remove members; the next heartbeat of any other member finds a new epoch and shares out their
        partitions. The log says `what` happened to each of them ("left").
        """
        draft = Draft(group, self.topics, now_ms)
        for member in members:
            draft.remove(member.member_id)
        draft.refresh_topics(must_bump=True)
        if draft.is_empty():
            draft.set_assignment_epoch()
        return Decision(draft.records, responses, notes=removal_notes(draft, members, what))

    # --- timers ---

    def _session_timeout_ms(self, group_id: str) -> int:
        timeout_ms = self.settings.group_consumer_session_timeout_ms
        return self._set_for(group_id, "consumer.session.timeout.ms", timeout_ms)

    def _set_for(self, group_id: str, name: str, otherwise: int) -> int:
        """The settings of this one group, which were checked when they were set."""
        text = self.topics.image.group_overrides(group_id).get(name)
        return otherwise if text is None else int(text)

    def keep_session(self, group_id: str, member_id: str, now_ms: int) -> None:
        timeout_ms = self._session_timeout_ms(group_id)
        self.timers.postpone(("session", group_id, member_id), now_ms + timeout_ms)

    def _timeout_of(self, timer: str, group_id: str, member: Member) -> int:
        if timer != "session":
            return member.rebalance_timeout_ms
        if member.classic is not None:
            return member.classic.session_timeout_ms
        return self._session_timeout_ms(group_id)

    def start_session_of(self, group_id: str, member: Member, now_ms: int) -> None:
        """Members of the classic protocol bring their own session timeout."""
        timeout_ms = self._timeout_of("session", group_id, member)
        self.fence_at(("session", group_id, member.member_id), now_ms + timeout_ms)

    def _schedule_timers(self, group_id: str, member: Member, before: Member, now_ms: int) -> None:
        self.start_session_of(group_id, member, now_ms)
        if member is not before and member.state is MemberState.UNREVOKED_PARTITIONS:
            self.start_revocation(group_id, member, now_ms)

    def start_revocation(self, group_id: str, member: Member, now_ms: int) -> None:
        """It has this long to give up its partitions. Never cancelled: a member that did has left the epoch."""
        epoch = member.epoch
        self.fence_at(
            ("revocation", group_id, member.member_id),
            now_ms + member.rebalance_timeout_ms,
            lambda late: late.epoch == epoch and late.state is MemberState.UNREVOKED_PARTITIONS,
        )

    def fence_at(
        self, key: tuple[str, str, str], deadline_ms: int, is_due: Callable[[Member], bool] | None = None
    ) -> None:
        """At the deadline, fence the member if it is still there and late; retry if that cannot be
        stored.
        """
        timer, group_id, member_id = key

        def expire(now_ms: int) -> Decision | None:
            group = self.groups.get(group_id)
            if not isinstance(group, ConsumerGroup) or member_id not in group.members:
                return None
            member = group.members[member_id]
            if is_due is not None and not is_due(member):
                return None
            timeout_ms = self._timeout_of(timer, group_id, member)
            decision = self.fence(group, [member], [], now_ms, timed_out(timer, timeout_ms))
            decision.undo = lambda: self.fence_at(key, now_ms + RETRY_MS, is_due)
            return decision

        self.timers.schedule(key, deadline_ms, expire)

    def forget_timers(self, group_id: str, member_id: str) -> None:
        for kind in ("session", "revocation", "join", "sync"):
            self.timers.cancel((kind, group_id, member_id))


def _is_absent_or_filled(text: str | None) -> bool:
    return text is None or bool(text.strip())


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise KafkaError(ErrorCode.INVALID_REQUEST, otherwise)


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    _require(request.rebalance_timeout_ms != -1, "RebalanceTimeoutMs must be provided in first request.")
    _require(request.topic_partitions == [], "TopicPartitions must be empty when (re-)joining.")
    _require(
        bool(request.subscribed_topic_names or request.subscribed_topic_regex),
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-empty when (re-)joining.",
    )


def _check_epoch(member: Member, request: ConsumerGroupHeartbeatRequest) -> None:
    """The member's epoch; or the previous one, if it may not have received the new one; or 0, to start over."""
    received = request.member_epoch
    if received in (member.epoch, JOIN_EPOCH):
        return
    owned = request.topic_partitions
    if received != member.previous_epoch or owned is None or not is_within(owned, member.assigned):
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has epoch {received}, not the one known by the group coordinator "
            f"({member.epoch}). The member must abandon all its partitions and rejoin.",
        )


def check_instance(member: Member | None, member_id: str, instance_id: str | None) -> Member:
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by {member.member_id}.",
        )
    return member


def replace_static(draft: Draft, existing: Member, member_id: str) -> Member:
    """The same member under a new id, from its beginning but with its partitions."""
    new = replace(existing, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)
    draft.replace(existing, new)
    return new


def _updated(member: Member, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> Member:
    """The member updated by the request; fields that it leaves out stay."""
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=request.instance_id if request.instance_id is not None else member.instance_id,
        rack_id=request.rack_id if request.rack_id is not None else member.rack_id,
        rebalance_timeout_ms=timeout_ms if timeout_ms != -1 else member.rebalance_timeout_ms,
        server_assignor=request.server_assignor or member.server_assignor,
        subscription=_updated_subscription(member.subscription, request),
        client_id=caller.client_id or "",
        client_host=f"/{caller.host}",
        classic=None,
    )


def _updated_subscription(old: Subscription, request: ConsumerGroupHeartbeatRequest) -> Subscription:
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    if names is None and regex is None:
        return old
    return subscription_of(old.names if names is None else names, old.regex if regex is None else regex)


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Clients send all fields when they join, and when they are not sure what the coordinator knows."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    return request.member_epoch == JOIN_EPOCH or (
        request.rebalance_timeout_ms != -1
        and (names is not None or regex is not None)
        and request.topic_partitions is not None
    )


def _assignment(partitions: Partitions) -> Assignment:
    return Assignment(
        [TopicPartitionsInResponse(topic, sorted(numbers)) for topic, numbers in partitions.items()]
    )
