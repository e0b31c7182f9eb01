"""CreateTopics: what is created, what is refused and how."""

import random
from uuid import UUID

import pytest

from odradek.config.broker import BrokerConfig
from odradek.controller.topics import create_topics, new_topic_id
from odradek.errors import ErrorCode
from odradek.metadata.records import ConfigRecord, PartitionRecord, TopicRecord
from odradek.model import id_to_text
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tests.controller.controller_cluster import apply, cluster, directory_of

THREE = cluster(1, 2, 3)


def topic(name="t", partitions=1, factor=1, assignments=(), configs=()):
    return CreatableTopic(
        name,
        partitions,
        factor,
        [CreatableReplicaAssignment(index, brokers) for index, brokers in assignments],
        [CreatableTopicConfig(*config) for config in configs],
    )


def create(image, *topics, config=None, validate_only=False, seed=1):
    request = CreateTopicsRequest(list(topics), validate_only=validate_only)
    return create_topics(image, request, config or BrokerConfig(), random.Random(seed))


def test_the_records_and_the_answer():
    records, response = create(THREE, topic("a", 2, 3, configs=[("retention.ms", "5")]))
    name, config, first, second = records
    assert (type(name), name.name) == (TopicRecord, "a")
    assert config == ConfigRecord(2, "a", "retention.ms", "5")
    for index, partition in enumerate((first, second)):
        assert isinstance(partition, PartitionRecord)
        assert (partition.partition_id, partition.topic_id) == (index, name.topic_id)
        assert sorted(partition.replicas) == [1, 2, 3]
        assert partition.isr == partition.replicas and partition.leader == partition.replicas[0]
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
        assert partition.directories == [directory_of(broker_id) for broker_id in partition.replicas]
    assert first.leader != second.leader
    [result] = response.topics
    assert (result.name, result.topic_id, result.error_code) == ("a", name.topic_id, ErrorCode.NONE)
    assert (result.num_partitions, result.replication_factor) == (2, 3)
    shown = {entry.name: (entry.value, entry.config_source) for entry in result.configs}
    assert shown["retention.ms"] == ("5", 1) and shown["cleanup.policy"] == ("delete", 5)
    assert list(shown) == sorted(shown)


def test_the_created_topic_is_in_the_next_image():
    records, _ = create(THREE, topic("a", 4, 2))
    image = apply(THREE, records)
    assert sorted(image.topics["a"].partitions) == [0, 1, 2, 3]


def test_defaults_of_the_broker():
    config = BrokerConfig({"num.partitions": "3", "default.replication.factor": "2"})
    _, response = create(THREE, topic("a", -1, -1), config=config)
    assert (response.topics[0].num_partitions, response.topics[0].replication_factor) == (3, 2)


def test_validate_only_answers_the_same_and_writes_nothing():
    records, response = create(THREE, topic("a"), topic("b", 0), validate_only=True)
    assert records == []
    assert [result.error_code for result in response.topics] == [0, ErrorCode.INVALID_PARTITIONS]


