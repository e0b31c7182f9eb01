"""Tests that what a caller may not do is refused, item by item if a request has items, and what it may do is done."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from odradek.api import describe_topic_partitions
from odradek.apis.messages import request_type
from odradek.apis.row import Api, Items, Need, Operation, Resource
from odradek.apis.table import APIS, BROKER, CONTROLLER, named
from odradek.errors import ErrorCode
from odradek.model import ANONYMOUS, Caller, Principal
from odradek.records.record import Record, build_batch
from odradek.serving.access import _is_for
from odradek.serving.authorizer import DENIED, MOST_REMEMBERED, AllowAll, may_of
from odradek.serving.envelope import wrap
from odradek.serving.request import Request
from odradek.serving.session import Session
from odradek.wire.frame import RequestHeader
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from odradek.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.list_groups import ListGroupsRequest
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.in_process import InProcess
from tests.serving.acl import Acl
from tests.serving.sample_requests import sample
from tests.serving.test_entrances import ALICE, Entered
from tests.serving.test_refusal import error_codes

TOPIC, GROUP, CLUSTER = Resource.TOPIC, Resource.GROUP, Resource.CLUSTER
TRANSACTIONAL_ID = Resource.TRANSACTIONAL_ID
NO_TOPIC, NO_GROUP = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
THE_CLUSTER = (CLUSTER, "")
# The last versions that name topics, or that are for clients.
NAMED_UNTIL = {"OffsetCommit": 9, "AddPartitionsToTxn": 3, "Metadata": 9}


# --- all rows ---


class Case(NamedTuple):
    api: Api
    need: Need

    @property
    def version(self) -> int:
        return NAMED_UNTIL.get(self.api.name, self.api.max_version)

    @property
    def lists(self) -> list[Items]:
        return [items for items in self.api.items if _is_for(self.need, items)]

    def __str__(self) -> str:
        return f"{self.api.name}: {self.need.operation.name}"


def request_of(api: Api) -> Any:
    message = sample(request_type(api.key), NAMED_UNTIL.get(api.name, api.max_version))
    for item in getattr(message, "resources", ()):
        item.resource_type = 2  # a topic
    if api.name == "DescribeTopicPartitions":
        message.cursor = None  # the first page
    return message


def cases() -> Iterator[Case]:
    for api in APIS.values():
        kind = BROKER if BROKER in api.modules else CONTROLLER
        if not api.modules or kind in api.access.asked_by_handler:
            continue
        needs = api.access.needs
        if api.access.function:
            access = getattr(import_module(f"odradek.api.{api.modules[kind]}"), api.access.function)
            version = NAMED_UNTIL.get(api.name, api.max_version)
            needs = access(request_of(api), version, lambda _, resource, __: resource is not CLUSTER)
        yield from (Case(api, need) for need in needs)


# (OffsetDelete has no items where there is no such group: see below.)
BY_ITEM = [case for case in cases() if case.lists and case.api.name != "OffsetDelete"]
WHOLE = [case for case in cases() if not case.lists]


def test_all_rows_have_their_cases() -> None:
    """(Those that are for anybody, and those that only hide, need nothing.)"""
    asked = {case.api.name for case in (*BY_ITEM, *WHOLE)} | {"Produce", "Fetch"}
    others = {api.name for api in APIS.values() if api.modules} - asked
    assert others == {
        "ApiVersions",
        "DescribeCluster",
        "ListGroups",
        "ListTransactions",
        "SaslAuthenticate",
        "SaslHandshake",
    }
    assert len(BY_ITEM) > 15 and len(WHOLE) > 30


def ask(node: Entered, api: Api, message: Any, version: int) -> Awaitable[Any]:
    return (node.ask if BROKER in api.modules else node.ask_controller)(message, version)


def named_in(items: Items, item: Any) -> str:
    values = [getattr(item, source) if source else item for source in items.names.values()]
    return next(value for value in values if isinstance(value, str))


@pytest.mark.parametrize("case", BY_ITEM, ids=str)
def test_a_denied_item_is_refused_and_the_others_are_served(case: Case, tmp_path: Path) -> None:
    message = request_of(case.api)
    items = next(items for items in case.lists if getattr(message, items.request))
    allowed, denied = (
        item.resource_name if case.need.resource is None else named_in(items, item)
        for item in getattr(message, items.request)
    )
    resource = case.need.resource or TOPIC
    acl = Acl((resource, denied), *([THE_CLUSTER] if case.api.access.function else []))

    async def scenario() -> None:
        async with Entered(str(tmp_path), acl) as node, asyncio.timeout(60):
            response = await ask(node, case.api, message, case.version)
        codes = {
            next(value for name in items.names if isinstance(value := getattr(item, name), str)): set(
                error_codes(item, case.version)
            )
            for item in getattr(response, items.response)
        }
        assert codes.keys() == {allowed, denied}
        assert codes[denied] == {DENIED[resource]}
        assert not codes[allowed] & set(DENIED.values())
        if case.api.access.all_or_none:
            assert codes[allowed] == {ErrorCode.OPERATION_NOT_ATTEMPTED}
        assert (case.need.operation, resource, allowed) in acl.asked

    asyncio.run(scenario())


@pytest.mark.parametrize("case", WHOLE, ids=str)
def test_a_request_that_is_denied_as_a_whole(case: Case, tmp_path: Path) -> None:
    message, resource = request_of(case.api), case.need.resource
    assert resource is not None
    name = getattr(message, case.need.field) if case.need.field else ""

    async def scenario() -> None:
        async with Entered(str(tmp_path), Acl((resource, name))) as node, asyncio.timeout(60):
            response = await ask(node, case.api, message, case.version)
        assert set(error_codes(response, case.version)) == {DENIED[resource]}

    asyncio.run(scenario())


# --- some of them by name ---


def run(tmp_path: Path, acl: Acl, scenario: Callable[[Entered], Awaitable[None]]) -> None:
    async def play() -> None:
        async with Entered(str(tmp_path), acl) as node, asyncio.timeout(60):
            await node.create_topic("mine")
            await node.create_topic("theirs")
            acl.asked.clear()
            await scenario(node)

    asyncio.run(play())


def topic_id(node: InProcess, name: str) -> Any:
    return node.broker.services.cluster.image.topics[name].id


def test_metadata_of_named_topics(tmp_path: Path) -> None:
    """The brokers are in the response all the same, and a topic that does not exist is denied like one that does."""

    async def scenario(node: Entered) -> None:
        node.acl.deny((TOPIC, "theirs"), (TOPIC, "not there"))
        for version in (0, 1, 12):
            for names in (["theirs"], ["mine", "theirs", "not there"]):
                topics = [MetadataRequestTopic(name=name) for name in names]
                response = await node.ask(MetadataRequest(topics, False), version)
                assert {topic.name: topic.error_code for topic in response.topics} == {
                    name: 0 if name == "mine" else NO_TOPIC for name in names
                }
                assert [broker.node_id for broker in response.brokers] == [1]

    run(tmp_path, Acl(), scenario)


def test_an_id_is_denied_like_the_name_of_its_topic(tmp_path: Path) -> None:
    """Also where a request has the name of another one beside it."""

    async def scenario(node: Entered) -> None:
        node.acl.deny((TOPIC, "theirs"))
        theirs = topic_id(node, "theirs")
        for name in (None, "mine"):
            asked = MetadataRequest([MetadataRequestTopic(theirs, name)], False)
            assert [topic.error_code for topic in (await node.ask(asked, 12)).topics] == [NO_TOPIC]
            deletion = DeleteTopicsRequest([DeleteTopicState(name, theirs)])
            assert [topic.error_code for topic in (await node.ask(deletion, 6)).responses] == [NO_TOPIC]
        commit = OffsetCommitRequest(
            "g",
            topics=[
                OffsetCommitRequestTopic(
                    topic_id(node, name), partitions=[OffsetCommitRequestPartition(0, 1)]
                )
                for name in ("mine", "theirs")
            ],
        )
        await node.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
        response = await node.ask(commit, 10)
        assert {topic.topic_id: topic.partitions[0].error_code for topic in response.topics} == {
            topic_id(node, "mine"): 0,
            theirs: NO_TOPIC,
        }

    run(tmp_path, Acl(), scenario)


def test_settings_belong_to_what_they_are_settings_of(tmp_path: Path) -> None:
    async def scenario(node: Entered) -> None:
        node.acl.deny((TOPIC, "theirs"), (GROUP, "theirs"), THE_CLUSTER)
        asked = [(2, "mine"), (2, "theirs"), (32, "mine"), (32, "theirs"), (4, "1"), (4, "")]
        resources = [DescribeConfigsResource(kind, name) for kind, name in asked]
        response = await node.ask(DescribeConfigsRequest(resources), 4)
        codes = {
            (result.resource_type, result.resource_name): result.error_code for result in response.results
        }
        assert [codes[each] for each in asked] == [
            *(0, NO_TOPIC, 0, NO_GROUP),
            *(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ]

    run(tmp_path, Acl(), scenario)


def test_a_topic_that_may_not_be_created_is_not(tmp_path: Path) -> None:
    """It is created for a client that asks for its metadata, and in the name of that client."""

    async def scenario(node: Entered) -> None:
        node.acl.may = lambda caller, operation, resource, name: operation is not Operation.CREATE  # type: ignore[method-assign]
        response = await node.ask(MetadataRequest([MetadataRequestTopic(name="new")], True), 12)
        assert [topic.error_code for topic in response.topics] == [NO_TOPIC]
        assert "new" not in node.broker.services.cluster.image.topics

    run(tmp_path, Acl(), scenario)


def test_listings_hide_what_the_caller_may_not_see(tmp_path: Path) -> None:
    async def scenario(node: Entered) -> None:
        await commit_offsets(node)
        node.acl.deny((TOPIC, "theirs"), (GROUP, "theirs"), THE_CLUSTER, (TOPIC, "__consumer_offsets"))
        for version in (0, 12):
            response = await node.ask(MetadataRequest(None if version else [], False), version)
            assert [topic.name for topic in response.topics] == ["mine"]
        described = await node.ask(DescribeTopicPartitionsRequest(), 0)
        assert [topic.name for topic in described.topics] == ["mine"]
        listed = await node.ask(ListGroupsRequest(), 5)
        assert [group.group_id for group in listed.groups] == ["mine"]

    run(tmp_path, Acl(), scenario)


async def commit_offsets(node: Entered) -> None:
    await node.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["mine"]), 4)
    for group in ("mine", "theirs"):
        topics = [
            OffsetCommitRequestTopic(name=name, partitions=[OffsetCommitRequestPartition(0, 1)])
            for name in ("mine", "theirs")
        ]
        response = await node.ask(OffsetCommitRequest(group, topics=topics), 9)
        assert set(error_codes(response, 9)) == {0}


def test_offsets_of_topics_that_the_caller_may_not_see(tmp_path: Path) -> None:
    """Refused if they are named, left out if all are asked for; a group that is denied has none."""

    async def scenario(node: Entered) -> None:
        await commit_offsets(node)
        node.acl.deny((TOPIC, "theirs"), (GROUP, "theirs"))
        topics = [OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in ("mine", "theirs")]
        for asked in (topics, None):
            groups = [OffsetFetchRequestGroup(group, topics=asked) for group in ("mine", "theirs")]
            response = await node.ask(OffsetFetchRequest(groups=groups), 9)
            mine, theirs = sorted(response.groups, key=lambda group: str(group.group_id))
            assert (theirs.error_code, theirs.topics) == (NO_GROUP, [])
            found = {
                topic.name: (partition.error_code, partition.committed_offset)
                for topic in mine.topics
                for partition in topic.partitions
            }
            assert found == ({"mine": (0, 1)} | ({"theirs": (NO_TOPIC, -1)} if asked else {}))
        asked_before = [
            OffsetFetchRequestTopic(name=name, partition_indexes=[0]) for name in ("mine", "theirs")
        ]
        old = await node.ask(OffsetFetchRequest(group_id="theirs", topics=asked_before), 7)
        assert old.error_code == NO_GROUP
        old = await node.ask(OffsetFetchRequest(group_id="mine", topics=asked_before), 7)
        assert [topic.partitions[0].error_code for topic in old.topics] == [0, NO_TOPIC]

    run(tmp_path, Acl(), scenario)


def test_a_group_that_is_asked_for_twice_names_no_hidden_topic(tmp_path: Path) -> None:
    """Once with all topics, then with some: what was named the second time says nothing about the first."""

    async def scenario(node: Entered) -> None:
        await commit_offsets(node)
        node.acl.deny((TOPIC, "theirs"))
        named = [OffsetFetchRequestTopics(name="mine", partition_indexes=[0])]
        groups = [OffsetFetchRequestGroup("mine", topics=None), OffsetFetchRequestGroup("mine", topics=named)]
        response = await node.ask(OffsetFetchRequest(groups=groups), 9)
        assert response.groups
        assert {topic.name for group in response.groups for topic in group.topics} == {"mine"}

    run(tmp_path, Acl(), scenario)


def test_offsets_are_deleted_of_the_topics_that_are_allowed(tmp_path: Path) -> None:
    async def scenario(node: Entered) -> None:
        await commit_offsets(node)
        node.acl.deny((TOPIC, "theirs"))
        topics = [
            OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(0)]) for name in ("mine", "theirs")
        ]
        response = await node.ask(OffsetDeleteRequest("mine", topics), 0)
        codes = {topic.name: topic.partitions[0].error_code for topic in response.topics}
        assert (response.error_code, codes) == (0, {"mine": 0, "theirs": NO_TOPIC})
        unknown = await node.ask(OffsetDeleteRequest("no group", topics), 0)
        assert (unknown.error_code, unknown.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])

    run(tmp_path, Acl(), scenario)


def test_a_large_request_is_authorized_in_turns(tmp_path: Path) -> None:
    async def scenario(node: Entered) -> None:
        node.acl.deny(*((TOPIC, f"topic-{index}") for index in range(0, 20_000, 2)))
        topics = [MetadataRequestTopic(name=f"topic-{index}") for index in range(20_000)]
        clock = iter(range(1, 10**9))
        node.broker.services.node.turns.clock = lambda: (
            next(clock) / 1000
        )  # ten looks at it, and the turn is over
        response = await node.ask(MetadataRequest(topics, False), 12)
        codes = [topic.error_code for topic in response.topics]
        assert len(codes) == 20_000 and codes.count(NO_TOPIC) == 10_000

    run(tmp_path, Acl(), scenario)


def test_a_list_of_hidden_topics_is_looked_at_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many there are: each costs a decision, and no turn makes many."""
    monkeypatch.setattr(describe_topic_partitions, "LOOKED_AT_AT_ONCE", 2)
    names = [f"topic-{index}" for index in range(30)]

    async def scenario(node: Entered) -> None:
        await node.ask(CreateTopicsRequest([CreatableTopic(name, 1, 1) for name in names]), 7)
        node.acl.deny(*((TOPIC, name) for name in names))
        node.broker.services.node.turns.clock = count().__next__  # a step, and the turn is over
        for message, version in ((MetadataRequest(None), 12), (DescribeTopicPartitionsRequest(), 0)):
            node.acl.asked.clear()
            asked = asyncio.ensure_future(node.ask(message, version))
            most = before = 0
            while not asked.done():
                await asyncio.sleep(0)
                most, before = max(most, len(node.acl.asked) - before), len(node.acl.asked)
            seen = {topic.name for topic in asked.result().topics}
            assert seen == {"mine", "theirs"} and before >= len(names) and most <= 12

    run(tmp_path, Acl(), scenario)


