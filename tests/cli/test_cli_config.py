"""`odradek cluster info`, `odradek quorum describe` and `odradek config`."""

import json
from collections.abc import Callable
from subprocess import CompletedProcess
from typing import Any

import pytest

from odradek.admin import overview
from odradek.admin.status import QuorumStatus

Odradek = Callable[..., CompletedProcess[str]]


def read(odradek: Odradek, *arguments: str) -> Any:
    result = odradek(*arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_the_cluster_is_described(odradek: Odradek, bootstrap: str, topic: str) -> None:
    odradek("topic", "create", topic, "--partitions", "3")
    view = read(odradek, "cluster", "info")
    (broker,) = view["brokers"]
    assert f"{broker['host']}:{broker['port']}" == bootstrap
    assert view["controller"] == broker["broker"]
    assert len(view["cluster_id"]) == 22
    assert view["topic_count"] >= 1
    assert broker["leaders"] == view["partition_count"] >= 3
    assert (view["under_replicated_partitions"], view["offline_partitions"]) == (0, 0)
    lines = odradek("cluster", "info").stdout.splitlines()
    assert lines[0] == f"cluster {view['cluster_id']}, controller {broker['broker']}"
    assert lines[2].split() == ["BROKER", "ADDRESS", "RACK", "LEADERS", "CONTROLLER"]


def test_the_quorum_is_described(odradek: Odradek) -> None:
    """Several controllers are in tests/processes."""
    view = read(odradek, "quorum", "describe")
    leader = next(one for one in view["voters"] if one["node"] == view["leader"])
    assert (leader["role"], leader["lag"], len(leader["directory_id"])) == ("leader", 0, 22)
    assert 0 < view["high_watermark"] <= leader["log_end_offset"]
    first = odradek("quorum", "describe").stdout.splitlines()[0]
    assert first.startswith(f"leader {view['leader']}, epoch {view['epoch']}, high watermark ")


def test_settings_are_listed_described_and_altered(odradek: Odradek, topic: str) -> None:
    odradek("topic", "create", topic, "--config", "retention.ms=1000000")
    altered = odradek("config", "alter", "topic", topic, "--set", "segment.bytes=2097152")
    assert (altered.returncode, altered.stdout) == (0, f"Altered topic {topic}.\n")
    listed = read(odradek, "config", "list", "topic", topic)
    assert [(one["key"], one["value"], one["source"]) for one in listed] == [
        ("min.insync.replicas", "1", "all brokers"),
        ("retention.ms", "1000000", "topic"),
        ("segment.bytes", "2097152", "topic"),
    ]
    assert len(read(odradek, "config", "list", "topic", topic, "--all")) > 20
    (one,) = read(odradek, "config", "describe", "topic", topic, "retention.ms")
    assert (one["kind"], one["name"]) == ("topic", topic)
    assert "deleted" in one["documentation"]
    assert (one["type"], one["read_only"], one["sensitive"]) == ("long", False, False)
    first = one["synonyms"][0]
    assert (first["name"], first["value"], first["source"]) == ("retention.ms", "1000000", "topic")
    text = odradek("config", "describe", "topic", topic, "retention.ms").stdout
    assert text.startswith(f"topic {topic}: retention.ms = 1000000\n    from topic, long, can be altered\n")
    assert "Age at which a segment is deleted" in text
    assert odradek("config", "alter", "topic", topic, "--delete", "retention.ms").returncode == 0
    left = [one["key"] for one in read(odradek, "config", "list", "topic", topic)]
    assert left == ["min.insync.replicas", "segment.bytes"]


def test_settings_of_brokers(odradek: Odradek) -> None:
    listed = read(odradek, "config", "list", "broker")
    assert {"listeners", "log.dirs"} <= {one["key"] for one in listed}
    set_later = [one["key"] for one in listed if one["source"] != "start of the broker"]
    assert set_later == ["min.insync.replicas"], "which a new cluster writes down"
    number = listed[0]["name"]
    one, two = read(odradek, "config", "describe", "broker", number, "num.partitions", "log.retention.ms")
    assert (one["key"], two["key"]) == ("log.retention.ms", "num.partitions")
    set_ = read(odradek, "config", "alter", "broker", "--set", "log.cleaner.backoff.ms=14000")
    assert set_ == {
        "kind": "broker",
        "name": None,
        "set": {"log.cleaner.backoff.ms": "14000"},
        "deleted": [],
        "altered": True,
    }
    (one,) = read(odradek, "config", "describe", "broker", number, "log.cleaner.backoff.ms")
    assert (one["value"], one["source"]) == ("14000", "all brokers")
    assert odradek("config", "alter", "broker", "--delete", "log.cleaner.backoff.ms").returncode == 0


def test_a_setting_that_no_broker_knows_is_altered_with_a_warning(odradek: Odradek) -> None:
    altered = odradek("config", "alter", "broker", "--set", "log.retention.mss=1")
    assert (altered.returncode, altered.stdout) == (0, "Altered all brokers.\n")
    assert altered.stderr == (
        "warning: the brokers keep log.retention.mss, and ignore it: unknown setting log.retention.mss; "
        "did you mean log.retention.ms?\n"
    )
    listed = [one for one in read(odradek, "config", "list", "broker") if one["key"] == "log.retention.mss"]
    assert [(one["value"], one["sensitive"], one["source"]) for one in listed] == [
        (None, True, "all brokers")
    ]
    deleted = odradek("config", "alter", "broker", "--delete", "log.retention.mss")
    assert (deleted.returncode, deleted.stderr) == (0, "")


def test_settings_of_groups(odradek: Odradek, topic: str) -> None:
    altered = odradek("config", "alter", "group", topic, "--set", "consumer.session.timeout.ms=50000")
    assert altered.returncode == 0, altered.stderr
    listed = odradek("config", "list", "group", topic, "--json")
    if listed.returncode:  # a broker need not describe groups
        assert listed.stderr.count("\n") == 1
        return
    (one,) = json.loads(listed.stdout)
    assert (one["key"], one["value"], one["source"]) == ("consumer.session.timeout.ms", "50000", "group")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("config", "describe", "topic", "{topic}-missing"), "{topic}-missing: "),
        (("config", "describe", "broker", "77"), "no broker 77: choose from 1"),
        (("config", "describe", "topic", "{topic}", "no.such.key"), "a topic has no setting no.such.key"),
        (("config", "alter", "topic", "{topic}", "--set", "retention.ms=soon"), "topic {topic}: "),
        (("config", "alter", "broker", "--set", "listeners=PLAINTEXT://:1"), "all brokers: "),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line(
    odradek: Odradek, topic: str, arguments: tuple[str, ...], reason: str
) -> None:
    odradek("topic", "create", topic)
    result = odradek(*(one.format(topic=topic) for one in arguments))
    assert (result.returncode, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"error: {reason.format(topic=topic)}")


