"""Groups in which old and new clients meet: upgrades, life in a mixed group, downgrades."""

import struct
from typing import Any

import pytest

from odradek.coordinators.classic.group import ClassicGroup, State
from odradek.coordinators.consumer.group import ConsumerGroup
from odradek.coordinators.consumer.member import MemberState
from odradek.coordinators.group import GroupSettings
from odradek.errors import ErrorCode
from odradek.wire.codec import read_message, write_message
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from odradek.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from odradek.wire.messages.consumer_protocol_subscription import TopicPartition as Owned
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from odradek.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.coordinators.consumer.consumer_world import GROUP, Client, World, snapshot


def with_version(version: int, message: Any) -> bytes:
    out = bytearray(struct.pack(">h", version))
    write_message(message, version, out)
    return bytes(out)


class OldClient:
    """A consumer of the classic protocol, eager unless told to be cooperative."""

    def __init__(
        self,
        world: World,
        *topics: str,
        cooperative: bool = False,
        instance_id: str | None = None,
        protocols: tuple[str, ...] = ("range",),
    ) -> None:
        self.world = world
        self.topics = list(topics)
        self.cooperative = cooperative
        self.instance_id = instance_id
        self.protocols = protocols
        self.member_id = ""
        self.generation = -1
        self.reads: dict[str, list[int]] = {}

    def subscription(self) -> bytes:
        owned = [Owned(*each) for each in self.reads.items()] if self.cooperative else []
        return with_version(1, ConsumerProtocolSubscription(self.topics, None, owned))

    def join(self, version: int = 7, **changes: Any) -> JoinGroupResponse | None:
        request = JoinGroupRequest(
            **{
                "group_id": GROUP,
                "session_timeout_ms": 10_000,
                "rebalance_timeout_ms": 20_000,
                "member_id": self.member_id,
                "group_instance_id": self.instance_id,
                "protocol_type": "consumer",
                "protocols": [JoinGroupRequestProtocol(name, self.subscription()) for name in self.protocols],
                **changes,
            }
        )
        response = self.world.send(request, version)
        if response is not None and response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            return self.join(version, **changes)
        if response is not None and response.error_code == 0:
            self.member_id, self.generation = response.member_id, response.generation_id
        return response

    def sync(self, assignments: dict[str, dict[str, list[int]]] | None = None) -> SyncGroupResponse:
        written = [
            SyncGroupRequestAssignment(member_id, assignment_bytes(topics))
            for member_id, topics in (assignments or {}).items()
        ]
        response = self.world.send(
            SyncGroupRequest(
                GROUP,
                self.generation,
                self.member_id,
                self.instance_id,
                "consumer",
                self.protocols[0],
                written,
            ),
            5,
        )
        if response.error_code == 0:
            assigned, _ = read_message(ConsumerProtocolAssignment, 1, response.assignment, 2)
            self.reads = {topic.topic: topic.partitions for topic in assigned.assigned_partitions}
        return response

    def catch_up(self) -> None:
        """Join and sync, as after REBALANCE_IN_PROGRESS."""
        response = self.join()
        assert response is not None and response.error_code == 0
        assert self.sync().error_code == 0

    def beat(self) -> ErrorCode:
        request = HeartbeatRequest(GROUP, self.generation, self.member_id, self.instance_id)
        return ErrorCode(self.world.send(request, 4).error_code)


def assignment_bytes(topics: dict[str, list[int]]) -> bytes:
    return with_version(1, ConsumerProtocolAssignment([TopicPartition(*each) for each in topics.items()]))


def classic_group(world: World, **fields: Any) -> OldClient:
    """One old client that reads all of foo, in a Stable classic group."""
    old = OldClient(world, "foo", **fields)
    assert old.join() is None, "the first rebalance is delayed"
    world.advance(3_000)
    _, response = world.responses.popitem()
    old.member_id, old.generation = response.member_id, response.generation_id
    count = len(world.topics.image.topics["foo"].partitions)
    old.sync({old.member_id: {"foo": list(range(count))}})
    assert classic(world).state is State.STABLE
    return old


def classic(world: World) -> ClassicGroup:
    group = world.coordinator.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    return group


# --- up ---


