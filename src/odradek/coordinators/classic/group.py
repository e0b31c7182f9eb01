"""A classic group: its members, generation and state.

A generation is an agreement on the members, on the leader among them, and on the assignment protocol. It
is made in two phases: members join (PreparingRebalance) until all have joined or time is up; then the leader
assigns partitions and the others wait for that (CompletingRebalance). The log has the last completed generation
(`GroupMetadataValue`); everything between two generations is in memory only, and is lost with the coordinator:
a new one takes the group for Stable and lets the sessions of absent members time out.

So only `replay` sets what is durable: assignments, and the move to Stable or Empty. Members that join and leave
meanwhile are memory, and so are the requests that wait in `join_token` and `sync_token`.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from odradek.coordinators.group import CONSUMER_PROTOCOL, GroupType, PartitionCheck, member_name
from odradek.coordinators.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitValue,
)
from odradek.coordinators.runtime import Decision, StateRecord, Timers, Token
from odradek.errors import ErrorCode, KafkaError, ProtocolError
from odradek.wire.codec import read_message
from odradek.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription


class State(enum.Enum):
    """The values are how DescribeGroups spells them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


LEGAL_MOVES = {
    State.EMPTY: {State.PREPARING_REBALANCE, State.DEAD},
    State.PREPARING_REBALANCE: {State.COMPLETING_REBALANCE, State.EMPTY, State.DEAD},
    State.COMPLETING_REBALANCE: {State.STABLE, State.PREPARING_REBALANCE, State.DEAD},
    State.STABLE: {State.PREPARING_REBALANCE, State.DEAD},
    State.DEAD: set(),
}

SessionEnd = Callable[[int], "Decision | None"]


