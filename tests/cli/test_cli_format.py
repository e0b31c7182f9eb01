"""`odradek format` and `odradek random-uuid`: what they write, say and refuse."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from odradek.config.sources import parse_properties
from odradek.metadata.loading import find_base
from odradek.model import id_from_text, id_to_text
from odradek.raft.voters import Endpoint, KRaftVersion
from odradek.storage.disk.files import DiskFiles
from tests.support import odradek_command, run_command, running_broker

CLUSTER = "5L6g3nShT-eMCtK--X86sw"
IDS = ["JEXY6aqzQY-32P5TStzaFg", "MvDxzVmcRsaTz33bUuRU6A", "07R5amHmR32VDA6jHkGbTA"]
THREE = ",".join(f"{place}@c{place}:9093:{text}" for place, text in enumerate(IDS, 1))
TOO_HEAVY = ("typer", "rich", "confluent_kafka", "pyspark", "click", "asyncio")

QUORUM = {
    "node.id": "1",
    "process.roles": "controller",
    "listeners": "CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "c1:9093,c2:9093,c3:9093",
}
BROKER = {
    "node.id": "4",
    "process.roles": "broker",
    "controller.quorum.bootstrap.servers": "c1:9093",
}


@pytest.fixture
def formatted(tmp_path):
    """Runs the command on a settings file; its outcome."""

    def run(*arguments: str, settings=QUORUM) -> subprocess.CompletedProcess[str]:
        file = tmp_path / "server.properties"
        file.write_text("".join(f"{key}={text}\n" for key, text in settings.items()))
        return run_command("format", "--config", str(file), "--data-dir", str(tmp_path / "data"), *arguments)

    return run


def properties_in(tmp_path: Path) -> dict[str, str]:
    return parse_properties((tmp_path / "data" / "meta.properties").read_text())


def voters_in(tmp_path: Path):
    return find_base(DiskFiles(), str(tmp_path / "data"), CLUSTER).quorum_changes


def test_the_first_controllers(formatted, tmp_path):
    done = formatted("-t", CLUSTER, "-I", THREE)
    assert done.returncode == 0, done.stderr
    assert CLUSTER in done.stdout
    assert "First voters: 1, 2, 3\n" in done.stdout
    assert properties_in(tmp_path) == {
        "cluster.id": CLUSTER,
        "node.id": "1",
        "directory.id": IDS[0],
        "version": "1",
    }
    version, voters = voters_in(tmp_path)
    assert version == KRaftVersion(1)
    assert [id_to_text(key.directory_id) for key in voters.keys] == IDS
    assert voters.get(2).endpoints == (Endpoint("CONTROLLER", "c2", 9093),)


def test_one_controller_that_others_may_join(formatted, tmp_path):
    done = formatted("--standalone", "--json")
    facts = json.loads(done.stdout)
    assert (facts["voters"], facts["formatted"], facts["node_id"]) == ([1], True, 1)
    assert properties_in(tmp_path)["cluster.id"] == facts["cluster_id"]
    _, voters = voters_in(tmp_path)
    [voter] = voters
    assert (
        id_to_text(voter.key.directory_id) == facts["directory_id"] == properties_in(tmp_path)["directory.id"]
    )
    [endpoint] = voter.endpoints
    assert (endpoint.listener, endpoint.port) == ("CONTROLLER", 9093)


@pytest.mark.parametrize(
    ("settings", "arguments"), [(QUORUM, ("-N", "-t", CLUSTER)), (BROKER, ("-t", CLUSTER))]
)
def test_a_node_that_joins(formatted, tmp_path, settings, arguments):
    done = formatted(*arguments, settings=settings)
    assert done.returncode == 0, done.stderr
    assert (properties_in(tmp_path)["cluster.id"], voters_in(tmp_path)) == (CLUSTER, ())


def test_a_single_node_on_a_port_of_the_systems_choice_names_itself_later(formatted, tmp_path):
    assert formatted("-t", CLUSTER, settings={"node.id": "1"}).returncode == 0
    assert voters_in(tmp_path) == ()


def test_what_is_formatted_stays_as_it_is(formatted, tmp_path):
    assert formatted("-t", CLUSTER, "-I", THREE).returncode == 0
    before = {path: path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()}
    again = formatted("-t", CLUSTER, "-I", THREE)
    assert (again.returncode, again.stderr.count("\n")) == (1, 1)
    assert f"is formatted already, for node 1 of cluster {CLUSTER}" in again.stderr
    ignored = formatted("-t", CLUSTER, "-I", THREE, "--ignore-formatted")
    assert ignored.returncode == 0
    assert ignored.stdout.startswith("Formatted already: ")
    for other, words in (
        (("-t", IDS[1], "-I", THREE), f"cluster.id={CLUSTER}"),
        (("-t", CLUSTER, "-I", THREE.replace(IDS[0], CLUSTER)), f"directory.id={IDS[0]}"),
        (("-t", CLUSTER, "-I", THREE, "--set", "node.id=2"), "node.id=1"),
    ):
        refused = formatted(*other, "-g")
        assert (refused.returncode, words in refused.stderr) == (1, True), refused.stderr
    assert {path: path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file()} == before


def test_a_directory_that_a_broker_holds(tmp_path):
    file = tmp_path / "server.properties"
    file.write_text("node.id=1\n")
    with running_broker(tmp_path) as broker:
        done = run_command("format", "-c", str(file), "--data-dir", str(broker.data_dir))
    assert done.returncode == 1
    assert "is in use by another process" in done.stderr


@pytest.mark.parametrize(
    ("settings", "arguments", "words"),
    [
        (QUORUM, (), "--initial-controllers, --standalone or --no-initial-controllers"),
        (QUORUM, ("-N",), "--cluster-id"),
        (BROKER, (), "--cluster-id"),
        (BROKER, ("-s",), "only a controller"),
        (BROKER, ("-I", THREE), "only a controller"),
        ({"node.id": "1"}, ("-N",), "names none"),
        (QUORUM, ("-t", "mine", "-s"), "odradek random-uuid"),
        (QUORUM, ("-t", f"{CLUSTER[:-1]} ", "-s"), "odradek random-uuid"),
        (QUORUM, ("-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-s"), "odradek random-uuid"),
        (QUORUM, ("-I", THREE, "--set", "node.id=7"), "does not name this node, which has node.id=7"),
        (QUORUM, ("-I", "1@c1:9093"), "ID@HOST:PORT:DIRECTORY-ID"),
        (QUORUM, ("-I", f"c1:9093:{IDS[0]}"), "ID@HOST:PORT:DIRECTORY-ID"),
        (QUORUM, ("-I", "1@c1:9093:short"), "odradek random-uuid"),
        (QUORUM, ("-I", f"1@c1:0:{IDS[0]}"), "from 1 to 65535"),
        (QUORUM, ("-I", f"1@c1:65536:{IDS[0]}"), "from 1 to 65535"),
        (QUORUM, ("-I", f"2147483648@c1:9093:{IDS[0]}"), "larger than 2147483647"),
        (QUORUM, ("-I", f"1@c1:9093:{IDS[0]},1@c2:9093:{IDS[1]}"), "needs its own id"),
        (QUORUM, ("-I", f"1@c1:9093:{IDS[0]},2@c2:9093:{IDS[0]}"), "needs its own directory id"),
        (QUORUM, ("-I", f"1@c1:9093:{IDS[0]},2@c1:9093:{IDS[1]}"), "needs its own address"),
        (QUORUM | {"listeners": "CONTROLLER://:0"}, ("-s",), "need a port"),
        (
            QUORUM,
            ("-s", "--set", "controller.quorum.voters=1@c1:9093"),
            "controller.quorum.bootstrap.servers=c1:9093",
        ),
    ],
)
def test_refused(run_here, tmp_path, settings, arguments, words):
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{key}={text}\n" for key, text in settings.items()))
    done = run_here("format", "-c", str(file), "--data-dir", str(tmp_path / "data"), *arguments)
    assert (done.returncode, words in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "data").exists()


def test_one_part_in_the_quorum_at_a_time(formatted):
    done = formatted("-s", "-N")
    assert (done.returncode, "not allowed with" in done.stderr) == (2, True)


def test_random_uuids():
    texts = {run_command("random-uuid").stdout for _ in range(2)}
    assert len(texts) == 2
    for text in texts:
        assert id_from_text(text.strip()).version == 4
        assert len(text) == 23


def test_help_shows_how_three_controllers_are_formatted():
    done = run_command("format", "--help")
    assert done.returncode == 0
    for word in ("-I 1@c1:9093:", "--standalone", "-N", "--ignore-formatted", "Exit status"):
        assert word in done.stdout


def test_options_before_the_command():
    assert len(run_command("-b", "ignored:1", "random-uuid").stdout) == 23


def test_it_imports_no_client_commands(tmp_path):
    command = odradek_command("random-uuid")
    done = subprocess.run(
        [command[0], "-X", "importtime", *command[1:]], capture_output=True, text=True, timeout=60
    )
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "odradek" in imported
    assert not imported & set(TOO_HEAVY)


def test_a_broker_says_how_to_format_a_directory_of_a_quorum(tmp_path):
    file = tmp_path / "server.properties"
    file.write_text(
        "controller.quorum.bootstrap.servers=c1:9093,c2:9093\nlisteners=PLAINTEXT://localhost:0\n"
    )
    data = tmp_path / "data"
    done = run_command("broker", "--config", str(file), "--data-dir", str(data))
    assert (done.returncode, done.stdout) == (1, "")
    [line] = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    for words in (
        f"{data} is not formatted",
        "names a quorum (c1:9093,c2:9093)",
        "odradek format --config FILE",
    ):
        assert words in line
    assert not (data / "meta.properties").exists()


def test_the_walk_through_is_true(tmp_path):
    """docs/CLUSTER.md: its settings are accepted, and formatting prints what it says there."""
    text = (Path(__file__).parent.parent.parent / "docs" / "CLUSTER.md").read_text()
    controllers, broker = re.findall(r"^```properties\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    command = re.search(
        r"^\$ (odradek format .*?) \\\n(.*)\n(Formatted: .*\nFirst voters: .*\n)", text, re.MULTILINE
    )
    assert command is not None
    data = tmp_path / "data"
    (tmp_path / "server.properties").write_text(controllers.replace("/var/lib/odradek", str(data)))
    words = f"{command[1]} {command[2]}".replace(
        "server.properties", str(tmp_path / "server.properties")
    ).split()
    done = run_command(*words[1:])
    assert (done.returncode, done.stdout.replace(str(data), "/var/lib/odradek")) == (0, command[3]), (
        done.stderr
    )
    (tmp_path / "server.properties").write_text(broker.replace("/var/lib/odradek", str(tmp_path / "broker")))
    joined = run_command("format", "-c", str(tmp_path / "server.properties"), "-t", CLUSTER)
    assert joined.returncode == 0, joined.stderr
