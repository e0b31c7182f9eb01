"""Requests to the controller are messages: sent to another node as bytes, they are decided alike."""

from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from odradek.apis.items import join
from odradek.config.broker import BrokerConfig
from odradek.controller import requests
from odradek.controller.controller import Controller
from odradek.controller.requests import create_topics as create_topics_request
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import LOST_DIRECTORY, ResourceType
from odradek.metadata.records import AccessControlEntryRecord, ConfigRecord, PartitionRecord, TopicRecord
from odradek.model import Caller, Principal
from odradek.wire.codec import drain, encode, read_message
from odradek.wire.frame import SIZE, encode_request, read_request_header
from odradek.wire.messages import alter_configs as legacy
from odradek.wire.messages import controller_registration
from odradek.wire.messages import incremental_alter_configs as incremental
from odradek.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from odradek.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityDataInRequest,
    EntryDataInRequest,
    OpData,
)
from odradek.wire.messages.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    PartitionDataInRequest,
    TopicDataInRequest,
)
from odradek.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    DirectoryDataInRequest,
)
from odradek.wire.messages.assign_replicas_to_dirs import PartitionDataInRequest as LostPartition
from odradek.wire.messages.assign_replicas_to_dirs import TopicDataInRequest as LostTopic
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from odradek.wire.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from odradek.wire.messages.controller_registration import ControllerRegistrationRequest
from odradek.wire.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.wire.messages.default_principal_data import DefaultPrincipalData
from odradek.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from odradek.wire.messages.envelope import EnvelopeRequest
from odradek.wire.messages.index import SCHEMAS
from odradek.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from odradek.wire.messages.unregister_broker import UnregisterBrokerRequest
from odradek.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.controller.controller_cluster import apply, cluster

T, U = UUID(int=7), UUID(int=8)
TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER
IMAGE = apply(
    cluster(1, 2, 3, 4, fenced=[4]),
    [
        *(TopicRecord("t", T), PartitionRecord(0, T, [1, 2], [1, 2], leader=1)),
        *(TopicRecord("u", U), PartitionRecord(0, U, [1], [1], leader=1)),
        ConfigRecord(TOPIC, "t", "retention.ms", "1"),
        AccessControlEntryRecord(UUID(int=9), 2, "t", 3, "User:eve", "*", 3, 2),
    ],
)

CREATIONS = [
    CreatableTopic("a", 3, 2, configs=[CreatableTopicConfig("retention.ms", "5")]),
    CreatableTopic(
        "b", -1, -1, [CreatableReplicaAssignment(0, [2, 1]), CreatableReplicaAssignment(1, [3, 2])]
    ),
    CreatableTopic("a.b", 1, 1),
    CreatableTopic("a_b", 1, 1),
    CreatableTopic("t", 1, 1),
    CreatableTopic("twice", 1, 1),
    CreatableTopic("twice", 1, 1),
    CreatableTopic("not legal", 1, 1),
]
REPLACEMENTS = [
    legacy.AlterConfigsResource(TOPIC, "t", [legacy.AlterableConfig("segment.ms", "60000")]),
    legacy.AlterConfigsResource(TOPIC, "gone", [legacy.AlterableConfig("segment.ms", "60000")]),
]
CHANGES = [
    incremental.AlterConfigsResource(TOPIC, "t", [incremental.AlterableConfig("retention.ms", 1, None)]),
    incremental.AlterConfigsResource(BROKER, "", [incremental.AlterableConfig("log.retention.ms", 0, "9")]),
    incremental.AlterConfigsResource(BROKER, "1", [incremental.AlterableConfig("no.such", 0, "9")]),
]
EXTENSIONS = [
    CreatePartitionsTopic("t", 4, None),
    CreatePartitionsTopic("u", 2, [CreatePartitionsAssignment([3])]),
    CreatePartitionsTopic("gone", 2, None),
]
LISTENERS = [Listener("PLAINTEXT", "localhost", 9092, 0)]
REGISTRATION = BrokerRegistrationRequest(
    *(1, "cluster", UUID(int=99), LISTENERS, [Feature("metadata.version", 1, 25)], "rack"),
    log_dirs=[UUID(int=5)],
)

