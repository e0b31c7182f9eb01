"""The same ACLs on Apache Kafka and on ours: the same responses to those who may, and to those who may not."""

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.acls.acl import Acl
from odradek.config.authorizer import STANDARD_AUTHORIZER
from odradek.records.record import Record, build_batch
from odradek.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from odradek.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.wire.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek.wire.messages.delete_groups import DeleteGroupsRequest
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.describe_acls import DescribeAclsRequest
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.wire.messages.describe_groups import DescribeGroupsRequest
from odradek.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from odradek.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from odradek.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from odradek.wire.messages.describe_topic_partitions import TopicRequest as DescribedTopic
from odradek.wire.messages.describe_transactions import DescribeTransactionsRequest
from odradek.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from odradek.wire.messages.elect_leaders import ElectLeadersRequest
from odradek.wire.messages.end_txn import EndTxnRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.wire.messages.list_groups import ListGroupsRequest
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from odradek.wire.messages.list_transactions import ListTransactionsRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from odradek.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest
from odradek.wire.messages.unregister_broker import UnregisterBrokerRequest
from odradek.wire.messages.update_features import UpdateFeaturesRequest
from odradek.wire.messages.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest
from tests.peer.exchange import Cluster, Versions, common_versions, compare, served_versions
from tests.security_cluster import ConfiguredBroker, configured_broker, users
from tools.peer.kafka import KafkaPeer

PASSWORDS = {"admin": "admin-secret", "ada": "ada-secret"}
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": users(PASSWORDS),
    "authorizer.class.name": STANDARD_AUTHORIZER,
    "super.users": "User:admin;User:ANONYMOUS",  # controllers are asked without a login
}
OURS = {
    "listeners": "PLAINTEXT://localhost:0,CONTROLLER://localhost:0",
    "controller.listener.names": "CONTROLLER",
    "process.roles": "broker,controller",
    "node.id": "1",
}
# Differences that are meant, and why.
ACCEPTED = {
    r"log_dir": "each has its own",
    r"^Fetch.*aborted_transactions: Kafka \[\], ours None": "none, in both",
    r"^CreateAcls: odd": "Kafka closes the connection at a code that it does not know; we refuse the ACL",
    r"^DescribeAcls: odd": "likewise",
    r"^CreateAcls: wrong.*Kafka -1, ours 42": "Kafka answers UNKNOWN_SERVER_ERROR; we say what is wrong",
}
ANY = DescribeAclsRequest(1, None, 1, None, None, 1, 1)


class LoggedIn(Cluster):
    """A connection of a user."""

    def __init__(self, bootstrap: str, versions: Versions, user: str) -> None:
        self._user = user
        super().__init__(bootstrap, lambda key: versions[key][1])
        self._log_in()

    def _log_in(self) -> None:
        shaken = self.ask_in(SaslHandshakeRequest("PLAIN"), 1, 1)
        token = f"\0{self._user}\0{PASSWORDS[self._user]}".encode()
        response = self.ask_in(SaslAuthenticateRequest(token), 2, 2)
        assert (shaken.error_code, response.error_code) == (0, 0), response

    def ask_quietly(self, request: Any, version: int | None = None) -> Any:
        try:
            response = super().ask_quietly(request, version)
        except TimeoutError:
            raise AssertionError(f"no response: {request}") from None
        if response is None:
            self._log_in()
        return response


@pytest.fixture(scope="module")
def guarded_kafka(jars: Path) -> Iterator[KafkaPeer]:
    with KafkaPeer(**{name.replace(".", "_"): value for name, value in SETTINGS.items()}) as peer:
        yield peer


@pytest.fixture(scope="module")
def guarded_ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConfiguredBroker]:
    with configured_broker(tmp_path_factory.mktemp("guarded"), {**OURS, **SETTINGS}) as broker:
        yield broker


class Both:
    """The same connections to both."""

    def __init__(self, kafka: KafkaPeer, ours: ConfiguredBroker) -> None:
        brokers = (kafka.bootstrap, ours.bootstrap)
        versions = common_versions(*map(served_versions, brokers))
        self.admins = [LoggedIn(bootstrap, versions, "admin") for bootstrap in brokers]
        self.adas = [LoggedIn(bootstrap, versions, "ada") for bootstrap in brokers]
        self.prefix = f"t{uuid.uuid4().hex[:6]}"
        self.mine, self.theirs = f"{self.prefix}-mine", f"{self.prefix}-theirs"
        for admin in self.admins:
            admin.create(self.mine)
            admin.create(self.theirs)

    def allow(self, *acls: Acl) -> None:
        """In force at both when this returns: at Kafka's broker a moment later."""
        for admin in self.admins:
            response = admin.ask_quietly(CreateAclsRequest([AclCreation(*acl) for acl in acls]))
            assert not any(result.error_code for result in response.results), response
            there = [DescribeAclsRequest(*acl) for acl in acls]
            for asked in there:
                admin.until(asked, lambda found: bool(found.resources))

    def differences(self) -> list[str]:
        found = [*compare(*self.admins), *compare(*self.adas)]
        is_accepted = re.compile("|".join(ACCEPTED)).search
        for connection in (*self.admins, *self.adas):
            connection.close()
        return [difference for difference in found if not is_accepted(difference)]


