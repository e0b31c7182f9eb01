"""ConsumerGroupHeartbeat, move by move: what a member says, what it is told, what is written."""

from typing import Any
from uuid import UUID

import pytest

from odradek.coordinators import records
from odradek.coordinators.consumer.member import MemberState
from odradek.coordinators.group import GroupSettings
from odradek.coordinators.offsets import TransactionalCommit
from odradek.coordinators.runtime import Producer
from odradek.errors import ErrorCode
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitionsInRequest,
)
from odradek.wire.messages.list_groups import ListGroupsRequest
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.coordinators.consumer.consumer_world import GROUP, Client, World, snapshot


def two_members(world: World) -> tuple[Client, Client]:
    """Both settled, with an even share of foo."""
    one, two = Client(world, "one", "foo"), Client(world, "two", "foo")
    one.join()
    two.join()
    one.beat()
    one.acknowledge()
    two.beat()
    two.acknowledge()
    assert world.group.state_name == "Stable"
    return one, two


# --- joining ---


def test_the_first_member_gets_everything_at_once() -> None:
    world = World(foo=3)
    one = Client(world, "one", "foo")
    response = one.join()
    assert (response.member_id, response.member_epoch, response.heartbeat_interval_ms) == ("one", 1, 5_000)
    assert one.owned == world.partitions("foo:0,1,2")
    assert world.record_kinds() == [
        "MemberMetadata",
        "Metadata",
        "TargetAssignmentMember",
        "TargetAssignmentMetadata",
        "CurrentMemberAssignment",
    ]
    assert (world.group.epoch, world.group.assignment_epoch, world.group.state_name) == (1, 1, "Stable")


def test_a_quiet_heartbeat_writes_nothing_and_tells_nothing() -> None:
    world = World(foo=3)
    one = Client(world, "one", "foo")
    one.join()
    one.beat()
    response = one.beat()
    assert (response.member_epoch, response.assignment, world.last_records) == (1, None, [])


def test_a_full_heartbeat_is_told_everything() -> None:
    world = World(foo=3)
    one = Client(world, "one", "foo")
    one.join()
    assert one.full().assignment is not None and world.last_records == []


def test_the_second_member_waits_until_the_first_has_let_go() -> None:
    world = World(foo=4)
    one, two = Client(world, "one", "foo"), Client(world, "two", "foo")
    one.join()
    two.join()
    assert (two.epoch, two.owned, world.group.state_name) == (2, {}, "Reconciling")
    assert world.group.members["two"].state is MemberState.UNRELEASED_PARTITIONS

    one.beat()  # is told to keep two, and stays in its epoch
    assert (one.epoch, one.owned) == (1, world.partitions("foo:0,1"))
    assert world.group.members["one"].state is MemberState.UNREVOKED_PARTITIONS
    assert world.group.members["one"].revoking == world.partitions("foo:2,3")
    assert two.beat().assignment is None, "not released yet"

    one.acknowledge()  # now it reads only those
    assert (one.epoch, world.group.members["one"].state) == (2, MemberState.STABLE)
    assert two.beat().assignment is not None
    assert (two.owned, world.group.state_name) == (world.partitions("foo:2,3"), "Stable")


def test_a_member_that_does_not_say_what_it_owns_has_not_let_go() -> None:
    world = World(foo=4)
    one, two = Client(world, "one", "foo"), Client(world, "two", "foo")
    one.join()
    two.join()
    one.beat()
    one.beat()
    assert world.group.members["one"].state is MemberState.UNREVOKED_PARTITIONS
    one.beat(topic_partitions=[TopicPartitionsInRequest(world.id_of("foo"), [0, 1, 2, 3])])
    assert world.group.members["one"].state is MemberState.UNREVOKED_PARTITIONS and one.epoch == 1


def test_version_0_is_given_a_member_id() -> None:
    world = World(foo=1)
    response = world.send(ConsumerGroupHeartbeatRequest(**{**JOIN, "member_id": ""}), version=0)
    assert len(response.member_id) == 22 and response.member_id in world.group.members


