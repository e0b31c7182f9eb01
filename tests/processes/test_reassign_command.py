"""`odradek topic reassign`, `elect-leaders` and `cluster remove-broker` against three real nodes."""

import json
from pathlib import Path
from typing import Any

from tests.processes.joining import command, told
from tests.processes.nodes import BOTH, TIMEOUT_S, Nodes, cluster, until
from tests.support import run_command

SETTINGS = {
    "broker_session_timeout_ms": "3000",
    "offsets_topic_num_partitions": "1",
    "auto_leader_rebalance_enable": "false",
}


def test_partitions_move_and_a_broker_leaves(tmp_path: Path) -> None:
    with cluster(tmp_path, {1: BOTH, 2: BOTH, 3: BOTH}, **SETTINGS) as nodes:
        server = ("-b", nodes.bootstrap)
        create(server)
        _dry_run_changes_nothing(server)
        _spread_by_our_plan(server)
        _follow_a_file(tmp_path, server)
        _refuse_nonsense(server)
        _throttle(server)
        _elect(nodes, server)
        _remove(nodes)


def create(server: tuple[str, ...]) -> None:
    made = command("topic", "create", "t", "--partitions", "4", "--replication-factor", "1", *server)
    assert made.returncode == 0, made.stderr
    assert run_command("produce", "t", *server, stdin="a\nb\nc\n").returncode == 0


def replicas(server: tuple[str, ...]) -> list[list[int]]:
    (topic,) = told("topic", "describe", "t", *server)
    return [one["replicas"] for one in topic["partitions"]]


def reassign(*arguments: str) -> Any:
    return told("topic", "reassign", *arguments)


def _dry_run_changes_nothing(server: tuple[str, ...]) -> None:
    before = replicas(server)
    plan = reassign("t", "--replication-factor", "2", "--dry-run", *server)
    assert plan["version"] == 1 and len(plan["partitions"]) == 4
    assert all(len(one["replicas"]) == len(one["log_dirs"]) == 2 for one in plan["partitions"])
    shown = command("topic", "reassign", "t", "--replication-factor", "2", "--dry-run", *server).stdout
    assert shown.splitlines()[0].split() == ["TOPIC", "PARTITION", "REPLICAS", "NEW-REPLICAS", "COPY"]
    assert shown.splitlines()[-1].startswith("4 partitions, 4 new replicas, ")
    assert replicas(server) == before


def _spread_by_our_plan(server: tuple[str, ...]) -> None:
    assert reassign("t", "--replication-factor", "2", *server)["is_complete"]
    assert all(len(one) == 2 for one in replicas(server))
    assert reassign("t", "--brokers", "1,2", *server)["is_complete"]
    assert all(sorted(one) == [1, 2] for one in replicas(server))
    (topic,) = told("topic", "describe", "t", *server)
    assert sorted(one["leader"] for one in topic["partitions"]) == [1, 1, 2, 2]
    assert reassign("t", "--brokers", "1,2", *server)["partitions"] == []
    status = command("topic", "reassign", "--status", *server)
    assert (status.returncode, status.stdout) == (0, "No partition is moving.\n")


def _follow_a_file(tmp_path: Path, server: tuple[str, ...]) -> None:
    plan = {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [3, 1]}]}
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    assert reassign("--plan", str(file), *server)["is_complete"]
    assert replicas(server)[0] == [3, 1]
    file.write_text('{"version": 1, "partitions": [{"topic": "t"}]}')
    bad = command("topic", "reassign", "--plan", str(file), *server)
    assert bad.returncode == 1 and "is not a plan" in bad.stderr


def _refuse_nonsense(server: tuple[str, ...]) -> None:
    for arguments, status, reason in (
        (["t"], 2, "say what to do"),
        (["--replication-factor", "2"], 2, "say which partitions"),
        (["t", "--brokers", "one"], 2, "is not a list of broker ids"),
        (["missing", "--replication-factor", "2"], 1, "topic 'missing' does not exist"),
        (["t", "--replication-factor", "4"], 1, "cannot have 4 replicas on 3 brokers"),
        (["t", "--brokers", "1,9"], 1, "broker 9 cannot get replicas"),
    ):
        done = command("topic", "reassign", *arguments, *server)
        assert (done.returncode, reason in done.stderr) == (status, True), done.stderr


