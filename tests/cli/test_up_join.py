"""`odradek up --join`: what it writes, and why it does not. tests/processes/test_growth.py joins real nodes."""

import socket
from pathlib import Path

import pytest

from odradek.cli.command_parser import BAD_USAGE
from odradek.cli.up import main as up
from odradek.cli.up_claim import free_id
from odradek.cli.up_cluster import BadUsage, Cluster, Way, describe
from odradek.cli.up_failures import FAILED
from odradek.cli.up_join import PORTS_TRIED, SETTINGS_FILE, found, next_free, settings_of
from odradek.cli.up_options import parse_arguments
from odradek.metadata.properties import read_properties
from odradek.storage.disk.files import DiskFiles
from tests.processes.joining import JoinedBroker, running
from tests.support import running_broker

CLUSTER = Cluster("cluster-id", {1, 4}, "CTRL", ["c1:9093", "c2:9093"], None)


def test_a_new_node_gets_a_free_id_and_ports_of_its_own() -> None:
    assert settings_of({}, Path("/data"), CLUSTER, [9092, 9093]) == {
        "node.id": "5",
        "process.roles": "broker,controller",
        "listeners": "PLAINTEXT://localhost:9092,CTRL://localhost:9093",
        "controller.listener.names": "CTRL",
        "controller.quorum.bootstrap.servers": "c1:9093,c2:9093",
        "log.dirs": "/data",
    }
    assert free_id(set()) == 1


def test_settings_of_the_user_win_except_who_leads_and_where_the_data_is() -> None:
    given = {"node.id": "2", "process.roles": "broker", "log.dirs": "/old", "broker.rack": "a"}
    settings = settings_of(given, Path("/data"), CLUSTER, [9092, 9093])
    assert settings["node.id"] == "2" and settings["broker.rack"] == "a" and settings["log.dirs"] == "/data"
    assert settings["listeners"] == "PLAINTEXT://localhost:9092"  # a broker alone has no other
    with pytest.raises(BadUsage, match="is not a number"):
        settings_of({"node.id": "two"}, Path("/data"), CLUSTER, [])


def test_two_nodes_that_join_at_the_same_moment_get_different_ids(tmp_path: Path) -> None:
    """Both have asked the cluster which ids are taken before either of them claims one."""
    with running_broker(tmp_path) as broker:
        cluster = describe(broker.bootstrap, Way())
        names, ids = ("first", "second"), []
        for name in names:
            options = parse_arguments(
                ["--join", broker.bootstrap, "--port", "0", "--data-dir", str(tmp_path / name)]
            )
            found(options, tmp_path / name, cluster).release()
            identity = read_properties(DiskFiles(), str(tmp_path / name))
            assert identity is not None
            ids.append(identity.node_id)
            assert f"node.id={identity.node_id}\n" in (tmp_path / name / SETTINGS_FILE).read_text()
        assert ids == [2, 3]
        # The one that has the id starts with it, though it was registered before.
        first = JoinedBroker(tmp_path / "first", {}, broker.bootstrap)
        with running(first):
            assert describe(first.bootstrap, Way()).node_ids == {1, 2, 3}
            assert "broker 2 of cluster" in first.log


def test_a_cluster_that_cannot_be_joined(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert up(["--join", "localhost:1"]) == BAD_USAGE
    assert "--join needs --data-dir" in capsys.readouterr().err
    assert up(["--join", "nowhere", "--data-dir", str(tmp_path / "data")]) == BAD_USAGE
    assert "is not host:port" in capsys.readouterr().err
    assert up(["--join", "localhost:1", "--data-dir", str(tmp_path / "data")]) == FAILED
    assert "the cluster cannot be reached" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_a_directory_of_another_node_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    identity = "cluster.id=c\ndirectory.id=JEXY6aqzQY-32P5TStzaFg\nnode.id=3\nversion=1\n"
    (tmp_path / "meta.properties").write_text(identity)
    assert up(["--join", "localhost:1", "--data-dir", str(tmp_path)]) == FAILED
    assert "belongs to node 3 already" in capsys.readouterr().err


def test_clients_get_the_next_free_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        reserved = next_free(port)
        try:
            assert port < reserved.port < port + PORTS_TRIED
        finally:
            reserved.release()