def test_a_topic_that_does_not_exist_yet_is_waited_for() -> None:
    world = World()
    one = Client(world, "one", "foo")
    one.join()
    assert (one.epoch, one.owned) == (1, {})
    world.create_topic("foo", 2)
    one.beat()
    assert (one.epoch, one.owned) == (2, world.partitions("foo:0,1"))


# --- bad requests ---

JOIN: dict[str, Any] = {
    "group_id": GROUP,
    "member_id": "one",
    "member_epoch": 0,
    "rebalance_timeout_ms": 1_000,
    "subscribed_topic_names": ["foo"],
    "topic_partitions": [],
}


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"group_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": 1, "member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -1, "member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
        ({"subscribed_topic_names": []}, ErrorCode.INVALID_REQUEST),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
        ({"server_assignor": "clever"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"subscribed_topic_regex": r"(a)\1"}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"member_epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_bad_requests_are_refused_and_write_nothing(changes: dict[str, Any], error: ErrorCode) -> None:
    world = World(foo=1)
    response = world.send(ConsumerGroupHeartbeatRequest(**{**JOIN, **changes}))
    assert (response.error_code, world.log.records()) == (error, [])
    assert response.error_message


def test_unknown_members_and_full_groups_are_refused() -> None:
    world = World(GroupSettings(group_consumer_max_size=1), foo=1)
    Client(world, "one", "foo").join()
    stranger = Client(world, "stranger", "foo")
    assert stranger.join().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert Client(world, "one", "foo").join().error_code == 0, "who is in may come again"
    world.consumer_groups.settings = GroupSettings()
    stranger.epoch = 1
    assert stranger.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave().error_code == ErrorCode.UNKNOWN_MEMBER_ID


# --- epochs ---


def test_wrong_epochs_are_fenced_and_epoch_0_starts_over() -> None:
    world = World(foo=4)
    one, _ = two_members(world)
    before = snapshot(world.group)
    for epoch in (one.epoch + 1, one.epoch - 1):
        late = Client(world, "one")
        late.epoch = epoch
        assert late.beat().error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert snapshot(world.group) == before
    one.join()
    assert (one.epoch, one.owned) == (2, world.partitions("foo:0,1"))
    assert snapshot(world.group) == before, "it is where it was"


def test_a_lost_response_is_made_up_for() -> None:
    world = World(foo=2)
    one = Client(world, "one", "foo")
    one.join()
    world.grow_topic("foo", 4)
    epoch, owned = one.epoch, one.owned
    one.beat()
    one.epoch, one.owned = epoch, owned  # the response never arrived
    assert one.full().error_code == 0
    assert (one.epoch, one.owned) == (2, world.partitions("foo:0,1,2,3"))


def test_the_epoch_before_is_fenced_if_it_claims_more_than_it_has() -> None:
    world = World(foo=2)
    one = Client(world, "one", "foo")
    one.join()
    world.grow_topic("foo", 4)
    one.beat()
    one.epoch = 1
    one.owned = {UUID(int=77): frozenset([0])}
    assert one.full().error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_commits_and_fetches_need_the_current_epoch() -> None:
    world = World(foo=4)
    one, two = two_members(world)
    assert world.error_of_commit("one", 2) == ErrorCode.NONE
    assert world.error_of_commit("one", 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert world.error_of_commit("one", 3) == ErrorCode.STALE_MEMBER_EPOCH
    assert world.error_of_commit("one", 2, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert world.error_of_commit("three", 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.error_of_commit("", -1) == ErrorCode.UNKNOWN_MEMBER_ID, "no commits past the members"
    world.group.check_offset_fetch(None, -1)
    world.group.check_offset_fetch("one", 2)
    with pytest.raises(Exception, match="does not match"):
        world.group.check_offset_fetch("one", 1)
    one.leave()
    two.leave()
    assert world.error_of_commit("", -1) == ErrorCode.NONE, "an empty group is anybody's"
    assert world.error_of_commit("one", 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_commits_in_a_transaction_need_the_current_epoch_or_no_member_at_all() -> None:
    """The errors are ones that producers know: they have never heard of member epochs."""
    world = World(foo=4)
    two_members(world)
    topics = [OffsetCommitRequestTopic(name="foo", partitions=[OffsetCommitRequestPartition(0, 5)])]

    def commit(member_id: str, epoch: int, instance_id: str | None = None) -> ErrorCode:
        request = OffsetCommitRequest(GROUP, epoch, member_id, instance_id, topics=topics)
        response = world.send(TransactionalCommit(request, Producer(7, 0), is_verified=True), version=3)
        return ErrorCode(response.topics[0].partitions[0].error_code)

    assert commit("one", 2) is ErrorCode.NONE
    assert commit("one", 1) is ErrorCode.ILLEGAL_GENERATION
    assert commit("one", 3) is ErrorCode.ILLEGAL_GENERATION
    assert commit("three", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit("", -1, "instance") is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit("", -1) is ErrorCode.NONE, "before version 3 nobody could say more"


# --- leaving ---


def test_what_a_leaver_held_goes_to_the_others_at_their_next_heartbeat() -> None:
    world = World(foo=4)
    one, two = two_members(world)
    response = one.leave()
    assert (response.member_id, response.member_epoch) == ("one", -1)
    assert world.record_kinds() == [
        "CurrentMemberAssignment ✗",
        "TargetAssignmentMember ✗",
        "MemberMetadata ✗",
        "Metadata",
    ]
    assert world.group.state_name == "Assigning"
    two.beat()
    assert two.owned == world.partitions("foo:0,1,2,3")
    two.leave()
    assert world.record_kinds()[-1] == "TargetAssignmentMetadata", "an empty group has nothing left to assign"
    assert (world.group.state_name, world.group.epoch) == ("Empty", world.group.assignment_epoch)
    assert len(world.coordinator.timers) == 1, "only the expiry of offsets"


def test_a_departure_from_a_large_group_writes_in_proportion_to_what_changes() -> None:
    world = World(foo=200)
    members = [Client(world, f"m{index}", "foo") for index in range(200)]
    for member in members:
        member.join()
    for _ in range(2):
        for member in members:
            member.acknowledge()
    assert world.group.state_name == "Stable"
    members[77].leave()
    assert len(world.last_records) == 4
    members[0].beat()
    assert sorted(world.record_kinds()) == [
        "CurrentMemberAssignment",
        "TargetAssignmentMember",
        "TargetAssignmentMetadata",
    ]


def test_a_silent_member_loses_its_partitions_and_its_commits() -> None:
    world = World(foo=4)
    _, two = two_members(world)
    world.advance(40_000)
    two.beat()
    world.advance(5_000)
    assert list(world.group.members) == ["two"]
    assert world.error_of_commit("one", 2) == ErrorCode.UNKNOWN_MEMBER_ID
    two.beat()
    assert two.owned == world.partitions("foo:0,1,2,3")


def one_has_to_let_go() -> tuple[World, Client, Client]:
    """Within 10 s, of partitions that the other is to have."""
    world = World(foo=4)
    one = Client(world, "one", "foo", rebalance_timeout_ms=10_000)
    two = Client(world, "two", "foo")
    one.join()
    two.join()
    one.beat()
    return world, one, two


def test_a_member_that_does_not_let_go_in_time_is_removed() -> None:
    world, one, two = one_has_to_let_go()
    for _ in range(2):
        world.advance(5_000)
        one.beat()
        two.beat()
    assert list(world.group.members) == ["two"]
    assert two.owned == world.partitions("foo:0,1,2,3")


def test_a_member_that_let_go_in_time_stays() -> None:
    world, one, two = one_has_to_let_go()
    one.acknowledge()
    for _ in range(4):
        world.advance(5_000)
        one.beat()
        two.beat()
    assert set(world.group.members) == {"one", "two"}


def test_a_session_end_that_cannot_be_stored_is_tried_again() -> None:
    world = World(foo=1)
    Client(world, "one", "foo").join()
    world.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    world.advance(45_000)
    assert "one" in world.group.members
    world.append_error = None
    world.advance(1_000)
    assert world.group.members == {}


def test_a_join_that_cannot_be_stored_did_not_happen() -> None:
    world = World(foo=1)
    world.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    response = Client(world, "one", "foo").join()
    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert GROUP not in world.coordinator.groups
    world.append_error = None
    world.advance(100_000)
    assert world.log.records() == []


# --- subscriptions ---


def test_a_new_subscription_moves_the_epoch() -> None:
    world = World(foo=2, bar=2)
    one = Client(world, "one", "foo")
    one.join()
    one.beat(subscribed_topic_names=["bar"])
    assert (one.epoch, one.owned) == (1, {}), "first it has to let foo go"
    one.acknowledge()
    assert (one.epoch, one.owned) == (2, world.partitions("bar:0,1"))
    one.beat(subscribed_topic_names=["bar"])
    assert one.epoch == 2, "the same again is no news"


def test_new_metadata_that_is_no_subscription_moves_nothing() -> None:
    world = World(foo=2)
    one = Client(world, "one", "foo")
    one.join()
    one.beat(rack_id="left", server_assignor="range")
    assert one.epoch == 1 and world.record_kinds() == ["MemberMetadata"]
    member = world.group.members["one"]
    assert (member.rack_id, member.server_assignor) == ("left", "range")


def test_a_topic_that_goes_is_given_up() -> None:
    world = World(foo=2, bar=2)
    one = Client(world, "one", "foo", "bar")
    one.join()
    bar = world.partitions("bar:0,1")
    world.delete_topic("foo")
    one.beat()
    assert one.owned == bar and world.group.members["one"].state is MemberState.UNREVOKED_PARTITIONS
    one.acknowledge()
    assert world.group.state_name == "Stable"


def test_a_topic_made_anew_is_another_topic() -> None:
    world = World(foo=2)
    one = Client(world, "one", "foo")
    one.join()
    old = dict(one.owned)
    world.delete_topic("foo")
    world.create_topic("foo", 2)
    one.beat()
    one.acknowledge()
    assert one.owned == world.partitions("foo:0,1") and one.owned != old


def test_a_topic_nobody_reads_changes_nothing() -> None:
    world = World(foo=2)
    one = Client(world, "one", "foo")
    one.join()
    world.create_topic("bar", 2)
    one.beat()
    assert one.epoch == 1 and world.last_records == []


def test_members_that_prefer_it_get_range() -> None:
    world = World(foo=2, bar=2)
    one = Client(world, "one", "foo", "bar", server_assignor="range")
    two = Client(world, "two", "foo", "bar")
    two.join()
    one.join()
    two.beat()
    two.acknowledge()
    one.beat()
    assert one.owned == world.partitions("foo:0", "bar:0")
    assert two.owned == world.partitions("foo:1", "bar:1")


def test_a_regular_expression_matches_whole_names_now_and_later() -> None:
    world = World(ipl1=1, ipl2=2, xipl=1)
    one = Client(world, "one", subscribed_topic_regex="ipl.*")
    one.join()
    assert one.owned == world.partitions("ipl1:0", "ipl2:0,1")
    assert "RegularExpression" in world.record_kinds()
    assert world.group.is_subscribed_to("ipl1") and not world.group.is_subscribed_to("xipl")

    world.create_topic("ipl3", 1)
    one.beat()
    assert one.owned == world.partitions("ipl1:0", "ipl2:0,1", "ipl3:0")
    assert world.group.regexes["ipl.*"].version == 2

    world.delete_topic("ipl2")
    one.beat()
    one.acknowledge()
    assert one.owned == world.partitions("ipl1:0", "ipl3:0")

    one.beat(subscribed_topic_regex="", subscribed_topic_names=["xipl"])
    assert "RegularExpression ✗" in world.record_kinds() and world.group.regexes == {}
    one.acknowledge()
    assert one.owned == world.partitions("xipl:0")


def test_a_match_that_others_subscribe_to_by_name_is_shared() -> None:
    """The topics of the group stay the same, yet who may read them does not."""
    world = World(foo=2)
    named, matching = Client(world, "named", "foo", "bar"), Client(world, "two", subscribed_topic_regex="ba.")
    named.join()
    matching.join()
    world.create_topic("bar", 2)
    for client in (named, matching, named, matching):
        client.beat()
        client.acknowledge()
    assert matching.owned == world.partitions("bar:0,1")


def test_an_expression_is_resolved_again_after_a_reload() -> None:
    world = World(ipl1=1)
    one = Client(world, "one", subscribed_topic_regex="ipl.*")
    one.join()
    world.create_topic("ipl2", 1)
    world.reload()
    one.beat()
    assert one.owned == world.partitions("ipl1:0", "ipl2:0")


def test_a_topic_change_long_ago_is_not_missed() -> None:
    world = World(foo=1)
    one = Client(world, "one", subscribed_topic_regex="ipl.*")
    one.join()
    one.beat()
    world.create_topic("ipl1", 1)
    for _ in range(world.topics.REMEMBERED_CHANGES):
        world.create_topic("noise", 1)
        world.delete_topic("noise")
    one.beat()
    assert one.owned == world.partitions("ipl1:0")


# --- static members ---


def test_a_static_member_comes_back_to_its_partitions() -> None:
    world = World(foo=4)
    one = Client(world, "one", "foo", instance_id="i1")
    two = Client(world, "two", "foo")
    one.join()
    two.join()
    one.beat()
    one.acknowledge()
    two.beat()
    held, epoch = one.owned, world.group.epoch

    again = Client(world, "again", "foo", instance_id="i1")
    assert again.join().error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert one.leave(-2).member_epoch == -2
    two.beat()
    assert world.group.epoch == epoch, "nothing moves while it is away"
    assert world.error_of_commit("one", epoch) == ErrorCode.STALE_MEMBER_EPOCH
    assert again.join().error_code == 0
    assert (again.owned, again.epoch, world.group.epoch) == (held, epoch, epoch)
    assert set(world.group.members) == {"again", "two"}
    assert world.group.static_members == {"i1": "again"}

    one.epoch = epoch
    assert one.beat().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert one.leave().error_code == ErrorCode.FENCED_INSTANCE_ID
    one.epoch = epoch
    assert one.beat(instance_id=None).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert one.beat(instance_id="i2").error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_stays_away_is_removed() -> None:
    world = World(foo=2)
    one = Client(world, "one", "foo", instance_id="i1")
    one.join()
    one.leave(-2)
    world.advance(44_999)
    assert world.group.members
    world.advance(1)
    assert world.group.members == {} and world.group.static_members == {}


def test_a_static_member_may_come_back_under_its_own_id() -> None:
    world = World(foo=2)
    one = Client(world, "one", "foo", instance_id="i1")
    one.join()
    one.leave(-2)
    one.join()
    assert (one.epoch, one.owned) == (1, world.partitions("foo:0,1"))


def test_a_static_member_may_leave_for_good() -> None:
    world = World(foo=2)
    one = Client(world, "one", "foo", instance_id="i1")
    one.join()
    assert one.leave(-1).error_code == 0
    assert world.group.members == {}


# --- fail-over ---


@pytest.mark.parametrize("compact", [False, True])
def test_another_coordinator_finds_the_same_group(compact: bool) -> None:
    world = World(foo=4, bar=1)
    one, two = (
        Client(world, "one", "foo", instance_id="i1"),
        Client(world, "two", subscribed_topic_regex="b.*|foo"),
    )
    one.join()
    two.join()
    one.beat()
    before = snapshot(world.group)
    world.reload(compact)
    assert snapshot(world.group) == before
    assert world.group.members["one"].state is MemberState.UNREVOKED_PARTITIONS
    two.beat()
    world.advance(44_000)
    two.beat()
    world.advance(1_000)
    assert list(world.group.members) == ["two"], "sessions run from the moment of loading"


def test_revocation_timeouts_run_again_after_a_reload() -> None:
    world = World(foo=4)
    one, two = Client(world, "one", "foo", rebalance_timeout_ms=20_000), Client(world, "two", "foo")
    one.join()
    two.join()
    one.beat()
    world.advance(15_000)
    world.reload()
    world.advance(15_000)
    one.beat()
    assert "one" in world.group.members
    world.advance(5_000)
    assert "one" not in world.group.members


def test_a_state_we_do_not_know_sends_the_member_back_to_the_start() -> None:
    world = World(foo=2)
    one = Client(world, "one", "foo")
    one.join()
    value = records.ConsumerGroupCurrentMemberAssignmentValue(1, 1, 99)
    world.write(records.ConsumerGroupCurrentMemberAssignmentKey(GROUP, "one"), value)
    world.reload()
    assert one.full().error_code == ErrorCode.FENCED_MEMBER_EPOCH
    one.join()
    assert (one.epoch, one.owned) == (1, world.partitions("foo:0,1"))


def test_a_record_of_kafka_4_0_is_understood_and_cleaned_up() -> None:
    world = World(foo=2)
    one = Client(world, "one", "foo")
    one.join()
    key = records.ConsumerGroupPartitionMetadataKey(GROUP)
    world.write(key, records.ConsumerGroupPartitionMetadataValue())
    world.reload()
    one.beat()
    world.grow_topic("foo", 3)
    one.beat()
    assert "PartitionMetadata ✗" in world.record_kinds()
    world.reload(compact=True)
    assert not world.group.has_partition_metadata_record


def test_a_group_can_be_deleted_when_it_is_empty() -> None:
    world = World(foo=2, ipl=1)
    one = Client(world, "one", "foo", subscribed_topic_regex="ipl")
    one.join()
    with pytest.raises(Exception, match="not empty"):
        world.group.check_delete()
    one.leave()
    world.group.check_delete()
    for key, value in world.group.tombstones():
        world.write(key, value)
    world.reload()
    assert GROUP not in world.coordinator.groups
    assert all(value is None for value in dict(world.log.records()).values()), "nothing is left behind"


# --- describing ---


def test_describe_tells_everything() -> None:
    world = World(foo=2)
    one = Client(world, "one", "foo", rack_id="left", server_assignor="range")
    one.join()
    response = world.send(ConsumerGroupDescribeRequest(group_ids=[GROUP, "other"]))
    group, other = response.groups
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 1, 1)
    assert group.assignor_name == "range"
    (member,) = group.members
    assert (member.member_id, member.member_epoch, member.rack_id, member.member_type) == (
        "one",
        1,
        "left",
        1,
    )
    assert (member.client_id, member.client_host) == ("client", "/host")
    assert member.subscribed_topic_names == ["foo"]
    for assignment in (member.assignment, member.target_assignment):
        (topic,) = assignment.topic_partitions
        assert (topic.topic_id, topic.topic_name, topic.partitions) == (world.id_of("foo"), "foo", [0, 1])
    assert (other.group_id, other.error_code) == ("other", ErrorCode.GROUP_ID_NOT_FOUND)


def test_listed_with_its_type_and_state() -> None:
    world = World(foo=2)
    Client(world, "one", "foo").join()
    (listed,) = world.send(ListGroupsRequest(types_filter=["Consumer"], states_filter=["stable"])).groups
    assert (listed.group_id, listed.group_state, listed.group_type) == (GROUP, "Stable", "consumer")
    assert listed.protocol_type == "consumer"
    assert world.send(ListGroupsRequest(types_filter=["classic"])).groups == []
