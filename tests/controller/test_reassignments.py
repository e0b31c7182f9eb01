"""AlterPartitionReassignments and ListPartitionReassignments: the replicas of a partition that moves."""

from random import Random
from uuid import UUID

import pytest

from odradek.apis.items import join
from odradek.config.broker import BrokerConfig
from odradek.controller.brokers import fence_broker, leave_isr
from odradek.controller.changes import changes
from odradek.controller.controller import Controller
from odradek.controller.parts import PARTITIONS_AT_ONCE, Part
from odradek.errors import ErrorCode
from odradek.metadata.image import NO_LEADER, UNASSIGNED_DIRECTORY
from odradek.metadata.records import ConfigRecord, PartitionChangeRecord, PartitionRecord, TopicRecord
from odradek.model import Caller
from odradek.wire.codec import drain
from odradek.wire.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionDataInRequest,
    TopicDataInRequest,
)
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from odradek.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
)
from tests.controller.controller_cluster import apply, cluster, directory_of

T = UUID(int=7)
NOTHING = ((), ())


class World:
    """Brokers 1 to 6, and topic t: partition 0 on 1, 2 and 3, led by 1 in leader epoch 5."""

    def __init__(self, *, replicas=(1, 2, 3), isr=(1, 2, 3), leader=1, fenced=(), elr=None, **settings):
        self.controller = Controller(1, BrokerConfig(), Random(1))
        partition = PartitionRecord(
            0, T, list(replicas), list(isr), leader=leader, leader_epoch=5, partition_epoch=8,
            directories=[directory_of(replica) for replica in replicas], eligible_leader_replicas=elr,
        )  # fmt: skip
        configs = [ConfigRecord(2, "t", name.replace("_", "."), value) for name, value in settings.items()]
        self.image = apply(
            cluster(1, 2, 3, 4, 5, 6, fenced=fenced), [TopicRecord("t", T), partition, *configs]
        )

    def decide(self, request, version):
        parts = drain(self.controller.cut(self.image, request))
        responses, self.records, self.said = [], [], []
        for part in parts:
            records, response = self.controller.decide(self.image, part, version, Caller())
            self.said += [change.text for change in changes(self.image, records)]
            self.image = apply(self.image, records) if records else self.image
            self.records += records
            responses.append(response)
        return join(responses)

    def reassign(self, target, *, topic="t", index=0, allow=True):
        """The error code of the partition."""
        wanted = ReassignableTopic(topic, [ReassignablePartition(index, target)])
        response = self.decide(AlterPartitionReassignmentsRequest(60000, allow, [wanted]), 1)
        assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)
        assert response.allow_replication_factor_change == allow
        (result,) = response.responses
        (partition,) = result.partitions
        assert (result.name, partition.partition_index) == (topic, index)
        assert (partition.error_message is None) == (partition.error_code == 0)
        return ErrorCode(partition.error_code)

    def cancel(self):
        return self.reassign(None)

    def propose(self, *isr):
        """The leader proposes an ISR; returns the controller's response."""
        now = self.partition
        members = [BrokerState(replica, self.image.brokers[replica].epoch) for replica in isr]
        wanted = PartitionDataInRequest(0, now.leader_epoch, members, partition_epoch=now.partition_epoch)
        epoch = self.image.brokers[now.leader].epoch
        request = AlterPartitionRequest(now.leader, epoch, [TopicDataInRequest(T, [wanted])])
        return self.decide(request, 3).topics[0].partitions[0]

    def lose(self, broker_id):
        self.image = apply(self.image, fence_broker(self.image, BrokerConfig(), broker_id))

    @property
    def partition(self):
        return self.image.topics["t"].partitions[0]

    @property
    def moving(self):
        return self.partition.adding_replicas, self.partition.removing_replicas

    @property
    def epochs(self):
        return self.partition.leader_epoch, self.partition.partition_epoch


# Beginning and completing


def test_new_replicas_are_added_and_the_old_ones_stay_until_all_new_ones_are_in_sync():
    world = World()
    assert world.reassign([4, 1, 5]) is ErrorCode.NONE
    assert world.said == ["began to move t-0 from brokers 1,2,3 to 4,1,5"]
    assert world.partition.replicas == (4, 1, 5, 2, 3)
    assert world.moving == ((4, 5), (2, 3))
    assert world.partition.directories == tuple(directory_of(replica) for replica in (4, 1, 5, 2, 3))
    assert (world.partition.leader, world.partition.isr, world.epochs) == (1, (1, 2, 3), (5, 9))

    assert world.propose(1, 2, 3, 4).error_code == ErrorCode.NONE
    assert world.moving == ((4, 5), (2, 3))
    assert world.epochs == (5, 10)

    response = world.propose(1, 2, 3, 4, 5)
    assert world.said == ["moved t-0 from brokers 4,1,5,2,3 to 4,1,5"]
    assert world.partition.replicas == (4, 1, 5)
    assert world.partition.directories == tuple(directory_of(replica) for replica in (4, 1, 5))
    assert world.moving == NOTHING
    assert (world.partition.leader, world.partition.isr) == (1, (1, 4, 5))
    assert world.epochs == (6, 11)  # replicas have left: a new leader epoch, though the leader stays
    assert (response.error_code, response.leader_epoch, response.partition_epoch) == (0, 6, 11)
    assert response.isr == [1, 4, 5]