@pytest.mark.parametrize("cooperative", [False, True])
def test_a_new_client_upgrades_the_group_and_shares_its_partitions(cooperative: bool) -> None:
    world = World(foo=4)
    old = classic_group(world, cooperative=cooperative)
    assert (old.reads, old.generation) == ({"foo": [0, 1, 2, 3]}, 1)
    new = Client(world, "new", "foo")
    new.join()
    assert isinstance(world.group, ConsumerGroup)
    assert (new.epoch, new.owned) == (2, {}), "the old client still reads everything"
    assert world.group.members[old.member_id].assigned == world.partitions("foo:0,1,2,3")

    assert old.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    old.catch_up()
    assert old.reads == {"foo": [0, 1]}
    if cooperative:
        assert old.generation == 1, "it has yet to say that it let go"
        new.beat()
        assert new.owned == {}
        assert old.beat() == ErrorCode.REBALANCE_IN_PROGRESS
        old.catch_up()
    assert (old.generation, old.beat()) == (2, ErrorCode.NONE)
    new.beat()
    assert new.owned == world.partitions("foo:2,3")
    assert world.group.state_name == "Stable"
    (described,) = world.send(ConsumerGroupDescribeRequest(group_ids=[GROUP])).groups
    assert {member.member_id: member.member_type for member in described.members} == {
        old.member_id: 0,
        "new": 1,
    }


def test_members_that_wait_in_a_rebalance_are_told_to_join_again() -> None:
    world = World(foo=4)
    old = classic_group(world)
    other = OldClient(world, "foo")
    assert other.join() is None, "waits for the first member to rejoin"
    new = Client(world, "new", "foo")
    new.join()
    assert [response.error_code for response in world.responses.values()] == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert world.group.members.keys() == {old.member_id, other.member_id, "new"}
    for _ in range(2):
        old.catch_up()
        other.catch_up()
        new.beat()
        new.acknowledge()
    assert world.group.state_name == "Stable"
    assert sorted([*old.reads["foo"], *other.reads["foo"], *new.owned[world.id_of("foo")]]) == [0, 1, 2, 3]


def test_an_upgrade_that_cannot_be_stored_leaves_the_classic_group_as_it_was() -> None:
    world = World(foo=4)
    old = classic_group(world)
    world.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert Client(world, "new", "foo").join().error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.append_error = None
    assert old.beat() == ErrorCode.NONE
    world.advance(10_000)
    assert classic(world).members == {}, "its sessions run as before"


@pytest.mark.parametrize("compact", [False, True])
def test_an_upgraded_group_is_found_again_after_a_fail_over(compact: bool) -> None:
    world = World(foo=4)
    old = classic_group(world)
    new = Client(world, "new", "foo")
    new.join()
    before = snapshot(world.group)
    world.reload(compact)
    assert snapshot(world.group) == before
    old.catch_up()
    new.beat()
    assert (old.reads, new.owned) == ({"foo": [0, 1]}, world.partitions("foo:2,3"))


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_the_policy_may_forbid_it(policy: str) -> None:
    world = World(GroupSettings(group_consumer_migration_policy=policy), foo=4)
    classic_group(world)
    assert Client(world, "new", "foo").join().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert classic(world).state is State.STABLE


def test_only_groups_of_consumers_that_we_can_read_are_upgraded() -> None:
    world = World(foo=4)
    old = classic_group(world)
    group = classic(world)
    group.protocol_type = "connect"
    assert Client(world, "new", "foo").join().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    group.protocol_type = "consumer"
    group.members[old.member_id].protocols = {"range": b"?"}
    assert Client(world, "new", "foo").join().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    late = Client(world, "new", "foo")
    late.epoch = 3
    assert late.beat().error_code == ErrorCode.GROUP_ID_NOT_FOUND, "only a join upgrades"


def test_a_partition_that_the_leader_gave_to_two_ends_with_one() -> None:
    world = World(foo=2)
    old = classic_group(world)
    other = OldClient(world, "foo")
    other.join()
    assert old.join() is not None
    (_, response) = world.responses.popitem()
    other.member_id, other.generation = response.member_id, response.generation_id
    both = {"foo": [0, 1]}
    old.sync({old.member_id: both, other.member_id: both})
    Client(world, "new", "foo").join()
    held = [member.assigned for member in world.group.members.values()]
    assert held == [world.partitions("foo:0,1"), {}, {}]


def test_a_group_that_only_stored_offsets_makes_way() -> None:
    world = World(foo=2)
    partition = OffsetCommitRequestPartition(0, 7)
    world.send(
        OffsetCommitRequest(
            group_id=GROUP, topics=[OffsetCommitRequestTopic(name="foo", partitions=[partition])]
        ),
        8,
    )
    assert classic(world).is_empty
    new = Client(world, "new", "foo")
    new.join()
    assert new.owned == world.partitions("foo:0,1")
    world.reload(compact=True)
    assert list(world.group.members) == ["new"]


# --- a mixed group ---


def mixed_group(world: World, **fields: Any) -> tuple[OldClient, Client]:
    old = classic_group(world, **fields)
    new = Client(world, "new", "foo")
    new.join()
    old.catch_up()
    new.beat()
    new.acknowledge()
    assert world.group.state_name == "Stable"
    return old, new