REQUESTS = {
    "CreateTopics": CreateTopicsRequest(CREATIONS),
    "CreateTopics, validated only": CreateTopicsRequest(CREATIONS, validate_only=True),
    "CreateTopics, too many": CreateTopicsRequest([*CREATIONS, CreatableTopic("large", 10_000, 1)]),
    "DeleteTopics by name": DeleteTopicsRequest(topic_names=["t", "gone", "u", "u"]),
    "DeleteTopics by id": DeleteTopicsRequest(
        [DeleteTopicState("t"), DeleteTopicState(None, U), DeleteTopicState(None, UUID(int=1))]
    ),
    "AlterConfigs": legacy.AlterConfigsRequest(REPLACEMENTS),
    "IncrementalAlterConfigs": incremental.IncrementalAlterConfigsRequest(CHANGES),
    "CreatePartitions": CreatePartitionsRequest(EXTENSIONS),
    "BrokerRegistration": REGISTRATION,
    "AllocateProducerIds": AllocateProducerIdsRequest(2, IMAGE.brokers[2].epoch),
    "AllocateProducerIds, stale": AllocateProducerIdsRequest(2, 99),
    "BrokerHeartbeat": BrokerHeartbeatRequest(2, IMAGE.brokers[2].epoch, 10, want_fence=True),
    "BrokerHeartbeat, stale": BrokerHeartbeatRequest(2, 99),
    "AlterPartition": AlterPartitionRequest(
        1,
        IMAGE.brokers[1].epoch,
        [
            TopicDataInRequest(T, [PartitionDataInRequest(0, -1, [BrokerState(1, 0)], [1], 0, -1)]),
            TopicDataInRequest(UUID(int=1), [PartitionDataInRequest(0)]),
        ],
    ),
    "AssignReplicasToDirs": AssignReplicasToDirsRequest(
        1,
        IMAGE.brokers[1].epoch,
        [DirectoryDataInRequest(LOST_DIRECTORY, [LostTopic(T, [LostPartition(0)])])],
    ),
    "ElectLeaders": ElectLeadersRequest(0, [TopicPartitions("t", [0, 1]), TopicPartitions("gone", [0])]),
    "ElectLeaders, all": ElectLeadersRequest(1, None),
    "AlterPartitionReassignments": AlterPartitionReassignmentsRequest(
        topics=[
            ReassignableTopic(
                "t",
                [
                    ReassignablePartition(0, [1, 3]),
                    ReassignablePartition(0, None),
                    ReassignablePartition(1, [1]),
                ],
            ),
            ReassignableTopic("gone", [ReassignablePartition(0, [1])]),
        ]
    ),
    "ListPartitionReassignments": ListPartitionReassignmentsRequest(
        topics=[ListPartitionReassignmentsTopics("t", [0])]
    ),
    "ListPartitionReassignments, all": ListPartitionReassignmentsRequest(topics=None),
    "UnregisterBroker": UnregisterBrokerRequest(4),
    "CreateAcls": CreateAclsRequest(
        [
            AclCreation(2, "t", 4, "User:ann", "*", 3, 3),
            AclCreation(2, "", 3, "User:ann", "*", 3, 3),
        ]
    ),
    "DeleteAcls": DeleteAclsRequest([DeleteAclsFilter(1, None, 1, "User:eve", None, 1, 1)]),
    "AlterClientQuotas": AlterClientQuotasRequest(
        [
            EntryDataInRequest(
                [EntityDataInRequest("user", "ann"), EntityDataInRequest("client-id", None)],
                [OpData("producer_byte_rate", 1000.0), OpData("request_percentage", remove=True)],
            )
        ]
    ),
    "AlterUserScramCredentials": AlterUserScramCredentialsRequest(
        deletions=[ScramCredentialDeletion("nobody", 1)],
        upsertions=[ScramCredentialUpsertion("alice", 1, 4096, b"salt", bytes(32))],
    ),
    "UpdateFeatures": UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey("metadata.version", 25)]),
    "ControllerRegistration": ControllerRegistrationRequest(
        1,
        UUID(int=99),
        listeners=[controller_registration.Listener("CONTROLLER", "localhost", 9093, 0)],
        features=[controller_registration.Feature("metadata.version", 1, 25)],
    ),
}


