"""AlterConfigs and IncrementalAlterConfigs."""

import pytest

from odradek.config.broker import BrokerConfig
from odradek.controller.configs import Operation, alter_configs, incremental_alter_configs
from odradek.errors import ErrorCode
from odradek.metadata.image import ResourceType
from odradek.metadata.records import ConfigRecord, PartitionRecord, TopicRecord
from odradek.model import METADATA_TOPIC_ID
from odradek.wire.messages import alter_configs as legacy
from odradek.wire.messages import incremental_alter_configs as incremental
from tests.controller.controller_cluster import apply, cluster

TOPIC, BROKER, GROUP = ResourceType.TOPIC, ResourceType.BROKER, ResourceType.GROUP
SET, DELETE, APPEND, SUBTRACT = Operation

IMAGE = apply(
    cluster(1),
    [
        TopicRecord("t", METADATA_TOPIC_ID),
        PartitionRecord(0, METADATA_TOPIC_ID, [1], [1]),
        ConfigRecord(TOPIC, "t", "retention.ms", "1"),
        ConfigRecord(TOPIC, "t", "segment.ms", "2"),
        ConfigRecord(BROKER, "1", "log.retention.ms", "3"),
    ],
)


def change(*resources, validate_only=False, config=None):
    """Resources of (type, name, [(key, operation, value), …])."""
    request = incremental.IncrementalAlterConfigsRequest(
        [
            incremental.AlterConfigsResource(kind, name, [incremental.AlterableConfig(*key) for key in keys])
            for kind, name, keys in resources
        ],
        validate_only,
    )
    return incremental_alter_configs(IMAGE, request, config or BrokerConfig())


def replace(*resources):
    request = legacy.AlterConfigsRequest(
        [
            legacy.AlterConfigsResource(kind, name, [legacy.AlterableConfig(*key) for key in keys])
            for kind, name, keys in resources
        ]
    )
    return alter_configs(IMAGE, request, BrokerConfig())


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ([("retention.ms", SET, "5")], [("retention.ms", "5")]),
        ([("retention.ms", SET, "1")], []),
        ([("retention.ms", DELETE, None)], [("retention.ms", None)]),
        ([("flush.ms", DELETE, None)], []),
        ([("cleanup.policy", APPEND, "compact")], [("cleanup.policy", "delete,compact")]),
        ([("cleanup.policy", APPEND, "delete")], [("cleanup.policy", "delete")]),
        ([("cleanup.policy", SUBTRACT, "delete")], [("cleanup.policy", "")]),
        ([("flush.ms", SET, "9"), ("segment.ms", DELETE, "")], [("flush.ms", "9"), ("segment.ms", None)]),
    ],
)
def test_single_keys(keys, expected):
    records, response = change((TOPIC, "t", keys))
    assert records == [ConfigRecord(TOPIC, "t", *key) for key in expected]
    [result] = response.responses
    assert (result.error_code, result.error_message, result.resource_type, result.resource_name) == (
        0,
        None,
        TOPIC,
        "t",
    )


def test_all_keys_are_replaced():
    records, response = replace((TOPIC, "t", [("retention.ms", "7"), ("flush.ms", "8")]))
    assert response.responses[0].error_code == 0
    assert apply(IMAGE, records).topic_overrides("t") == {"retention.ms": "7", "flush.ms": "8"}
    assert ConfigRecord(TOPIC, "t", "segment.ms", None) in records


def test_brokers_and_their_default():
    records, _ = change(
        (BROKER, "1", [("log.retention.ms", SET, "4")]), (BROKER, "", [("message.max.bytes", SET, "9")])
    )
    image = apply(IMAGE, records)
    assert image.broker_overrides(1) == {"log.retention.ms": "4"}
    assert image.default_broker_overrides == {"message.max.bytes": "9"}


def test_brokers_keep_names_that_nobody_knows():
    keys = [("nope", SET, "2"), ("some.plugin.url", SET, "x")]
    records, response = change((BROKER, "1", keys), (BROKER, "", keys))
    assert [one.error_code for one in response.responses] == [0, 0]
    image = apply(IMAGE, records)
    assert image.broker_overrides(1) == {"log.retention.ms": "3", "nope": "2", "some.plugin.url": "x"}
    assert image.default_broker_overrides == {"nope": "2", "some.plugin.url": "x"}
    records, response = replace((BROKER, "1", [("nope", "3")]))
    assert response.responses[0].error_code == 0
    assert apply(image, records).broker_overrides(1) == {"nope": "3", "some.plugin.url": "x"}


