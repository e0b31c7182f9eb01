"""Kafka's own tools on a quorum of ours, and a Kafka controller's own responses beside ours."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.wire.messages.api_versions import ApiVersionsRequest
from odradek.wire.messages.describe_cluster import DescribeClusterRequest
from odradek.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    PartitionDataInRequest,
    TopicDataInRequest,
)
from odradek.wire.messages.index import SCHEMAS
from odradek.wire.messages.vote import PartitionDataInRequest as VotePartition
from odradek.wire.messages.vote import TopicDataInRequest as VoteTopic
from odradek.wire.messages.vote import VoteRequest
from tests.peer.exchange import Cluster, common_versions, compare, served_versions
from tests.peer.test_peer_tools import dump, tool
from tests.processes.nodes import BOTH, CONTROLLER, DESCRIBE, Nodes, cluster
from tests.support import RunningBroker, run_command
from tools.peer.kafka import KafkaPeer

QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
BROKERS, CONTROLLERS = 1, 2
SETTINGS = {
    "metadata_log_max_record_bytes_between_snapshots": "2000",
    "replica_high_watermark_checkpoint_interval_ms": "50",
}


@pytest.fixture(scope="module")
def nodes(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    home = tmp_path_factory.mktemp("quorum")
    with cluster(home, {1: BOTH, 2: BOTH, 3: BOTH}, **SETTINGS) as running:
        yield running


def servers(nodes: Nodes) -> dict[str, tuple[str, str]]:
    leader = nodes.leader()
    follower = nodes.others(leader)[0]
    return {
        "a broker": ("--bootstrap-server", follower.address("PLAINTEXT")),
        "the leader": ("--bootstrap-controller", leader.address("CONTROLLER")),
        "a controller that follows": ("--bootstrap-controller", follower.address("CONTROLLER")),
    }


ROUTES = ("a broker", "the leader", "a controller that follows")


@pytest.mark.parametrize("by", ROUTES)
def test_kafkas_tool_describes_the_status(nodes: Nodes, by: str) -> None:
    lines = tool(QUORUM, *servers(nodes)[by], "describe", "--status").splitlines()
    status = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    view = nodes.await_caught_up()
    assert status["ClusterId"] == nodes.cluster_id
    assert (int(status["LeaderId"]), int(status["LeaderEpoch"])) == (view.leader_id, view.leader_epoch)
    assert 0 < int(status["HighWatermark"]) <= view.high_watermark
    voters = json.loads(status["CurrentVoters"])
    own = json.loads(run_command("quorum", "describe", "--json", "-b", nodes.bootstrap).stdout)
    assert [(one["id"], one["directoryId"]) for one in voters] == [
        (one["node"], one["directory_id"]) for one in own["voters"]
    ]
    assert [one["endpoints"] for one in voters] == [
        [f"CONTROLLER://{node.address('CONTROLLER')}"] for node in nodes
    ]
    assert json.loads(status["CurrentObservers"]) == []


@pytest.mark.parametrize("by", ROUTES)
def test_kafkas_tool_describes_the_replication(nodes: Nodes, by: str) -> None:
    output = tool(QUORUM, *servers(nodes)[by], "describe", "--replication")
    header, *rows = [line.split() for line in output.splitlines() if line.strip()]
    assert header[:4] == ["NodeId", "DirectoryId", "LogEndOffset", "Lag"]
    assert sorted(int(row[0]) for row in rows) == [1, 2, 3]
    leader = nodes.leader()
    assert [row[-1] for row in rows if int(row[0]) == leader.id] == ["Leader"]
    assert sorted(row[-1] for row in rows) == ["Follower", "Follower", "Leader"]


def test_kafkas_tool_adds_and_removes_a_controller(nodes: Nodes) -> None:
    fourth = nodes.add(4, CONTROLLER)
    try:
        fourth.start()
        nodes.await_caught_up(fourth)
        server = ("--bootstrap-controller", nodes.leader().address("CONTROLLER"))
        tool(QUORUM, "--command-config", str(fourth.config_file), *server, "add-controller")
        view = nodes.await_caught_up()
        assert [one.replica_id for one in view.current_voters] == [1, 2, 3, 4]
        directory_id = _directory_id(fourth.data_dir)
        named = ("--controller-id", "4", "--controller-directory-id", directory_id)
        tool(QUORUM, *server, "remove-controller", *named)
        view = nodes.await_caught_up()
        assert [one.replica_id for one in view.current_voters] == [1, 2, 3]
    finally:
        fourth.kill()
        del nodes.by_id[4]


def _directory_id(data_dir: Path) -> str:
    found = re.search(r"^directory\.id=(.*)$", (data_dir / "meta.properties").read_text(), re.MULTILINE)
    assert found is not None
    return found[1]


def test_kafkas_tool_reads_the_log_and_snapshots_of_a_quorum(nodes: Nodes) -> None:
    """Stops the nodes: it is the last test that uses them."""
    for number in range(20):
        done = run_command("topic", "create", f"dumped-{number}", "-b", nodes.bootstrap)
        assert done.returncode == 0, done.stderr
    nodes.leader().kill()
    nodes.leader()
    for node in nodes:
        node.stop()
    for node in nodes:
        directory = node.data_dir / "__cluster_metadata-0"
        snapshots = [one for one in directory.glob("*.checkpoint") if not one.name.startswith("0" * 20)]
        assert snapshots, f"node {node.id} has written none"
        output = dump(*directory.glob("*.log"), *snapshots, options=("--cluster-metadata-decoder",))
        for kind in (
            "REGISTER_BROKER_RECORD",
            "REGISTER_CONTROLLER_RECORD",
            "TOPIC_RECORD",
            "PARTITION_RECORD",
        ):
            assert f'"type":"{kind}"' in output, kind
        for control in ("KRaftVersion", "KRaftVoters", "LeaderChange", "SnapshotHeader", "SnapshotFooter"):
            assert control in output, control
        for number in range(19):
            assert f'"name":"dumped-{number}"' in output


# Beside a Kafka controller

ACCEPTED = re.compile(
    r"(high_watermark|log_end_offset|timestamp|leader_epoch): Kafka \d+, ours \d+$"  # of another history
)


def ask_all(one: Cluster, is_controller: bool) -> None:
    """Everything that a controller, or a broker, is asked about the quorum."""
    for version in (0, 1, 2):
        one.ask(DESCRIBE, version, f"v{version}")
    for topics in ([], [("other", [0])], [("__cluster_metadata", [1])], [("__cluster_metadata", [0, 0])]):
        wanted = [
            TopicDataInRequest(name, [PartitionDataInRequest(index) for index in indexes])
            for name, indexes in topics
        ]
        one.ask(DescribeQuorumRequest(wanted), 2, str(topics))
    for endpoint_type in (BROKERS, CONTROLLERS, 3):
        for version in (1, 2):
            request = DescribeClusterRequest(endpoint_type=endpoint_type)
            one.ask(request, version, f"v{version} type {endpoint_type}")
    if is_controller:
        partition = VotePartition(0, replica_epoch=1, replica_id=5)
        request = VoteRequest("another cluster", 1, [VoteTopic("__cluster_metadata", [partition])])
        one.ask(request, 2, "of another cluster")


@pytest.mark.parametrize("listener", ["controller", "broker"])
def test_what_is_asked_about_the_quorum_is_answered_alike(
    kafka: KafkaPeer, ours: RunningBroker, listener: str
) -> None:
    is_controller = listener == "controller"
    theirs = Cluster(kafka.controller if is_controller else kafka.bootstrap, lambda key: 0)
    answering = Cluster(controller_of(ours) if is_controller else ours.bootstrap, lambda key: 0)
    for one in (theirs, answering):
        ask_all(one, is_controller)
        one.close()
    found = [line for line in compare(theirs, answering) if not ACCEPTED.search(line)]
    assert not found, "\n" + "\n".join(found)


def controller_of(broker: RunningBroker) -> str:
    asked = Cluster(broker.bootstrap, lambda key: 2)
    (node,) = asked.ask_quietly(DESCRIBE).nodes
    asked.close()
    return f"{node.listeners[0].host}:{node.listeners[0].port}"


def test_what_our_controller_serves_kafkas_serves(kafka: KafkaPeer, ours: RunningBroker) -> None:
    theirs, served = served_versions(kafka.controller), served_versions(controller_of(ours))
    for api_key in sorted(theirs):
        if theirs[api_key] != served.get(api_key):
            name = SCHEMAS[api_key].name if api_key in SCHEMAS else f"API {api_key}"
            print(f"{name}: Kafka {theirs[api_key]}, ours {served.get(api_key, 'not served')}")
    assert served.keys() <= theirs.keys(), {SCHEMAS[key].name for key in served.keys() - theirs.keys()}
    too_new = {SCHEMAS[key].name for key in served if served[key][1] > theirs[key][1]}
    assert not too_new
    assert common_versions(theirs, served)[ApiVersionsRequest.API_KEY]
