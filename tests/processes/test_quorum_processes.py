"""Real nodes that keep agreeing while they are killed, stopped and cut off. `make chaos-quorum` goes on for longer."""

from pathlib import Path

from odradek.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from odradek.wire.messages.describe_quorum import DescribeQuorumResponse
from odradek.wire.messages.metadata import MetadataResponseTopic
from tests.processes.faults import (
    cut_the_leader_off,
    kill_all,
    kill_the_leader,
    pause_the_leader,
    play,
    stop_the_leader,
)
from tests.processes.load import Ledger, Load
from tests.processes.nodes import BOTH, BROKER, CONTROLLER, DESCRIBE, ask, cluster, until
from tests.processes.scan import StoredLog, check_equal
from tests.support import run_command, running_broker

CONTROLLERS = 2  # an endpoint type
FETCH = 1


def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    faults = (kill_the_leader, cut_the_leader_off, pause_the_leader, kill_all, stop_the_leader)
    print(play(tmp_path, faults))


def test_controllers_and_brokers_apart(tmp_path: Path) -> None:
    roles = {1: CONTROLLER, 2: CONTROLLER, 3: CONTROLLER, 4: BROKER, 5: BROKER}
    with cluster(tmp_path, roles) as nodes:
        view = nodes.await_caught_up()
        assert [one.replica_id for one in view.current_voters] == [1, 2, 3]
        assert [one.replica_id for one in view.observers] == [4, 5]
        leader = nodes.leader()
        done = run_command("topic", "create", "t", "--partitions", "4", "-b", nodes[4].address("PLAINTEXT"))
        assert done.returncode == 0, done.stderr
        leader.kill()
        nodes.new_leader(view)
        done = run_command("topic", "create", "u", "--partitions", "4", "-b", nodes[5].address("PLAINTEXT"))
        assert done.returncode == 0, done.stderr
        for broker in nodes.brokers:
            topics = until(lambda broker=broker: _both(broker.topics()), f"broker {broker.id} knows t and u")
            leaders = {partition.leader_id for topic in topics for partition in topic.partitions}
            assert leaders == {4, 5}
        leader.start()
        view = nodes.await_caught_up()
        nodes.stop()
        logs = {node.id: StoredLog(node.data_dir, nodes.cluster_id) for node in nodes}
        image, _ = check_equal(logs, view.high_watermark)
        assert {"t", "u"} <= set(image.topics)


def _both(topics: dict[str, MetadataResponseTopic]) -> list[MetadataResponseTopic] | None:
    return [topics["t"], topics["u"]] if {"t", "u"} <= set(topics) else None


def test_a_node_that_was_away_for_long_is_given_a_snapshot(tmp_path: Path) -> None:
    settings = {
        "metadata_log_max_record_bytes_between_snapshots": "2000",
        "metadata_max_retention_bytes": "0",
        "replica_high_watermark_checkpoint_interval_ms": "50",
    }
    ledger = Ledger()
    with cluster(tmp_path, {1: BOTH, 2: BOTH, 3: BOTH}, **settings) as nodes:
        follower = nodes.others(nodes.leader())[0]
        nodes.await_caught_up()
        follower.kill()
        end_offset = StoredLog(follower.data_dir, nodes.cluster_id).end_offset
        with Load(nodes.bootstrap, ledger):
            for node in nodes.others(follower):
                until(
                    lambda node=node: _starts_after(node.log, end_offset),
                    "the log starts behind the follower's end",
                )
        follower.start()
        view = nodes.await_caught_up()
        nodes.stop()
        logs = {node.id: StoredLog(node.data_dir, nodes.cluster_id) for node in nodes}
        assert logs[follower.id].snapshots, "it was given one, or could not have caught up"
        image, _ = check_equal(logs, view.high_watermark)
        ledger.check(set(image.topics), "the metadata log")


def _starts_after(log: str, offset: int) -> bool:
    starts = [int(line.split()[-2]) for line in log.splitlines() if "metadata log starts at offset" in line]
    return max(starts, default=-1) > offset


def test_a_follower_whose_fetch_is_held_up_keeps_nobody_waiting(tmp_path: Path) -> None:
    """One late response on one wire: the other follower is enough for a commit, and the late one catches up."""
    with cluster(tmp_path, {1: BOTH, 2: BOTH, 3: BOTH}) as nodes:
        leader = nodes.leader()
        late, other = nodes.others(leader)
        held = nodes.proxy.hold_next(leader.id, late.id, FETCH)
        held.wait()
        done = run_command("topic", "create", "t", "-b", other.address("PLAINTEXT"))
        assert done.returncode == 0, done.stderr
        held.release()
        nodes.await_caught_up()
        until(lambda: "t" in late.topics(), "the late follower knows the topic")


def test_a_single_node_has_a_controller_listener(tmp_path: Path) -> None:
    """A node as `odradek up` runs it: others could join."""
    with running_broker(tmp_path) as broker:
        host, _, port = broker.bootstrap.rpartition(":")
        described = ask(host, int(port), DESCRIBE, DescribeQuorumResponse)
        (node,) = described.nodes
        (listener,) = node.listeners
        response = ask(
            listener.host,
            listener.port,
            DescribeClusterRequest(endpoint_type=CONTROLLERS),
            DescribeClusterResponse,
        )
        assert response.error_code == 0
        assert [(one.broker_id, one.host, one.port) for one in response.brokers] == [
            (node.node_id, listener.host, listener.port)
        ]
