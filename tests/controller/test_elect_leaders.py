"""ElectLeaders, and the elections that the controller holds by itself."""

from random import Random
from uuid import UUID

import pytest

from odradek.apis.items import join
from odradek.config.broker import BrokerConfig
from odradek.controller import parts
from odradek.controller.balance import balance_leaders, imbalanced
from odradek.controller.brokers import fence_broker
from odradek.controller.controller import Controller
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.records import PartitionRecord, TopicRecord
from odradek.model import Caller
from odradek.wire.codec import drain
from odradek.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.controller.controller_cluster import apply, cluster

T = UUID(int=7)
PREFERRED, UNCLEAN = 0, 1


def world(*states, fenced=()):
    """Brokers 1 to 3, and a partition for each leader and ISR; its replicas are 1, 2 and 3."""
    image = cluster(1, 2, 3)
    partitions = [
        PartitionRecord(index, T, [1, 2, 3], isr, leader=leader, leader_epoch=0, partition_epoch=0)
        for index, (leader, isr) in enumerate(states)
    ]
    image = apply(image, [TopicRecord("t", T), *partitions])
    for broker_id in fenced:
        image = apply(image, fence_broker(image, BrokerConfig(), broker_id))
    return image


def elect(image, election_type, topic_partitions):
    """The leaders afterwards, and what was answered for each partition."""
    controller = Controller(1, BrokerConfig(), Random(1))
    request = ElectLeadersRequest(election_type, topic_partitions)
    responses = []
    for part in drain(controller.cut(image, request)):
        records, response = controller.decide(image, part, 2, Caller())
        image = apply(image, records) if records else image
        responses.append(response)
    response = join(responses)
    results = [
        (result.topic, item.partition_id, ErrorCode(item.error_code))
        for result in response.replica_election_results
        for item in result.partition_result
    ]
    return [item.leader for item in image.topics["t"].partitions.values()], results


def test_a_preferred_leader_that_is_in_sync_leads():
    image = world((2, [1, 2]), (1, [1, 2]), (2, [2, 3]))
    leaders, responses = elect(
        image, PREFERRED, [TopicPartitions("t", [0, 1, 2, 9]), TopicPartitions("gone", [0])]
    )
    assert leaders == [1, 1, 2]
    assert responses == [
        ("t", 0, ErrorCode.NONE),
        ("t", 1, ErrorCode.ELECTION_NOT_NEEDED),
        ("t", 2, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        ("t", 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("gone", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_those_of_all_partitions_that_need_no_election_are_not_named(monkeypatch):
    monkeypatch.setattr(parts, "PARTITIONS_AT_ONCE", 1)
    leaders, responses = elect(world((2, [1, 2]), (1, [1, 2]), (3, [3])), PREFERRED, None)
    assert leaders == [1, 1, 3]
    assert responses == [("t", 0, ErrorCode.NONE), ("t", 2, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)]


def test_an_unclean_election_is_for_partitions_without_a_leader():
    image = world((3, [3]), (2, [2]), fenced=[3])
    leaders, responses = elect(image, UNCLEAN, [TopicPartitions("t", [0, 1])])
    assert leaders == [1, 2]
    assert responses == [("t", 0, ErrorCode.NONE), ("t", 1, ErrorCode.ELECTION_NOT_NEEDED)]


def test_nobody_can_be_elected():
    image = world((3, [3]), fenced=[1, 2, 3])
    assert elect(image, UNCLEAN, [TopicPartitions("t", [0])]) == (
        [-1],
        [("t", 0, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)],
    )


def test_an_election_that_there_is_not():
    with pytest.raises(KafkaError) as refused:
        Controller(1, BrokerConfig(), Random(1)).decide(
            world(), parts.Part(ElectLeadersRequest(2, [])), 2, Caller()
        )
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_leaders_are_balanced_some_at_a_time():
    image = world((2, [1, 2]), (1, [1, 2]), (3, [3]), (3, [3, 1]))
    assert [index for _, index, _ in imbalanced(image)] == [0, 3]
    image = apply(image, balance_leaders(image, BrokerConfig(), 1))
    assert [index for _, index, _ in imbalanced(image)] == [3]
    image = apply(image, balance_leaders(image, BrokerConfig(), 1))
    assert [item.leader for item in image.topics["t"].partitions.values()] == [1, 1, 3, 1]
    assert balance_leaders(image, BrokerConfig(), 1) == []