# --- Produce and Fetch ---


def produced(*topics: Any, transactional: bool = False, by_id: bool = False) -> ProduceRequest:
    producer: dict[str, Any] = {}
    if transactional:
        producer = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    batch = bytes(build_batch([Record(0, 0, None, b"x")], **producer))
    data = [
        TopicProduceData(
            **({"topic_id": topic} if by_id else {"name": topic}),
            partition_data=[PartitionProduceData(0, batch)],
        )
        for topic in topics
    ]
    return ProduceRequest("tx" if transactional else None, -1, 30_000, data)


def codes_of(response: Any) -> list[int]:
    inner = "partition_responses" if hasattr(response.responses[0], "partition_responses") else "partitions"
    return [getattr(topic, inner)[0].error_code for topic in response.responses]


def fetched(*topics: Any, by_id: bool = False, **more: Any) -> FetchRequest:
    asked = [
        FetchTopic(
            **({"topic_id": topic} if by_id else {"topic": topic}),
            partitions=[FetchPartition(partition_max_bytes=1000)],
        )
        for topic in topics
    ]
    return FetchRequest(**{"max_wait_ms": 0, "topics": asked, **more})


def test_produce_and_fetch_ask_for_each_topic(tmp_path: Path) -> None:
    async def scenario(node: Entered) -> None:
        node.acl.deny((TOPIC, "theirs"), (TOPIC, "not there"))
        names = ("mine", "theirs", "not there")
        assert codes_of(await node.ask(produced(*names), 12)) == [0, NO_TOPIC, NO_TOPIC]
        assert codes_of(await node.ask(fetched(*names), 12)) == [0, NO_TOPIC, NO_TOPIC]
        ids = [topic_id(node, name) for name in ("mine", "theirs")]
        assert codes_of(await node.ask(produced(*ids, by_id=True), 13)) == [0, NO_TOPIC]
        assert codes_of(await node.ask(fetched(*ids, by_id=True), 16)) == [0, NO_TOPIC]
        assert [len(node.records(name)) for name in ("mine", "theirs")] == [2, 0]
        assert {operation for operation, *_ in node.acl.asked} == {Operation.WRITE, Operation.READ}

    run(tmp_path, Acl(), scenario)