def decide(request, version, caller, image=IMAGE):
    """All records, and the response or what is raised instead."""
    controller = Controller(1, BrokerConfig(), Random(4))
    records, responses = [], []
    for part in drain(controller.cut(image, request)):
        try:
            some, response = controller.decide(image, part, version, caller)
        except KafkaError as error:
            return error.code, str(error)
        image = apply(image, some)
        records += some
        responses.append(response)
    return records, join(responses)


def forward(request, version, caller):
    """To another node and back: as Kafka's Envelope does, in bytes."""
    frame = encode_request(request, request.API_KEY, version, 1, caller.client_id)
    envelope = EnvelopeRequest(
        request_data=bytes(frame[SIZE.size :]),
        request_principal=bytes(encode(DefaultPrincipalData(*caller.principal), 0)),
        client_host_address=caller.address.encode(),
    )
    arrived, _ = read_message(EnvelopeRequest, 0, bytes(encode(envelope, 0)))
    header = read_request_header(arrived.request_data)
    message, _ = read_message(type(request), header.version, arrived.request_data, header.body)
    principal, _ = read_message(DefaultPrincipalData, 0, arrived.request_principal)
    address = arrived.client_host_address.decode()
    caller = Caller(Principal(principal.type_, principal.name), address, client_id=header.client_id)
    return message, header.version, caller


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_sent_as_bytes_is_decided_alike(name):
    request = REQUESTS[name]
    for version in range(request.MIN_VERSION, request.MAX_VERSION + 1):
        caller = Caller(Principal("User", "ann"), "10.0.0.7", client_id="client")
        message, _ = read_message(type(request), version, bytes(encode(request, version)))  # as it came in
        forwarded, *origin = forward(message, version, caller)
        assert (forwarded, *origin) == (message, version, caller)
        assert decide(forwarded, *origin) == decide(message, version, caller)


def test_every_request_that_the_controller_decides_is_sent_above():
    decided = {path.stem for path in Path(requests.__file__).parent.glob("*.py")}
    assert {request.API_KEY for request in REQUESTS.values()} == {
        schema.key for schema in SCHEMAS.values() if schema.module in decided
    }


def test_what_is_decided_above():
    """The requests above do something: otherwise all would be alike."""
    outcomes = {name: decide(request, request.MAX_VERSION, Caller()) for name, request in REQUESTS.items()}
    assert {name for name, (records, _) in outcomes.items() if not records} == {
        *("CreateTopics, validated only", "CreateTopics, too many"),
        *("ElectLeaders", "ElectLeaders, all"),  # every partition has the leader that it should have
        *("ListPartitionReassignments", "ListPartitionReassignments, all"),
    }
    assert outcomes["AllocateProducerIds, stale"][0] is ErrorCode.STALE_BROKER_EPOCH


def test_a_request_that_is_decided_in_parts_has_the_same_outcome(monkeypatch):
    request, origin = REQUESTS["CreateTopics"], (7, Caller())
    _, whole = decide(request, *origin)
    monkeypatch.setattr(create_topics_request, "TOPICS_AT_ONCE", 1)
    controller = Controller(1, BrokerConfig(), Random(4))
    assert len(drain(controller.cut(IMAGE, request))) > 4
    _, in_parts = decide(request, *origin)

    def outcome(response):
        return sorted((item.name, item.error_code, item.error_message) for item in response.topics)

    assert outcome(in_parts) == outcome(whole)
    too_many = REQUESTS["CreateTopics, too many"]
    codes = {item.name: item.error_code for item in decide(too_many, *origin)[1].topics}
    assert codes.pop("twice") == ErrorCode.INVALID_REQUEST
    assert set(codes.values()) == {ErrorCode.POLICY_VIOLATION}


def test_a_change_of_its_settings_reaches_the_controller():
    controller = Controller(1, BrokerConfig(), Random(4))
    controller.reconfigure(BrokerConfig({"delete.topic.enable": "false"}))
    part, *_ = drain(controller.cut(IMAGE, DeleteTopicsRequest([DeleteTopicState("t")])))
    records, response = controller.decide(IMAGE, part, 6, Caller())
    assert (records, response.responses[0].error_code) == ([], ErrorCode.TOPIC_DELETION_DISABLED)