def test_the_leader_moves_if_it_is_not_in_the_target():
    world = World()
    world.reassign([4, 5, 6])
    response = world.propose(1, 2, 3, 4, 5, 6)
    assert (ErrorCode(response.error_code), response.leader_id) == (ErrorCode.NEW_LEADER_ELECTED, 0)
    assert (world.partition.leader, world.partition.isr, world.partition.replicas) == (
        4,
        (4, 5, 6),
        (4, 5, 6),
    )
    assert world.epochs == (6, 10)


def test_as_many_new_replicas_as_old_ones_do_not_wait_for_one_that_stays_and_lags():
    world = World(isr=(1, 2))
    world.reassign([1, 3, 4])
    world.propose(1, 2, 4)
    assert (world.partition.replicas, world.partition.isr) == ((1, 3, 4), (1, 4))


def test_fewer_replicas_must_all_be_in_sync():
    world = World(isr=(1, 2))
    assert world.reassign([1, 3]) is ErrorCode.NONE
    assert (world.partition.replicas, world.moving) == ((1, 3, 2), ((), (2,)))
    world.propose(1, 2, 3)
    assert (world.partition.replicas, world.partition.isr, world.moving) == ((1, 3), (1, 3), NOTHING)


@pytest.mark.parametrize(
    ("target", "leader", "epoch"),
    [
        ([3, 2, 1], 1, 5),  # another order: only the preferred leader is another one
        ([1], 1, 6),
        ([3, 2], 3, 6),  # the leader leaves
    ],
)
def test_a_target_without_new_replicas_is_reached_at_once(target, leader, epoch):
    world = World()
    world.reassign(target)
    now = world.partition
    assert (list(now.replicas), now.leader, now.leader_epoch, world.moving) == (
        target,
        leader,
        epoch,
        NOTHING,
    )
    assert set(now.isr) == set(target)


def test_the_same_replicas_again_change_nothing():
    world = World()
    assert (world.reassign([1, 2, 3]), world.records) == (ErrorCode.NONE, [])


def test_more_replicas():
    world = World(replicas=(1,), isr=(1,))
    world.reassign([1, 2, 3])
    assert (world.partition.replicas, world.moving, world.epochs) == ((1, 2, 3), ((2, 3), ()), (5, 9))
    world.propose(1, 2, 3)
    assert (world.moving, world.epochs) == (NOTHING, (5, 10))  # nobody left: the same leader epoch


def test_a_new_replica_of_a_broker_with_several_directories_has_none_yet():
    world = World()
    broker = world.image.brokers[4]._replace(directories=(UUID(int=1001), UUID(int=1002)))
    world.image = type(world.image)(
        "cluster", topics=world.image.topics, topics_by_id=world.image.topics_by_id,
        brokers={**world.image.brokers, 4: broker},
    )  # fmt: skip
    world.reassign([1, 4])
    assert world.partition.directory_of(4) == UNASSIGNED_DIRECTORY


# Refusals


@pytest.mark.parametrize(
    ("request_fields", "code"),
    [
        ({"topic": "gone"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"index": 1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"target": []}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"target": [1, 1]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"target": [1, 7]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"target": [1, -1]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"target": [1, 2], "allow": False}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"target": [1, 1], "allow": False}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"target": None}, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_refused(request_fields, code):
    world = World()
    assert world.reassign(**{"target": [4, 5, 6], **request_fields}) is code
    assert world.records == []


def test_without_a_change_of_the_replication_factor_the_target_of_a_running_reassignment_counts():
    world = World()
    world.reassign([4, 5])
    assert world.reassign([4, 5, 6], allow=False) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert world.reassign([5, 6], allow=False) is ErrorCode.NONE


def test_one_refused_partition_does_not_affect_the_others():
    world = World()
    topics = [
        ReassignableTopic("t", [ReassignablePartition(3, [1]), ReassignablePartition(0, [4])]),
        ReassignableTopic("gone", [ReassignablePartition(0, None)]),
    ]
    response = world.decide(AlterPartitionReassignmentsRequest(topics=topics), 1)
    codes = [[item.error_code for item in topic.partitions] for topic in response.responses]
    assert codes == [[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0], [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]]
    assert world.moving == ((4,), (1, 2, 3))