def test_a_large_produce_asks_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.api.produce.appends.MANY_PARTITIONS", 0)

    async def scenario(node: Entered) -> None:
        node.acl.deny((TOPIC, "theirs"))
        assert codes_of(await node.ask(produced("mine", "theirs"), 12)) == [0, NO_TOPIC]

    run(tmp_path, Acl(), scenario)


def test_a_transaction_is_written_only_by_those_who_may_use_its_id(tmp_path: Path) -> None:
    async def scenario(node: Entered) -> None:
        node.acl.deny((TRANSACTIONAL_ID, "tx"))
        response = await node.ask(produced("mine", transactional=True), 12)
        assert codes_of(response) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]
        assert node.records("mine") == []

    run(tmp_path, Acl(), scenario)


def test_a_replica_needs_access_to_the_cluster(tmp_path: Path) -> None:
    async def scenario(node: Entered) -> None:
        node.acl.deny(THE_CLUSTER)
        replica = fetched(topic_id(node, "mine"), by_id=True, replica_state=ReplicaState(2, 1))
        assert codes_of(await node.ask(replica, 17)) == [NO_TOPIC]
        node.acl.deny((TOPIC, "mine"))
        assert codes_of(await node.ask(replica, 17)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER], "it is no replica"

    run(tmp_path, Acl(), scenario)