def acl(name: str, operation: int, resource: int = 2, permission: int = 3, pattern: int = 3) -> Acl:
    return Acl(resource, name, pattern, "User:ada", "*", operation, permission)


def requests(mine: str, theirs: str, ids: Any) -> Iterator[tuple[str, Any, int | None]]:
    """Most APIs, about something of ours and something of others."""
    both = (mine, theirs)
    missing = f"{mine}-missing"
    batch = bytes(build_batch([Record(0, 0, None, b"x")]))
    yield "", MetadataRequest([MetadataRequestTopic(name=name) for name in (*both, missing)], False), 12
    yield "operations", MetadataRequest([MetadataRequestTopic(name=mine)], False, True, True), 10
    yield "by id", MetadataRequest([MetadataRequestTopic(ids(theirs), None)], False), 12
    yield "created", MetadataRequest([MetadataRequestTopic(name=missing)], True), 12
    yield "", DescribeTopicPartitionsRequest([DescribedTopic(name) for name in both]), None
    yield "", DescribeClusterRequest(True), 1
    data = [TopicProduceData(name=name, partition_data=[PartitionProduceData(0, batch)]) for name in both]
    yield "", ProduceRequest(None, -1, 10_000, data), 12
    transactional = bytes(
        build_batch(
            [Record(0, 0, None, b"x")], producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
        )
    )
    data = [TopicProduceData(name=mine, partition_data=[PartitionProduceData(0, transactional)])]
    yield "in another's transaction", ProduceRequest("tx", -1, 10_000, data), 12
    yield "in a transaction without a name", ProduceRequest(None, -1, 10_000, data), 12
    fetched = [FetchTopic(topic=name, partitions=[FetchPartition(partition_max_bytes=1)]) for name in both]
    yield "", FetchRequest(max_wait_ms=0, topics=fetched, session_epoch=-1), 12
    by_id = [
        FetchTopic(topic_id=ids(name), partitions=[FetchPartition(partition_max_bytes=1)]) for name in both
    ]
    yield "by id", FetchRequest(max_wait_ms=0, topics=by_id, session_epoch=-1), 16
    replica = FetchRequest(max_wait_ms=0, topics=by_id, session_epoch=-1, replica_state=ReplicaState(2, 1))
    yield "as a replica", replica, 16
    offsets = [ListOffsetsTopic(name, [ListOffsetsPartition(0, -1, -2)]) for name in both]
    yield "", ListOffsetsRequest(-1, 0, offsets, 1000), None
    epochs = [OffsetForLeaderTopic(name, [OffsetForLeaderPartition(0, -1, 0)]) for name in both]
    yield "", OffsetForLeaderEpochRequest(-1, epochs), None
    yield (
        "",
        DeleteRecordsRequest([DeleteRecordsTopic(name, [DeleteRecordsPartition(0, 0)]) for name in both]),
        None,
    )
    yield "", DescribeProducersRequest([TopicRequest(name, [0]) for name in both]), None
    for key_type, names in ((0, ("g", "their-g")), (1, ("tx", "their-tx"))):
        yield f"{key_type}", FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(names)), 4
    yield (
        "theirs",
        JoinGroupRequest("their-g", 10_000, 10_000, "", None, "consumer", [JoinGroupRequestProtocol("r")]),
        None,
    )
    yield "theirs", HeartbeatRequest("their-g", 1, "m"), None
    yield "theirs", LeaveGroupRequest("their-g", members=[MemberIdentity("m")]), None
    commits = [
        OffsetCommitRequestTopic(name=name, partitions=[OffsetCommitRequestPartition(0, 1)]) for name in both
    ]
    for group in ("g", "their-g"):
        yield group, OffsetCommitRequest(group, topics=commits), 9
        yield group, OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=None)]), 9
        yield group, DescribeGroupsRequest([group], True), None
        yield group, ConsumerGroupDescribeRequest([group]), None
    yield "", DeleteGroupsRequest(["their-g"]), None
    yield "", ListGroupsRequest(), None
    names = {"subscribed_topic_names": [theirs]}
    yield (
        "theirs",
        ConsumerGroupHeartbeatRequest(
            "g848", str(uuid.UUID(int=5)), 0, rebalance_timeout_ms=10_000, topic_partitions=[], **names
        ),
        1,
    )
    yield "tx", InitProducerIdRequest("their-tx", 10_000), None
    yield "idempotent", InitProducerIdRequest(None, 10_000), None
    for name in ("their-tx",):
        parts = [AddPartitionsToTxnTopic(mine, [0])]
        yield name, AddPartitionsToTxnRequest([], name, 1, 0, parts), 3
        yield name, AddOffsetsToTxnRequest(name, 1, 0, "g"), None
        yield name, EndTxnRequest(name, 1, 0, True), 4
        yield name, DescribeTransactionsRequest([name]), None
    yield "as a broker", AddPartitionsToTxnRequest([]), 5
    yield "", WriteTxnMarkersRequest([WritableTxnMarker(1, 0, True, [], 0)]), None
    yield "", ListTransactionsRequest(), None
    yield "theirs", CreateTopicsRequest([CreatableTopic(missing, 1, 1)]), None
    yield "theirs", DeleteTopicsRequest([DeleteTopicState(theirs)], timeout_ms=10_000), None
    by_id = [DeleteTopicState(None, ids(theirs))]
    yield "theirs by id", DeleteTopicsRequest(by_id, timeout_ms=10_000), None
    yield "", CreatePartitionsRequest([CreatePartitionsTopic(theirs, 3, None)]), None
    keys = ["retention.ms"]
    for kind, name in ((2, mine), (2, theirs), (4, "1"), (32, "their-g")):
        yield (
            f"{kind} {name == mine}",
            DescribeConfigsRequest([DescribeConfigsResource(kind, name, keys)]),
            None,
        )
        change = AlterConfigsResource(kind, name, [AlterableConfig("retention.ms", 0, "1000")])
        yield f"{kind} {name == mine}", IncrementalAlterConfigsRequest([change], validate_only=True), None
    yield "", DescribeLogDirsRequest(None), None
    yield "", ElectLeadersRequest(0, None, 1000), None
    yield "", ListPartitionReassignmentsRequest(), None
    yield "", UnregisterBrokerRequest(99), None
    yield "", UpdateFeaturesRequest(1000, []), None
    yield "", DescribeUserScramCredentialsRequest([]), None  # without a list, Kafka never answers
    yield "", AlterUserScramCredentialsRequest([], []), None
    yield "", ANY, None
    yield "", CreateAclsRequest([AclCreation(*acl(mine, 3))]), None
    yield "", DeleteAclsRequest([DeleteAclsFilter(*acl(mine, 3))]), None


