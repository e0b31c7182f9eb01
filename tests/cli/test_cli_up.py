"""`odradek up`: what it says, how it ends, and what it refuses."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from odradek.cli.main import main as odradek
from odradek.cli.up import main
from odradek.cli.up_options import parse_arguments
from odradek.cli.up_settings import load_config
from tests.support import odradek_command, run_command, running_broker

KAFKAS_FILE = Path(__file__).parent.parent / "config" / "server.properties"
TOO_HEAVY = ("typer", "rich", "confluent_kafka", "pyspark", "click")


@contextmanager
def started(
    *arguments: str, command: str = "up", python: tuple[str, ...] = ()
) -> Iterator[subprocess.Popen[str]]:
    """`odradek up` with its output readable; killed if the test leaves it running."""
    command_line = odradek_command(command, "--port", "0", *arguments)
    process = subprocess.Popen(
        [command_line[0], *python, *command_line[1:]],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    watchdog = threading.Timer(120, process.kill)
    watchdog.start()
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
        watchdog.cancel()


def read_until(process: subprocess.Popen[str], end: str) -> str:
    assert process.stdout is not None
    text = ""
    while end not in text:
        line = process.stdout.readline()
        assert line, f"ended without {end!r}: {text}"
        text += line
    return text


def test_it_says_where_it_listens_and_how_to_use_it(tmp_path: Path) -> None:
    with started("--data-dir", str(tmp_path / "data")) as process:
        text = read_until(process, "Stop with Ctrl-C")
        found = re.search(r"listening on (localhost:\d+)", text)
        assert found is not None
        assert f"data in {tmp_path / 'data'}" in text
        example = re.findall(r"^  ((?:from|p|c) .*)$", text, re.MULTILINE)
        assert len(example) == 3
        result = subprocess.run(
            [sys.executable, "-c", "\n".join(example)], capture_output=True, text=True, timeout=60
        )
        assert (result.returncode, result.stdout) == (0, "b'hello'\n"), result.stderr
        assert run_command("topic", "list", "--exclude-internal", "-b", found[1]).stdout == "greetings\n"


def test_scripts_read_one_line_of_json(tmp_path: Path) -> None:
    with started("--json", "--data-dir", str(tmp_path / "data")) as process:
        assert process.stdout is not None
        facts = json.loads(process.stdout.readline())
    assert facts == {"bootstrap": facts["bootstrap"], "data_dir": str(tmp_path / "data"), "pid": process.pid}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_well(tmp_path: Path, number: signal.Signals) -> None:
    with started("--json", "--data-dir", str(tmp_path)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        _, errors = process.communicate()
        assert process.returncode == 0
        assert "Traceback" not in errors


def test_the_broker_does_not_carry_the_client_commands(tmp_path: Path) -> None:
    with started("--json", "--data-dir", str(tmp_path), python=("-X", "importtime")) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate()
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in errors.splitlines()}
    assert "odradek" in imported
    assert not imported & set(TOO_HEAVY)


def test_options_before_the_command(tmp_path: Path) -> None:
    result = run_command("-b", "ignored:1", "up", "--port", "0", "--data-dir", str(tmp_path), "--set", "a=b")
    assert (result.returncode, result.stderr) == (2, "error: --set: unknown setting a\n")


@pytest.mark.parametrize("redirection", [">&-", "> /dev/full", "| true"])
def test_an_output_that_takes_nothing_is_no_reason_to_stop(tmp_path: Path, redirection: str) -> None:
    command = " ".join(odradek_command("up", "--port", "0", "--data-dir", str(tmp_path / "data")))
    shell = subprocess.Popen(
        f"exec {command} {redirection}"
        if "|" not in redirection
        else f"{{ sleep 1; {command}; }} {redirection}",
        shell=True,
        executable="/bin/bash",
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    watchdog = threading.Timer(120, os.killpg, (shell.pid, signal.SIGKILL))
    watchdog.start()
    assert shell.stderr is not None
    lines = iter(shell.stderr.readline, "")
    told = next(line for line in lines if "standard output cannot be written" in line)
    address = re.search(r"listening on (localhost:\d+)", told)
    assert address is not None
    assert run_command("topic", "list", "-b", address[1]).returncode == 0
    os.killpg(shell.pid, signal.SIGTERM)
    rest = shell.stderr.read()
    watchdog.cancel()
    assert "stopped" in rest
    assert "Traceback" not in rest
    assert "Exception ignored" not in rest
    shell.wait()


def refused(*arguments: str) -> tuple[int, str]:
    """Exit status and the line that says why."""
    result = run_command("up", *arguments)
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    return result.returncode, line


def test_a_port_in_use(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        port = broker.bootstrap.rpartition(":")[2]
        status, line = refused("--port", port, "--data-dir", str(tmp_path / "other"))
        pid = broker.process.pid
    assert status == 1
    assert f"port {port} is in use by process {pid} (" in line
    assert not (tmp_path / "other").exists()  # it is not formatted for a broker that cannot start
    assert "--port" in line


def test_a_data_directory_that_is_held(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        status, line = refused("--port", "0", "--data-dir", str(broker.data_dir))
    assert status == 1
    assert str(broker.data_dir) in line


def test_a_data_directory_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    status, line = refused("--port", "0", "--data-dir", str(tmp_path / "file" / "data"))
    assert status == 1
    assert str(tmp_path / "file") in line


DAMAGED_FILES = [
    ("__cluster_metadata-0/00000000000000000000.log", 70, ["is damaged at byte 0", "from a backup"]),
    ("__cluster_metadata-0/quorum-state", 0, ["cannot be trusted", "from a backup"]),
    ("__cluster_metadata-0/leader-epoch-checkpoint", 0, ["has version 1", "from a backup"]),
    ("recovery-point-offset-checkpoint", 0, ["has version 1", "from a backup"]),
    ("meta.properties", 0, ["cannot be read", "from a backup"]),
]


def test_a_damaged_file_in_the_data_directory(tmp_path: Path) -> None:
    """One bit is flipped in each of these files: the broker says so, starts not, and removes nothing."""
    with running_broker(tmp_path) as broker:
        assert run_command("topic", "create", "kept", "-b", broker.bootstrap).returncode == 0
        assert broker.stop() == 0
    before = {file.name for file in broker.data_dir.iterdir()} - {".kafka_cleanshutdown"}
    for name, position, words in DAMAGED_FILES:
        path = broker.data_dir / name
        data = path.read_bytes()
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        status, line = refused("--port", "0", "--data-dir", str(broker.data_dir))
        assert status == 1
        assert str(path) in line
        assert all(word in line for word in words), line
        assert {file.name for file in broker.data_dir.iterdir()} >= before
        path.write_bytes(data)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--set", "log.retention.ms=soon"),
        ("--set", "num.partitions=0"),
        ("--set", "num.partition=3"),
        ("--set", "authorizer.class.name=com.example.Authorizer"),
        ("--set", "ssl.keystore.location=/etc/broker.pem"),
        ("--config", "/no/such/file"),
    ],
)
def test_bad_settings(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    status, line = refused("--port", "0", "--data-dir", str(tmp_path), *arguments)
    assert status == 2
    assert arguments[1].partition("=")[0] in line


def test_a_listener_that_nobody_could_log_in_to_is_refused(tmp_path: Path) -> None:
    status, line = refused(
        *("--port", "0", "--data-dir", str(tmp_path), "--set", "listeners=SASL_PLAINTEXT://localhost:0")
    )
    assert status == 2
    assert "sasl.jaas.config: PLAIN needs a login module" in line


@pytest.mark.parametrize(
    "arguments", [("--port", "65536"), ("--port", "x"), ("--set", "novalue"), ("--por", "1")]
)
def test_bad_usage(arguments: tuple[str, ...]) -> None:
    result = run_command("up", *arguments)
    assert result.returncode == 2
    assert result.stderr.startswith(
        "Usage: odradek up [OPTIONS]\nTry 'odradek up --help' for help.\n\nerror: "
    )


COMMANDS = [
    ("up",),
    ("broker",),
    ("format",),
    ("random-uuid",),
    ("topic", "list"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_all_commands_have_one_style_of_errors(
    command: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    path = " ".join(("odradek", *command))
    try:
        status = odradek([*command, "--nope"])
    except SystemExit as exit_:
        status = int(exit_.code or 0)
    usage, hint, _, error = capfd.readouterr().err.splitlines()
    assert (status, usage, hint) == (2, f"Usage: {path} [OPTIONS]", f"Try '{path} --help' for help.")
    assert error.startswith("error: No such option '--nope'.")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_all_commands_have_one_style_of_help(
    command: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    with suppress(SystemExit):
        odradek([*command, "--help"])
    text = capfd.readouterr().out
    assert text.startswith(f"Usage: {' '.join(('odradek', *command))} [OPTIONS]\n\n  ")
    options = text.partition("\nOptions:\n")[2].partition("\n\n")[0]
    assert "Show this message and exit." in options.splitlines()[-1]
    assert all(end in ".])" for end in sentence_ends(options)), options


def sentence_ends(options: str) -> list[str]:
    """The last character of the description of each option."""
    return [one.rstrip()[-1] for one in re.split(r"\n(?=  -)", options)]


def test_options_that_exclude_each_other(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        odradek(["up", "--brokers", "3", "--join", "localhost:9092"])
    assert capfd.readouterr().err.endswith("\n\nerror: --join: not allowed with --brokers\n")


@pytest.mark.parametrize("command", ["up", "broker"])
def test_help_is_there(command: str) -> None:
    result = run_command(command, "--help")
    assert result.returncode == 0
    for option in ("--port", "--data-dir", "--config", "--set", "--log-level", "--json"):
        assert option in result.stdout


def test_a_service_runs_from_kafkas_own_file(tmp_path: Path) -> None:
    """Only the controller's port is changed: the system chooses it, so that tests can run side by side."""
    file = tmp_path / "server.properties"
    text = KAFKAS_FILE.read_text().replace("bootstrap.servers=localhost:9093", "bootstrap.servers=")
    file.write_text(text.replace(":9093", ":0"))
    arguments = ("--config", str(file), "--data-dir", str(tmp_path / "data"))
    with started(*arguments, command="broker") as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"listening on (localhost:\d+), data in ", line)
        assert found is not None, line
        assert run_command("topic", "create", "greetings", "-b", found[1]).returncode == 0
        process.send_signal(signal.SIGTERM)
        rest, errors = process.communicate()
    assert (process.returncode, rest) == (0, "")
    (warning,) = [line for line in errors.splitlines() if "WARNING" in line]
    assert f"({file})" in warning


