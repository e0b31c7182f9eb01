"""The group coordinator: all groups of one shard, whatever their type, and how requests reach them.

Everything is looked up in tables, so a type of group plugs in without this module knowing it:

* `home_types`: requests of a membership protocol, and the type of group that it creates.
* `handlers`: (request type, group type) to handler. A request in `home_types` is routed by the type of the
  existing group; for an unknown group, or an empty one of another type, by its own protocol's type,
  whose handler creates or converts the group. Every other request has one handler, under the type None.
* `replayers`: key type to the function that applies such a record; offsets, which may be part of a transaction, have
  none. A record about a group that is now of another type is ignored: a conversion writes the tombstones of the old
  type first.
* `refusals`: request type to the function that builds a response from an error code.
* `load_hooks`: called with the time once the log is loaded, to set timers.

Classic groups are built in, because offsets without members make one. `consumer` plugs itself in with `plug_in`, from
outside: it may import this module, not the reverse.

Requests about many groups (OffsetFetch, DescribeGroups, DeleteGroups, ConsumerGroupDescribe) must name
groups of this shard only; `routing.py` splits and merges them.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any
from uuid import UUID

from odradek.coordinators import records
from odradek.coordinators.administration import Administration
from odradek.coordinators.classic.group import ClassicGroup, State
from odradek.coordinators.classic.join import JoinHandler
from odradek.coordinators.classic.members import MemberHandlers
from odradek.coordinators.classic.rebalance import Rebalancer
from odradek.coordinators.group import Group, GroupSettings, GroupType
from odradek.coordinators.offsets import EndTransaction, Offsets, TransactionalCommit
from odradek.coordinators.records import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey
from odradek.coordinators.refusals import REFUSALS
from odradek.coordinators.runtime import (
    Decision,
    EncodedRecord,
    Producer,
    StateRecord,
    Timers,
    Token,
)
from odradek.errors import ErrorCode, KafkaError
from odradek.model import Caller
from odradek.storage.producers.markers import Marker
from odradek.wire.messages.delete_groups import DeleteGroupsRequest
from odradek.wire.messages.describe_groups import DescribeGroupsRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.join_group import JoinGroupRequest
from odradek.wire.messages.leave_group import LeaveGroupRequest
from odradek.wire.messages.list_groups import ListGroupsRequest
from odradek.wire.messages.offset_commit import OffsetCommitRequest
from odradek.wire.messages.offset_delete import OffsetDeleteRequest
from odradek.wire.messages.offset_fetch import OffsetFetchRequest
from odradek.wire.messages.sync_group import SyncGroupRequest

Handler = Callable[[Any, int, Caller, Token, int], Decision]

CLASSIC_REQUESTS = (JoinGroupRequest, SyncGroupRequest, HeartbeatRequest, LeaveGroupRequest)


class GroupCoordinator:
    """A `runtime.Coordinator` for one partition of `__consumer_offsets`."""

    noun = "group"

    def __init__(self, settings: GroupSettings, rng: Random) -> None:
        self.settings = settings
        self.rng = rng
        self.timers = Timers()
        self.groups: dict[str, Group] = {}
        self.rebalancer = Rebalancer(self.groups, self.timers, settings)
        self.offsets = Offsets(self.groups, self.rebalancer.new_group, self.timers, settings)
        join = JoinHandler(self.groups, self.rebalancer, settings, rng)
        members = MemberHandlers(self.rebalancer, self.timers)
        administration = Administration(self.groups, self.offsets)
        self.home_types: dict[type[Any], GroupType] = dict.fromkeys(CLASSIC_REQUESTS, GroupType.CLASSIC)
        self.handlers: dict[tuple[type[Any], GroupType | None], Handler] = {
            (JoinGroupRequest, GroupType.CLASSIC): join.handle,
            (SyncGroupRequest, GroupType.CLASSIC): members.sync,
            (HeartbeatRequest, GroupType.CLASSIC): members.heartbeat,
            (LeaveGroupRequest, GroupType.CLASSIC): members.leave,
            (OffsetCommitRequest, None): self.offsets.commit,
            (TransactionalCommit, None): self.offsets.commit_in_transaction,
            (EndTransaction, None): self.offsets.end_transaction,
            (OffsetFetchRequest, None): self.offsets.fetch,
            (OffsetDeleteRequest, None): self.offsets.delete,
            (ListGroupsRequest, None): administration.list,
            (DescribeGroupsRequest, None): administration.describe,
            (DeleteGroupsRequest, None): administration.delete,
        }
        self.replayers: dict[type[Any], Callable[[Any, Any], None]] = {
            GroupMetadataKey: self._replay_classic,
        }
        self.refusals: dict[type[Any], Callable[[Any, ErrorCode], Any]] = dict(REFUSALS)
        self.load_hooks: list[Callable[[int], None]] = [self.rebalancer.loaded, self.offsets.schedule_expiry]

    # --- as a Coordinator ---

    def handle(self, request: Any, version: int, caller: Caller, token: Token, now_ms: int) -> Decision:
        request_type = type(request)
        home_type = self.home_types.get(request_type)
        group_type = home_type
        if home_type is not None:
            group = self.groups.get(request.group_id)
            if group is not None and not group.is_empty:
                group_type = group.type
        handler = self.handlers.get((request_type, group_type))
        if handler is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        return handler(request, version, caller, token, now_ms)

    def refuse(self, request: Any, code: ErrorCode) -> Any:
        return self.refusals[type(request)](request, code)

    def encode(self, key: Any, value: Any | None) -> EncodedRecord:
        return records.encode(key, value)

    def decode(self, key: bytes, value: bytes | None) -> StateRecord | None:
        return records.decode(key, value)

    def replay(self, key: Any, value: Any | None, producer: Producer | None = None) -> None:
        """Nothing but offsets is ever written in a transaction."""
        if isinstance(key, OffsetCommitKey):
            self.offsets.replay(key, value, producer)
            return
        replayer = self.replayers.get(type(key))
        if replayer is not None:
            replayer(key, value)

    def replay_marker(self, producer: Producer, marker: Marker) -> None:
        self.offsets.replay_marker(producer, marker)

    def loaded(self, now_ms: int) -> None:
        for hook in self.load_hooks:
            hook(now_ms)

    def __len__(self) -> int:
        return len(self.groups)

    # --- events of the cluster ---

    def topics_deleted(self, topics: set[str], now_ms: int) -> None:
        """Call `tick` afterwards: the offsets of these topics go."""
        self.offsets.topics_deleted(topics, now_ms)

    def forget_missing_topics(self, id_of: Callable[[str], UUID | None], now_ms: int) -> None:
        """Call `tick` afterwards: it removes the offsets of topics that do not exist, by their ids."""
        self.offsets.forget_missing_topics(id_of, now_ms)

    # --- inside ---

    def _replay_classic(self, key: GroupMetadataKey, value: GroupMetadataValue | None) -> None:
        group = self.groups.get(key.group)
        if value is None:
            if isinstance(group, ClassicGroup):
                group.state = State.DEAD
                del self.groups[key.group]
            return
        if not isinstance(group, ClassicGroup):
            # It may replace a group of another type, whose tombstones came before.
            group = self.groups[key.group] = self.rebalancer.new_group(key.group)
        group.replay(value)