@pytest.mark.parametrize("rights", ["none", "describe", "read and write", "denied"])
def test_the_same_acls_give_the_same_answers(
    guarded_kafka: KafkaPeer, guarded_ours: ConfiguredBroker, rights: str
) -> None:
    both = Both(guarded_kafka, guarded_ours)
    for admin in both.admins:  # so that both have their internal topics
        for key_type in (0, 1):
            asked = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["g"])
            admin.until(asked, lambda found: found.coordinators[0].error_code == 0)
        admin.until(InitProducerIdRequest(None, 10_000), lambda found: found.error_code == 0)
    mine = both.mine
    if rights == "describe":
        both.allow(acl(mine, 8), acl("g", 8, 3))
    elif rights != "none":
        both.allow(acl(mine[:-1], 3, pattern=4), acl(mine, 4), acl("g", 3, 3))
    if rights == "denied":
        both.allow(acl("*", 4, permission=2), acl("g", 2, 3, permission=2))
    for ada, admin in zip(both.adas, both.admins, strict=True):
        for label, request, version in requests(mine, both.theirs, admin.id_of):
            ada.ask(request, version, label)
    for admin in both.admins:
        everything = DeleteAclsFilter(1, None, 1, "User:ada", None, 1, 1)
        admin.ask_quietly(DeleteAclsRequest([everything]))
        admin.until(ANY, lambda found: not found.resources)
    found = both.differences()
    assert not found, "\n" + "\n".join(found)


def test_the_same_responses_about_acls(guarded_kafka: KafkaPeer, guarded_ours: ConfiguredBroker) -> None:
    both = Both(guarded_kafka, guarded_ours)
    mine = both.mine
    wrong = [
        acl("", 3),
        acl("not-the-cluster", 5, 4),
        acl(mine, 1),
        acl(mine, 3, pattern=1),
        acl(mine, 3, pattern=2),
        acl(mine, 3, permission=1),
        acl(mine, 3, 1),
        acl(mine, 3)._replace(principal="ada"),
    ]
    for admin in both.admins:
        for number, one in enumerate(wrong):
            admin.ask(CreateAclsRequest([AclCreation(*one)]), None, f"wrong {number}")
        admin.ask(CreateAclsRequest([AclCreation(*acl(mine, 77))]), None, "odd")
        good = [acl(mine, 3), acl(mine, 3), acl(mine[:3], 4, pattern=4), acl("*", 8, permission=2)]
        admin.ask(CreateAclsRequest([AclCreation(*one) for one in good]))
        admin.until(ANY, lambda found: sum(len(each.acls) for each in found.resources) == 3)
        admin.ask(ANY)
        for number, pattern in enumerate((1, 2, 3, 4)):
            admin.ask(DescribeAclsRequest(2, mine, pattern, None, None, 1, 1), None, f"{number}")
        admin.ask(DescribeAclsRequest(0, None, 1, None, None, 1, 1), None, "odd")
        filters = [
            DeleteAclsFilter(2, mine, 2, None, None, 1, 3),
            DeleteAclsFilter(3, None, 1, None, None, 1, 1),
        ]
        admin.ask(DeleteAclsRequest(filters))
        admin.ask(DeleteAclsRequest([DeleteAclsFilter(1, None, 1, None, None, 1, 1)]))
        admin.until(ANY, lambda found: not found.resources)
    found = both.differences()
    assert not found, "\n" + "\n".join(found)
