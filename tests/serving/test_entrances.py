"""Every API gives the same response whichever way its request comes: by connection, in an Envelope, from this node."""

import asyncio
import copy
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from odradek.apis.messages import request_type
from odradek.apis.row import Api
from odradek.apis.table import APIS, BROKER, CONTROLLER
from odradek.model import ANONYMOUS, Caller, Principal, node_caller
from odradek.serving.dispatch import controller_handlers
from odradek.serving.envelope import unwrap_response, wrap
from odradek.serving.request import Request
from odradek.wire.codec import encode, read_message
from odradek.wire.frame import SIZE, encode_request, read_request_header
from odradek.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from odradek.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
)
from odradek.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResult
from odradek.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from odradek.wire.messages.elect_leaders import ElectLeadersRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.init_producer_id import InitProducerIdRequest
from odradek.wire.messages.list_groups import ListGroupsRequest
from odradek.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from odradek.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from odradek.wire.schema import fields_of
from tests.broker.in_process import InProcess, content
from tests.serving.acl import Acl
from tests.serving.sample_requests import sample
from tests.serving.test_refusal import error_codes

TOPIC = "a-topic"
ALICE = Caller(Principal("User", "alice"), "10.1.2.3:40000", client_id="a client")
# They have codecs of their own, and are answered on connections only.
OWN_CODECS = {"Produce", "Fetch"}
# They go to the core of the quorum, and come from other nodes only.
FOR_NODES = {
    *("Envelope", "Vote", "BeginQuorumEpoch", "EndQuorumEpoch", "FetchSnapshot", "UpdateRaftVoter"),
}
# It describes brokers or controllers, as the listener says.
BY_LISTENER = {"DescribeCluster"}
SETTINGS = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://localhost:0,CONTROLLER://localhost:0",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}


class Entered(InProcess):
    def __init__(self, data_dir: str, acl: Acl | None = None) -> None:
        super().__init__(data_dir, settings=SETTINGS, authorizer=acl, rng=Random(1))
        self.acl = acl or Acl()
        self._controller = controller_handlers(self.broker.services)["CONTROLLER"]

    async def ask_controller(self, message: Any, version: int) -> Any:
        frame = memoryview(encode_request(message, message.API_KEY, version, 1, "test"))[SIZE.size :]
        header = read_request_header(frame)
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        caller = Caller(ANONYMOUS, "127.0.0.1:1", "CONTROLLER", "test")
        request = Request(
            header, caller, lambda each: answered.set_result(each.parts), self._controller.turns
        )
        self.on_request(request)
        effect = self._controller.dispatch(request, frame, header.body)
        if effect is not None:
            await effect
        return self._read(b"".join(map(content, await answered)), message.API_KEY, version)

    async def ask_in_envelope(self, message: Any, version: int) -> Any:
        wrapped = await self.ask_controller(wrap(message, version, ALICE, 77), 0)
        return unwrap_response(wrapped, message.API_KEY, version, 77)

    async def ask_itself(self, message: Any, version: int) -> Any:
        """Ask as `services.coordination.peers` asks the node itself. The response is compared as it would travel."""
        services = self.broker.services
        caller = node_caller(services.node.id, "PLAINTEXT")
        response = await services.ask(message, version, caller)
        return read_message(type(response), version, encode(response, version))[0]


Entrance = Callable[[Entered, Any, int], Awaitable[Any]]


def entrances(api: Api) -> dict[str, Entrance]:
    ways: dict[str, Entrance] = {}
    if BROKER in api.modules:
        ways["broker"] = ways["broker with an authorizer"] = Entered.ask
    if CONTROLLER in api.modules and api.name not in OWN_CODECS | BY_LISTENER:
        ways["controller"] = ways["controller with an authorizer"] = Entered.ask_controller
    if api.is_forwarded:
        ways["envelope"] = Entered.ask_in_envelope
    if api.name not in OWN_CODECS | FOR_NODES:
        ways["itself"] = Entered.ask_itself
    return ways


