"""`odradek topic`, run as a user runs it."""

import json
import os
import pty
import subprocess
from collections.abc import Callable
from subprocess import CompletedProcess

import pytest
from tests.support import odradek_command

Odradek = Callable[..., CompletedProcess[str]]


def described(odradek: Odradek, topic: str) -> dict[str, object]:
    result = odradek("topic", "describe", topic, "--json")
    assert result.returncode == 0, result.stderr
    (view,) = json.loads(result.stdout)
    assert isinstance(view, dict)
    return view


def test_create_then_list_and_describe(odradek: Odradek, topic: str) -> None:
    created = odradek("topic", "create", topic, "--partitions", "3", "--config", "retention.ms=86400000")
    assert (created.returncode, created.stdout) == (0, f"Created topic {topic}.\n")
    assert topic in odradek("topic", "list").stdout.splitlines()
    assert topic in json.loads(odradek("topic", "list", "--json").stdout)
    view = described(odradek, topic)
    assert view["partition_count"] == 3
    assert view["configs"] | {"retention.ms": "86400000"} == view["configs"]  # type: ignore[operator]
    assert [entry["partition"] for entry in view["partitions"]] == [0, 1, 2]  # type: ignore[attr-defined]


def test_describe_prints_the_lines_of_kafkas_tool(odradek: Odradek, topic: str) -> None:
    odradek("topic", "create", "--topic", topic, "--partitions", "2", "--replication-factor", "1")
    first, *rest = odradek("topic", "describe", "--topic", topic).stdout.splitlines()
    fields = dict(field.split(": ", 1) for field in first.split("\t") if ": " in field)
    assert list(fields)[:4] == ["Topic", "TopicId", "PartitionCount", "ReplicationFactor"]
    assert (fields["Topic"], fields["PartitionCount"], fields["ReplicationFactor"]) == (topic, "2", "1")
    assert len(fields["TopicId"]) == 22
    assert "\tConfigs: " in first
    leader = rest[0].split("Leader: ")[1].split("\t")[0]
    assert rest == [
        f"\tTopic: {topic}\tPartition: {number}\tLeader: {leader}\tReplicas: {leader}\tIsr: {leader}"
        for number in range(2)
    ]


def test_creating_twice_fails_unless_told_otherwise(odradek: Odradek, topic: str) -> None:
    odradek("topic", "create", topic)
    again = odradek("topic", "create", topic)
    assert again.returncode == 1
    assert again.stderr.startswith(f"error: {topic}: ")
    assert again.stderr.count("\n") == 1
    tolerated = odradek("topic", "create", topic, "--if-not-exists", "--json")
    assert tolerated.returncode == 0
    assert json.loads(tolerated.stdout) == {"topic": topic, "created": False}


@pytest.mark.parametrize(
    "arguments",
    [
        ("bad/name",),
        ("..",),
        ("{topic}", "--replication-factor", "7"),
        ("{topic}", "--config", "no.such.setting=1"),
        ("{topic}", "--config", "retention.ms=soon"),
    ],
)
def test_what_the_broker_refuses_is_told_in_one_line(
    odradek: Odradek, topic: str, arguments: tuple[str, ...]
) -> None:
    result = odradek("topic", "create", *(argument.format(topic=topic) for argument in arguments))
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr
    assert result.stderr.count("\n") == 1


def test_alter_settings_and_partitions(odradek: Odradek, topic: str) -> None:
    odradek("topic", "create", topic, "--config", "retention.ms=1000000", "--config", "segment.bytes=1048576")
    altered = odradek(
        *("topic", "alter", topic, "--partitions", "4"),
        *("--config", "retention.ms=2000000", "--delete-config", "segment.bytes"),
    )
    assert altered.returncode == 0, altered.stderr
    view = described(odradek, topic)
    assert view["partition_count"] == 4
    configs = view["configs"]
    assert isinstance(configs, dict)
    assert configs["retention.ms"] == "2000000"
    assert "segment.bytes" not in configs
    fewer = odradek("topic", "alter", topic, "--partitions", "2")
    assert fewer.returncode == 1
    assert odradek("topic", "alter", topic).returncode == 2


def test_delete(odradek: Odradek, topic: str) -> None:
    for number in range(2):
        odradek("topic", "create", f"{topic}.{number}")
    deleted = odradek("topic", "delete", f"{topic}.0", f"{topic}.1")
    assert deleted.returncode == 0, deleted.stderr
    assert topic not in odradek("topic", "list").stdout
    missing = odradek("topic", "delete", f"{topic}.0")
    assert missing.returncode == 1
    assert "no such topic" in missing.stderr
    tolerated = odradek("topic", "delete", f"{topic}.0", "--if-exists", "--json")
    assert tolerated.returncode == 0
    assert json.loads(tolerated.stdout) == {"deleted": []}


@pytest.mark.parametrize(("answer", "is_deleted"), [(b"n\n", False), (b"y\n", True)])
def test_delete_asks_at_a_terminal(
    odradek: Odradek, bootstrap: str, topic: str, answer: bytes, is_deleted: bool
) -> None:
    odradek("topic", "create", topic)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        odradek_command("topic", "delete", topic, "-b", bootstrap),
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    os.write(ours, answer)
    output, _ = process.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    assert b"Delete " + topic.encode() in output
    assert (topic not in odradek("topic", "list").stdout) == is_deleted


def test_describing_an_unknown_topic_fails(odradek: Odradek, topic: str) -> None:
    result = odradek("topic", "describe", topic)
    assert result.returncode == 1
    assert result.stderr == f"error: {topic}: no such topic (see 'odradek topic list')\n"


def test_internal_topics_can_be_left_out(odradek: Odradek, topic: str) -> None:
    odradek("topic", "create", topic)
    names = odradek("topic", "list", "--exclude-internal").stdout.splitlines()
    assert topic in names
    assert "__consumer_offsets" not in names
