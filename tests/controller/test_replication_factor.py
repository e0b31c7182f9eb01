"""Tests of how many replicas a partition has, and on which brokers and racks they are."""

from collections import Counter
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.config.broker import BrokerConfig
from odradek.controller.controller import Controller
from odradek.controller.parts import Part
from odradek.controller.placement import default_factor, place_replicas
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import Broker
from odradek.metadata.records import PartitionRecord
from odradek.model import Caller
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
    return controller.decide(image, Part(request), request.MAX_VERSION, Caller())


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
        CreatableTopic("t", 2, -1),  # with the default of the settings below
        CreatableTopic("t", -1, -1, [CreatableReplicaAssignment(index, [1, 3]) for index in range(2)]),
    ],
)
def test_partitions_with_two_replicas(topic):
    records, result = create(cluster(1, 2, 3), topic, **{"default.replication.factor": "2"})
    assert (result.error_code, result.replication_factor) == (ErrorCode.NONE, 2)
    partitions = [record for record in records if isinstance(record, PartitionRecord)]
    assert all(len(set(record.replicas)) == 2 for record in partitions)
    assert all(record.isr == record.replicas and record.leader == record.isr[0] for record in partitions)


@pytest.mark.parametrize(
    ("image", "settings", "factor"),
    [
        (cluster(1), {}, 1),
        (cluster(1, 2), {}, 2),
        (cluster(1, 2, 3, 4), {}, 3),
        (cluster(1, 2, 3, fenced=[3]), {}, 3),  # which copies its replicas when it is back
        (cluster(1, 2, 3), {"default.replication.factor": "1"}, 1),
    ],
)
def test_the_default_follows_the_cluster_unless_it_is_set(image, settings, factor):
    _, result = create(image, CreatableTopic("t", 1, -1), **settings)
    assert (result.error_code, result.replication_factor) == (ErrorCode.NONE, factor)
    assert default_factor(image, BrokerConfig(settings)) == factor


@given(
    racks=st.lists(st.sampled_from([None, "a", "b", "c", "d"]), min_size=1, max_size=9),
    partitions=st.integers(1, 30),
    seed=st.integers(0, 9),
    data=st.data(),
)
def test_replicas_are_on_as_many_racks_as_there_are(racks, partitions, seed, data):
    brokers = [broker(broker_id, rack) for broker_id, rack in enumerate(racks)]
    factor = data.draw(st.integers(1, len(brokers)))
    placed = place_replicas(brokers, partitions, factor, Random(seed))
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders[item.id] for item in brokers) <= 1
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert len({racks[replica] for replica in replicas}) == min(factor, len(set(racks)))


def test_followers_are_spread_over_the_brokers_of_a_rack():
    brokers = [broker(broker_id, "abc"[broker_id % 3]) for broker_id in range(6)]
    placed = place_replicas(brokers, 36, 3, Random(1))
    counts = Counter(replica for replicas in placed for replica in replicas[1:])
    assert max(counts.values()) - min(counts.values()) <= 6, counts


def test_fenced_brokers_follow_only_where_there_are_not_enough_others():
    brokers = [broker(1, "a"), broker(2, "a"), broker(3, "b", is_fenced=True)]
    assert all(set(replicas) == {1, 2} for replicas in place_replicas(brokers, 4, 2, Random(1)))
    assert all(replicas[2] == 3 for replicas in place_replicas(brokers, 4, 3, Random(1)))


def test_a_broker_that_has_stopped_is_like_any_fenced_one_and_one_that_is_about_to_stop_gets_nothing():
    stopped = broker(3, "b", is_fenced=True, is_stopping=True)
    brokers = [broker(1, "a"), broker(2, "a"), stopped]
    assert all(replicas[2] == 3 for replicas in place_replicas(brokers, 4, 3, Random(1)))
    with pytest.raises(KafkaError, match=r"only 2 broker\(s\)"):
        place_replicas([*brokers[:2], stopped._replace(is_fenced=False)], 4, 3, Random(1))


def broker(broker_id, rack, is_fenced=False, is_stopping=False):
    return Broker(broker_id, 1, UUID(int=broker_id), (), rack, is_fenced, is_stopping, ())


def test_brokers_that_are_not_there_are_the_first_reason():
    _, result = create(cluster(1), CreatableTopic("t", 1, 2))
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert result.error_message == "A partition cannot have 2 replica(s): there are only 1 broker(s)."


def extend(image, topic):
    records, response = decide(image, CreatePartitionsRequest([topic]))
    return records, response.results[0]


def test_more_partitions_have_as_many_replicas_as_the_first():
    image = cluster(1, 2, 3)
    image = apply(image, create(image, CreatableTopic("t", 1, 1))[0])
    records, _ = extend(image, CreatePartitionsTopic("t", 7, None))
    assert Counter(len(record.replicas) for record in records) == {1: 6}
    assert Counter(record.leader for record in records) == {1: 2, 2: 2, 3: 2}
    records, result = extend(image, CreatePartitionsTopic("t", 2, [CreatePartitionsAssignment([1, 2])]))
    assert (records, result.error_code) == ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT)