def test_a_fetch_that_waits_asks_again_when_it_reads(tmp_path: Path) -> None:
    async def scenario(node: Entered) -> None:
        waiting = asyncio.ensure_future(node.ask(fetched("mine", max_wait_ms=50_000, min_bytes=1), 12))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done()
        node.acl.may = lambda caller, operation, resource, name: operation is not Operation.READ  # type: ignore[method-assign]
        node.acl.generation += 1
        await node.ask(produced("mine"), 12)
        assert codes_of(await waiting) == [NO_TOPIC]

    run(tmp_path, Acl(), scenario)


# --- who is asked, and how often ---


def test_a_node_may_do_everything(tmp_path: Path) -> None:
    acl = Acl(*((resource, name) for resource in Resource for name in ("", "t", "g", "__consumer_offsets")))

    async def scenario() -> None:
        async with Entered(str(tmp_path), acl) as node:
            services = node.broker.services
            message = request_of(named("CreateTopics"))
            response = await services.ask(message, message.MAX_VERSION, services.node.caller)
            assert not set(error_codes(response, message.MAX_VERSION)) & set(DENIED.values())
            assert acl.asked == []

    asyncio.run(scenario())


def test_a_request_in_an_envelope_is_its_clients(tmp_path: Path) -> None:
    """The envelope needs access to the cluster, and the request inside what it would need without an envelope."""

    async def scenario(node: Entered) -> None:
        node.acl.callers.clear()
        node.acl.deny((TOPIC, "name-1"), THE_CLUSTER)
        wrapped = await node.ask_controller(wrap(request_of(named("CreateTopics")), 7, ALICE, 77), 0)
        assert wrapped.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert {caller.principal for caller in node.acl.callers} == {ANONYMOUS}
        node.acl.deny((TOPIC, "mine"))
        deletion = DeleteTopicsRequest(topic_names=["mine"])
        response = await node.ask_in_envelope(deletion, 5)
        assert set(error_codes(response, 5)) == {NO_TOPIC}
        assert {caller.principal.name for caller in node.acl.callers} == {"ANONYMOUS", "alice"}

    run(tmp_path, Acl(), scenario)


