"""Brokers whose disks are full lead nothing, and are in no ISR, where another in-sync replica can lead."""

from random import Random
from uuid import UUID

import pytest

from odradek.config.broker import BrokerConfig
from odradek.controller.balance import balance_leaders
from odradek.controller.brokers import (
    FULL,
    NOT_FULL,
    begin_controlled_shutdown,
    elect_missing_leaders,
    fence_broker,
    leave_full,
    register_broker,
)
from odradek.controller.controller import Controller
from odradek.controller.placement import new_partition, place_replicas
from odradek.errors import ErrorCode
from odradek.metadata.image import NO_LEADER
from odradek.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionRecord,
    TopicRecord,
)
from odradek.model import Caller
from odradek.wire.codec import drain
from odradek.wire.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionDataInRequest,
    TopicDataInRequest,
)
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from odradek.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.controller.controller_cluster import apply, cluster

T = UUID(int=7)
CONFIG = BrokerConfig()
MANY = 100


def image_of(*isrs, full=(), fenced=(), min_isr=1, unclean=False, eligible=()):
    """Brokers 1 to 3, and one partition per ISR whose first member leads."""
    partitions = [
        PartitionRecord(
            index,
            T,
            [1, 2, 3],
            isr,
            leader=isr[0] if isr else NO_LEADER,
            leader_epoch=5,
            partition_epoch=9,
            eligible_leader_replicas=list(eligible),
        )
        for index, isr in enumerate(isrs)
    ]
    configs = [
        ConfigRecord(2, "t", "min.insync.replicas", str(min_isr)),
        ConfigRecord(2, "t", "unclean.leader.election.enable", str(unclean).lower()),
    ]
    image = apply(cluster(1, 2, 3, fenced=fenced), [TopicRecord("t", T), *partitions, *configs])
    for broker in full:
        image = apply(image, [change(image, broker, FULL)])
    return image


def change(image, broker, full):
    return BrokerRegistrationChangeRecord(broker, image.brokers[broker].epoch, full=full)


def relieved(image):
    return apply(image, leave_full(image, CONFIG, MANY))


def leaders_and_isrs(image):
    return [
        (partition.leader, list(partition.isr)) for partition in image.topics_by_id[T].partitions.values()
    ]


def decide(image, request):
    controller = Controller(1, CONFIG, Random(1))
    (part,) = drain(controller.cut(image, request))
    records, response = controller.decide(image, part, request.MAX_VERSION, Caller())
    return apply(image, records), records, response


def heartbeat(image, broker, is_full):
    return decide(
        image,
        BrokerHeartbeatRequest(broker, image.brokers[broker].epoch, image.offset, is_full=is_full),
    )


# Heartbeats


def test_a_heartbeat_says_that_a_disk_is_full_and_that_it_is_not():
    image = image_of([1, 2, 3])
    image, records, response = heartbeat(image, 1, is_full=True)
    assert records == [change(image, 1, FULL)]
    assert not response.is_fenced
    assert image.brokers[1].is_full and image.brokers[1].is_active
    assert heartbeat(image, 1, is_full=True)[1] == []
    image, records, _ = heartbeat(image, 1, is_full=False)
    assert records == [change(image, 1, NOT_FULL)]
    assert not image.brokers[1].is_full


def test_a_broker_that_registers_again_has_room_until_it_says_otherwise():
    image = image_of([1, 2, 3], full=[1])
    records = register_broker(
        image, 1, broker_epoch=image.offset + 1, incarnation_id=T, endpoints=[], directories=[]
    )
    assert not apply(image, records).brokers[1].is_full


# Leaving


def test_a_full_broker_leaves_leaderships_and_isrs():
    image = relieved(image_of([1, 2, 3], [2, 1], [3, 2], full=[1]))
    assert leaders_and_isrs(image) == [(2, [2, 3]), (2, [2]), (3, [3, 2])]
    partition = image.topics_by_id[T].partitions[0]
    assert partition.leader_epoch == 6
    assert leave_full(image, CONFIG, MANY) == []


def test_where_it_is_alone_in_sync_it_goes_on_leading():
    image = relieved(image_of([1], full=[1]))
    assert leaders_and_isrs(image) == [(1, [1])]


def test_others_that_are_full_too_do_not_take_over():
    image = relieved(image_of([1, 2], full=[1, 2]))
    assert leaders_and_isrs(image) == [(1, [1, 2])]
    assert leaders_and_isrs(relieved(image_of([1, 2, 3], full=[1, 2]))) == [(3, [3])]


def test_whoever_has_room_again_takes_over_from_those_who_have_not():
    image = relieved(image_of([1, 2], full=[1, 2]))
    image = relieved(heartbeat(image, 2, is_full=False)[0])
    assert leaders_and_isrs(image) == [(2, [2])]


