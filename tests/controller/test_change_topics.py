"""DeleteTopics and CreatePartitions."""

import random
from uuid import UUID

import pytest

from odradek.config.broker import BrokerConfig
from odradek.controller.topics import create_partitions, create_topics, delete_topics
from odradek.errors import ErrorCode
from odradek.metadata.records import RemoveTopicRecord
from odradek.model import NO_TOPIC_ID
from odradek.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.controller.controller_cluster import apply, cluster

UNKNOWN_ID = UUID(int=99)


def with_topics(*names):
    image = cluster(1, 2, 3)
    request = CreateTopicsRequest([CreatableTopic(name, 2, 2) for name in names])
    return apply(image, create_topics(image, request, BrokerConfig(), random.Random(1))[0])


IMAGE = with_topics("a", "b")
A, B = IMAGE.topics["a"].id, IMAGE.topics["b"].id


def delete(*states, names=(), config=None, version=6):
    request = DeleteTopicsRequest([DeleteTopicState(*state) for state in states], list(names))
    return delete_topics(IMAGE, request, config or BrokerConfig(), version)


def test_by_name_and_by_id():
    records, response = delete(("a", NO_TOPIC_ID), (None, B))
    assert records == [RemoveTopicRecord(A), RemoveTopicRecord(B)]
    assert [(item.name, item.topic_id, item.error_code) for item in response.responses] == [
        ("a", A, 0),
        ("b", B, 0),
    ]
    assert apply(IMAGE, records).topics == {}


def test_by_names_alone_as_before_version_6():
    records, _ = delete(names=["a", "b"], version=5)
    assert records == [RemoveTopicRecord(A), RemoveTopicRecord(B)]


@pytest.mark.parametrize(
    ("states", "codes"),
    [
        ([("c", NO_TOPIC_ID)], [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
        ([(None, UNKNOWN_ID)], [ErrorCode.UNKNOWN_TOPIC_ID]),
        ([(None, NO_TOPIC_ID)], [ErrorCode.INVALID_REQUEST]),
        ([("a", A)], [ErrorCode.INVALID_REQUEST]),
        ([("a", NO_TOPIC_ID)] * 2, [ErrorCode.INVALID_REQUEST]),
        ([(None, A)] * 2, [ErrorCode.INVALID_REQUEST]),
    ],
)
def test_refused(states, codes):
    records, response = delete(*states)
    assert records == []
    assert [item.error_code for item in response.responses] == codes


def test_one_topic_by_name_and_by_id_is_deleted_once():
    records, response = delete((None, A), ("a", NO_TOPIC_ID))
    assert records == [RemoveTopicRecord(A)]
    assert [item.error_code for item in response.responses] == [0, ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize(
    ("version", "code"), [(3, ErrorCode.TOPIC_DELETION_DISABLED), (2, ErrorCode.INVALID_REQUEST)]
)
def test_deletion_switched_off(version, code):
    config = BrokerConfig({"delete.topic.enable": "false"})
    records, response = delete(names=["a", "c"], config=config, version=version)
    assert records == []
    assert [item.error_code for item in response.responses] == [code, code]


def extend(*topics, validate_only=False):
    request = CreatePartitionsRequest(
        [
            CreatePartitionsTopic(
                name,
                count,
                None if assignments is None else list(map(CreatePartitionsAssignment, assignments)),
            )
            for name, count, assignments in topics
        ],
        validate_only=validate_only,
    )
    return create_partitions(IMAGE, request, random.Random(1))


def test_partitions_are_added_behind_the_others():
    records, response = extend(("a", 4, None), ("b", 3, [[3, 1]]))
    assert [(item.topic_id, item.partition_id) for item in records] == [(A, 2), (A, 3), (B, 2)]
    assert all(len(item.replicas) == 2 for item in records)
    assert records[2].replicas == [3, 1]
    assert [item.error_code for item in response.results] == [0, 0]
    assert sorted(apply(IMAGE, records).topics["a"].partitions) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("topics", "code"),
    [
        ([("c", 3, None)], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([("a", 2, None)], ErrorCode.INVALID_PARTITIONS),
        ([("a", 1, None)], ErrorCode.INVALID_PARTITIONS),
        ([("a", 2**31 - 1, None)], ErrorCode.POLICY_VIOLATION),
        ([("a", 3, [])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([("a", 3, [[1]])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([("a", 3, [[1, 9]])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([("a", 3, None), ("a", 4, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_no_such_partitions(topics, code):
    records, response = extend(*topics)
    assert records == []
    assert [item.error_code for item in response.results] == [code]


def test_validating_alone_adds_nothing():
    records, response = extend(("a", 3, None), validate_only=True)
    assert records == [] and response.results[0].error_code == 0
