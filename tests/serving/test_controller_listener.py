"""Tests of what is served on the controller's listener, and what becomes of the requests that arrive there."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from odradek.apis.messages import request_type, response_type
from odradek.apis.table import BROKER, CONTROLLER, SERVED, why_not_served
from odradek.errors import ErrorCode, KafkaError, ProtocolError
from odradek.model import ANONYMOUS, METADATA_TOPIC, Caller, Principal
from odradek.raft import messages as raft
from odradek.raft.address import NodeAddress
from odradek.raft.reconfiguration import AddVoter, RemoveVoter, UpdateVoter
from odradek.raft.rpc import from_response, to_request, to_response
from odradek.raft.view import QuorumView, ReplicaView
from odradek.raft.voters import Endpoint, ReplicaKey, VoterNode
from odradek.serving.conversation import Conversations
from odradek.serving.dispatch import Dispatcher, controller_handlers
from odradek.serving.envelope import unwrap_response, wrap
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.frame import SIZE, encode_request, read_request_header
from odradek.wire.messages import add_raft_voter, update_raft_voter
from odradek.wire.messages.add_raft_voter import AddRaftVoterRequest
from odradek.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from odradek.wire.messages.controller_registration import ControllerRegistrationRequest, Listener
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    PartitionDataInRequest,
    TopicDataInRequest,
)
from odradek.wire.messages.envelope import EnvelopeRequest
from odradek.wire.messages.metadata import MetadataRequest
from odradek.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from odradek.wire.messages.update_raft_voter import KRaftVersionFeature, UpdateRaftVoterRequest
from odradek.wire.messages.vote import VoteRequest
from tests.broker.in_process import InProcess, content, put
from tests.serving.wires import NotedTransport

A, B = ReplicaKey(1, UUID(int=11)), ReplicaKey(2, UUID(int=12))
ENDPOINT = Endpoint("CONTROLLER", "b", 9093)
VIEW = QuorumView(
    1,
    7,
    100,
    (ReplicaView(A, 120, 5000, 5000), ReplicaView(B, 110, 4900, 4800)),
    (ReplicaView(ReplicaKey(3, UUID(int=13))),),
    (VoterNode(A, (Endpoint("CONTROLLER", "a", 9093),)), VoterNode(B, (ENDPOINT,))),
)
NOT_LEADER = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "Node 2 leads.")


class FakeQuorum:
    """Leads, unless it is told otherwise, and keeps what it is asked."""

    def __init__(self) -> None:
        self.leader: tuple[int, NodeAddress | None] | None = (1, NodeAddress("a", 9093))
        self.epoch = 7
        self.asked: list[Any] = []
        self.addresses: dict[int, NodeAddress] = {}
        self.error: KafkaError | None = None
        self.response: raft.Response | None = None

    def handle(self, request: Request, body: raft.Request) -> None:
        self.asked.append(body)
        assert self.response is not None
        request.answer(to_response(request.api_key, request.version, self.response, None))

    async def change_voters(self, change: Any, timeout_ms: int) -> None:
        self.asked.append((change, timeout_ms))
        if self.error is not None:
            raise self.error

    def describe(self) -> QuorumView:
        if self.error is not None:
            raise self.error
        return VIEW

    def learn_address(self, node_id: int, address: NodeAddress) -> None:
        self.addresses[node_id] = address


class Listening(InProcess):
    """A broker that is asked by either kind of listener."""

    def __init__(self, data_dir: str) -> None:
        super().__init__(
            data_dir,
            settings={
                "node.id": "1",
                "process.roles": "broker,controller",
                "listeners": "PLAINTEXT://localhost:0,CONTROLLER://localhost:0",
                "controller.listener.names": "CONTROLLER",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "controller.quorum.request.timeout.ms": "1234",
            },
        )
        self.services: Services = self.broker.services
        self.quorum = FakeQuorum()
        put(self.services.cluster, "quorum", self.quorum)
        self.cluster_id = self.services.cluster.image.cluster_id
        self._controller = controller_handlers(self.services)["CONTROLLER"]

    async def ask_controller(self, message: Any, version: int | None = None) -> Any:
        version = message.MAX_VERSION if version is None else version
        frame = memoryview(encode_request(message, message.API_KEY, version, 1, "test"))[SIZE.size :]
        header = read_request_header(frame)
        answered = asyncio.get_running_loop().create_future()
        request = Request(
            header,
            Caller(ANONYMOUS, "127.0.0.1:1", "CONTROLLER", header.client_id),
            lambda request: answered.set_result(request.parts),
            self.services.node.turns,
        )
        effect = self._controller.dispatch(request, frame, header.body)
        if effect is not None:
            await effect
        return self._read(b"".join(map(content, await answered)), message.API_KEY, version)


def scenario(tmp_path: Path, play: Callable[[Listening], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Listening(str(tmp_path)) as node:
            await play(node)

    asyncio.run(run())


# --- which APIs ---


def test_each_listener_says_what_it_serves(tmp_path: Path) -> None:
    async def play(node: Listening) -> None:
        request = ApiVersionsRequest("x", "1")
        for response, apis in (
            (await node.ask_controller(request), SERVED[CONTROLLER]),
            (await node.ask(request, 4), SERVED[BROKER]),
        ):
            assert [api.api_key for api in response.api_keys] == sorted(apis)

    scenario(tmp_path, play)


def test_what_is_served_elsewhere_closes_the_connection_and_says_where(tmp_path: Path) -> None:
    async def play(node: Listening) -> None:
        with pytest.raises(ProtocolError, match=r"^Metadata v12 is served on the broker's listeners only"):
            await node.ask_controller(MetadataRequest(), 12)
        with pytest.raises(ProtocolError, match=r"^Vote v2 is served on the controller's listener only"):
            await node.ask(VoteRequest(), 2)
        with pytest.raises(ProtocolError, match=r"^Produce v9 is served on the broker's listeners only"):
            await node.ask_controller(request_type(0)(), 9)

    scenario(tmp_path, play)


def test_a_connection_is_served_by_the_kind_of_its_listener(tmp_path: Path) -> None:
    async def play(node: Listening) -> None:
        services = node.services
        conversations = Conversations(
            Dispatcher(services), services.node.host.create_task, handlers=controller_handlers(services)
        )
        frame = memoryview(encode_request(MetadataRequest(), 3, 12, 1, "test"))[SIZE.size :]
        closed = {}
        for listener in ("PLAINTEXT", "CONTROLLER"):
            transport = NotedTransport(conversations.begin, listener)
            transport.arrive(frame)
            closed[listener] = transport.closed
            if not transport.closed:
                transport.close("done")
        assert closed["PLAINTEXT"] == ""
        assert "Metadata v12 is served on the broker's listeners only" in closed["CONTROLLER"]

    scenario(tmp_path, play)


def test_a_version_that_is_not_served_says_which_are() -> None:
    why = why_not_served(52, 9, CONTROLLER)
    assert why == "Vote v9 is not served, only v0 to v2: its client is too old or too new"


# --- between replicas ---


BODIES: list[tuple[raft.Request, raft.Response]] = [
    (raft.VoteRequest("c", A, B, 8, 7, 120, is_pre_vote=True), raft.VoteResponse(raft.NONE, -1, 7, True)),
    (raft.BeginQuorumEpochRequest("c", A, 2, 8), raft.BeginQuorumEpochResponse(raft.NONE, 2, 8)),
    (raft.EndQuorumEpochRequest("c", 2, 8, (A,)), raft.EndQuorumEpochResponse(raft.NONE, 2, 8)),
    (
        raft.FetchRequest("c", B, 7, 110, 7, 90, 500, 1000),
        raft.FetchResponse(raft.NONE, 1, 7, 100, b"records"),
    ),
    (
        raft.FetchSnapshotRequest("c", B, 7, raft.OffsetAndEpoch(50, 3), 0, 1000),
        raft.FetchSnapshotResponse(raft.NONE, 1, 7, raft.OffsetAndEpoch(50, 3), 4, 0, b"part"),
    ),
]


@pytest.mark.parametrize(("body", "response"), BODIES)
def test_a_request_of_a_replica_goes_to_the_quorum(tmp_path: Path, body: Any, response: Any) -> None:
    async def play(node: Listening) -> None:
        node.quorum.response = response
        call = to_request(body)
        envelope = await node.ask_controller(call.message)
        assert node.quorum.asked == [body]
        assert from_response(call.api_key, call.version, envelope) == (response, {})

    scenario(tmp_path, play)


def test_a_request_about_another_partition_is_refused(tmp_path: Path) -> None:
    async def play(node: Listening) -> None:
        call = to_request(BODIES[0][0])
        message: Any = call.message
        message.topics[0].topic_name = "t"
        response = await node.ask_controller(message)
        assert (response.error_code, response.topics) == (ErrorCode.INVALID_REQUEST, [])
        assert node.quorum.asked == []

    scenario(tmp_path, play)


def test_a_leader_says_where_it_is(tmp_path: Path) -> None:
    async def play(node: Listening) -> None:
        node.quorum.response = raft.BeginQuorumEpochResponse(raft.NONE, 2, 8)
        body = raft.BeginQuorumEpochRequest("another cluster", A, 2, 8)
        await node.ask_controller(to_request(body, [ENDPOINT]).message)
        assert node.quorum.addresses == {}
        for cluster_id in (node.cluster_id, raft.NOT_SAID):
            node.quorum.addresses.clear()
            message: Any = to_request(body._replace(cluster_id=cluster_id), [ENDPOINT]).message
            assert isinstance(message, BeginQuorumEpochRequest)
            await node.ask_controller(message)
            assert node.quorum.addresses == {2: NodeAddress("b", 9093)}

    scenario(tmp_path, play)


# --- about the quorum ---

DESCRIBE = DescribeQuorumRequest([TopicDataInRequest(METADATA_TOPIC, [PartitionDataInRequest(0)])])


def test_the_leader_describes_the_quorum_on_either_listener(tmp_path: Path) -> None:
    async def play(node: Listening) -> None:
        for response in (await node.ask_controller(DESCRIBE), await node.ask(DESCRIBE, 2)):
            [topic] = response.topics
            [partition] = topic.partitions
            assert (response.error_code, topic.topic_name, partition.error_code) == (0, METADATA_TOPIC, 0)
            assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (1, 7, 100)
            states = [*partition.current_voters, *partition.observers]
            assert [state.replica_id for state in states] == [1, 2, 3]
            second = states[1]
            assert (second.replica_directory_id, second.log_end_offset) == (UUID(int=12), 110)
            assert (second.last_fetch_timestamp, second.last_caught_up_timestamp) == (4900, 4800)
            assert (states[2].log_end_offset, states[2].last_fetch_timestamp) == (-1, -1)
            assert [item.node_id for item in response.nodes] == [1, 2]
            assert (response.nodes[1].listeners[0].host, response.nodes[1].listeners[0].port) == ("b", 9093)

    scenario(tmp_path, play)


def test_other_controllers_and_other_partitions_are_not_described(tmp_path: Path) -> None:
    async def play(node: Listening) -> None:
        other = DescribeQuorumRequest([TopicDataInRequest("t", [PartitionDataInRequest(4)])])
        [topic] = (await node.ask_controller(other)).topics
        [partition] = topic.partitions
        assert (topic.topic_name, partition.partition_index) == ("t", 4)
        assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        node.quorum.error = NOT_LEADER
        [topic] = (await node.ask_controller(DESCRIBE)).topics
        assert topic.partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert topic.partitions[0].error_message == "Node 2 leads."

    scenario(tmp_path, play)


def test_a_broker_asks_the_leader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(node: Listening) -> None:
        sent: list[Any] = []

        async def forward(message: Any, version: int, caller: Caller, answer_here: object) -> Any:
            sent.append((message, version, caller))
            return response_type(message.API_KEY)()

        monkeypatch.setattr(node.services.cluster.metadata, "forward", forward)
        node.quorum.leader = (2, None)
        for message in (DESCRIBE, AddRaftVoterRequest(), RemoveRaftVoterRequest()):
            response = await node.ask(message, message.MAX_VERSION)
            caller = Caller(ANONYMOUS, "127.0.0.1:1", "PLAINTEXT", "test")
            assert sent.pop() == (message, message.MAX_VERSION, caller)
            assert response.error_code == 0
        assert node.quorum.asked == []

    scenario(tmp_path, play)


def add(**changes: Any) -> AddRaftVoterRequest:
    values = {
        "timeout_ms": 500,
        "voter_id": 2,
        "voter_directory_id": B.directory_id,
        "listeners": [add_raft_voter.Listener(*ENDPOINT)],
        "cluster_id": None,
    }
    return AddRaftVoterRequest(**{**values, **changes})


def update(**changes: Any) -> UpdateRaftVoterRequest:
    values = {
        "current_leader_epoch": 7,
        "voter_id": 2,
        "voter_directory_id": B.directory_id,
        "listeners": [update_raft_voter.Listener(*ENDPOINT)],
        "k_raft_version_feature": KRaftVersionFeature(0, 1),
        "cluster_id": None,
    }
    return UpdateRaftVoterRequest(**{**values, **changes})


def remove(**changes: Any) -> RemoveRaftVoterRequest:
    values = {"voter_id": 2, "voter_directory_id": B.directory_id, "cluster_id": None}
    return RemoveRaftVoterRequest(**{**values, **changes})


CHANGES = [
    (add(), (AddVoter(VoterNode(B, (ENDPOINT,))), 500)),
    (remove(), (RemoveVoter(B), 1234)),
    (update(), (UpdateVoter(VoterNode(B, (ENDPOINT,), 0, 1)), 1234)),
]


@pytest.mark.parametrize(("message", "change"), CHANGES)
def test_voters_are_changed_by_the_leader(tmp_path: Path, message: Any, change: Any) -> None:
    async def play(node: Listening) -> None:
        assert (await node.ask_controller(message)).error_code == ErrorCode.NONE
        message.cluster_id = node.cluster_id
        assert (await node.ask_controller(message)).error_code == ErrorCode.NONE
        assert node.quorum.asked == [change, change]
        node.quorum.error = KafkaError(ErrorCode.VOTER_NOT_FOUND, "Who?")
        response = await node.ask_controller(message)
        assert response.error_code == ErrorCode.VOTER_NOT_FOUND
        assert getattr(response, "error_message", "Who?") == "Who?"

    scenario(tmp_path, play)


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (add(cluster_id="another"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (add(voter_directory_id=UUID(int=0)), ErrorCode.INVALID_REQUEST),
        (add(voter_id=-1), ErrorCode.INVALID_REQUEST),
        (add(listeners=[]), ErrorCode.INVALID_REQUEST),
        (add(listeners=[add_raft_voter.Listener("OTHER", "b", 9093)]), ErrorCode.INVALID_REQUEST),
        (remove(cluster_id="another"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (remove(voter_directory_id=UUID(int=0)), ErrorCode.INVALID_REQUEST),
        (update(cluster_id="another"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (update(current_leader_epoch=6), ErrorCode.FENCED_LEADER_EPOCH),
        (update(current_leader_epoch=8), ErrorCode.UNKNOWN_LEADER_EPOCH),
        (update(listeners=[]), ErrorCode.INVALID_REQUEST),
        (update(k_raft_version_feature=KRaftVersionFeature(2, 1)), ErrorCode.INVALID_REQUEST),
    ],
)
def test_voters_that_cannot_be_are_refused(tmp_path: Path, message: Any, code: ErrorCode) -> None:
    async def play(node: Listening) -> None:
        assert (await node.ask_controller(message)).error_code == code
        assert node.quorum.asked == []

    scenario(tmp_path, play)


def test_a_voter_that_updates_itself_is_told_who_leads(tmp_path: Path) -> None:
    async def play(node: Listening) -> None:
        leader = (await node.ask_controller(update())).current_leader
        assert (leader.leader_id, leader.leader_epoch, leader.host, leader.port) == (1, 7, "a", 9093)
        node.quorum.leader = None
        node.quorum.error = NOT_LEADER
        response = await node.ask_controller(update())
        assert response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (response.current_leader.leader_id, response.current_leader.leader_epoch) == (-1, 7)

    scenario(tmp_path, play)


def test_a_controller_describes_the_controllers(tmp_path: Path) -> None:
    async def play(node: Listening) -> None:
        listeners = [Listener("CONTROLLER", "a", 9093, 0), Listener("OTHER", "a", 9094, 0)]
        registration = ControllerRegistrationRequest(1, UUID(int=5), listeners=listeners)
        assert (await node.ask_controller(registration)).error_code == ErrorCode.NONE
        response = await node.ask_controller(DescribeClusterRequest(endpoint_type=2))
        assert (response.error_code, response.endpoint_type, response.controller_id) == (0, 2, 1)
        assert [(item.broker_id, item.host, item.port) for item in response.brokers] == [(1, "a", 9093)]
        node.quorum.leader = None
        assert (await node.ask_controller(DescribeClusterRequest(endpoint_type=2))).controller_id == -1

    scenario(tmp_path, play)


@pytest.mark.parametrize(
    ("by_controller", "asked", "code"),
    [
        (True, 1, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (False, 2, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (True, 3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
        (False, 3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_the_other_kind_of_nodes_is_not_described(
    tmp_path: Path, by_controller: bool, asked: int, code: ErrorCode
) -> None:
    async def play(node: Listening) -> None:
        request = DescribeClusterRequest(endpoint_type=asked)
        response = await (node.ask_controller(request, 2) if by_controller else node.ask(request, 2))
        assert (response.error_code, response.brokers) == (code, [])
        assert response.endpoint_type == 1, "a refusal leaves it at its default, as Kafka's does"

    scenario(tmp_path, play)


# --- to the controller ---


def test_what_brokers_say_to_the_controller_is_decided_here(tmp_path: Path) -> None:
    async def play(node: Listening) -> None:
        epoch = node.services.cluster.image.brokers[1].epoch
        beat = await node.ask_controller(BrokerHeartbeatRequest(1, epoch, 100))
        assert (beat.error_code, beat.is_caught_up, beat.is_fenced) == (0, True, False)
        ids = await node.ask_controller(AllocateProducerIdsRequest(1, epoch))
        assert (ids.error_code, ids.producer_id_len) == (0, 1000)
        stale = await node.ask_controller(BrokerHeartbeatRequest(1, epoch + 1, 100))
        assert (stale.error_code, stale.is_fenced) == (ErrorCode.STALE_BROKER_EPOCH, True)

    scenario(tmp_path, play)


def test_nothing_that_comes_by_the_controllers_listener_is_forwarded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(node: Listening) -> None:
        asked: list[str] = []

        async def decide(message: Any, version: int, caller: Caller, name: str) -> Any:
            asked.append(name)
            return response_type(message.API_KEY)()

        for name in ("decide", "decide_here"):
            monkeypatch.setattr(
                node.services.cluster.metadata,
                name,
                lambda message, version, caller, name=name: decide(message, version, caller, name),
            )
        await node.ask_controller(CreateTopicsRequest())
        await node.ask(CreateTopicsRequest(), 7)
        assert asked == ["decide_here", "decide"]

    scenario(tmp_path, play)


# --- in envelopes ---

ALICE = Caller(Principal("User", "alice"), "10.1.2.3:40000", client_id="a client")
CREATE = CreateTopicsRequest([CreatableTopic("t", 1, 1)])


def test_a_request_in_an_envelope_is_decided_as_its_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(node: Listening) -> None:
        callers: list[tuple[int, Caller]] = []
        decide = node.services.cluster.metadata.decide_here

        async def decide_here(message: Any, version: int, caller: Caller) -> Any:
            callers.append((version, caller))
            return await decide(message, version, caller)

        monkeypatch.setattr(node.services.cluster.metadata, "decide_here", decide_here)
        response = await node.ask_controller(wrap(CREATE, 5, ALICE, 77))
        inside: Any = unwrap_response(response, 19, 5, 77)
        assert (inside.topics[0].name, inside.topics[0].error_code) == ("t", ErrorCode.NONE)
        assert callers == [(5, ALICE._replace(address="10.1.2.3", listener="CONTROLLER"))]
        assert "t" in node.services.cluster.image.topics

    scenario(tmp_path, play)


def test_the_quorum_is_described_in_an_envelope(tmp_path: Path) -> None:
    async def play(node: Listening) -> None:
        response = await node.ask_controller(wrap(DESCRIBE, 1, Caller(), 77))
        inside: Any = unwrap_response(response, 55, 1, 77)
        assert inside.topics[0].partitions[0].leader_id == 1

    scenario(tmp_path, play)


def test_an_error_of_the_whole_request_is_inside(tmp_path: Path) -> None:
    async def play(node: Listening) -> None:
        response = await node.ask_controller(wrap(add(cluster_id="another"), 1, Caller(), 77))
        inside: Any = unwrap_response(response, 80, 1, 77)
        assert inside.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID

    scenario(tmp_path, play)


def test_a_controller_that_is_not_active_says_so_on_the_envelope(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(node: Listening) -> None:
        async def decide_here(message: Any, version: int, caller: Caller) -> Any:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "Node 2 is.")

        monkeypatch.setattr(node.services.cluster.metadata, "decide_here", decide_here)
        response = await node.ask_controller(wrap(CREATE, 5, ALICE, 77))
        assert (response.error_code, response.response_data) == (ErrorCode.NOT_CONTROLLER, None)

    scenario(tmp_path, play)


@pytest.mark.parametrize(
    ("envelope", "code"),
    [
        (wrap(MetadataRequest(), 12, Caller(), 1), ErrorCode.INVALID_REQUEST),
        (wrap(BrokerHeartbeatRequest(), 1, Caller(), 1), ErrorCode.INVALID_REQUEST),
        (wrap(EnvelopeRequest(), 0, Caller(), 1), ErrorCode.INVALID_REQUEST),
        (EnvelopeRequest(b"", None, b""), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
    ],
)
def test_what_is_not_forwarded_is_refused(tmp_path: Path, envelope: EnvelopeRequest, code: ErrorCode) -> None:
    async def play(node: Listening) -> None:
        response = await node.ask_controller(envelope)
        assert (response.error_code, response.response_data) == (code, None)

    scenario(tmp_path, play)