def test_a_partition_that_is_named_twice_is_reassigned_twice():
    world = World()
    twice = [ReassignablePartition(0, [4, 5]), ReassignablePartition(0, [1, 2, 3])]
    world.decide(AlterPartitionReassignmentsRequest(topics=[ReassignableTopic("t", twice)]), 1)
    assert (world.partition.replicas, world.partition.isr, world.moving) == ((1, 2, 3), (1, 2, 3), NOTHING)


def test_a_large_request_is_cut():
    world = World()
    many = [ReassignablePartition(index, None) for index in range(PARTITIONS_AT_ONCE + 1)]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic("t", many)])
    assert len(drain(world.controller.cut(world.image, request))) == 2
    responses = [item for topic in world.decide(request, 1).responses for item in topic.partitions]
    assert [item.partition_index for item in responses] == list(range(PARTITIONS_AT_ONCE + 1))


# Cancelling and replacing


def test_cancelled_before_the_new_replicas_are_in_sync():
    world = World()
    world.reassign([4, 5, 1])
    world.propose(1, 2, 3, 4)
    assert world.cancel() is ErrorCode.NONE
    assert world.said == ["moved t-0 from brokers 4,5,1,2,3 to 1,2,3"]
    assert (world.partition.replicas, world.partition.isr, world.moving) == ((1, 2, 3), (1, 2, 3), NOTHING)
    assert world.partition.directories == tuple(directory_of(replica) for replica in (1, 2, 3))
    assert (world.partition.leader, world.epochs) == (1, (6, 11))
    assert world.cancel() is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_the_leader_moves_back_if_a_new_replica_leads_when_it_is_cancelled():
    world = World()
    world.reassign([4, 5])
    world.propose(1, 2, 3, 4)
    elected = ElectLeadersRequest(0, [TopicPartitions("t", [0])])
    world.decide(elected, 2)
    assert world.partition.leader == 4
    world.cancel()
    assert (world.partition.leader, world.partition.isr) == (1, (1, 2, 3))


def test_without_an_original_replica_in_sync_it_is_not_cancelled():
    world = World(replicas=(1, 2), isr=(1,))
    world.reassign([4, 5])
    world.propose(1, 4)
    world.lose(1)
    assert (world.partition.leader, world.partition.isr) == (4, (4,))
    assert world.cancel() is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert world.partition.leader == 4


def test_unless_the_topic_allows_unclean_elections():
    world = World(replicas=(1, 2), isr=(1,), unclean_leader_election_enable="true")
    world.reassign([4, 5])
    world.propose(1, 4)
    world.lose(1)
    assert world.cancel() is ErrorCode.NONE
    assert (world.partition.leader, world.partition.isr, world.partition.replicas) == (2, (2,), (1, 2))
    assert world.partition.leader_recovery_state == 1


def test_an_unclean_cancellation_prefers_an_eligible_replica():
    world = World(replicas=(1, 2), isr=(2, 1), unclean_leader_election_enable="true", min_insync_replicas="2")
    world.reassign([4, 5])
    world.propose(1, 2, 4)
    for broker_id in (2, 1):
        world.lose(broker_id)
    assert (world.partition.isr, world.partition.eligible_leader_replicas) == ((4,), (1,))
    assert world.cancel() is ErrorCode.NONE
    assert (world.partition.isr, world.partition.eligible_leader_replicas) == ((), (1,))
    assert world.partition.leader == NO_LEADER


def test_replaced_by_another_target():
    world = World(replicas=(1, 2), isr=(1, 2))
    world.reassign([1, 3])
    world.reassign([1, 4])
    assert (world.partition.replicas, world.moving) == ((1, 4, 2, 3), ((4,), (2, 3)))
    assert world.epochs == (5, 10)


def test_the_same_target_again_changes_nothing():
    world = World(replicas=(1, 2), isr=(1, 2))
    world.reassign([1, 3])
    assert (world.reassign([1, 3]), world.records) == (ErrorCode.NONE, [])


def test_replaced_by_the_original_replicas_it_is_over():
    world = World(replicas=(1, 2), isr=(1, 2))
    world.reassign([1, 3])
    world.reassign([1, 2])
    assert (world.partition.replicas, world.moving, world.epochs) == ((1, 2), NOTHING, (6, 10))


def test_replaced_by_all_of_its_replicas_none_is_removed():
    world = World(replicas=(1, 2), isr=(1, 2))
    world.reassign([1, 3])
    world.reassign([1, 3, 2])
    assert (world.partition.replicas, world.moving) == ((1, 3, 2), ((3,), ()))
    world.propose(1, 2, 3)
    assert (world.partition.replicas, world.moving) == ((1, 3, 2), NOTHING)


