"""A node with Kafka's authorizer: who may do what, from the request that says so to the request that is refused."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from odradek.acls.acl import Acl
from odradek.acls.codes import Operation, Pattern, Permission, Resource
from odradek.apis.messages import request_type
from odradek.apis.table import APIS, BROKER
from odradek.config.authorizer import STANDARD_AUTHORIZER
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.delta import apply_records
from odradek.metadata.image import MetadataImage
from odradek.metadata.records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from odradek.model import Caller, Principal
from odradek.serving.authorizer import DENIED, may_of
from odradek.serving.dispatch import controller_handlers
from odradek.serving.envelope import unwrap_response, wrap
from odradek.serving.request import Request
from odradek.serving.session import Session
from odradek.serving.standard_authorizer import StandardAuthorizer
from odradek.wire.frame import SIZE, RequestHeader, encode_request, read_request_header
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.wire.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.describe_acls import DescribeAclsRequest
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.describe_groups import DescribeGroupsRequest
from odradek.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from odradek.wire.messages.fetch import ReplicaState
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.in_process import InProcess, content
from tests.serving.sample_requests import sample
from tests.serving.test_authorization import codes_of, fetched, produced
from tests.serving.test_entrances import SETTINGS
from tests.serving.test_refusal import error_codes

UUID1 = UUID(int=1)
ADMIN, ALICE, BOB = (Principal("User", name) for name in ("admin", "alice", "bob"))
TOPIC, GROUP, CLUSTER, TRANSACTION = (
    Resource.TOPIC,
    Resource.GROUP,
    Resource.CLUSTER,
    Resource.TRANSACTIONAL_ID,
)
ALLOW, DENY = Permission.ALLOW, Permission.DENY
LITERAL, PREFIXED = Pattern.LITERAL, Pattern.PREFIXED
NO_TOPIC, NO_GROUP = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
NO_CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


class Guarded(InProcess):
    """A node with ACLs, asked by whomever a test names."""

    def __init__(self, data_dir: str, **settings: str) -> None:
        more = {name.replace("_", "."): value for name, value in settings.items()}
        guard = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": str(ADMIN)}
        super().__init__(data_dir, settings={**SETTINGS, **guard, **more}, rng=Random(1))
        self._controller = controller_handlers(self.broker.services)["CONTROLLER"]
        self.sessions: dict[tuple[Principal, str], Session] = {}

    async def ask(self, message: Any, version: int | None = None, who: Principal = ADMIN) -> Any:
        return await self._ask(self._dispatcher, "PLAINTEXT", message, version, who)

    async def ask_controller(self, message: Any, version: int | None = None, who: Principal = ADMIN) -> Any:
        return await self._ask(self._controller, "CONTROLLER", message, version, who)

    async def _ask(
        self, dispatcher: Any, listener: str, message: Any, version: int | None, who: Principal
    ) -> Any:
        version = message.MAX_VERSION if version is None else version
        frame = memoryview(encode_request(message, message.API_KEY, version, 1, "test"))[SIZE.size :]
        header = read_request_header(frame)
        session = self.sessions.setdefault(
            (who, listener), Session(Caller(who, "127.0.0.1:1", listener, header.client_id))
        )
        answered = asyncio.get_running_loop().create_future()
        request = Request(
            header,
            session.caller,
            lambda request: answered.set_result(request.parts),
            dispatcher.turns,
            session,
        )
        effect = dispatcher.dispatch(request, frame, header.body) or dispatcher.finish()
        if effect is not None:
            await effect
        return self._read(b"".join(map(content, await answered)), message.API_KEY, version)

    async def allow(self, *acls: Acl) -> None:
        response = await self.ask(CreateAclsRequest([AclCreation(*acl) for acl in acls]))
        assert not any(error_codes(response, 3)), response

    async def forbid(self, *acls: Acl) -> None:
        response = await self.ask(DeleteAclsRequest([DeleteAclsFilter(*acl) for acl in acls]))
        assert [len(result.matching_acls) for result in response.filter_results] == [1] * len(acls)

    def acls(self) -> set[Acl]:
        return set(self.broker.services.cluster.image.acls.values())


def acl(
    operation: Operation,
    resource: Resource = TOPIC,
    name: str = "mine",
    who: Principal | str = ALICE,
    permission: Permission = ALLOW,
    pattern: Pattern = LITERAL,
    host: str = "*",
) -> Acl:
    name = "kafka-cluster" if resource is CLUSTER else name
    return Acl(resource, name, pattern, str(who), host, operation, permission)


READ, WRITE, DESCRIBE = (acl(each) for each in (Operation.READ, Operation.WRITE, Operation.DESCRIBE))


def run(tmp_path: Path, scenario: Callable[[Guarded], Awaitable[None]], **settings: str) -> None:
    async def play() -> None:
        async with Guarded(str(tmp_path), **settings) as node, asyncio.timeout(60):
            for name in ("mine", "theirs"):
                await node.ask(CreateTopicsRequest([CreatableTopic(name, 1, 1)]))
            await scenario(node)

    asyncio.run(play())


# --- ACLs come and go ---


@pytest.mark.parametrize("version", [1, 2, 3])
def test_acls_are_created_described_and_deleted(version: int, tmp_path: Path) -> None:
    prefixed, denial = acl(Operation.READ, GROUP, "g", pattern=PREFIXED), READ._replace(permission=DENY)

    async def scenario(node: Guarded) -> None:
        asked = [READ, WRITE, prefixed, denial, READ]
        response = await node.ask(CreateAclsRequest([AclCreation(*each) for each in asked]), version)
        assert [(each.error_code, each.error_message) for each in response.results] == [(0, None)] * 5
        assert node.acls() == {READ, WRITE, prefixed, denial}
        again = await node.ask(CreateAclsRequest([AclCreation(*READ)]), version)
        assert [each.error_code for each in again.results] == [0] and len(node.acls()) == 4
        everything = DescribeAclsRequest(1, None, 1, None, None, 1, 1)
        described = await node.ask(everything, version)
        assert (described.error_code, described.error_message) == (0, None)
        assert {
            Acl(each.resource_type, each.resource_name, each.pattern_type, *one)
            for each in described.resources
            for one in ((x.principal, x.host, x.operation, x.permission_type) for x in each.acls)
        } == node.acls()
        assert len(described.resources) == 2, "by pattern"
        matching = DescribeAclsRequest(3, "gg", 2, None, None, 1, 1)
        assert [each.resource_name for each in (await node.ask(matching, version)).resources] == ["g"]
        filters = [
            DeleteAclsFilter(2, "mine", 3, None, None, 1, 3),
            DeleteAclsFilter(1, None, 1, None, None, 3, 1),
            DeleteAclsFilter(7, None, 1, None, None, 1, 1),
            DeleteAclsFilter(0, None, 1, None, None, 1, 1),
        ]
        deleted = await node.ask(DeleteAclsRequest(filters), version)
        assert [(each.error_code, len(each.matching_acls)) for each in deleted.filter_results] == [
            *((0, 2), (0, 3), (0, 0)),
            (ErrorCode.INVALID_REQUEST, 0),
        ]
        assert node.acls() == set()

    run(tmp_path, scenario)


def test_bad_acls_are_refused_and_the_others_created(tmp_path: Path) -> None:
    async def scenario(node: Guarded) -> None:
        wrong = [
            READ._replace(resource_name=""),
            READ._replace(principal="alice"),
            READ._replace(operation=77),
        ]
        asked = CreateAclsRequest([AclCreation(*each) for each in (*wrong, READ)])
        response = await node.ask(asked)
        assert [each.error_code for each in response.results] == [ErrorCode.INVALID_REQUEST] * 3 + [0]
        assert node.acls() == {READ}
        bad = await node.ask(DescribeAclsRequest(0, None, 1, None, None, 1, 1))
        assert bad.error_code == ErrorCode.INVALID_REQUEST

    run(tmp_path, scenario)


def test_too_many_at_once(tmp_path: Path) -> None:
    async def scenario(node: Guarded) -> None:
        many = [AclCreation(*READ._replace(resource_name=f"t{number}")) for number in range(10_001)]
        response = await node.ask(CreateAclsRequest(many))
        assert {each.error_code for each in response.results} == {ErrorCode.POLICY_VIOLATION}
        assert len(response.results) == 10_001 and node.acls() == set()
        for part in (many[:6_000], many[6_000:]):
            assert set(error_codes(await node.ask(CreateAclsRequest(part)), 3)) == {0}
        everything = DeleteAclsFilter(1, None, 1, None, None, 1, 1)
        response = await node.ask(DeleteAclsRequest([everything]))
        assert response.filter_results[0].error_code == ErrorCode.POLICY_VIOLATION
        assert len(node.acls()) == 10_001

    run(tmp_path, scenario)


def test_without_an_authorizer(tmp_path: Path) -> None:
    async def play() -> None:
        async with InProcess(str(tmp_path), settings=SETTINGS) as node:
            for message in (
                CreateAclsRequest([AclCreation(*READ)]),
                DeleteAclsRequest([DeleteAclsFilter(*READ)]),
                DescribeAclsRequest(1, None, 1, None, None, 1, 1),
            ):
                response = await node.ask(message, 3)
                assert set(error_codes(response, 3)) == {ErrorCode.SECURITY_DISABLED}

    asyncio.run(play())


def test_acls_survive_a_restart_and_a_snapshot(tmp_path: Path) -> None:
    async def play() -> None:
        async with Guarded(str(tmp_path)) as node:
            await node.allow(READ, WRITE)
        async with Guarded(str(tmp_path)) as node:
            assert node.acls() == {READ, WRITE}
            await node.forbid(WRITE)
        async with Guarded(str(tmp_path)) as node:
            assert node.acls() == {READ}
            await node.ask(CreateTopicsRequest([CreatableTopic("mine", 1, 1)]))
            assert codes_of(await node.ask(fetched("mine"), 12, ALICE)) == [0]
            assert codes_of(await node.ask(produced("mine"), 12, ALICE)) == [NO_TOPIC]

    asyncio.run(play())


# --- whoever has no rights ---

ANYBODY = {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}
# The responses to those who may do nothing: a list without anything, or what everybody knows who is connected.
HIDDEN = {"ListGroups", "ListTransactions", "DescribeCluster", "Metadata", "DescribeTopicPartitions"}
VERSIONS = [
    (api, version)
    for api in APIS.values()
    if api.modules and api.name not in ANYBODY
    for version in range(api.min_version, api.max_version + 1)
]


def test_whoever_may_do_nothing_does_nothing(tmp_path: Path) -> None:
    """Every API, in every version, on every listener that serves it."""

    async def scenario(node: Guarded) -> None:
        before = node.broker.services.cluster.image
        for api, version in VERSIONS:
            for kind in api.modules:
                ask = node.ask if kind is BROKER else node.ask_controller
                message = sample(request_type(api.key), version)
                if api.name == "Produce":
                    message.acks = 1
                if api.name == "Fetch":
                    message.session_id, message.session_epoch = 0, -1
                for item in getattr(message, "resources", ()):
                    item.resource_type = 2  # a topic
                if api.name == "DescribeCluster":
                    message.endpoint_type = 1
                if api.name == "DescribeTopicPartitions":
                    message.cursor = None
                response = await ask(message, version, BOB)
                codes = set(error_codes(response, version))
                if api.name in HIDDEN and kind is BROKER:
                    assert codes <= {0, *DENIED.values()}, (api.name, version)
                    continue
                if api.name == "DescribeLogDirs" and version < 3:
                    assert response.results == []
                    continue
                if api.name == "OffsetDelete":
                    assert response.error_code == NO_GROUP
                    continue
                known = {*DENIED.values(), ErrorCode.OPERATION_NOT_ATTEMPTED, *allowed_codes(api.name)}
                is_refused = codes & set(DENIED.values()) or ErrorCode.UNKNOWN_TOPIC_ID in codes
                assert is_refused, (api.name, version, codes)
                assert codes <= known, (api.name, version, codes)
        after = node.broker.services.cluster.image
        assert (after.topics, after.acls, after.configs) == (before.topics, before.acls, before.configs)

    run(tmp_path, scenario)


def allowed_codes(name: str) -> set[ErrorCode]:
    """Codes of items that name nothing which could be denied: ids that nobody has."""
    by_id = {"Fetch", "Produce", "OffsetCommit", "DeleteTopics", "OffsetFetch", "Metadata"}
    if name in by_id:
        return {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NONE}
    return {ErrorCode.NONE} if name == "FindCoordinator" else set()


def test_super_users_may_do_everything(tmp_path: Path) -> None:
    async def scenario(node: Guarded) -> None:
        await node.allow(READ._replace(principal="User:*", permission=DENY, operation=Operation.ALL))
        assert codes_of(await node.ask(produced("mine"), 12)) == [0]
        assert codes_of(await node.ask(produced("mine"), 12, ALICE)) == [NO_TOPIC]

    run(tmp_path, scenario)


# --- what an ACL allows ---


def test_a_change_is_in_force_at_once(tmp_path: Path) -> None:
    """On the same connection, which remembers what it was told before."""

    async def scenario(node: Guarded) -> None:
        for _ in range(2):
            assert codes_of(await node.ask(produced("mine"), 12, ALICE)) == [NO_TOPIC]
            await node.allow(WRITE)
            assert codes_of(await node.ask(produced("mine", "theirs"), 12, ALICE)) == [0, NO_TOPIC]
            await node.allow(WRITE._replace(permission=DENY))
            assert codes_of(await node.ask(produced("mine"), 12, ALICE)) == [NO_TOPIC]
            await node.forbid(WRITE, WRITE._replace(permission=DENY))

    run(tmp_path, scenario)


def test_a_waiting_fetch_loses_what_is_taken_from_it(tmp_path: Path) -> None:
    async def scenario(node: Guarded) -> None:
        await node.allow(READ)
        asked = fetched("mine", max_wait_ms=50_000, min_bytes=1)
        waiting = asyncio.ensure_future(node.ask(asked, 12, ALICE))
        while node.broker.replicas.get("mine", 0).leader is None:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        await node.forbid(READ)
        await node.ask(produced("mine"), 12)
        assert codes_of(await waiting) == [NO_TOPIC]

    run(tmp_path, scenario)


def test_a_fetch_session_loses_what_is_taken_from_it(tmp_path: Path) -> None:
    async def scenario(node: Guarded) -> None:
        await node.allow(READ)
        first = await node.ask(fetched("mine", session_id=0, session_epoch=0), 12, ALICE)
        assert first.session_id and codes_of(first) == [0]
        await node.ask(produced("mine"), 12)
        await node.forbid(READ)
        again = await node.ask(fetched(session_id=first.session_id, session_epoch=1), 12, ALICE)
        assert codes_of(again) == [NO_TOPIC] and not again.responses[0].partitions[0].records

    run(tmp_path, scenario)


def test_nobody_ends_the_session_of_a_replica_by_its_number(tmp_path: Path) -> None:
    """A replica has one session: a fetch that claims to be it, without the right to, neither replaces nor uses it."""

    async def scenario(node: Guarded) -> None:
        topic = node.broker.services.cluster.image.topics["mine"].id
        as_replica = {"by_id": True, "replica_state": ReplicaState(2, 1)}
        began = await node.ask(fetched(topic, session_epoch=0, **as_replica), 17)
        assert began.session_id
        for epoch in (0, -1, 1):
            claimed = fetched(
                topic, session_id=began.session_id * abs(epoch), session_epoch=epoch, **as_replica
            )
            refused = await node.ask(claimed, 17, BOB)
            assert not refused.session_id
            assert refused.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND or codes_of(refused) == [
                NO_TOPIC
            ]
        going_on = fetched(topic, session_id=began.session_id, session_epoch=1, **as_replica)
        assert (await node.ask(going_on, 17)).error_code == 0

    run(tmp_path, scenario)


def test_hidden_topics_by_name_by_id_and_in_lists(tmp_path: Path) -> None:
    async def scenario(node: Guarded) -> None:
        await node.allow(DESCRIBE)
        for name in ("theirs", "not there"):
            response = await node.ask(MetadataRequest([MetadataRequestTopic(name=name)], True), 12, ALICE)
            (topic,) = response.topics
            assert (topic.error_code, topic.topic_id.int, topic.partitions) == (NO_TOPIC, 0, [])
        theirs = node.broker.services.cluster.image.topics["theirs"].id
        (topic,) = (
            await node.ask(MetadataRequest([MetadataRequestTopic(theirs, None)], False), 12, ALICE)
        ).topics
        assert (topic.error_code, topic.name, topic.topic_id) == (NO_TOPIC, None, theirs)
        assert codes_of(await node.ask(fetched(theirs, by_id=True), 16, ALICE)) == [NO_TOPIC]
        assert codes_of(await node.ask(produced(theirs, by_id=True), 13, ALICE)) == [NO_TOPIC]
        gone = await node.ask(DeleteTopicsRequest([DeleteTopicState(None, theirs)]), 6, ALICE)
        assert [(each.error_code, each.name) for each in gone.responses] == [(NO_TOPIC, None)]
        listed = await node.ask(MetadataRequest(None, False), 12, ALICE)
        assert [each.name for each in listed.topics] == ["mine"]

    run(tmp_path, scenario)


def test_pages_of_topics_name_no_hidden_one(tmp_path: Path) -> None:
    async def scenario(node: Guarded) -> None:
        names = [f"page-{number}" for number in range(6)]
        await node.ask(CreateTopicsRequest([CreatableTopic(name, 1, 1) for name in names]))
        seen = names[::2]
        await node.allow(*(acl(Operation.DESCRIBE, name=name) for name in seen))
        cursor, found = None, []
        while True:
            asked = DescribeTopicPartitionsRequest([], 1, cursor)
            response = await node.ask(asked, 0, ALICE)
            found += [topic.name for topic in response.topics]
            cursor = response.next_cursor
            if cursor is None:
                break
            assert cursor.topic_name in seen
        assert found == seen

    run(tmp_path, scenario)


def test_create_topics(tmp_path: Path) -> None:
    """Topics are created with access to the cluster, or to the topic; the settings are shown to those who may see
    them.
    """

    async def created(node: Guarded, name: str) -> tuple[int, int, int]:
        (topic,) = (await node.ask(CreateTopicsRequest([CreatableTopic(name, 1, 1)]), 7, ALICE)).topics
        return topic.error_code, topic.num_partitions, topic.topic_config_error_code

    async def scenario(node: Guarded) -> None:
        assert await created(node, "a") == (NO_TOPIC, -1, 0)
        await node.allow(acl(Operation.CREATE, name="a"))
        assert await created(node, "a") == (0, -1, NO_TOPIC)
        assert await created(node, "b") == (NO_TOPIC, -1, 0)
        await node.allow(acl(Operation.CREATE, CLUSTER), acl(Operation.DESCRIBE_CONFIGS, name="b"))
        assert await created(node, "b") == (0, 1, 0)

    run(tmp_path, scenario)


def test_transactional_ids(tmp_path: Path) -> None:
    """CVE-2018-17196: a Produce in a transaction of another, and one that does not name it."""
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED

    async def scenario(node: Guarded) -> None:
        await node.allow(WRITE)
        assert codes_of(await node.ask(produced("mine", transactional=True), 12, ALICE)) == [refused]
        nameless = produced("mine", transactional=True)
        nameless.transactional_id = None
        assert codes_of(await node.ask(nameless, 12, ALICE)) == [refused]
        assert node.records("mine") == []
        init = InitProducerIdRequest("tx", 60_000)
        assert (await node.ask(init, 5, ALICE)).error_code == refused
        await node.allow(acl(Operation.WRITE, TRANSACTION, "tx"))
        await node.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"]), 4)
        assert (await node.ask(init, 5, ALICE)).error_code == 0

    run(tmp_path, scenario)


def test_an_idempotent_producer(tmp_path: Path) -> None:
    async def code(node: Guarded) -> int:
        return int((await node.ask(InitProducerIdRequest(None, 60_000), 5, ALICE)).error_code)

    async def scenario(node: Guarded) -> None:
        assert await code(node) == NO_CLUSTER
        await node.allow(WRITE)
        assert await code(node) == 0, "it may write to some topic"
        await node.allow(WRITE._replace(permission=DENY))
        assert await code(node) == NO_CLUSTER
        await node.allow(acl(Operation.IDEMPOTENT_WRITE, CLUSTER))
        assert await code(node) == 0

    run(tmp_path, scenario)


def test_a_group_called_star_is_no_wildcard(tmp_path: Path) -> None:
    async def scenario(node: Guarded) -> None:
        await node.allow(acl(Operation.DESCRIBE, GROUP, "g"))
        asked = FindCoordinatorRequest(key_type=0, coordinator_keys=["*", "g"])
        codes = [each.error_code for each in (await node.ask(asked, 4, ALICE)).coordinators]
        assert sorted(codes) == [0, NO_GROUP]

    run(tmp_path, scenario)


# --- which operations ---


def bits(*operations: Operation) -> int:
    return sum(1 << each for each in operations)


def test_authorized_operations(tmp_path: Path) -> None:
    async def scenario(node: Guarded) -> None:
        await node.allow(READ, acl(Operation.READ, GROUP, "g"))
        reads = bits(Operation.READ, Operation.DESCRIBE)
        asked = MetadataRequest([MetadataRequestTopic(name="mine")], False, True, True)
        response = await node.ask(asked, 10, ALICE)
        assert [each.topic_authorized_operations for each in response.topics] == [reads]
        assert response.cluster_authorized_operations == 0, "it may not describe the cluster"
        (topic,) = (await node.ask(DescribeTopicPartitionsRequest(), 0, ALICE)).topics
        assert topic.topic_authorized_operations == reads
        await node.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        (group,) = (await node.ask(DescribeGroupsRequest(["g"], True), 5, ALICE)).groups
        assert group.error_code or group.authorized_operations == reads
        cluster = await node.ask(DescribeClusterRequest(True), 1, ALICE)
        assert cluster.cluster_authorized_operations == 0
        await node.allow(acl(Operation.ALTER, CLUSTER))
        cluster = await node.ask(DescribeClusterRequest(True), 1, ALICE)
        assert cluster.cluster_authorized_operations == bits(Operation.ALTER, Operation.DESCRIBE)
        cluster = await node.ask(DescribeClusterRequest(False), 1, ALICE)
        assert cluster.cluster_authorized_operations == -(2**31)

    run(tmp_path, scenario)


# --- consumer groups ---


async def heartbeat(node: Guarded, who: Principal = ALICE, **fields: Any) -> Any:
    joined = {"group_id": "g", "member_id": "m", "member_epoch": 0, "rebalance_timeout_ms": 1000}
    message = ConsumerGroupHeartbeatRequest(**{**joined, "topic_partitions": [], **fields})
    return await node.ask(message, 1, who)


def topics_in(node: Guarded, response: Any) -> set[str]:
    by_id = node.broker.services.cluster.image.topics_by_id
    return {by_id[each.topic_id].name for each in response.assignment.topic_partitions}


def test_a_pattern_finds_only_what_its_member_may_see(tmp_path: Path) -> None:
    async def scenario(node: Guarded) -> None:
        await node.allow(acl(Operation.READ, GROUP, "g"), DESCRIBE)
        await node.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        joined = await heartbeat(node, subscribed_topic_regex="mine|theirs")
        assert (joined.error_code, topics_in(node, joined)) == (0, {"mine"})
        await node.allow(acl(Operation.DESCRIBE, name="theirs"))
        again = await heartbeat(
            node, member_epoch=joined.member_epoch, topic_partitions=None, rebalance_timeout_ms=-1
        )
        assert topics_in(node, again) == {"mine", "theirs"}, "as soon as it may"
        await node.forbid(acl(Operation.DESCRIBE, name="theirs"))
        less = await heartbeat(
            node, member_epoch=again.member_epoch, topic_partitions=None, rebalance_timeout_ms=-1
        )
        assert topics_in(node, less) == {"mine"}, "and no longer"

    run(tmp_path, scenario)


def test_a_member_may_name_only_what_it_may_see(tmp_path: Path) -> None:
    async def scenario(node: Guarded) -> None:
        await node.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        assert (await heartbeat(node, subscribed_topic_names=["mine"])).error_code == NO_GROUP
        await node.allow(acl(Operation.READ, GROUP, "g"), DESCRIBE)
        assert (await heartbeat(node, subscribed_topic_names=["mine", "theirs"])).error_code == NO_TOPIC
        assert (await heartbeat(node, subscribed_topic_names=["mine"])).error_code == 0

    run(tmp_path, scenario)


def test_a_group_is_described_to_those_who_may_see_its_topics(tmp_path: Path) -> None:
    async def described(node: Guarded) -> Any:
        (group,) = (await node.ask(ConsumerGroupDescribeRequest(["g"], True), 1, ALICE)).groups
        return group

    async def scenario(node: Guarded) -> None:
        await node.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        await heartbeat(node, ADMIN, subscribed_topic_names=["mine", "theirs"])
        assert (await described(node)).error_code == NO_GROUP
        await node.allow(acl(Operation.DESCRIBE, GROUP, "g"), DESCRIBE)
        group = await described(node)
        assert (group.error_code, group.members) == (NO_TOPIC, [])
        await node.allow(acl(Operation.DESCRIBE, name="theirs"))
        group = await described(node)
        assert (group.error_code, len(group.members)) == (0, 1)
        assert group.authorized_operations == bits(Operation.DESCRIBE)

    run(tmp_path, scenario)


# --- the controller ---


def test_an_envelope_needs_cluster_action_and_its_client_what_is_inside(tmp_path: Path) -> None:
    async def scenario(node: Guarded) -> None:
        await node.allow(acl(Operation.CLUSTER_ACTION, CLUSTER, who=BOB))
        deletion = DeleteTopicsRequest([DeleteTopicState("mine")])

        async def forward(sender: Principal, inner: Principal) -> Any:
            envelope = wrap(deletion, 6, Caller(inner, "10.0.0.9:1"), 77)
            wrapped = await node.ask_controller(envelope, 0, sender)
            return wrapped if wrapped.error_code else unwrap_response(wrapped, 20, 6, 77).responses[0]  # type: ignore[attr-defined]

        assert (await forward(ALICE, ADMIN)).error_code == NO_CLUSTER, "a client's"
        assert (await forward(BOB, ALICE)).error_code == NO_TOPIC
        assert (await forward(BOB, BOB)).error_code == NO_TOPIC
        await node.allow(acl(Operation.DELETE, host="10.0.0.9"))
        assert (await forward(BOB, ALICE)).error_code == 0, "the client's host is inside, too"

    run(tmp_path, scenario)


def test_a_controller_describes_itself_to_administrators(tmp_path: Path) -> None:
    async def scenario(node: Guarded) -> None:
        asked = DescribeClusterRequest(False, 2)
        assert (await node.ask_controller(asked, 2, ALICE)).error_code == NO_CLUSTER
        await node.allow(acl(Operation.ALTER, CLUSTER))
        assert (await node.ask_controller(asked, 2, ALICE)).error_code == 0

    run(tmp_path, scenario)


# --- the authorizer itself ---


def caller(name: str, address: str = "10.0.0.1:40000") -> Caller:
    return Caller(Principal("User", name), address)


def test_until_the_acls_are_known_only_super_users_pass() -> None:
    authorizer = StandardAuthorizer(["User:admin"], allows_unlisted=True)
    assert authorizer.may(caller("admin"), Operation.CLUSTER_ACTION, CLUSTER, "")
    with pytest.raises(KafkaError):
        authorizer.may(caller("alice"), Operation.READ, TOPIC, "t")
    authorizer.load([])
    assert authorizer.may(caller("alice"), Operation.READ, TOPIC, "t")


def test_whoever_comes_too_early_is_told_to_come_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        async with InProcess(str(tmp_path), authorizer=StandardAuthorizer([], False)) as node:
            response = await node.ask(MetadataRequest([MetadataRequestTopic(name="mine")]), 12)
            assert codes_of_topics(response) == [ErrorCode.UNKNOWN_SERVER_ERROR]

    with caplog.at_level(logging.INFO):
        asyncio.run(play())
    assert "has not loaded the ACLs yet: try again" in caplog.text and "this is a bug" not in caplog.text


def codes_of_topics(response: Any) -> list[int]:
    return [topic.error_code for topic in response.topics]


def test_a_refusal_before_the_acls_are_known_is_not_remembered() -> None:
    authorizer, session = StandardAuthorizer([], False), Session(caller("alice"))

    def asked() -> bool:
        turns: Any = None
        request = Request(RequestHeader(3, 12, 0, None, 0), session.caller, lambda _: None, turns, session)
        return may_of(authorizer, request)(Operation.READ, TOPIC, "mine")

    with pytest.raises(KafkaError):
        asked()
    authorizer.load([READ])
    assert asked()


def test_another_principal_on_the_same_connection_is_asked_for_anew(tmp_path: Path) -> None:
    async def scenario(node: Guarded) -> None:
        await node.allow(WRITE)
        assert codes_of(await node.ask(produced("mine"), 12, ALICE)) == [0]
        session = node.sessions[ALICE, "PLAINTEXT"]
        session.caller = session.caller._replace(principal=BOB)  # as after another login
        assert codes_of(await node.ask(produced("mine"), 12, ALICE)) == [NO_TOPIC]

    run(tmp_path, scenario)


def test_changes_are_applied_in_place() -> None:
    authorizer = StandardAuthorizer([], False)
    image, generations = MetadataImage("c"), []
    authorizer.load([])
    for record, is_allowed in (
        (AccessControlEntryRecord(UUID1, *READ), True),
        (RemoveAccessControlEntryRecord(UUID1), False),
    ):
        image, delta = apply_records(image, [record], 1, 1)
        authorizer.apply(delta)
        generations.append(authorizer.generation)
        assert authorizer.may(caller("alice"), Operation.READ, TOPIC, "mine") is is_allowed
    assert len(set(generations)) == 2
    image, delta = apply_records(image, [], 2, 1)
    authorizer.apply(delta)
    assert authorizer.generation == generations[-1], "nothing has changed"


def test_an_address_in_ipv6() -> None:
    authorizer = StandardAuthorizer([], False)
    authorizer.load([READ._replace(host="2001:db8::7")])
    assert authorizer.may(caller("alice", "2001:db8::7:40000"), Operation.READ, TOPIC, "mine")
    assert not authorizer.may(caller("alice", "2001:db8::8:40000"), Operation.READ, TOPIC, "mine")