def _throttle(server: tuple[str, ...]) -> None:
    """It is removed when the move is complete, by whoever notices."""
    reassign("t", "--brokers", "2,3", "--throttle", "1000000", *server)
    assert throttles(server) == {}
    reassign("t", "--replication-factor", "3", "--throttle", "1000000", "--no-wait", *server)
    until(
        lambda: command("topic", "reassign", "--status", *server).returncode == 0,
        "nothing moves any more",
    )
    assert throttles(server) == {}
    assert reassign("--cancel", "--all", *server) == {"cancelled": []}


def throttles(server: tuple[str, ...]) -> dict[str, str]:
    (topic,) = told("topic", "describe", "t", *server)
    return {name: value for name, value in topic["configs"].items() if "throttled" in name}


def _elect(nodes: Nodes, server: tuple[str, ...]) -> None:
    """A broker that restarts gets back what it led when it is asked for."""
    node = nodes[2]
    node.stop()
    node.start()
    until(lambda: command("cluster", "status", *server).returncode == 0, "all replicas are in sync")
    first = command("topic", "elect-leaders", "t", *server)
    assert first.returncode == 0 and first.stdout.startswith("Elected "), first.stderr
    again = command("topic", "elect-leaders", *server)
    assert (again.returncode, again.stdout) == (0, "No election was needed.\n")
    unclean = command("topic", "elect-leaders", "t", "--unclean", *server)
    assert unclean.returncode == 2 and "--yes" in unclean.stderr
    missing = told_failure("topic", "elect-leaders", "t", "--partition", "9", *server)
    assert "t-9: unknown topic or partition" in missing


def told_failure(*arguments: str) -> str:
    done = command(*arguments)
    assert done.returncode == 1, done.stdout
    return done.stderr


def _remove(nodes: Nodes) -> None:
    server = ("-b", ",".join(nodes[one].address("PLAINTEXT") for one in (1, 2)))
    assert "cannot have 3 replicas on 2 brokers" in told_failure("cluster", "remove-broker", "3", *server)
    fewer = ("topic", "reassign", "--all", "--replication-factor", "2", *server)
    asked = command(*fewer)
    assert asked.returncode == 2 and "add --yes" in asked.stderr
    assert "these partitions may lose 1 node without refusing writes, 1 without losing data" in asked.stderr
    assert "Now, they may lose 2 nodes without refusing writes, 2 without losing data" in asked.stderr
    told(*fewer, "--yes")
    asked = command("cluster", "remove-broker", "3", "--no-wait", *server)
    assert asked.returncode == 2 and "add --yes" in asked.stderr
    assert "Without broker 3, the cluster may lose 0 nodes without refusing writes" in asked.stderr
    assert "2 voters in the metadata quorum" in asked.stderr
    done = told("cluster", "remove-broker", "3", "--no-wait", "--yes", *server)
    assert done["is_cordoned"] and done["lost_vote"] and not done["is_unregistered"]
    _create_beside_a_cordoned_broker(server)
    assert all(sorted(one) == [1, 2] for one in replicas(server))
    assert nodes[3].stop() == 0
    again = told("cluster", "remove-broker", "3", "--timeout", str(TIMEOUT_S), *server)
    assert (again["is_unregistered"], again["moved_partitions"]) == (True, 0)
    assert [one["broker"] for one in told("cluster", "status", *server)["brokers"]] == [1, 2]
    assert "there is no broker 3" in told_failure("cluster", "remove-broker", "3", *server)


def _create_beside_a_cordoned_broker(server: tuple[str, ...]) -> None:
    made = command("topic", "create", "many", "--partitions", "6", "--replication-factor", "1", *server)
    assert made.returncode == 0, made.stderr
    described = until(  # a broker may hear of it a moment later than the controller
        lambda: command("topic", "describe", "many", "--json", *server).stdout, "every broker knows the topic"
    )
    (topic,) = json.loads(described)
    assert {one["replicas"][0] for one in topic["partitions"]} == {1, 2}