# --- names that are mistyped ---


@pytest.mark.parametrize(
    "command",
    [
        ("topic", "create", "{topic}-new", "--config", "retention.mss=1"),
        ("topic", "alter", "{topic}", "--config", "retention.mss=1"),
        ("topic", "alter", "{topic}", "--delete-config", "retention.mss"),
        ("config", "alter", "topic", "{topic}", "--set", "retention.mss=1"),
        ("config", "alter", "topic", "{topic}", "--delete", "retention.mss"),
        ("config", "describe", "topic", "{topic}", "retention.mss"),
    ],
    ids=" ".join,
)
def test_a_mistyped_setting_of_a_topic_is_guessed(
    odradek: Odradek, topic: str, command: tuple[str, ...]
) -> None:
    odradek("topic", "create", topic)
    result = odradek(*(one.format(topic=topic) for one in command))
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.endswith("did you mean retention.ms?\n"), result.stderr


def test_a_setting_that_nobody_knows_cannot_be_reset(odradek: Odradek, topic: str) -> None:
    odradek("topic", "create", topic)
    refused = odradek("topic", "alter", topic, "--delete-config", "foo")
    assert (refused.returncode, refused.stderr) == (1, f"error: {topic}: unknown setting foo\n")
    for resource in ((), ("1",)):
        broker = odradek("config", "alter", "broker", *resource, "--delete", "foo")
        assert broker.returncode == 1, resource
        assert "unknown setting foo" in broker.stderr
    known = odradek("config", "alter", "broker", "--delete", "log.cleaner.backoff.ms")
    assert known.returncode == 0, known.stderr


def test_records_of_a_compacted_topic_stay_and_the_way_out_is_named(odradek: Odradek, topic: str) -> None:
    odradek("topic", "create", topic, "--config", "cleanup.policy=compact")
    odradek("produce", topic, "-K", ":", stdin="a:1\nb:2\n")
    result = odradek("topic", "delete-records", topic, "--before", "1", "--yes")
    assert (result.returncode, result.stderr) == (
        1,
        f"error: {topic} is compacted: only topics whose cleanup.policy contains 'delete' lose records by offset. To "
        f"allow it: odradek topic alter {topic} --config cleanup.policy=compact,delete\n",
    )
    assert odradek("topic", "alter", topic, "--config", "cleanup.policy=compact,delete").returncode == 0
    assert odradek("topic", "delete-records", topic, "--before", "1", "--yes").returncode == 0


def test_the_controller_is_the_leader_of_the_quorum(
    odradek: Odradek, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster with a quorum names any of its brokers when it is asked for its controller."""
    led = QuorumStatus(7, 1, 1, [], [])
    monkeypatch.setattr(overview, "find_quorum", lambda *_: (led, ""))
    view = read(odradek, "cluster", "info")
    assert view["controller"] == 7
    assert [one["is_controller"] for one in view["brokers"]] == [False]
    monkeypatch.setattr(overview, "find_quorum", lambda *_: (None, ""))  # an older cluster
    assert read(odradek, "cluster", "info")["controller"] == 1