EXISTING = apply(THREE, create(THREE, topic("a.b"), topic("plain"))[0])


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (topic("plain"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("a.b"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (topic("a_b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
        (topic(partitions=0), ErrorCode.INVALID_PARTITIONS),
        (topic(partitions=-2), ErrorCode.INVALID_PARTITIONS),
        (topic(partitions=10_001), ErrorCode.POLICY_VIOLATION),
        (topic(partitions=2**31 - 1), ErrorCode.POLICY_VIOLATION),
        (topic(factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic(factor=-2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic(factor=4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic(configs=[("retention.ms", "soon")]), ErrorCode.INVALID_CONFIG),
        (topic(configs=[("retention", "1")]), ErrorCode.INVALID_CONFIG),
        (topic(configs=[("retention.ms", None)]), ErrorCode.INVALID_CONFIG),
        (topic(partitions=1, factor=-1, assignments=[(0, [1])]), ErrorCode.INVALID_REQUEST),
        (topic(partitions=-1, factor=1, assignments=[(0, [1])]), ErrorCode.INVALID_REQUEST),
        (topic("m", -1, -1, [(0, [])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("m", -1, -1, [(0, [9])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("m", -1, -1, [(0, [1, 1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("m", -1, -1, [(0, [1]), (0, [2])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("m", -1, -1, [(0, [1]), (2, [2])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("m", -1, -1, [(0, [1, 2]), (1, [2])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_refused(wanted, code):
    records, response = create(EXISTING, wanted, topic("fine"))
    by_name = {result.name: result for result in response.topics}
    assert by_name[wanted.name].error_code is code
    assert by_name[wanted.name].error_message
    if code is not ErrorCode.POLICY_VIOLATION:
        assert by_name["fine"].error_code == 0
        assert {record.name for record in records if isinstance(record, TopicRecord)} == {"fine"}


def test_a_name_twice_in_one_request_is_answered_once_and_not_created():
    records, response = create(THREE, topic("a"), topic("b"), topic("a"))
    assert [(result.name, result.error_code) for result in response.topics] == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", 0),
    ]
    assert [record.name for record in records if isinstance(record, TopicRecord)] == ["b"]


def test_names_that_collide_within_one_request():
    _, response = create(THREE, topic("x.y"), topic("x_y"))
    assert [result.error_code for result in response.topics] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_replicas_by_hand():
    records, response = create(THREE, topic("m", -1, -1, [(1, [3, 1]), (0, [2, 3])]))
    partitions = [record for record in records if isinstance(record, PartitionRecord)]
    assert [(item.partition_id, item.replicas, item.leader) for item in partitions] == [
        (0, [2, 3], 2),
        (1, [3, 1], 3),
    ]
    assert (response.topics[0].num_partitions, response.topics[0].replication_factor) == (2, 2)


def test_fenced_brokers_do_not_lead():
    image = cluster(1, 2, 3, fenced=[1, 2])
    records, _ = create(image, topic("a", 5, 2))
    for record in records[1:]:
        assert (record.leader, record.isr, record.replicas[0]) == (3, [3], 3)
        assert record.replicas[1] in (1, 2)
    _, response = create(image, topic("m", -1, -1, [(0, [1, 2])]))
    assert response.topics[0].error_code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize("image", [cluster(), cluster(1, fenced=[1])])
def test_without_an_active_broker_nothing_is_created(image):
    _, response = create(image, topic("a"))
    assert response.topics[0].error_code is ErrorCode.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize(("brokers", "factor"), [(1, 1), (3, 2), (3, 3), (5, 3), (7, 2)])
def test_placement_is_even(brokers, factor):
    image = cluster(*range(1, brokers + 1))
    turns = 4 * brokers * max(brokers - 1, 1)
    records, _ = create(image, topic("a", turns, factor))
    leaders, replicas, followers_of = {}, {}, {}
    for record in records[1:]:
        assert len(set(record.replicas)) == factor
        leaders[record.leader] = leaders.get(record.leader, 0) + 1
        for broker_id in record.replicas:
            replicas[broker_id] = replicas.get(broker_id, 0) + 1
        for follower in record.replicas[1:]:
            followers_of.setdefault(record.leader, set()).add(follower)
    assert set(leaders.values()) == {turns // brokers}
    assert max(replicas.values()) - min(replicas.values()) <= factor
    if factor > 1:
        assert all(len(followers) == brokers - 1 for followers in followers_of.values())


def test_topic_ids_are_no_options_of_a_command_line():
    class Dashes(random.Random):
        responses = [0xF8 << 120 | 1, 0xFB << 120 | 7, 0x11 << 120]

        def getrandbits(self, k):
            return self.responses.pop(0)

    assert id_to_text(UUID(int=0xF8 << 120, version=4)).startswith("-")
    assert not id_to_text(new_topic_id(Dashes())).startswith("-")


def test_the_same_seed_makes_the_same_topics():
    assert create(THREE, topic("a", 3, 2), seed=5)[0] == create(THREE, topic("a", 3, 2), seed=5)[0]