# Together with other changes


def test_a_removed_leader_that_is_fenced_may_complete_it():
    world = World(isr=(1, 2, 3))
    world.reassign([2, 3, 4])
    world.propose(1, 2, 3, 4)
    assert world.moving == NOTHING
    world = World(isr=(1, 2))
    world.reassign([2, 3])  # removes 1 only, and waits for 3
    world.lose(1)
    assert (world.partition.leader, world.moving) == (2, ((), (1,)))
    world.propose(2, 3)
    assert (world.partition.replicas, world.moving) == ((2, 3), NOTHING)


def test_eligible_leader_replicas_leave_with_their_replica():
    world = World(replicas=(1, 2), isr=(1,), elr=[2], min_insync_replicas="2")
    world.reassign([1, 3])
    assert world.partition.eligible_leader_replicas == (2,)
    world.propose(1, 3)
    assert (world.partition.replicas, world.partition.eligible_leader_replicas) == ((1, 3), ())

    world = World(replicas=(1, 2), isr=(1, 2), min_insync_replicas="2")
    world.reassign([3])
    world.propose(1, 2, 3)
    assert (world.partition.isr, world.partition.eligible_leader_replicas) == ((3,), ())


def test_a_last_known_member_that_has_left_counts_no_more():
    world = World(replicas=(1, 2), isr=(1,))
    world.reassign([1, 4])
    world.propose(1, 4)
    assert world.partition.replicas == (1, 4)
    records = leave_isr(world.image, BrokerConfig(), 4)
    world.image = apply(world.image, records)
    killed = PartitionChangeRecord(
        0, T, isr=[], leader=NO_LEADER, last_known_elr=[1], eligible_leader_replicas=[]
    )
    world.image = apply(world.image, [killed])
    assert world.reassign([4]) is ErrorCode.NONE
    now = world.partition
    assert (now.leader, now.last_known_elr, now.removing_replicas) == (NO_LEADER, (1,), (1,))

    world.image = apply(
        world.image,
        [PartitionChangeRecord(0, T, replicas=[4], removing_replicas=[], directories=[directory_of(4)])],
    )
    assert world.reassign([4, 5]) is ErrorCode.NONE
    assert (world.partition.leader, world.partition.last_known_elr) == (NO_LEADER, ())


def test_a_fenced_broker_may_be_a_target():
    world = World(fenced=(6,))
    assert world.reassign([1, 6]) is ErrorCode.NONE
    assert world.moving == ((6,), (2, 3))


# Listing


def ongoing(world, topics):
    response = world.decide(ListPartitionReassignmentsRequest(60000, topics), 0)
    assert (response.error_code, response.error_message, world.records) == (0, None, [])
    return [(topic.name, topic.partitions) for topic in response.topics]


def test_lists_what_is_being_reassigned():
    world = World()
    other = PartitionRecord(1, T, [1, 2], [1, 2], leader=1, leader_epoch=0, partition_epoch=0)
    world.image = apply(world.image, [other])
    assert ongoing(world, None) == []
    world.reassign([4, 1])
    expected = [("t", [OngoingPartitionReassignment(0, [4, 1, 2, 3], [4], [2, 3])])]
    assert ongoing(world, None) == expected
    assert ongoing(world, []) == []
    asked = [
        ListPartitionReassignmentsTopics("gone", [0]),
        ListPartitionReassignmentsTopics("t", [9, 1, 0]),
    ]
    assert ongoing(world, asked) == expected
    assert ongoing(world, [ListPartitionReassignmentsTopics("t", [1])]) == []
    world.cancel()
    assert ongoing(world, None) == []


def test_parts_of_a_list_are_not_cut():
    world = World()
    request = ListPartitionReassignmentsRequest(60000, None)
    assert drain(world.controller.cut(world.image, request)) == [
        Part(ListPartitionReassignmentsRequest(60000, []))
    ]


def test_many_moves_of_one_decision_are_one_line_in_the_log():
    image = apply(
        cluster(1, 2, 3),
        [
            TopicRecord("t", T),
            *(
                PartitionRecord(
                    number,
                    T,
                    [1],
                    [1],
                    leader=1,
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[directory_of(1)],
                )
                for number in range(9)
            ),
        ],
    )
    begun = [PartitionChangeRecord(number, T, replicas=[1, 2], adding_replicas=[2]) for number in range(9)]
    assert [change.text for change in changes(image, begun)] == [
        "began to move 9 partitions: t-0, t-1, t-2, t-3, t-4 and 4 more"
    ]
    assert len(list(changes(image, begun[:3]))) == 3
