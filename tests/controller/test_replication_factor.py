"""Partitions are not replicated yet: replicas are spread over the brokers, one for each partition."""

from collections import Counter
from random import Random

import pytest

from odradek.config.broker import BrokerConfig
from odradek.controller.context import RequestContext
from odradek.controller.controller import Controller
from odradek.controller.parts import Part
from odradek.errors import ErrorCode
from odradek.metadata.records import PartitionRecord
from odradek.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from tests.controller.controller_cluster import apply, cluster


def decide(image, request, **settings):
    controller = Controller(1, BrokerConfig(settings), Random(3))
    return controller.decide(image, Part(request), RequestContext(request.MAX_VERSION))


def create(image, topic, **settings):
    records, response = decide(image, CreateTopicsRequest([topic]), **settings)
    return records, response.topics[0]


def test_single_replicas_go_round_the_active_brokers():
    records, result = create(cluster(1, 2, 3, 4, fenced=[4]), CreatableTopic("t", 9, 1))
    assert result.error_code == ErrorCode.NONE
    partitions = [record for record in records if isinstance(record, PartitionRecord)]
    assert Counter(record.leader for record in partitions) == {1: 3, 2: 3, 3: 3}
    assert all(record.replicas == record.isr == [record.leader] for record in partitions)


def test_a_replica_may_be_put_on_any_broker_by_hand():
    records, _ = create(cluster(1, 2, 3), CreatableTopic("t", -1, -1, [CreatableReplicaAssignment(0, [3])]))
    assert records[1].replicas == [3]


@pytest.mark.parametrize(
    "topic",
    [
        CreatableTopic("t", 2, 2),
        CreatableTopic("t", -1, -1),  # with the default of the settings below
        CreatableTopic("t", -1, -1, [CreatableReplicaAssignment(0, [1, 3])]),
    ],
)
def test_more_than_one_replica_is_refused(topic):
    records, result = create(cluster(1, 2, 3), topic, **{"default.replication.factor": "2"})
    assert (records, result.error_code) == ([], ErrorCode.INVALID_REPLICATION_FACTOR)
    assert result.error_message == "A partition cannot have 2 replicas: partitions are not replicated yet."


def test_brokers_that_are_not_there_are_the_first_reason():
    _, result = create(cluster(1), CreatableTopic("t", 1, 2))
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert result.error_message == "A partition cannot have 2 replica(s): there are only 1 broker(s)."


def extend(image, topic):
    records, response = decide(image, CreatePartitionsRequest([topic]))
    return records, response.results[0]


def test_more_partitions_have_one_replica_each():
    image = cluster(1, 2, 3)
    image = apply(image, create(image, CreatableTopic("t", 1, 1))[0])
    records, _ = extend(image, CreatePartitionsTopic("t", 7, None))
    assert Counter(len(record.replicas) for record in records) == {1: 6}
    assert Counter(record.leader for record in records) == {1: 2, 2: 2, 3: 2}
    records, result = extend(image, CreatePartitionsTopic("t", 2, [CreatePartitionsAssignment([1, 2])]))
    assert (records, result.error_code) == ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT)
