"""`odradek up --brokers N`: a cluster of real processes, from its first start to its end."""

import json
import os
import re
import select
import shlex
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from odradek.cli.up_home import CannotStart, Home
from odradek.cli.up_options import parse_arguments
from odradek.cli.up_ports import Reservation
from odradek.cli.up_processes import Nodes, home_directory, shared_settings, small_cluster_defaults
from odradek.metadata.properties import WrongDirectory
from odradek.storage.disk.files import DiskFiles
from tests.process_cluster import PATIENCE_S, Cluster, cluster_in, launched
from tests.support import odradek_command, run_command, running_broker


def ends(pid: int) -> bool:
    """True if a process, which need not be a child of ours, ends in time."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], PATIENCE_S)[0])
    finally:
        os.close(descriptor)


def info(bootstrap: str) -> dict[str, Any]:
    result = run_command("cluster", "info", "--json", "-b", bootstrap)
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_three_brokers_make_a_cluster(tmp_path: Path) -> None:
    """The test goes from the first start on: what they are, one that dies and is started again, the end, and another
    start.
    """
    home = tmp_path / "home"
    file = tmp_path / "mine.toml"
    file.write_text("node.id = 7\nlog.retention.ms = 1234567\n[num]\npartitions = 4\n")
    with cluster_in(home, "--config", str(file), "--set", "num.partitions=5") as cluster:
        assert cluster.facts["data_dirs"] == [str(home / str(number)) for number in (1, 2, 3)]
        first = info(cluster.addresses[2])
        assert [(one["broker"], f"{one['host']}:{one['port']}", one["rack"]) for one in first["brokers"]] == [
            (number, address, f"rack-{number}") for number, address in enumerate(cluster.addresses, 1)
        ]
        assert settings_of_each(cluster) == [("5", "1234567", "0")] * 3
        created = run_command("topic", "create", "t", "-b", cluster.facts["bootstrap"])
        assert created.returncode == 0, created.stderr
        described = until_known("t", cluster.addresses[1])
        assert [len(one["replicas"]) for one in described["partitions"]] == [3] * 5

        os.kill(cluster.pids[1], signal.SIGKILL)
        line = cluster.log_line("broker 2 was killed by SIGKILL, 2 of 3 are left")
        again = shlex.split(line.partition("in another terminal: ")[2])
        with started_again(again) as address:
            assert address == cluster.addresses[1]
            until_healthy(address)

        members = cluster.members()
        status, errors = cluster.stop()
        assert (status, "Traceback" in errors) == (0, False), errors
        stopped = re.findall(r"\[node (\d)\].* node \d stopped", errors)
        assert sorted(stopped) == ["1", "3"]
    with cluster_in(home) as cluster:
        assert cluster.members() == members
        second = info(cluster.facts["bootstrap"])
        assert second["cluster_id"] == first["cluster_id"]
        status, errors = cluster.stop(signal.SIGINT)
        assert status == 0, errors
        assert errors.count("the last stop was clean") == 3


def until_known(topic: str, address: str) -> dict[str, Any]:
    """A broker that is not the controller hears of a topic a little later."""
    while (result := run_command("topic", "describe", topic, "--json", "-b", address)).returncode != 0:
        pass
    found: dict[str, Any] = json.loads(result.stdout)[0]
    return found


def until_healthy(address: str) -> None:
    """The replicas of a broker that was away catch up: the time limit of `started_again` ends this."""
    while run_command("cluster", "status", "-b", address).returncode != 0:
        pass


def settings_of_each(cluster: Cluster) -> list[tuple[str, ...]]:
    names = ("num.partitions", "log.retention.ms", "group.initial.rebalance.delay.ms")
    admin = AdminClient({"bootstrap.servers": cluster.facts["bootstrap"]})
    found = []
    for number in (1, 2, 3):
        (future,) = admin.describe_configs([ConfigResource(ResourceType.BROKER, str(number))]).values()
        entries = future.result(PATIENCE_S)
        found.append(tuple(entries[name].value for name in names))
    return found


@contextmanager
def started_again(command: list[str]) -> Iterator[str]:
    """Start it by the command that `up` told of; yield where it listens."""
    assert command[0] == "odradek"
    process = subprocess.Popen(
        odradek_command(*command[1:]), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    watchdog = threading.Timer(PATIENCE_S, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        found = re.search(r"listening on (\S+),", process.stdout.readline())
        assert found is not None
        yield found[1]
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    finally:
        process.kill()
        process.communicate()
        watchdog.cancel()


def test_nobody_outlives_a_parent_that_is_killed(tmp_path: Path) -> None:
    with cluster_in(tmp_path / "home") as cluster:
        cluster.process.kill()
        assert all(ends(pid) for pid in cluster.pids)
    for number in (1, 2, 3):
        assert (tmp_path / "home" / str(number) / ".kafka_cleanshutdown").exists()


def test_when_the_last_broker_dies_it_ends(tmp_path: Path) -> None:
    with cluster_in(tmp_path / "home") as cluster:
        for pid in cluster.pids:
            os.kill(pid, signal.SIGKILL)
        _, errors = cluster.process.communicate(timeout=PATIENCE_S)
        assert cluster.process.returncode == 1
        assert errors.splitlines()[-1] == "error: no broker is left"


def test_a_person_is_told_how_to_use_it(tmp_path: Path) -> None:
    with launched(tmp_path / "home") as process:
        assert process.stdout is not None
        text = "".join(iter(process.stdout.readline, "Stop with Ctrl-C.\n"))
        assert re.search(r"listening on (localhost:\d+,?){3}$", text, re.MULTILINE)
        assert f"data in {tmp_path / 'home' / '1'} to {tmp_path / 'home' / '3'}" in text
        process.send_signal(signal.SIGINT)
        process.communicate()
        assert process.returncode == 0


def test_a_stop_before_it_is_ready(tmp_path: Path) -> None:
    """A node alone waits for a quorum for as long as it takes; it stops when asked to all the same."""
    home = Home(tmp_path)
    make_cluster(home)
    command = odradek_command("broker", "--config", str(home.settings_file(1)))
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        watchdog = threading.Timer(PATIENCE_S, process.kill)
        watchdog.start()
        assert process.stderr is not None
        for line in process.stderr:
            if "waiting for the metadata quorum" in line:
                process.send_signal(signal.SIGTERM)
                break
        errors = process.stderr.read()
        assert process.wait() == 0, errors
        watchdog.cancel()
    assert "Traceback" not in errors


# What is refused


def refused(directory: Path, *arguments: str, brokers: int = 3, port: int = 0) -> tuple[int, str]:
    result = run_command(
        "up", "--brokers", str(brokers), "--port", str(port), "--data-dir", str(directory), *arguments
    )
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    return result.returncode, line


def test_the_directory_of_one_broker(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        broker.stop()
    status, line = refused(broker.data_dir)
    assert status == 1
    assert f"{broker.data_dir} contains the data of one broker" in line


def test_a_cluster_of_another_size(tmp_path: Path) -> None:
    make_cluster(Home(tmp_path))
    status, line = refused(tmp_path, brokers=2)
    assert status == 1
    assert "contains a cluster of 3 brokers: start it with --brokers 3" in line
    result = run_command("up", "--port", "0", "--data-dir", str(tmp_path))
    assert (result.returncode, result.stderr) == (
        1,
        f"error: {tmp_path} contains a cluster of 3 brokers: start it with --brokers 3\n",
    )


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        status, line = refused(tmp_path, port=port)
    assert status == 1
    assert line.startswith(f"error: port {port} is in use by process {os.getpid()} (")
    assert line.endswith(": stop the process that listens there, or choose another with --port (0: any)")
    assert not (tmp_path / "1").exists()


def test_a_controllers_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        make_cluster(Home(tmp_path), ports=(port, port, port))
        status, line = refused(tmp_path)
    assert status == 1
    assert f"port {port} of controller 1 is in use" in line


def test_too_few_ports_are_left(tmp_path: Path) -> None:
    status, line = refused(tmp_path, port=65534)
    assert status == 2
    assert "leaves no room for 3 ports" in line


def test_the_data_of_another_cluster(tmp_path: Path) -> None:
    make_cluster(Home(tmp_path / "a"))
    make_cluster(Home(tmp_path / "b"))
    (tmp_path / "a" / "2").rename(tmp_path / "away")
    (tmp_path / "b" / "2").rename(tmp_path / "a" / "2")
    status, line = refused(tmp_path / "a")
    assert status == 1
    assert "cluster.id" in line
    assert str(tmp_path / "a" / "2") in line


def test_data_that_is_damaged_is_told_by_the_broker_it_belongs_to(tmp_path: Path) -> None:
    make_cluster(Home(tmp_path))
    (tmp_path / "2" / "__cluster_metadata-0" / "quorum-state").write_text("damaged")
    status, line = refused(tmp_path)
    assert status == 1
    assert line.startswith("error: broker 2: ")
    assert "quorum-state" in line


def test_two_at_a_time(tmp_path: Path) -> None:
    lock = DiskFiles().lock(str(tmp_path / ".lock"))
    try:
        status, line = refused(tmp_path)
    finally:
        lock.release()
    assert status == 1
    assert str(tmp_path) in line


@pytest.mark.parametrize("key", ["node.id", "listeners", "log.dirs", "broker.rack"])
def test_what_every_broker_must_have_of_its_own(tmp_path: Path, key: str) -> None:
    status, line = refused(tmp_path, "--set", f"{key}=9")
    assert status == 2
    assert f"--set {key}: with --brokers, every broker gets its own" in line
    assert list(tmp_path.iterdir()) == []


def test_what_the_environment_cannot_set_for_all(tmp_path: Path) -> None:
    result = run_command(
        "up", "--brokers", "2", "--data-dir", str(tmp_path), environ={"ODRADEK_NODE_ID": "4"}
    )
    assert result.returncode == 2
    assert "ODRADEK_NODE_ID: with --brokers" in result.stderr


@pytest.mark.parametrize("count", ["0", "10", "three"])
def test_a_number_of_brokers_that_cannot_be(count: str) -> None:
    result = run_command("up", "--brokers", count)
    assert result.returncode == 2
    assert "number of brokers" in result.stderr


def test_a_bad_setting_is_told_once(tmp_path: Path) -> None:
    status, line = refused(tmp_path, "--set", "num.partitions=0")
    assert status == 2
    assert "num.partitions" in line


# The directory


HELD: list[Reservation] = []  # until a test is over, so that nobody else gets the ports


@pytest.fixture(autouse=True)
def let_go_of_ports() -> Iterator[None]:
    yield
    while HELD:
        HELD.pop().release()


def make_cluster(home: Home, ports: Sequence[int] = ()) -> None:
    home.directory.mkdir(exist_ok=True)
    if not ports:
        HELD.extend(Reservation() for _ in range(3))
        ports = [one.port for one in HELD[-3:]]
    members = home.found(ports)
    for member in members:
        home.write_settings(member, members, 0, {}, {})
    home.format()


def test_an_interrupted_first_start_goes_on_with_the_same_ids(tmp_path: Path) -> None:
    home = Home(tmp_path)
    members = home.found((11, 12, 13))
    (tmp_path / "2").write_text("in the way")
    with pytest.raises(OSError):
        home.format()
    (tmp_path / "2").unlink()
    Home(tmp_path).format()
    assert Home(tmp_path).members() == members
    for member in members:
        text = (tmp_path / str(member.node_id) / "meta.properties").read_text()
        assert f"directory.id={member.directory_id}" in text


def test_a_directory_that_lost_its_data_is_not_formatted_again(tmp_path: Path) -> None:
    home = Home(tmp_path)
    make_cluster(home)
    (tmp_path / "2" / "meta.properties").unlink()
    with pytest.raises(CannotStart, match=r"2 has lost its data: .*'odradek format --config .*2\.properties"):
        home.format()


def test_a_directory_of_another_node(tmp_path: Path) -> None:
    home = Home(tmp_path)
    make_cluster(home)
    (tmp_path / "1").rename(tmp_path / "aside")
    (tmp_path / "2").rename(tmp_path / "1")
    with pytest.raises(WrongDirectory, match=r"node\.id=2"):
        home.format()


def test_a_cluster_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"brokers": 3}')
    with pytest.raises(CannotStart, match=r"cluster\.json cannot be read"):
        Home(tmp_path).check(3)


def test_where_the_data_is_unless_told(tmp_path: Path) -> None:
    options = parse_arguments(("--brokers", "3"))
    assert home_directory(options, {"XDG_DATA_HOME": "/xdg"}) == Path("/xdg/odradek-3-brokers")
    assert home_directory(options, {"ODRADEK_DATA_DIR": "/mine"}) == Path("/mine")


# Settings


@pytest.mark.parametrize(("brokers", "replicas", "in_sync"), [(2, "2", "1"), (3, "3", "2"), (5, "3", "2")])
def test_defaults_of_a_small_cluster(brokers: int, replicas: str, in_sync: str) -> None:
    defaults = small_cluster_defaults(brokers)
    for name in ("default", "offsets.topic", "transaction.state.log"):
        assert defaults[f"{name}.replication.factor"] == replicas
    assert defaults["min.insync.replicas"] == defaults["transaction.state.log.min.isr"] == in_sync


def test_what_is_set_wins_over_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "mine.properties"
    file.write_text("min.insync.replicas=1\nlog.dirs=/elsewhere\n")
    options = parse_arguments(
        ("--brokers", "3", "--config", str(file), "--set", "default.replication.factor=1")
    )
    settings = shared_settings(options, {"ODRADEK_OFFSETS_TOPIC_REPLICATION_FACTOR": "1"})
    assert settings["min.insync.replicas"] == "1"
    assert "default.replication.factor" not in settings  # the node is told by --set
    assert "offsets.topic.replication.factor" not in settings  # and by its environment


@pytest.mark.parametrize(
    ("given", "ports"), [("localhost:9404", (9404, 9405, 9406)), ("localhost:0", (0, 0, 0))]
)
def test_every_broker_is_watched_on_a_port_of_its_own(
    tmp_path: Path, given: str, ports: tuple[int, ...]
) -> None:
    home = Home(tmp_path)
    make_cluster(home)
    options = parse_arguments(("--brokers", "3", "--set", f"metrics.listener={given}"))
    nodes = Nodes(home, home.members(), [1, 2, 3], options)
    assert [nodes.options_for(member) for member in home.members()] == [
        ["--set", f"metrics.listener=localhost:{port}"] for port in ports
    ]
