"""A bit of a metadata log flips while its node is down. The node does not start, and its operator does what
docs/CLUSTER.md says, word by word."""

import re
import shlex
import subprocess
from contextlib import closing
from pathlib import Path

from tests.processes.nodes import BOTH, BROKER, Node, Nodes, cluster, replicas, until
from tests.support import RunningBroker, run_command

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "CLUSTER.md"
HEADING = "A metadata log is damaged"
LOG = "__cluster_metadata-0/00000000000000000000.log"
CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"  # in the document
SLOW_CHECKPOINTS = {"replica_high_watermark_checkpoint_interval_ms": "3600000"}


def test_a_controller_with_a_damaged_log_joins_again_as_the_document_says(tmp_path: Path) -> None:
    with cluster(tmp_path, {1: BOTH, 2: BOTH, 3: BOTH}, **SLOW_CHECKPOINTS) as nodes:
        run("odradek", "topic", "create", "kept", "--partitions", "2", "-b", nodes.bootstrap)
        nodes.await_caught_up()
        node = nodes.others(nodes.leader())[0]
        refuse(node, "Remove its vote ('odradek quorum remove-controller")
        follow_the_document(nodes, node, documented_commands())
        assert voters(nodes) == [1, 2, 3]
        until(lambda: is_healthy(nodes), "its replicas are in sync again")
        assert "kept" in node.topics()


def test_a_broker_with_a_damaged_log_joins_again_without_the_commands_about_its_vote(tmp_path: Path) -> None:
    with cluster(tmp_path, {1: BOTH, 2: BROKER}) as nodes:
        run("odradek", "topic", "create", "kept", "--partitions", "2", "-b", nodes.bootstrap)
        nodes.await_caught_up()
        refuse(nodes[2], f"Move {nodes[2].data_dir} away")
        follow_the_document(nodes, nodes[2], documented_commands()[1:-1])
        assert voters(nodes) == [1]
        until(lambda: is_healthy(nodes), "its replicas are in sync again")


def test_a_lone_node_is_told_that_it_can_start_with_no_topics(tmp_path: Path) -> None:
    node = RunningBroker(tmp_path / "lone", {})
    with closing(node.port):
        node.start()
        try:
            run("odradek", "topic", "create", "gone", "-b", node.bootstrap)
            node.kill()
            flip_a_bit(node.data_dir)
            node.launch()
            assert node.process.wait(60) == 1
            assert "move it away to start with no topics" in node.log
            node.kill()
            (node.data_dir / LOG).parent.rename(tmp_path / "moved away")
            node.start()
            assert run("odradek", "topic", "list", "-b", node.bootstrap) == ""
            assert [path.name for path in node.data_dir.iterdir() if path.name.endswith("-stray")]
        finally:
            node.kill()


def flip_a_bit(data_dir: Path) -> None:
    """In a record in the middle of what was synced."""
    data = bytearray((data_dir / LOG).read_bytes())
    data[len(data) // 2] ^= 1
    (data_dir / LOG).write_bytes(data)


def refuse(node: Node, words: str) -> None:
    """The node is killed, its log is damaged, and it says what to do."""
    node.kill()
    flip_a_bit(node.data_dir)
    damaged = (node.data_dir / LOG).read_bytes()
    node.launch()
    assert node.process.wait(60) == 1, node.log
    (message,) = [line for line in node.log.splitlines() if line.startswith("error: ")]
    assert words in message and HEADING in message and "with no topics" not in message
    assert (node.data_dir / LOG).read_bytes() == damaged, "nothing is removed"
    node.kill()


def documented_commands() -> list[str]:
    section = DOCUMENT.read_text().split(f"\n## {HEADING}\n")[1].split("\n## ")[0]
    (block,) = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
    lines = block.splitlines()
    assert lines and all(line.startswith("$ ") for line in lines)
    return [line.removeprefix("$ ") for line in lines]


def follow_the_document(nodes: Nodes, node: Node, commands: list[str]) -> None:
    """Its example is node 2, in /var/lib/odradek, and asks c1."""
    other = next(one for one in nodes.controllers if one is not node)
    for command in commands:
        words = shlex.split(command)
        if words[:2] == ["odradek", "broker"]:
            node.start()
            await_caught_up(nodes, node)
            continue
        named = {
            "2": str(node.id),
            "c1:9093": other.address("CONTROLLER"),
            "server.properties": str(node.config_file),
            CLUSTER_ID: nodes.cluster_id,
        }
        run(*(named.get(word, word.replace("/var/lib/odradek", str(node.data_dir))) for word in words))


def await_caught_up(nodes: Nodes, node: Node) -> None:
    """The leader may still remember its old directory, too."""

    def look() -> bool:
        view = until(nodes.quorum, "a controller leads")
        ends = [one.log_end_offset for one in replicas(view) if one.replica_id == node.id]
        return max(ends, default=-1) >= view.high_watermark

    until(look, f"node {node.id} caught up")


def run(program: str, *arguments: str) -> str:
    if program == "odradek":
        done = run_command(*arguments)
    else:
        done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{program} {arguments}: {done.stdout}{done.stderr}"
    return done.stdout


def voters(nodes: Nodes) -> list[int]:
    view = until(nodes.quorum, "a controller leads")
    return sorted(one.replica_id for one in view.current_voters)


def is_healthy(nodes: Nodes) -> bool:
    return run_command("cluster", "status", "-b", nodes.bootstrap).returncode == 0
