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
    (listed,) = [
        one for one in json.loads(odradek("topic", "list", "--json").stdout) if one["topic"] == topic
    ]
    assert listed == {
        "topic": topic,
        "internal": False,
        "partition_count": 3,
        "replication_factor": 1,
        "size_bytes": 0,
    }
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
        "\tStartOffset: 0\tEndOffset: 0\tSize: 0"
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
    assert json.loads(tolerated.stdout) == [{"topic": topic, "created": False}]


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
    refused = odradek("topic", "delete", f"{topic}.0")
    assert refused.returncode == 2
    assert "--yes" in refused.stderr
    deleted = odradek("topic", "delete", f"{topic}.0", f"{topic}.1", "--yes")
    assert deleted.returncode == 0, deleted.stderr
    assert topic not in odradek("topic", "list").stdout
    missing = odradek("topic", "delete", f"{topic}.0", "--yes")
    assert missing.returncode == 1
    assert "no such topic" in missing.stderr
    tolerated = odradek("topic", "delete", f"{topic}.0", "--if-exists", "--yes", "--json")
    assert tolerated.returncode == 0
    assert json.loads(tolerated.stdout) == [{"topic": f"{topic}.0", "deleted": False}]


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


def test_internal_topics_are_hidden_and_guarded(odradek: Odradek, topic: str) -> None:
    odradek("topic", "create", topic)
    odradek("consume", topic, "--group", f"{topic}-group", "--exit-at-end")  # makes __consumer_offsets
    internal = "__consumer_offsets"
    names = odradek("topic", "list").stdout.splitlines()
    assert topic in names
    assert internal not in names
    assert internal in odradek("topic", "list", "--internal").stdout.splitlines()
    for command in (
        ("topic", "delete", internal, "--yes"),
        ("topic", "alter", internal, "--config", "retention.ms=1000"),
        ("topic", "delete-records", internal, "--before", "latest", "--yes"),
        ("config", "alter", "topic", internal, "--set", "retention.ms=1000"),
        ("produce", internal),
    ):
        result = odradek(*command, stdin="x\n")
        assert result.returncode == 1, command
        assert "--force" in result.stderr
    altered = odradek("topic", "alter", internal, "--config", "compression.type=producer", "--force")
    assert altered.returncode == 0, altered.stderr


def test_several_topics_at_once(odradek: Odradek, topic: str) -> None:
    names = [f"{topic}-{number}" for number in range(3)]
    created = odradek("topic", "create", *names, "--partitions", "2", "--json")
    assert json.loads(created.stdout) == [{"topic": name, "created": True} for name in names]
    altered = odradek("topic", "alter", *names, "--config", "retention.ms=1000000")
    assert altered.stdout.splitlines() == [f"Altered topic {name}." for name in names]
    views = json.loads(odradek("topic", "describe", *names, "--json").stdout)
    assert [(view["topic"], view["configs"]["retention.ms"]) for view in views] == [
        (name, "1000000") for name in names
    ]
    mixed = odradek("topic", "delete", names[0], f"{topic}-missing", "--yes", "--json")
    assert mixed.returncode == 1
    assert json.loads(mixed.stdout) == [
        {"topic": names[0], "deleted": True},
        {
            "topic": f"{topic}-missing",
            "deleted": False,
            "error": "no such topic (see 'odradek topic list')",
        },
    ]
    untouched = odradek("topic", "alter", names[1], f"{topic}-missing", "--config", "retention.ms=5")
    assert untouched.returncode == 1
    assert described(odradek, names[1])["configs"]["retention.ms"] == "1000000"  # type: ignore[index]


def test_offsets_and_sizes_are_described(odradek: Odradek, topic: str) -> None:
    odradek("topic", "create", topic, "--partitions", "2")
    odradek("produce", topic, "-p", "1", stdin="a\nb\nc\n")
    view = described(odradek, topic)
    first, second = view["partitions"]  # type: ignore[misc]
    assert (first["start_offset"], first["end_offset"], first["size_bytes"]) == (0, 0, 0)
    assert (second["start_offset"], second["end_offset"]) == (0, 3)
    assert second["size_bytes"] == view["size_bytes"] > 0
    table = odradek("topic", "list", "--long").stdout.splitlines()
    assert table[0].split() == ["TOPIC", "PARTITIONS", "REPLICAS", "SIZE"]
    (row,) = [line.split() for line in table if line.startswith(f"{topic} ")]
    assert row == [topic, "2", "1", str(view["size_bytes"]), "B"]


def test_records_are_deleted_up_to_an_offset_or_a_time(odradek: Odradek, topic: str) -> None:
    odradek("topic", "create", topic, "--partitions", "2")
    for number in range(4):
        for partition in ("0", "1"):
            odradek("produce", topic, "-p", partition, "--timestamp", str(1000 * (number + 1)), stdin="x\n")

    def delete(*arguments: str) -> list[int]:
        result = odradek("topic", "delete-records", topic, *arguments, "--yes", "--json")
        assert result.returncode == 0, result.stderr
        return [entry["start_offset"] for entry in json.loads(result.stdout)]

    assert odradek("topic", "delete-records", topic, "--before", "1").returncode == 2
    assert delete("--before", "1", "-p", "1") == [1]
    assert delete("--before", "@3000") == [2, 2]
    assert delete("--before", "@2020-01-01T00:00:00Z", "-p", "0") == [4]
    assert delete("--before", "latest") == [4, 4]
    beyond = odradek("topic", "delete-records", topic, "--before", "100", "--yes")
    assert beyond.returncode == 1
    assert beyond.stderr.count("\n") == 1
    assert odradek("topic", "delete-records", topic, "--before", "soon", "--yes").returncode == 2