def test_a_broker_that_stops_does_not_take_over():
    image = image_of([1, 2, 3], full=[1])
    image = apply(image, begin_controlled_shutdown(image, CONFIG, 2)[:1])
    assert leaders_and_isrs(relieved(image)) == [(3, [2, 3])]


def test_it_stays_eligible_where_the_isr_becomes_too_small():
    image = relieved(image_of([1, 2], full=[1], min_isr=2))
    partition = image.topics_by_id[T].partitions[0]
    assert (partition.leader, partition.isr, partition.eligible_leader_replicas) == (2, (2,), (1,))


def test_many_partitions_leave_some_at_a_time():
    image = image_of(*[[1, 2]] * 5, full=[1])
    assert len(leave_full(image, CONFIG, 3)) == 3
    image = apply(image, leave_full(image, CONFIG, 3))
    assert len(leave_full(image, CONFIG, 3)) == 2


# Elections


def test_the_only_other_in_sync_replica_leads_though_it_is_full():
    image = relieved(image_of([2], full=[1], eligible=[1], min_isr=2))
    image = apply(image, fence_broker(image, CONFIG, 2))
    assert leaders_and_isrs(image) == [(1, [1])]


def test_an_eligible_replica_with_room_is_elected_before_a_full_one():
    image = image_of([], full=[1], eligible=[1, 3], min_isr=2)
    image = apply(image, elect_missing_leaders(image, CONFIG, {1, 2, 3}))
    assert leaders_and_isrs(image) == [(3, [3])]


def test_an_unclean_election_prefers_room():
    image = image_of([], full=[1], unclean=True)
    image = apply(image, elect_missing_leaders(image, CONFIG, {1, 2, 3}))
    assert leaders_and_isrs(image) == [(2, [2])]


def test_balancing_does_not_bring_leadership_to_it_until_it_is_back():
    image = relieved(image_of([1, 2, 3], full=[1]))
    assert balance_leaders(image, CONFIG, MANY) == []
    (result,) = decide(image, ElectLeadersRequest(0, [TopicPartitions("t", [0])]))[2].replica_election_results
    assert result.partition_result[0].error_code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    image = heartbeat(image, 1, is_full=False)[0]
    image = decide(image, alter(image, 2, [2, 3, 1]))[0]
    image = apply(image, balance_leaders(image, CONFIG, MANY))
    assert leaders_and_isrs(image) == [(1, [2, 3, 1])]


# AlterPartition


def alter(image, leader, isr):
    partition = image.topics_by_id[T].partitions[0]
    wanted = PartitionDataInRequest(
        0,
        partition.leader_epoch,
        [BrokerState(member, image.brokers[member].epoch) for member in isr],
        partition_epoch=partition.partition_epoch,
    )
    return AlterPartitionRequest(leader, image.brokers[leader].epoch, [TopicDataInRequest(T, [wanted])])


def code_of(response):
    return response.topics[0].partitions[0].error_code


def test_a_full_broker_does_not_join_an_isr():
    image = image_of([2, 3], full=[1])
    _, records, response = decide(image, alter(image, 2, [2, 3, 1]))
    assert (records, code_of(response)) == ([], ErrorCode.INELIGIBLE_REPLICA)
    image = heartbeat(image, 1, is_full=False)[0]
    assert leaders_and_isrs(decide(image, alter(image, 2, [2, 3, 1]))[0]) == [(2, [2, 3, 1])]


def test_whoever_joins_a_full_leader_leads_at_once():
    image = image_of([1], full=[1])
    after, _, response = decide(image, alter(image, 1, [1, 2]))
    assert code_of(response) == ErrorCode.NEW_LEADER_ELECTED
    assert leaders_and_isrs(after) == [(2, [2])]


def test_full_members_may_stay_together():
    image = image_of([1, 2, 3], full=[1, 2, 3])
    after, _, response = decide(image, alter(image, 1, [1, 2]))
    assert code_of(response) == ErrorCode.NONE
    assert leaders_and_isrs(after) == [(1, [1, 2])]


# Placement


@pytest.mark.parametrize("seed", range(5))
def test_new_partitions_avoid_full_brokers_if_others_suffice(seed):
    image = image_of(full=[1])
    for replicas in place_replicas(image.brokers.values(), 6, 2, Random(seed)):
        assert set(replicas) == {2, 3}
    for replicas in place_replicas(image.brokers.values(), 6, 3, Random(seed)):
        assert replicas[2] == 1


def test_topics_can_be_made_though_all_are_full():
    image = image_of(full=[1, 2, 3])
    (replicas,) = place_replicas(image.brokers.values(), 1, 3, Random(1))
    assert sorted(new_partition(image, T, 0, replicas).isr) == [1, 2, 3]


def test_a_full_broker_is_not_in_sync_in_a_new_partition():
    image = image_of(full=[1])
    record = new_partition(image, T, 0, [1, 2, 3])
    assert (record.leader, record.isr) == (2, [2, 3])
