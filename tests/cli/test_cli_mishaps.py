"""Tests of what goes wrong outside of the cluster: numbers nobody can mean, full disks, closed pipes, signals."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.support import odradek_command

Odradek = Callable[..., CompletedProcess[str]]


@pytest.mark.parametrize(
    ("arguments", "stdin"),
    [
        (("topic", "create", "{topic}", "--partitions", "1000000"), ""),
        (("topic", "create", "{topic}", "--partitions", "99999999999999999999"), ""),
        (("topic", "create", "{topic}", "--replication-factor", "99999"), ""),
        (("consume", "{topic}", "-e", "-p", "99999999999"), ""),
        (("consume", "{topic}", "-e", "-o", "99999999999999999999"), ""),
        (("consume", "{topic}", "-e", "-o", "@99999999999999999999"), ""),
        (("consume", "{topic}", "-e", "-o", "somewhere"), ""),
        (("consume", "{topic}", "-e", "--until", "someday"), ""),
        (("consume", "{topic}", "-e", "--filter", "value~("), ""),
        (("consume", "{topic}", "-e", "--filter", "value.$.a>b"), ""),
        (("consume", "^(", "-e"), ""),
        (("produce", "{topic}", "--timestamp", "99999999999999999999"), "x\n"),
        (("produce", "{topic}", "-p", "99999999999"), "x\n"),
        (("produce", "{topic}", "-K", ""), "x\n"),
        (("produce", "{topic}", "--rate", "0"), "x\n"),
        (("produce", "{topic}", "--tombstone", "--json"), "x\n"),
        (("group", "reset-offsets", "g", "--topic", "{topic}", "--to-offset", "99999999999999999999"), ""),
        (("config", "describe", "nothing"), ""),
        (("config", "alter", "topic", "{topic}"), ""),
        (("config", "alter", "topic", "--set", "a=b"), ""),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_meant_is_bad_usage(
    odradek: Odradek, topic: str, arguments: tuple[str, ...], stdin: str
) -> None:
    odradek("topic", "create", topic)
    result = odradek(*(one.format(topic=topic) for one in arguments), stdin=stdin)
    assert (result.returncode, result.stdout) == (2, ""), result.stderr
    assert "error: " in result.stderr


def test_bad_usage_is_said_without_words_that_say_nothing(odradek: Odradek, topic: str) -> None:
    """Click's "Invalid value" is kept only where it names the parameter."""
    assert odradek("group", "describe").stderr.endswith("\n\nerror: name groups, or give --all-groups\n")
    assert "\nerror: Invalid value for NAME: name a topic\n" in odradek("topic", "delete").stderr
    refused = odradek("topic", "delete", topic)
    assert refused.stderr == "error: there is no terminal to ask at: add --yes to proceed without asking\n"


def test_the_only_broker_is_not_removed_and_nothing_impossible_is_suggested(odradek: Odradek) -> None:
    refused = odradek("cluster", "remove-broker", "1", "--yes")
    assert (refused.returncode, refused.stderr) == (
        1,
        "error: broker 1 cannot be removed: no other broker can take replicas. Let one join first: "
        "odradek up --join HOST:PORT --data-dir DIR\n",
    )


def test_a_refused_setting_is_told_in_the_same_way_by_all_commands(odradek: Odradek, topic: str) -> None:
    odradek("topic", "create", topic)
    reason = "unknown topic config name: retention.sm; did you mean retention.ms?\n"
    set_ = odradek("config", "alter", "topic", topic, "--set", "retention.sm=5")
    assert set_.stderr == f"error: topic {topic}: {reason}"
    assert odradek("topic", "create", "u", "--config", "retention.sm=5").stderr == f"error: u: {reason}"


def test_a_compacted_topic_asks_for_keys(odradek: Odradek, topic: str) -> None:
    odradek("topic", "create", topic, "--config", "cleanup.policy=compact")
    result = odradek("produce", topic, "-q", stdin="a\n")
    assert (result.returncode, result.stderr) == (
        1,
        f"error: {topic}: the broker refused a message; a compacted topic takes only messages with a key "
        f"(see 'odradek topic describe {topic}')\n",
    )


