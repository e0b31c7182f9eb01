"""`odradek quorum` against three real nodes, by way of a broker, of the leader, and of a controller that follows."""

import json
from pathlib import Path
from typing import Any

from tests.processes.nodes import BOTH, CONTROLLER, Nodes, cluster
from tests.support import run_command


def quorum(*arguments: str) -> str:
    done = run_command("quorum", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def voters(view: Any) -> list[int]:
    return [one["node"] for one in view["voters"]]


def test_the_quorum_is_described_and_its_voters_change(tmp_path: Path) -> None:
    with cluster(tmp_path, {1: BOTH, 2: BOTH, 3: BOTH}) as nodes:
        _describe(nodes)
        _add_and_remove(nodes)


def _describe(nodes: Nodes) -> None:
    leader = nodes.leader()
    follower = nodes.others(leader)[0]
    for server in (
        follower.address("PLAINTEXT"),
        follower.address("CONTROLLER"),
        leader.address("CONTROLLER"),
    ):
        view = json.loads(quorum("describe", "--json", "-b", server))
        assert (view["leader"], voters(view), view["observers"]) == (leader.id, [1, 2, 3], [])
        assert [one["role"] == "leader" for one in view["voters"]] == [node.id == leader.id for node in nodes]
        assert [one["address"] for one in view["voters"]] == [node.address("CONTROLLER") for node in nodes]
        end_offset = max(one["log_end_offset"] for one in view["voters"])
        assert [one["lag"] for one in view["voters"]] == [
            end_offset - one["log_end_offset"] for one in view["voters"]
        ]
    first, header, *rows = quorum("describe", "-b", nodes.bootstrap).splitlines()
    assert first.startswith(f"leader {leader.id}, epoch ")
    assert header.split() == ["NODE", "ROLE", "LOG-END-OFFSET", "LAG", "CAUGHT-UP", "DIRECTORY", "ADDRESS"]
    assert [row.split()[0] for row in rows] == ["1", "2", "3"]


def _add_and_remove(nodes: Nodes) -> None:
    server = ("-b", nodes[1].address("CONTROLLER"))
    fourth = nodes.add(4, CONTROLLER)
    fourth.start()
    nodes.await_caught_up(fourth)
    before = json.loads(quorum("describe", "--json", *server))
    assert [(one["node"], one["role"]) for one in before["observers"]] == [(4, "observer")]
    assert "Added controller 4" in quorum("add-controller", "--config", str(fourth.config_file), *server)
    after = json.loads(quorum("describe", "--json", *server))
    assert voters(after) == [1, 2, 3, 4]
    assert after["voters"][3]["directory_id"] == before["observers"][0]["directory_id"]
    again = run_command("quorum", "add-controller", "--config", str(fourth.config_file), *server)
    assert again.returncode == 1 and "error: " in again.stderr
    assert "Removed controller 4" in quorum("remove-controller", "4", *server)
    assert voters(json.loads(quorum("describe", "--json", *server))) == [1, 2, 3]
    nobody = run_command("quorum", "remove-controller", "7", *server)
    assert (nobody.returncode, nobody.stderr) == (1, "error: node 7 is not a voter\n")