def test_old_clients_may_join_a_consumer_group() -> None:
    world = World(foo=4)
    new = Client(world, "new", "foo")
    new.join()
    old = OldClient(world, "foo")
    old.catch_up()
    assert (old.reads, old.generation) == ({}, 2)
    assert old.beat() == ErrorCode.NONE, "there is nothing for it yet"
    new.beat()
    new.acknowledge()
    assert old.beat() == ErrorCode.REBALANCE_IN_PROGRESS, "now there is"
    old.catch_up()
    assert old.reads == {"foo": [2, 3]} and world.group.state_name == "Stable"


def test_old_clients_are_fenced_as_ever() -> None:
    world = World(foo=4)
    old, _ = mixed_group(world)
    old.generation += 1
    assert old.beat() == ErrorCode.ILLEGAL_GENERATION
    assert old.sync().error_code == ErrorCode.ILLEGAL_GENERATION
    assert world.error_of_commit(old.member_id, old.generation, version=5) == ErrorCode.ILLEGAL_GENERATION
    old.generation -= 1
    assert world.error_of_commit(old.member_id, old.generation, version=5) == ErrorCode.NONE
    stranger = OldClient(world, "foo")
    stranger.member_id, stranger.generation = "new", 2
    assert stranger.beat() == ErrorCode.UNKNOWN_MEMBER_ID, "speaks another protocol"
    stranger.member_id = "nobody"
    assert stranger.beat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.sync().error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": [JoinGroupRequestProtocol("other", b"")]}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": [JoinGroupRequestProtocol("range", b"\0")]}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"session_timeout_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
    ],
)
def test_bad_joins_are_refused(changes: dict[str, Any], error: ErrorCode) -> None:
    world = World(foo=4)
    mixed_group(world)
    response = OldClient(world, "foo").join(**changes)
    assert response is not None and response.error_code == error


def test_a_full_group_takes_no_old_clients() -> None:
    world = World(GroupSettings(group_consumer_max_size=2), foo=4)
    mixed_group(world)
    response = OldClient(world, "foo").join()
    assert response is not None and response.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_sync_has_to_name_the_protocol_of_the_join() -> None:
    world = World(foo=4)
    old, _ = mixed_group(world)
    old.protocols = ("other",)
    assert old.sync().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_an_old_client_that_does_not_follow_the_call_is_removed() -> None:
    world = World(foo=4)
    old, new = mixed_group(world)
    Client(world, "third", "foo").join()
    for _ in range(4):
        assert old.beat() == ErrorCode.REBALANCE_IN_PROGRESS
        new.beat()
        world.advance(5_000)
    assert old.member_id not in world.group.members


def test_an_old_client_that_joins_and_does_not_sync_is_removed() -> None:
    world = World(foo=4)
    old, new = mixed_group(world)
    old.join()
    for _ in range(4):
        assert old.beat() == ErrorCode.NONE
        new.beat()
        world.advance(5_000)
    assert old.member_id not in world.group.members


def test_a_sync_after_another_rebalance_began_is_sent_back() -> None:
    world = World(foo=4)
    old, _ = mixed_group(world)
    old.join()
    Client(world, "third", "foo").join()
    assert old.sync().error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_an_old_client_has_its_own_session_timeout() -> None:
    world = World(foo=4)
    old, _ = mixed_group(world)
    world.advance(9_999)
    assert old.member_id in world.group.members
    world.advance(1)
    assert list(world.group.members) == ["new"]


def leave(world: World, *members: MemberIdentity, version: int = 5) -> LeaveGroupResponse:
    if version < 3:
        return world.send(LeaveGroupRequest(GROUP, member_id=members[0].member_id), version)
    return world.send(LeaveGroupRequest(group_id=GROUP, members=list(members)), version)