def test_a_service_needs_a_file() -> None:
    result = run_command("broker")
    assert result.returncode == 2
    assert "--config" in result.stderr


def test_only_at_the_terminal_a_group_does_not_wait_for_members(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\n")
    arguments = ("--config", str(file))
    key = "group.initial.rebalance.delay.ms"
    assert load_config(parse_arguments(arguments), {})[key] == 0
    assert load_config(parse_arguments(arguments, "broker"), {})[key] == 3000
    file.write_text(f"{key}=100\n")
    assert load_config(parse_arguments(arguments), {})[key] == 100
    assert load_config(parse_arguments((*arguments, "--set", f"{key}=7")), {})[key] == 7


def settings_of(*arguments: str, **environ: str) -> tuple[str, str]:
    config = load_config(parse_arguments(arguments), environ)
    assert config.warnings == []
    return config.static["listeners"], config.static.get("log.dirs") or config.static["log.dir"]


def test_a_port_replaces_the_listeners_of_clients_alone() -> None:
    config = load_config(parse_arguments(("--config", str(KAFKAS_FILE), "--port", "7")), {})
    assert [(item.host, item.port) for item in config.broker_listeners] == [("localhost", 7)]
    assert [(item.host, item.port) for item in config.controller_listeners] == [("", 9093)]
    assert config.static["advertised.listeners"] == "CONTROLLER://localhost:9093"
    assert not config.names_a_quorum("elsewhere")


def test_a_node_that_is_only_a_controller_gets_no_listener_for_clients(tmp_path: Path) -> None:
    settings = ("--set", "process.roles=controller", "--data-dir", str(tmp_path))
    assert load_config(parse_arguments(settings), {}).broker_listeners == ()


def test_where_defaults_come_from(tmp_path: Path) -> None:
    ours = "PLAINTEXT://localhost:9092"
    assert settings_of() == (ours, str(Path.home() / ".local/share/odradek"))
    assert settings_of(XDG_DATA_HOME="/xdg") == (ours, "/xdg/odradek")
    assert settings_of(XDG_DATA_HOME="/xdg", ODRADEK_DATA_DIR="/mine") == (ours, "/mine")
    assert settings_of("--data-dir", "/given", ODRADEK_DATA_DIR="/mine") == (ours, "/given")
    assert settings_of("--data-dir", "here") == (ours, os.path.join(os.getcwd(), "here"))
    file = tmp_path / "server.properties"
    file.write_text("log.dir=/from/file\nlisteners=PLAINTEXT://:1234\n")
    assert settings_of("--config", str(file), ODRADEK_BOOTSTRAP_SERVER="x:1") == (
        "PLAINTEXT://:1234",
        "/from/file",
    )
    assert settings_of("--config", str(file), "--port", "7")[0] == "PLAINTEXT://localhost:7"
    assert settings_of(ODRADEK_LISTENERS="PLAINTEXT://:5")[0] == "PLAINTEXT://:5"
    assert settings_of("--set", "listeners=PLAINTEXT://:6", ODRADEK_LISTENERS="PLAINTEXT://:5")[0].endswith(
        ":6"
    )


def test_a_data_directory_of_another_node_is_said_in_one_line(tmp_path: Path) -> None:
    with running_broker(tmp_path) as broker:
        data_dir = broker.data_dir
    done = run_command("up", "--port", "0", "--data-dir", str(data_dir), "--set", "node.id=7")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "node.id=1" in done.stderr


def test_a_settings_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "nofile"
    assert main(["--config", str(file)], "broker") == 2
    assert capsys.readouterr().err == (
        f"error: the settings file {file} cannot be read: no such file or directory\n"
    )


def test_a_data_directory_of_an_unknown_version(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=7\ncluster.id=a\n")
    status, line = refused("--port", "0", "--data-dir", str(tmp_path))
    assert (status, line) == (
        1,
        f"error: {tmp_path}/meta.properties has version 7, and this release knows only version 1: the directory was "
        "written by another release, so start that one, or choose another directory",
    )


@pytest.mark.parametrize("more", [(), ("--brokers", "3"), ("--join", "localhost:1")])
@pytest.mark.parametrize("below", ["", "data"])
def test_a_file_in_place_of_the_data_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], below: str
) -> None:
    file = tmp_path / "file"
    file.touch()
    assert main(["--port", "0", "--data-dir", str(file / below), *more]) == 1
    assert capsys.readouterr().err == (
        f"error: {file} is a file, not a directory: name a directory with --data-dir\n"
    )
