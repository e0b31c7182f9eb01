"""UnregisterBroker, UpdateFeatures, and eligible leaders when the minimal ISR changes."""

from random import Random
from uuid import UUID

import pytest

from odradek.config.broker import BrokerConfig
from odradek.controller.controller import Controller
from odradek.controller.parts import Part
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import NO_LEADER, ResourceType
from odradek.metadata.records import FeatureLevelRecord, PartitionRecord, TopicRecord
from odradek.model import Caller
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.unregister_broker import UnregisterBrokerRequest
from odradek.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.controller.controller_cluster import apply, cluster

T, U = UUID(int=7), UUID(int=8)
MIN_ISR = "min.insync.replicas"


def decide(image, request, version=None):
    version = request.MAX_VERSION if version is None else version
    return Controller(1, BrokerConfig({MIN_ISR: "2"}), Random(1)).decide(
        image, Part(request), version, Caller()
    )


def refusal(image, request, version=None):
    with pytest.raises(KafkaError) as refused:
        decide(image, request, version)
    return refused.value


def with_partition(topic_id, name, isr, elr, image):
    partition = PartitionRecord(
        0, topic_id, [1, 2, 3], isr, leader=(isr or [NO_LEADER])[0], leader_epoch=0, partition_epoch=0,
        eligible_leader_replicas=elr,
    )  # fmt: skip
    return apply(image, [TopicRecord(name, topic_id), partition])


# UnregisterBroker


def test_a_broker_that_is_unregistered_is_in_no_isr_and_no_elr():
    image = with_partition(T, "t", [2, 3], [], cluster(1, 2, 3, fenced=[2]))
    image = with_partition(U, "u", [1], [2], image)
    records, response = decide(image, UnregisterBrokerRequest(2))
    image = apply(image, records)
    assert response.error_code == 0 and set(image.brokers) == {1, 3}
    one, other = image.topics["t"].partitions[0], image.topics["u"].partitions[0]
    assert (one.leader, one.isr, one.eligible_leader_replicas) == (3, (3,), ())
    assert (other.leader, other.isr, other.eligible_leader_replicas) == (1, (1,), ())


def test_a_broker_that_is_not_there_cannot_be_unregistered():
    assert refusal(cluster(1), UnregisterBrokerRequest(2)).code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_a_broker_that_is_alive_stays_registered():
    assert refusal(cluster(1, 2), UnregisterBrokerRequest(2)).code is ErrorCode.INVALID_REQUEST


# UpdateFeatures


def update(level, upgrade_type=1, feature="metadata.version", **fields):
    return UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(feature, level, upgrade_type)], **fields)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_feature_that_everybody_supports(version):
    records, response = decide(cluster(), update(25), version)
    assert records == [FeatureLevelRecord("metadata.version", 25)]
    assert (response.error_code, response.error_message) == (0, None)
    assert [result.feature for result in response.results] == (["metadata.version"] if version < 2 else [])
    assert decide(apply(cluster(), records), update(25), version)[0] == [], "it is at this level already"
    assert decide(cluster(), update(25, validate_only=True), 2)[0] == []


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (update(31), "This controller only supports versions 25-30."),
        (update(24, 2), "This controller only supports versions 25-30."),
        (update(1, feature="group.version"), "This controller only supports versions 0-0."),
        (update(-1), "A feature version cannot be less than 0."),
        (update(25, 0), "The controller does not support the given upgrade type."),
        (update(25, 3), "A downgrade cannot lead to a newer version."),
    ],
)
def test_features_that_cannot_be(request_, reason):
    error = refusal(cluster(), request_)
    assert error.code is ErrorCode.INVALID_UPDATE_VERSION and error.message.endswith(reason)


def test_a_broker_that_does_not_support_a_feature_is_named():
    assert "Broker 1 only supports versions 0-0." in refusal(cluster(1), update(25)).message


# min.insync.replicas


def setting(resource_type, name, key=MIN_ISR, operation=0):
    change = AlterableConfig(key, operation, "1")
    return IncrementalAlterConfigsRequest([AlterConfigsResource(resource_type, name, [change])])


@pytest.mark.parametrize(
    ("request_", "forgotten"),
    [
        (setting(ResourceType.TOPIC, "t"), {"t"}),
        (setting(ResourceType.TOPIC, "t", "retention.ms"), set()),
        (setting(ResourceType.BROKER, ""), {"t", "u"}),
    ],
)
def test_nobody_stays_eligible_when_the_minimum_changes(request_, forgotten):
    image = with_partition(U, "u", [1], [2], with_partition(T, "t", [3], [2], cluster(1, 2, 3)))
    image = with_partition(UUID(int=9), "without-leader", [], [2], image)
    after = apply(image, decide(image, request_)[0])
    assert {
        name for name, topic in after.topics.items() if not topic.partitions[0].eligible_leader_replicas
    } == forgotten