@dataclass(slots=True)
class Member:
    """`protocols` maps the names it offers, best first, to its subscription in each."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: dict[str, bytes]
    assignment: bytes = b""
    is_new: bool = False  # until the response to its first JoinGroup it cannot send heartbeats
    join_token: Token | None = None  # the JoinGroup that waits for the others
    sync_token: Token | None = None  # the SyncGroup that waits for the leader

    def __str__(self) -> str:
        return member_name(self.member_id, self.instance_id)

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def needs_no_heartbeat(self) -> bool:
        """While it waits for a response of the coordinator."""
        return not self.is_new and (self.join_token is not None or self.sync_token is not None)

    def offers(self, protocols: dict[str, bytes]) -> bool:
        """Exactly these, in this order."""
        return list(self.protocols.items()) == list(protocols.items())


class ClassicGroup:
    def __init__(
        self, group_id: str, timers: Timers, on_session_end: Callable[[str, str], SessionEnd]
    ) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.protocol_type = ""  # set by the first member; empty: only offsets were ever stored
        self.protocol: str | None = None  # chosen for the current generation
        self.generation = 0
        self.leader: str | None = None
        self.state_timestamp_ms = -1
        self.members: dict[str, Member] = {}
        self.static_members: dict[str, str] = {}  # instance id -> member id
        self.pending_members: set[str] = set()  # got an id and have not joined with it yet
        self.pending_sync: set[str] = set()  # members of this generation that have not sent SyncGroup
        self.awaiting_join = 0  # how many members have a join_token
        self.is_initial_rebalance = False  # rebalancing from Empty: newcomers may prolong the delay
        self.new_member_added = False
        self.rebalancing_since_ms = 0  # when the group last left Stable or Empty
        self._subscribed_topics: set[str] | None = None  # None: not known
        self._supported: Counter[str] = Counter()  # protocol -> how many members offer it
        self._timers = timers
        self._on_session_end = on_session_end

    # --- as a Group ---

    @property
    def type(self) -> GroupType:
        return GroupType.CLASSIC

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    def check_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        api_version: int,
        *,
        is_transactional: bool = False,
    ) -> PartitionCheck | None:
        if generation < 0 and self.is_empty:
            return None  # a tool, or a consumer that assigns its partitions itself
        if generation < 0 and not member_id and instance_id is None:
            if is_transactional:
                return None
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        self.check_member(member_id, instance_id)
        self.check_generation(generation)
        if self.state is State.COMPLETING_REBALANCE and not is_transactional:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        return None

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Anyone may read a classic group's offsets."""

    def check_offset_delete(self) -> None:
        if not self.is_empty and self.protocol_type != CONSUMER_PROTOCOL:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def check_delete(self) -> None:
        if not self.is_empty:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def keep_session(self, member_id: str, now_ms: int) -> None:
        if self.state in (State.STABLE, State.PREPARING_REBALANCE):
            self.start_session(self.members[member_id], now_ms)

    def is_subscribed_to(self, topic: str) -> bool:
        if self._subscribed_topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL
        return topic in self._subscribed_topics

    def offsets_expire_from_ms(self, offset: OffsetCommitValue) -> int | None:
        if not self.protocol_type:
            return offset.commit_timestamp
        if self.is_empty:
            return self.state_timestamp_ms if self.state_timestamp_ms != -1 else offset.commit_timestamp
        if self.state is State.STABLE and self._subscribed_topics is not None:
            return offset.commit_timestamp
        return None

    def tombstones(self) -> list[StateRecord]:
        return [(GroupMetadataKey(self.group_id), None)]

    # --- checks ---

    def check_member(self, member_id: str, instance_id: str | None) -> None:
        if instance_id is not None:
            current_id = self.static_members.get(instance_id)
            if current_id is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if current_id != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)

    def check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)

    # --- members ---

    def add(self, member: Member) -> None:
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._supported.update(member.protocols.keys())
        self.awaiting_join += member.join_token is not None
        self.pending_members.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Also of a pending member. Its waiting requests must have got their responses."""
        self.end_session(member_id)
        self.pending_members.discard(member_id)
        self.pending_sync.discard(member_id)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        assert member.join_token is None and member.sync_token is None
        self._supported.subtract(member.protocols.keys())
        if member.instance_id is not None:
            del self.static_members[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def rename_static(self, old_id: str, new_id: str) -> Member:
        """The instance came back under a new member id."""
        member = self.members.pop(old_id)
        assert member.instance_id is not None
        member.member_id = new_id
        self.members[new_id] = member
        self.static_members[member.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.pending_sync:
            self.pending_sync.remove(old_id)
            self.pending_sync.add(new_id)
        self.end_session(old_id)
        return member

    def set_protocols(self, member: Member, protocols: dict[str, bytes]) -> None:
        self._supported.subtract(member.protocols.keys())
        member.protocols = protocols
        self._supported.update(protocols.keys())

    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def has_all_joined(self) -> bool:
        return len(self.members) == self.awaiting_join and not self.pending_members

    def elect_joined_leader(self) -> bool:
        """Make sure that the leader is a member that joined this time; False if none did."""
        if self.leader is not None and self.members[self.leader].join_token is not None:
            return True
        joined = (member_id for member_id, member in self.members.items() if member.join_token is not None)
        leader = next(joined, None)
        if leader is not None:
            self.leader = leader
        return leader is not None

    # --- protocols ---

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Could a member that offers these be in this group?"""
        if self.is_empty:
            return bool(protocol_type) and any(True for _ in names)
        everyone = len(self.members)
        return protocol_type == self.protocol_type and any(
            self._supported[name] == everyone for name in names
        )

    def select_protocol(self) -> str:
        """Each member votes for the first of its protocols that everyone offers; most votes win."""
        everyone = len(self.members)
        votes = Counter(
            next(name for name in member.protocols if self._supported[name] == everyone)
            for member in self.members.values()
        )
        return votes.most_common(1)[0][0]

    # --- waiting requests ---

    def answer_join(self, member: Member, response: Any, decision: Decision) -> None:
        if member.join_token is not None:
            decision.responses.append((member.join_token, response))
            member.join_token = None
            self.awaiting_join -= 1

    def answer_sync(self, member: Member, response: Any, decision: Decision) -> None:
        if member.sync_token is not None:
            decision.responses.append((member.sync_token, response))
            member.sync_token = None

    # --- sessions ---

    def start_session(self, member: Member, now_ms: int, timeout_ms: int | None = None) -> None:
        self.start_session_of(member.member_id, now_ms, timeout_ms or member.session_timeout_ms)

    def start_session_of(self, member_id: str, now_ms: int, timeout_ms: int) -> None:
        """Give the member this long from now to send a heartbeat."""
        key = ("session", self.group_id, member_id)
        self._timers.schedule(key, now_ms + timeout_ms, self._on_session_end(self.group_id, member_id))

    def end_session(self, member_id: str) -> None:
        self._timers.cancel(("session", self.group_id, member_id))

    # --- generations ---

    def move_to(self, state: State) -> None:
        assert state in LEGAL_MOVES[self.state], f"{self.state} to {state}"
        self.state = state

    def begin_generation(self) -> None:
        """All have joined: agree on a protocol, then wait for the leader's assignment."""
        self.generation += 1
        self.protocol = self.select_protocol()
        self._subscribed_topics = self._parse_subscriptions()
        self.move_to(State.COMPLETING_REBALANCE)
        self.pending_sync = set(self.members)

    def as_record(self, now_ms: int, assignments: dict[str, bytes]) -> StateRecord:
        """This generation, as the log is to remember it."""
        protocol = self.protocol or ""
        value = GroupMetadataValue(
            protocol_type=self.protocol_type,
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=now_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.protocols[protocol],
                    assignment=assignments.get(member.member_id, b""),
                )
                for member in self.members.values()
            ],
        )
        return GroupMetadataKey(self.group_id), value

    def as_empty_record(self, now_ms: int) -> tuple[GroupMetadataKey, GroupMetadataValue]:
        """The next generation, which has no members."""
        value = GroupMetadataValue(self.protocol_type, self.generation + 1, None, None, now_ms, [])
        return GroupMetadataKey(self.group_id), value

    def replay(self, value: GroupMetadataValue) -> None:
        """A generation is complete. Members that are in memory keep their in-memory state."""
        self.generation = value.generation
        self.protocol_type = value.protocol_type
        self.protocol = value.protocol
        self.state_timestamp_ms = value.current_state_timestamp
        stored_ids = {stored.member_id for stored in value.members}
        for member_id in [member_id for member_id in self.members if member_id not in stored_ids]:
            self.remove(member_id)
        for stored in value.members:
            if stored.member_id not in self.members:
                self.add(_member_of(stored, value.protocol or ""))
            self.members[stored.member_id].assignment = stored.assignment
        self.leader = value.leader
        # Not `move_to`: between two records of a log that is being loaded there were moves that left no record.
        self.state = State.STABLE if value.members else State.EMPTY
        self._subscribed_topics = self._parse_subscriptions()

    def _parse_subscriptions(self) -> set[str] | None:
        if self.protocol_type != CONSUMER_PROTOCOL:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            try:
                # Every version of the subscription starts with the fields of version 0.
                subscription, _ = read_message(
                    ConsumerProtocolSubscription, 0, member.protocols[self.protocol or ""], 2
                )
            except (ProtocolError, KeyError):
                return None
            topics.update(subscription.topics)
        return topics


def _member_of(stored: MemberMetadata, protocol: str) -> Member:
    timeout_ms = stored.rebalance_timeout if stored.rebalance_timeout != -1 else stored.session_timeout
    return Member(
        member_id=stored.member_id,
        instance_id=stored.group_instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        rebalance_timeout_ms=timeout_ms,
        session_timeout_ms=stored.session_timeout,
        protocols={protocol: stored.subscription},
    )