def without_what_differs(struct: Any) -> Any:
    """Ports and directories, of which each node has its own. Everything else is compared."""
    for field in fields_of(type(struct)):
        value = getattr(struct, field.name)
        if field.name == "port":
            struct.port = 0
        elif field.element_type == "struct" and value is not None:
            for item in value if field.is_array else [value]:
                without_what_differs(item)
    if isinstance(struct, DescribeLogDirsResult):
        struct.log_dir, struct.total_bytes, struct.usable_bytes = "", 0, 0
    if isinstance(struct, DescribeConfigsResourceResult) and struct.name == "log.dirs":
        struct.value = ""
    return struct


def compare(
    api: Api, message: Any, version: int, tmp_path: Path, prepare: Callable[[Entered], Awaitable[None]]
) -> Any:
    """Ask fresh nodes, each through another entrance. Returns the response that is the same for all of them."""

    async def response_of(name: str, entrance: Entrance) -> Any:
        acl = Acl() if "authorizer" in name or "Acls" in api.name else None
        async with Entered(str(tmp_path / name), acl) as node, asyncio.timeout(60):
            await prepare(node)
            return without_what_differs(await entrance(node, copy.deepcopy(message), version))

    async def scenario() -> Any:
        by_entrance = {name: await response_of(name, entrance) for name, entrance in entrances(api).items()}
        first = next(iter(by_entrance.values()))
        assert by_entrance == dict.fromkeys(by_entrance, first)
        return first

    return asyncio.run(scenario())


async def leave(node: Entered) -> None:
    """The node as it is after its start."""


async def furnish(node: Entered) -> None:
    await node.create_topic(TOPIC)
    await node.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    await node.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"]), 4)


SERVED = [api for api in APIS.values() if api.modules]


@pytest.mark.parametrize("api", SERVED, ids=lambda api: api.name)
def test_every_entrance_leads_to_the_same_response(api: Api, tmp_path: Path) -> None:
    """To a request with something in every field, of which most are refused."""
    message = sample(request_type(api.key), api.max_version)
    if api.name == "Produce":
        message.acks = 1
    compare(api, message, api.max_version, tmp_path, leave)


def test_most_apis_have_several() -> None:
    assert all(len(entrances(api)) > 1 for api in SERVED)
    assert sum(len(entrances(api)) > 2 for api in SERVED) > 45


WORKING: list[Any] = [
    AddOffsetsToTxnRequest("tx", 0, 0, "g"),
    CreatePartitionsRequest([CreatePartitionsTopic(TOPIC, 3, None)]),
    CreateTopicsRequest([CreatableTopic("new", 2, 1)]),
    DeleteTopicsRequest([DeleteTopicState(TOPIC)]),
    DescribeConfigsRequest([DescribeConfigsResource(2, TOPIC), DescribeConfigsResource(4, "1")]),
    DescribeLogDirsRequest(None),
    DescribeTopicPartitionsRequest(),
    ElectLeadersRequest(0, None),
    FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]),
    IncrementalAlterConfigsRequest(
        [AlterConfigsResource(2, TOPIC, [AlterableConfig("retention.ms", 0, "1000")])]
    ),
    InitProducerIdRequest("tx", 60_000),
    InitProducerIdRequest(None, 60_000),
    ListGroupsRequest(),
    ListOffsetsRequest(topics=[ListOffsetsTopic(TOPIC, [ListOffsetsPartition(0, timestamp=-1)])]),
    ListPartitionReassignmentsRequest(),
    MetadataRequest(None, False),
    OffsetCommitRequest(
        "g", topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[OffsetCommitRequestPartition(0, 1)])]
    ),
    OffsetFetchRequest([OffsetFetchRequestGroup("g", topics=None)]),
]


@pytest.mark.parametrize("message", WORKING, ids=lambda message: type(message).__name__)
def test_a_request_that_works_works_through_every_entrance(message: Any, tmp_path: Path) -> None:
    api = APIS[message.API_KEY]
    version = 9 if api.name == "OffsetCommit" else api.max_version
    response = compare(api, message, version, tmp_path, furnish)
    if api.name != "AddOffsetsToTxn":  # this one has no such producer
        assert set(error_codes(response, version)) <= {0}
