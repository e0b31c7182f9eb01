"""Tests of what a cluster agrees to do, and that eligible leader replicas make the minimal ISR a setting of all
brokers.
"""

from random import Random
from uuid import UUID

import pytest

from odradek.config.broker import BrokerConfig
from odradek.controller.brokers import register_broker
from odradek.controller.configs import Operation
from odradek.controller.controller import Controller
from odradek.controller.elections import rules_of
from odradek.controller.features import (
    ELIGIBLE_LEADER_REPLICAS,
    SUPPORTED_FEATURES,
    TRANSACTION_VERSION,
    activation_records,
)
from odradek.controller.parts import Part
from odradek.errors import ErrorCode
from odradek.metadata.image import ResourceType
from odradek.metadata.records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    SupportedFeature,
    TopicRecord,
)
from odradek.model import Caller
from odradek.wire.messages import alter_configs as legacy
from odradek.wire.messages import incremental_alter_configs as incremental
from odradek.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.controller.controller_cluster import apply, cluster

MIN_ISR = "min.insync.replicas"
TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER
SET, DELETE, _, _ = Operation
LEVELS = {name: high for name, (_, high) in SUPPORTED_FEATURES.items()}
T = UUID(int=7)


def config(**settings):
    return BrokerConfig({name.replace("_", "."): value for name, value in settings.items()})


def decide(image, request, settings=None):
    return Controller(1, settings or config(), Random(1)).decide(
        image, Part(request), request.MAX_VERSION, Caller()
    )


def test_a_new_cluster_has_all_features_and_the_minimal_isr_of_its_first_controller():
    image = apply(cluster(), activation_records(cluster(), config(min_insync_replicas="2")))
    assert (
        image.features
        == LEVELS
        == {
            "metadata.version": 30,
            ELIGIBLE_LEADER_REPLICAS: 1,
            TRANSACTION_VERSION: 2,
        }
    )
    assert image.default_broker_overrides == {MIN_ISR: "2"}
    assert activation_records(image, config(min_insync_replicas="3")) == []


def test_a_cluster_that_turned_transaction_version_off_keeps_it_off():
    image = apply(cluster(), activation_records(cluster(), config()))
    image = apply(image, [FeatureLevelRecord(TRANSACTION_VERSION, 0)])
    assert TRANSACTION_VERSION not in image.features
    assert activation_records(image, config()) == []


def test_a_controller_that_sets_no_minimal_isr_writes_kafkas_default():
    image = apply(cluster(), activation_records(cluster(), config()))
    assert image.default_broker_overrides == {MIN_ISR: "1"}


def older_cluster():
    """Without the feature, with settings of single brokers, and with an eligible leader."""
    return apply(
        cluster(1, 2),
        [
            FeatureLevelRecord("metadata.version", 25),
            ConfigRecord(BROKER, "1", MIN_ISR, "2"),
            ConfigRecord(BROKER, "2", "log.retention.ms", "5"),
            ConfigRecord(TOPIC, "t", MIN_ISR, "2"),
            TopicRecord("t", T),
            PartitionRecord(0, T, [1, 2], [1], leader=1, eligible_leader_replicas=[2]),
        ],
    )


def check_one_minimal_isr(image):
    assert image.features[ELIGIBLE_LEADER_REPLICAS] == 1
    assert image.default_broker_overrides == {MIN_ISR: "3"}
    assert image.broker_overrides(1) == {} and image.broker_overrides(2) == {"log.retention.ms": "5"}
    assert image.topic_overrides("t") == {MIN_ISR: "2"}
    assert image.partition("t", 0).eligible_leader_replicas == ()


def test_a_cluster_of_an_older_release_gets_the_feature_and_one_minimal_isr():
    image = older_cluster()
    check_one_minimal_isr(apply(image, activation_records(image, config(min_insync_replicas="3"))))


def enable(level=1):
    updates = [FeatureUpdateKey(ELIGIBLE_LEADER_REPLICAS, level, 1 if level else 2)]
    return UpdateFeaturesRequest(feature_updates=updates)


def test_enabling_the_feature_leaves_one_minimal_isr():
    image = older_cluster()
    image = apply(
        image,
        [record for broker in image.brokers.values() for record in _registered_with_features(image, broker)],
    )
    records, response = decide(image, enable(), config(min_insync_replicas="3"))
    assert response.error_code == 0
    check_one_minimal_isr(apply(image, records))


def _registered_with_features(image, broker):
    return register_broker(
        image, broker.id, broker_epoch=broker.epoch, incarnation_id=broker.incarnation_id,
        endpoints=broker.endpoints, directories=broker.directories, is_fenced=False,
        features=[SupportedFeature(name, *levels) for name, levels in SUPPORTED_FEATURES.items()],
    )  # fmt: skip


def new_cluster():
    image = cluster(1)
    return apply(image, activation_records(image, config(min_insync_replicas="2")))


def change(name, operation, value=None):
    key = incremental.AlterableConfig(MIN_ISR, operation, value)
    resource = incremental.AlterConfigsResource(BROKER, name, [key])
    return incremental.IncrementalAlterConfigsRequest([resource])


def replace(name, **settings):
    keys = [legacy.AlterableConfig(key.replace("_", "."), value) for key, value in settings.items()]
    return legacy.AlterConfigsRequest([legacy.AlterConfigsResource(BROKER, name, keys)])


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (change("1", SET, "1"), "Broker-level min.insync.replicas cannot be altered while ELR is enabled."),
        (change("1", DELETE), "Broker-level min.insync.replicas cannot be altered while ELR is enabled."),
        (change("", DELETE), "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."),
        (replace("1", min_insync_replicas="1"), "Broker-level"),
        (replace("", log_retention_ms="1"), "Cluster-level"),
    ],
)
def test_the_minimal_isr_is_that_of_all_brokers(request_, reason):
    records, response = decide(new_cluster(), request_)
    assert records == []
    assert response.responses[0].error_code == ErrorCode.INVALID_CONFIG
    assert response.responses[0].error_message.startswith(reason)


@pytest.mark.parametrize("request_", [change("", SET, "1"), replace("", min_insync_replicas="1")])
def test_the_minimal_isr_of_all_brokers_can_be_changed(request_):
    records, response = decide(new_cluster(), request_)
    assert response.responses[0].error_code == 0
    assert apply(new_cluster(), records).default_broker_overrides == {MIN_ISR: "1"}


def test_other_settings_of_a_broker_may_be_its_own():
    assert decide(new_cluster(), replace("1", log_retention_ms="1"))[1].responses[0].error_code == 0


@pytest.mark.parametrize(("override", "expected"), [(None, 2), ("3", 3), ("1", 1), ("no number", 2)], ids=str)
def test_elections_go_by_the_topic_then_by_the_cluster(override, expected):
    image = apply(new_cluster(), [TopicRecord("t", T), PartitionRecord(0, T, [1, 2, 3], [1], leader=1)])
    if override is not None:
        image = apply(image, [ConfigRecord(TOPIC, "t", MIN_ISR, override)])
    of_this_node = config(min_insync_replicas="1")
    assert rules_of(image, image.topics["t"], of_this_node).min_isr == expected