def test_groups():
    records, _ = change((GROUP, "g", [("share.auto.offset.reset", SET, "earliest")]))
    assert apply(IMAGE, records).group_overrides("g") == {"share.auto.offset.reset": "earliest"}


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        ((TOPIC, "nope", []), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((TOPIC, "", []), ErrorCode.INVALID_REQUEST),
        ((TOPIC, "a/b", []), ErrorCode.INVALID_TOPIC_EXCEPTION),
        ((TOPIC, "t", [("nope", SET, "1")]), ErrorCode.INVALID_CONFIG),
        ((TOPIC, "t", [("retention.ms", SET, "soon")]), ErrorCode.INVALID_CONFIG),
        ((TOPIC, "t", [("cleanup.policy", APPEND, "shrink")]), ErrorCode.INVALID_CONFIG),
        ((TOPIC, "t", [("retention.ms", APPEND, "1")]), ErrorCode.INVALID_CONFIG),
        ((TOPIC, "t", [("nope", SUBTRACT, "1")]), ErrorCode.INVALID_CONFIG),
        ((TOPIC, "t", [("retention.ms", SET, None)]), ErrorCode.INVALID_REQUEST),
        ((TOPIC, "t", [("retention.ms", 4, "1")]), ErrorCode.INVALID_REQUEST),
        ((TOPIC, "t", [("flush.ms", SET, "1"), ("flush.ms", SET, "2")]), ErrorCode.INVALID_REQUEST),
        ((BROKER, "2", []), ErrorCode.BROKER_ID_NOT_REGISTERED),
        ((BROKER, "one", []), ErrorCode.INVALID_REQUEST),
        ((BROKER, "-1", []), ErrorCode.INVALID_REQUEST),
        ((BROKER, "1", [("node.id", SET, "2")]), ErrorCode.INVALID_REQUEST),
        ((BROKER, "1", [("log.retention.ms", SET, "soon")]), ErrorCode.INVALID_REQUEST),
        ((GROUP, "", []), ErrorCode.INVALID_REQUEST),
        ((GROUP, "g", [("nope", SET, "2")]), ErrorCode.INVALID_CONFIG),
        ((GROUP, "g", [("share.isolation.level", APPEND, "x")]), ErrorCode.INVALID_CONFIG),
        ((GROUP, "g", [("consumer.session.timeout.ms", SET, "1")]), ErrorCode.INVALID_CONFIG),
        ((0, "x", []), ErrorCode.INVALID_REQUEST),
        ((77, "x", []), ErrorCode.INVALID_REQUEST),
    ],
)
def test_refused_without_harm_to_the_others(resource, code):
    fine = (BROKER, "", [("message.max.bytes", SET, "9")])
    records, response = change(resource, fine)
    assert [one.error_code for one in response.responses] == [code, 0]
    assert response.responses[0].error_message
    assert records == [ConfigRecord(BROKER, "", "message.max.bytes", "9")]


@pytest.mark.parametrize("keys", [[("retention.ms", None)], [("flush.ms", "1"), ("flush.ms", "1")]])
def test_a_replacement_refused(keys):
    records, response = replace((TOPIC, "t", keys))
    assert records == [] and response.responses[0].error_code is ErrorCode.INVALID_REQUEST


def test_a_resource_twice_in_one_request():
    one = (TOPIC, "t", [("retention.ms", SET, "5")])
    records, response = change(one, one)
    assert records == []
    assert [one.error_code for one in response.responses] == [ErrorCode.INVALID_REQUEST] * 2


def test_validating_alone_writes_nothing():
    records, response = change((TOPIC, "t", [("retention.ms", SET, "5")]), validate_only=True)
    assert records == [] and response.responses[0].error_code == 0


def test_a_topic_is_checked_together_with_the_controllers_configuration():
    config = BrokerConfig({"log.cleaner.max.compaction.lag.ms": "5"})
    _, response = change((TOPIC, "t", [("min.compaction.lag.ms", SET, "6")]), config=config)
    assert response.responses[0].error_code is ErrorCode.INVALID_CONFIG