def test_a_json_line_with_numbers_out_of_range_is_named(odradek: Odradek, topic: str) -> None:
    odradek("topic", "create", topic)
    for field in ("partition", "timestamp"):
        line = f'{{"value": "x", "{field}": 99999999999999999999}}\n'
        result = odradek("produce", topic, "--json", stdin=line)
        assert result.returncode == 1
        assert f'standard input, line 1: "{field}" is not a whole number' in result.stderr


def in_shell(command: str, bootstrap: str) -> subprocess.CompletedProcess[str]:
    odradek = " ".join(odradek_command())
    return subprocess.run(
        f'set -o pipefail; odradek() {{ {odradek} "$@"; }}; {command}',
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "ODRADEK_BOOTSTRAP_SERVER": bootstrap},
    )


@pytest.mark.parametrize(
    "command",
    ["topic list", "topic describe {topic}", "consume {topic} -o earliest -e -q", "config list broker"],
)
def test_a_full_disk_is_told_in_one_line(odradek: Odradek, bootstrap: str, topic: str, command: str) -> None:
    odradek("topic", "create", topic)
    odradek("produce", topic, stdin="x\n")
    result = in_shell(f"odradek {command.format(topic=topic)} > /dev/full", bootstrap)
    assert (result.returncode, result.stderr) == (1, "error: cannot continue: no space left on device\n")


def test_readers_that_leave_are_no_error(odradek: Odradek, bootstrap: str, topic: str) -> None:
    odradek("topic", "create", topic, "--partitions", "500")
    for command in (f"topic describe {topic}", "--help", "config describe broker"):
        result = in_shell(f"odradek {command} | true", bootstrap)
        assert (result.returncode, result.stderr) == (0, ""), command


def test_who_follows_a_topic_notices_that_the_reader_left(
    odradek: Odradek, bootstrap: str, topic: str
) -> None:
    odradek("topic", "create", topic)
    odradek("produce", topic, stdin="one\ntwo\n")
    result = in_shell(f"odradek consume {topic} -o earliest -q | head -1", bootstrap)
    assert (result.returncode, result.stdout, result.stderr) == (0, "one\n", "")


def test_a_closed_output_is_told(bootstrap: str) -> None:
    result = in_shell("odradek topic list >&-", bootstrap)
    assert (result.returncode, result.stderr) == (1, "error: standard output is closed\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_producer_says_how_far_it_came(
    odradek: Odradek, bootstrap: str, topic: str, number: signal.Signals
) -> None:
    odradek("topic", "create", topic)
    producer = subprocess.Popen(
        odradek_command("produce", topic, "-b", bootstrap),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    watchdog = threading.Timer(120, producer.kill)
    watchdog.start()
    assert producer.stdin is not None
    producer.stdin.write(
        b"one\ntwo\n" + b"filler\n" * 20_000
    )  # more than a buffer: it reads while we hold on
    producer.stdin.flush()
    while not odradek("consume", topic, "-o", "earliest", "-n", "2", "--timeout", "10").stdout:
        pass
    producer.send_signal(number)
    _, errors = producer.communicate()
    watchdog.cancel()
    assert producer.returncode == 130
    (line,) = errors.decode().splitlines()
    assert line.startswith("produced ")
    delivered = int(line.split()[1])
    assert delivered >= 2
    end = odradek("topic", "describe", topic).stdout.split("EndOffset: ")[1].split()[0]
    assert int(end) == delivered


def test_kafkas_scripts_are_installed_into_a_directory_and_never_over_those_of_others(
    run_here: Odradek, tmp_path: Path
) -> None:
    result = run_here("scripts", "install", str(tmp_path))
    assert (result.returncode, len(result.stdout.splitlines())) == (0, 11), result.stderr
    (tmp_path / "kafka-topics.sh").write_text("#!/bin/bash\n")
    result = run_here("scripts", "install", str(tmp_path))
    assert result.returncode == 1
    assert "kafka-topics.sh is there already, and it is not Odradek's" in result.stderr