def request_from(caller: Caller, session: Session | None) -> Request:
    turns: Any = None
    return Request(RequestHeader(3, 12, 0, None, 0), caller, lambda _: None, turns, session)


def test_what_was_said_is_remembered_with_the_connection() -> None:
    acl, session = Acl(), Session(Caller())
    question = (Operation.READ, TOPIC, "t")
    for _ in range(3):
        assert may_of(acl, request_from(session.caller, session))(*question)
    assert acl.asked == [question]
    acl.deny((TOPIC, "t"))
    assert not may_of(acl, request_from(session.caller, session))(*question), (
        "another generation of decisions"
    )
    bob = Caller(Principal("User", "bob"))
    acl.denied.clear()
    assert may_of(acl, request_from(bob, session))(*question), "another caller"
    assert may_of(acl, request_from(bob, None))(*question) and len(acl.asked) == 4, "no connection"


def test_only_so_much_is_remembered() -> None:
    acl, session = Acl(), Session(Caller())
    for index in range(3 * MOST_REMEMBERED):
        may_of(acl, request_from(session.caller, session))(Operation.READ, TOPIC, f"t-{index}")
    assert session.remembered is not None and len(session.remembered._decisions) <= MOST_REMEMBERED
    before = len(session.remembered._decisions)
    for length in (250, 32_000):
        may_of(acl, request_from(session.caller, session))(Operation.READ, TOPIC, "t" * length)
    assert len(session.remembered._decisions) == before, "names that are long take memory"


def test_whoever_allows_everything_is_not_asked(tmp_path: Path) -> None:
    class Never(AllowAll):
        def may(self, *_: Any) -> bool:
            raise AssertionError

    async def scenario() -> None:
        async with InProcess(str(tmp_path), authorizer=Never()) as node:
            await node.create_topic("t")
            assert codes_of(await node.ask(produced("t"), 12)) == [0]
            assert codes_of(await node.ask(fetched("t"), 12)) == [0]

    asyncio.run(scenario())
