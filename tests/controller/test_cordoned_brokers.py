"""Cordoned brokers (KIP-1066) keep what they have, and get no new replicas."""

from random import Random
from uuid import UUID

import pytest

from odradek.config.broker import BrokerConfig
from odradek.controller.controller import Controller
from odradek.controller.features import CORDONED, CORDONING_SINCE, METADATA_VERSION
from odradek.controller.parts import Part
from odradek.controller.placement import default_factor
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    PartitionRecord,
    TopicRecord,
)
from odradek.model import Caller
from odradek.wire.codec import drain
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.controller.controller_cluster import apply, cluster, directory_of

T = UUID(int=7)
BROKER = 4


def image_of(level=CORDONING_SINCE, cordoned=()):
    partition = PartitionRecord(0, T, [1, 3], [1, 3], leader=1, leader_epoch=0)
    image = apply(
        cluster(1, 2, 3),
        [FeatureLevelRecord(METADATA_VERSION, level), TopicRecord("t", T), partition],
    )
    for broker in cordoned:
        image = beat(image, broker, [directory_of(broker)])[0]
    return image


def decide(image, request):
    controller = Controller(1, BrokerConfig(), Random(1))
    (part,) = drain(controller.cut(image, request))
    return controller.decide(image, part, request.MAX_VERSION, Caller())


def beat(image, broker, directories):
    request = BrokerHeartbeatRequest(broker, image.brokers[broker].epoch, 100, cordoned_log_dirs=directories)
    records, _ = Controller(1, BrokerConfig(), Random(1)).decide(image, Part(request), 2, Caller())
    return (apply(image, records) if records else image), records


def test_a_heartbeat_says_which_directories_are_cordoned():
    before = image_of()
    image, records = beat(before, 2, [directory_of(2)])
    epoch = before.brokers[2].epoch
    assert records == [BrokerRegistrationChangeRecord(2, epoch, cordoned_log_dirs=[directory_of(2)])]
    assert image.brokers[2].is_cordoned and image.brokers[2].is_active
    assert beat(image, 2, [directory_of(2)])[1] == []
    assert beat(image, 2, None)[1] == []
    assert not beat(image, 2, [])[0].brokers[2].is_cordoned


def test_an_older_cluster_does_not_cordon():
    image = image_of(level=25)
    assert beat(image, 2, [directory_of(2)])[1] == []
    (result,) = decide(image, setting("*"))[1].responses
    assert result.error_code == ErrorCode.INVALID_CONFIG


def setting(value):
    change = AlterConfigsResource(BROKER, "2", [AlterableConfig(CORDONED, 0, value)])
    return IncrementalAlterConfigsRequest([change])


def test_the_setting_is_a_list_or_everything():
    assert decide(image_of(), setting("*"))[1].responses[0].error_code == ErrorCode.NONE
    assert decide(image_of(), setting("/data"))[1].responses[0].error_code == ErrorCode.NONE
    assert decide(image_of(), setting("*,/data"))[1].responses[0].error_code == ErrorCode.INVALID_REQUEST


def create(image, factor=-1, assignments=()):
    topic = CreatableTopic(
        "new",
        -1 if assignments else 4,
        -1 if assignments else factor,
        [CreatableReplicaAssignment(index, list(one)) for index, one in enumerate(assignments)],
    )
    records, response = decide(image, CreateTopicsRequest([topic]))
    return ErrorCode(response.topics[0].error_code), records


def test_new_topics_leave_cordoned_brokers_out():
    image = image_of(cordoned=[2])
    code, records = create(image, factor=2)
    assert code is ErrorCode.NONE
    assert {replica for record in records[1:] for replica in record.replicas} == {1, 3}
    assert create(image, factor=3)[0] is ErrorCode.INVALID_REPLICATION_FACTOR
    assert create(image_of(cordoned=[1, 2, 3]), factor=1)[0] is ErrorCode.INVALID_REPLICATION_FACTOR
    assert create(image, assignments=[(1, 2)])[0] is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert create(image, assignments=[(1, 3)])[0] is ErrorCode.NONE


def reassign(image, *replicas):
    topics = [ReassignableTopic("t", [ReassignablePartition(0, list(replicas))])]
    response = decide(image, AlterPartitionReassignmentsRequest(topics=topics))[1]
    return ErrorCode(response.responses[0].partitions[0].error_code)


def test_cordoned_brokers_do_not_count_where_the_default_follows_the_cluster():
    assert default_factor(image_of(cordoned=[2]), BrokerConfig()) == 2
    assert create(image_of(cordoned=[2]), factor=-1)[0] is ErrorCode.NONE


def test_a_partition_does_not_move_to_a_cordoned_broker_but_may_stay_and_leave():
    image = image_of(cordoned=[2, 3])
    assert reassign(image, 1, 2) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert reassign(image, 3, 1) is ErrorCode.NONE
    assert reassign(image, 1) is ErrorCode.NONE


@pytest.mark.parametrize("kind", [2, 3])
def test_the_metadata_version_cannot_be_lowered_again(kind):
    request = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(METADATA_VERSION, 25, kind)])
    image = apply(cluster(), [FeatureLevelRecord(METADATA_VERSION, CORDONING_SINCE)])
    with pytest.raises(KafkaError, match="might delete metadata information"):
        Controller(1, BrokerConfig(), Random(1)).decide(image, Part(request), 2, Caller())