def test_old_clients_leave_one_by_one_or_together() -> None:
    world = World(foo=4)
    old, new = mixed_group(world)
    static = OldClient(world, "foo", instance_id="i1")
    static.catch_up()
    response = leave(
        world,
        MemberIdentity(old.member_id),
        MemberIdentity("", "i1"),
        MemberIdentity("nobody"),
        MemberIdentity("new"),
        MemberIdentity("other", "i1"),
    )
    assert [each.error_code for each in response.members] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    ]
    assert list(world.group.members) == ["new"]
    new.beat()
    assert new.owned == world.partitions("foo:0,1,2,3")
    another = OldClient(world, "foo")
    another.join()
    assert leave(world, MemberIdentity(another.member_id), version=1).error_code == ErrorCode.NONE
    assert (
        leave(world, MemberIdentity(another.member_id), version=1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    )


def test_a_static_member_is_upgraded_in_its_place() -> None:
    world = World(foo=4)
    old = OldClient(world, "foo", instance_id="i1")
    keeper = Client(world, "keeper", "foo")
    keeper.join()
    old.catch_up()
    keeper.beat()
    keeper.acknowledge()
    old.catch_up()
    epoch = world.group.epoch
    new = Client(world, "new", "foo", instance_id="i1")
    new.join()
    assert (new.owned, world.group.epoch) == (world.partitions("foo:2,3"), epoch), "nothing moved"
    assert world.group.members["new"].classic is None and world.group.classic_member_count == 0
    assert old.beat() == ErrorCode.FENCED_INSTANCE_ID


# --- down ---


def test_the_last_new_client_takes_the_consumer_group_with_it() -> None:
    world = World(foo=4)
    old, new = mixed_group(world)
    generation = old.generation
    new.leave()
    world.advance(0)
    group = classic(world)
    assert (group.state, group.generation) == (State.PREPARING_REBALANCE, generation)
    assert old.beat() == ErrorCode.REBALANCE_IN_PROGRESS
    response = old.join()
    assert response is not None and response.leader == old.member_id
    old.sync({old.member_id: {"foo": [0, 1, 2, 3]}})
    assert (group.state, old.generation, old.beat()) == (State.STABLE, generation + 1, ErrorCode.NONE)
    assert world.error_of_commit("new", 2) == ErrorCode.UNKNOWN_MEMBER_ID
    world.reload(compact=True)
    assert classic(world).members.keys() == {old.member_id}
    consumer_keys = [
        key for key, value in world.log.records() if value is not None and key[1] in range(3, 17)
    ]
    assert consumer_keys == [], "nothing of the consumer group is left in the log"


def test_a_session_that_ends_downgrades_too() -> None:
    world = World(foo=4)
    old, _ = mixed_group(world)
    for _ in range(9):
        old.beat()
        world.advance(5_000)
    assert classic(world).members.keys() == {old.member_id}
    world.advance(10_000)
    assert old.member_id not in classic(world).members, "its session ran on in the classic group"


def test_a_static_member_that_goes_back_to_the_old_protocol_downgrades() -> None:
    world = World(foo=4)
    new = Client(world, "new", "foo", instance_id="i1")
    new.join()
    old = OldClient(world, "foo", instance_id="i1")
    old.join()
    assert old.generation == 1 and old.member_id != "new"
    world.advance(0)
    group = classic(world)
    assert group.static_members == {"i1": old.member_id}
    assert group.members[old.member_id].assignment == assignment_bytes({"foo": [0, 1, 2, 3]})


def test_a_downgrade_interrupted_by_a_fail_over_is_made_up_for() -> None:
    world = World(foo=4)
    old, new = mixed_group(world)
    new.leave()
    assert isinstance(world.coordinator.groups[GROUP], ConsumerGroup)
    world.reload()
    assert classic(world).state is State.PREPARING_REBALANCE
    assert old.beat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_downgrade_without_its_rebalance_gets_it_from_the_next_coordinator() -> None:
    world = World(foo=4)
    old, new = mixed_group(world)
    new.leave()
    world.advance(0)
    world.reload(compact=True)  # the log knows no rebalance that is under way: it has to be called for again
    assert classic(world).state is State.PREPARING_REBALANCE
    old.join()
    old.sync({old.member_id: {"foo": [0, 1, 2, 3]}})
    world.reload()
    world.advance(0)
    assert classic(world).state is State.STABLE, "once is enough"


def test_a_downgrade_that_cannot_be_stored_is_tried_again() -> None:
    world = World(foo=4)
    old, new = mixed_group(world)
    new.leave()
    world.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    world.advance(100)
    assert isinstance(world.coordinator.groups[GROUP], ConsumerGroup)
    world.append_error = None
    world.advance(500)
    assert classic(world).members.keys() == {old.member_id}


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_the_policy_may_forbid_that_too(policy: str) -> None:
    world = World(foo=4)
    old, new = mixed_group(world)
    world.settings = GroupSettings(group_consumer_migration_policy=policy)
    world.reload()
    new.leave()
    world.advance(0)
    assert isinstance(world.coordinator.groups[GROUP], ConsumerGroup)
    old.catch_up()
    assert old.reads == {"foo": [0, 1, 2, 3]}, "it is served all the same"


def test_an_empty_consumer_group_is_anybodys() -> None:
    world = World(foo=4)
    new = Client(world, "new", "foo")
    new.join()
    new.leave()
    classic_group(world)
    world.reload(compact=True)
    assert classic(world).state is State.STABLE


def test_up_and_down_and_up_again() -> None:
    world = World(foo=4)
    old, new = mixed_group(world)
    new.leave()
    world.advance(0)
    old.join()
    old.sync({old.member_id: {"foo": [0, 1, 2, 3]}})
    again = Client(world, "again", "foo")
    again.join()
    old.catch_up()
    again.beat()
    assert world.group.members[old.member_id].state is MemberState.STABLE
    assert {world.id_of("foo")} == set(again.owned)
    before = snapshot(world.group)
    world.reload(compact=True)
    assert snapshot(world.group) == before
