"""Tests of what the scripts do and print, against a broker of ours."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from odradek.scripts.quota_configs import as_java

Script = Callable[..., CompletedProcess[str]]


def lines_of(result: CompletedProcess[str]) -> list[str]:
    assert result.returncode == 0, result.stdout + result.stderr
    return [line for line in result.stdout.splitlines() if line]


@pytest.fixture
def filled(script: Script, topic: str) -> str:
    """A topic of two partitions with three messages in the first."""
    lines_of(
        script("topics", "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=-1")
    )
    produced = script(
        *("console-producer", "--topic", topic, "--reader-property", "parse.key=true"),
        *("--reader-property", "key.separator=:", "--command-property", "partitioner=murmur2_random"),
        stdin="a:1\na:2\na:3\n",
    )
    assert produced.returncode == 0, produced.stderr
    return topic


# --- topics ---


def test_a_topic_is_created_listed_described_grown_and_deleted(script: Script, topic: str) -> None:
    created = script(
        "topics", "--create", "--topic", topic, "--partitions", "2", "--config", "retention.ms=1000"
    )
    assert lines_of(created) == [f"Created topic {topic}."]
    again = script("topics", "--create", "--topic", topic)
    assert (again.returncode, again.stdout) == (
        1,
        f"Error while executing topic command : Topic '{topic}' already exists.\n",
    )
    assert lines_of(script("topics", "--create", "--topic", topic, "--if-not-exists")) == []
    assert topic in lines_of(script("topics", "--list"))
    header, first, second = lines_of(script("topics", "--describe", "--topic", topic))
    assert re.fullmatch(
        rf"Topic: {topic}\tTopicId: \S{{22}}\tPartitionCount: 2\tReplicationFactor: 1\tConfigs: .*retention.ms=1000.*",
        header,
    )
    assert first == f"\tTopic: {topic}\tPartition: 0\tLeader: 1\tReplicas: 1\tIsr: 1\tElr: \tLastKnownElr: "
    assert "Partition: 1" in second
    lines_of(script("topics", "--alter", "--topic", topic, "--partitions", "3"))
    assert len(lines_of(script("topics", "--describe", "--topic", f"{topic[:-1]}."))) == 4
    assert lines_of(script("topics", "--describe", "--topic", topic, "--under-replicated-partitions")) == []
    lines_of(script("topics", "--delete", "--topic", topic))
    missing = script("topics", "--describe", "--topic", topic)
    assert (missing.returncode, missing.stdout) == (
        1,
        f"Error while executing topic command : Topic '{topic}' does not exist as expected\n",
    )
    assert script("topics", "--delete", "--topic", topic, "--if-exists").returncode == 0


def test_one_action_is_needed(script: Script) -> None:
    result = script("topics")
    assert result.returncode == 1
    assert result.stderr.startswith("Command must include exactly one action: --list, --describe, --create")


# --- messages and offsets ---


def test_messages_come_back(script: Script, filled: str) -> None:
    options = ("--topic", filled, "--from-beginning", "--max-messages", "3")
    result = script(
        *("console-consumer", *options, "--formatter-property", "print.key=true"),
        *("--formatter-property", "key.separator=-", "--formatter-property", "print.offset=true"),
    )
    assert lines_of(result) == ["Offset:0-a-1", "Offset:1-a-2", "Offset:2-a-3"]
    assert result.stderr == "Processed a total of 3 messages\n"


def test_a_line_without_a_key_is_an_error(script: Script, filled: str) -> None:
    result = script(
        "console-producer", "--topic", filled, "--reader-property", "parse.key=true", stdin="nothing\n"
    )
    assert (result.returncode, result.stderr) == (1, "No key separator found on line number 1: 'nothing'\n")


def test_offsets_of_partitions(script: Script, filled: str) -> None:
    found = dict(line.rsplit(":", 1) for line in lines_of(script("get-offsets", "--topic", filled)))
    assert sorted(found) == [f"{filled}:0", f"{filled}:1"]
    assert sorted(found.values()) == ["0", "3"]
    earliest = script("get-offsets", "--topic-partitions", f"{filled}:0-1", "--time", "earliest")
    assert lines_of(earliest) == [f"{filled}:0:0"]
    nothing = script("get-offsets", "--topic", "no-such-topic")
    assert (nothing.returncode, nothing.stderr) == (
        1,
        "Could not match any topic-partitions with the specified filters\n",
    )
    assert script("get-offsets", "--topic", filled, "--time", "noon").returncode == 1


# --- groups ---


def test_a_group_is_described_and_its_offsets_are_reset(script: Script, filled: str, tmp_path: Path) -> None:
    group = f"{filled}-group"
    lines_of(
        script(
            "console-consumer", "--topic", filled, "--group", group, "--from-beginning", "--max-messages", "3"
        )
    )
    assert group in lines_of(script("consumer-groups", "--list"))
    header, *_ = lines_of(script("consumer-groups", "--list", "--state"))
    assert header.split() == ["GROUP", "STATE"]
    described = script("consumer-groups", "--describe", "--group", group)
    header, *rows = lines_of(described)
    assert header.split()[:6] == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    assert [group, filled, "3", "3", "0"] in [[*row.split()[:2], *row.split()[3:6]] for row in rows]
    assert "has no active members" in described.stderr
    assert lines_of(script("consumer-groups", "--describe", "--group", group, "--state"))[1].split()[-2:] == [
        "Empty",
        "0",
    ]
    reset = ("consumer-groups", "--reset-offsets", "--group", group, "--topic", filled, "--to-offset", "1")
    planned = lines_of(script(*reset, "--dry-run"))
    assert planned[0].split() == ["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"]
    assert lines_of(script("consumer-groups", "--describe", "--group", group)) == [header, *rows]
    exported = lines_of(script(*reset, "--execute", "--export"))
    assert sorted(line.split(",")[-1] for line in exported) == ["0", "1"]
    plan = tmp_path / "plan.csv"
    plan.write_text("\n".join(exported))
    from_file = (
        "consumer-groups",
        "--reset-offsets",
        "--group",
        group,
        "--from-file",
        str(plan),
        "--execute",
    )
    assert len(lines_of(script(*from_file))) == 3
    assert lines_of(script("consumer-groups", "--delete", "--group", group)) == [
        f"Deletion of requested consumer groups ('{group}') was successful."
    ]
    gone = script("consumer-groups", "--describe", "--group", group)
    assert gone.stdout.endswith(f"GroupIdNotFoundException: Group {group} is not a consumer group.\n")


# --- configs ---


def test_configs_are_described_and_altered(script: Script, filled: str) -> None:
    entity = ("--entity-type", "topics", "--entity-name", filled)
    header, line = lines_of(script("configs", "--describe", *entity))
    assert header == f"Dynamic configs for topic {filled} are:"
    assert line.startswith("  retention.ms=-1 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=-1")
    altered = script(
        "configs", "--alter", *entity, "--add-config", "cleanup.policy=[compact,delete],segment.ms=5000"
    )
    assert lines_of(altered) == [f"Completed updating config for topic {filled}."]
    assert "  cleanup.policy=compact,delete " in "\n".join(
        lines_of(script("configs", "--describe", "--topic", filled))
    )
    lines_of(script("configs", "--alter", *entity, "--delete-config", "segment.ms"))
    wrong = script("configs", "--alter", *entity, "--delete-config", "segment.sm")
    assert (wrong.returncode, wrong.stderr) == (1, "Invalid config(s): segment.sm\n")
    assert len(lines_of(script("configs", "--describe", "--all", "--topic", filled))) > 20
    refused = script("configs", "--describe", "--client-metrics", "x")
    assert (refused.returncode, refused.stderr) == (
        1,
        "Option --client-metrics is not supported by Odradek's scripts\n",
    )


@pytest.mark.parametrize(
    ("entity", "completed", "title"),
    [
        (["--user", "u{}"], "config for user u{}.", "user-principal 'u{}'"),
        (["--entity-type", "clients", "--entity-name", "c{}"], "config for client c{}.", "client-id 'c{}'"),
        (
            [
                "--entity-type",
                "users",
                "--entity-default",
                "--entity-type",
                "clients",
                "--entity-name",
                "d{}",
            ],
            "default config for users in the cluster.",
            "the default user-principal, client-id 'd{}'",
        ),
        (
            ["--user", "u{}", "--client-defaults"],
            "config for user u{}.",
            "user-principal 'u{}', the default client-id",
        ),
    ],
)
def test_quotas_are_described_and_altered(
    script: Script, topic: str, entity: list[str], completed: str, title: str
) -> None:
    named = [word.format(topic) for word in entity]
    altered = script(
        "configs", "--alter", *named, "--add-config", "producer_byte_rate=1e9,request_percentage=200"
    )
    assert lines_of(altered) == [f"Completed updating {completed.format(topic)}"]
    assert (
        f"Quota configs for {title.format(topic)} are producer_byte_rate=1.0E9, request_percentage=200.0"
        in lines_of(script("configs", "--describe", *named))
    )
    lines_of(script("configs", "--alter", *named, "--delete-config", "producer_byte_rate,request_percentage"))
    assert lines_of(script("configs", "--describe", *named)) == []
    wrong = script("configs", "--alter", *named, "--delete-config", "producer_byte_rate")
    assert (wrong.returncode, wrong.stderr) == (1, "Invalid config(s): producer_byte_rate\n")


@pytest.mark.parametrize(
    ("value", "text"),
    [(150.5, "150.5"), (1e7, "1.0E7"), (2.0**30, "1.073741824E9"), (9999999.0, "9999999.0")],
)
def test_numbers_are_written_as_java_writes_them(value: float, text: str) -> None:
    assert as_java(value) == text


def test_quotas_of_addresses_are_described_and_altered(script: Script) -> None:
    lines_of(script("configs", "--alter", "--ip", "10.9.8.7", "--add-config", "connection_creation_rate=5"))
    described = lines_of(script("configs", "--describe", "--entity-type", "ips"))
    assert described == ["Quota configs for ip '10.9.8.7' are connection_creation_rate=5.0"]
    lines_of(script("configs", "--alter", "--ip", "10.9.8.7", "--delete-config", "connection_creation_rate"))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (
            ["--ip", "1.2.3.4", "--add-config", "producer_byte_rate=1"],
            "Only connection quota configs can be added",
        ),
        (["--user", "u", "--add-config", "nonsense=1"], "Only quota configs can be added for 'users'"),
        (["--user", "u", "--add-config", "producer_byte_rate=x"], "Cannot parse quota configuration value"),
        (["--user", "u", "--add-config", "producer_byte_rate=-1"], "must be greater than 0"),
        (
            ["--user", "u", "--ip", "1.2.3.4", "--add-config", "producer_byte_rate=1"],
            "can be specified together",
        ),
        (
            ["--entity-type", "users", "--add-config", "producer_byte_rate=1"],
            "must be specified with --alter",
        ),
        (["--user", "u", "--add-config", "SCRAM-SHA-256=[password=secret]"], "odradek user"),
    ],
)
def test_a_bad_quota_is_refused(script: Script, arguments: list[str], error: str) -> None:
    refused = script("configs", "--alter", *arguments)
    assert refused.returncode == 1 and error in refused.stderr + refused.stdout


# --- the quorum, transactions, moves ---


def test_the_quorum_is_described(script: Script) -> None:
    status = dict(
        re.split(r":\s+", line, maxsplit=1)
        for line in lines_of(script("metadata-quorum", "describe", "--status"))
    )
    assert (status["LeaderId"], status["MaxFollowerLag"]) == ("1", "0")
    assert [one["id"] for one in json.loads(status["CurrentVoters"])] == [1]
    header, row = lines_of(script("metadata-quorum", "describe", "--replication"))
    assert header.split()[:4] == ["NodeId", "DirectoryId", "LogEndOffset", "Lag"]
    assert (row.split()[0], row.split()[-1]) == ("1", "Leader")


def test_transactions_are_listed_and_unknown_ones_named(script: Script, filled: str) -> None:
    (header,) = lines_of(script("transactions", "list"))
    assert header.split() == ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]
    (header,) = lines_of(script("transactions", "find-hanging", "--topic", filled))
    assert header.split()[0] == "Topic"
    unknown = script("transactions", "describe", "--transactional-id", "nobody")
    assert (unknown.returncode, unknown.stderr) == (1, "Could not find transactional id nobody\n")
    refused = script("transactions", "forceTerminateTransaction", "--transactional-id", "x")
    assert refused.stderr == "The command forceTerminateTransaction is not supported by Odradek's scripts\n"


def test_moves_are_planned_executed_and_verified(script: Script, filled: str, tmp_path: Path) -> None:
    topics, plan = tmp_path / "topics.json", tmp_path / "plan.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": filled}]}))
    generated = lines_of(
        script(
            *("reassign-partitions", "--generate", "--broker-list", "1"),
            *("--topics-to-move-json-file", str(topics)),
        )
    )
    assert generated[0] == "Current partition replica assignment"
    assert generated[2] == "Proposed partition reassignment configuration"
    plan.write_text(generated[3])
    file = ("--reassignment-json-file", str(plan))
    started = lines_of(script("reassign-partitions", "--execute", *file))
    assert started[-1] == f"Successfully started partition reassignments for {filled}-0,{filled}-1"
    assert lines_of(script("reassign-partitions", "--verify", *file)) == [
        "Status of partition reassignment:",
        f"Reassignment of partition {filled}-0 is completed.",
        f"Reassignment of partition {filled}-1 is completed.",
    ]
    assert lines_of(script("reassign-partitions", "--list")) == ["No partition reassignments found."]
    assert lines_of(script("reassign-partitions", "--cancel", *file)) == [
        "None of the specified partition moves are active."
    ]


# --- files ---


def test_a_directory_is_formatted_once(run: Script, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker,controller\nnode.id=7\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=PLAINTEXT://localhost:0,CONTROLLER://localhost:9093\nlog.dirs={tmp_path}/data\n"
    )
    (identity,) = lines_of(run("storage", "random-uuid"))
    form = ("storage", "format", "--config", str(file), "--cluster-id", identity, "--standalone")
    assert run("storage", "info", "--config", str(file)).returncode == 1
    assert lines_of(run(*form)) == [
        f"Formatting metadata directory {tmp_path}/data with metadata.version 4.3-IV0."
    ]
    assert run(*form).returncode == 1
    assert lines_of(run(*form, "--ignore-formatted")) == ["All of the log directories are already formatted."]
    assert f"cluster.id={identity}" in run("storage", "info", "-c", str(file)).stdout
    refused = run(*form, "--release-version", "4.0")
    assert refused.stderr == "Option --release-version is not supported by Odradek's scripts\n"


def test_segments_are_dumped(run: Script, tmp_path: Path) -> None:
    from odradek.records.record import Record, build_batch

    segment = tmp_path / "00000000000000000005.log"
    segment.write_bytes(
        bytes(build_batch([Record(5, 1000, b"k", b"one"), Record(6, 1001, None, b"two")], base_offset=5))
        + b"torn"
    )
    dumped = lines_of(run("dump-log", "--files", str(segment), "--print-data-log"))
    assert dumped[:2] == [f"Dumping {segment}", "Log starting offset: 5"]
    assert dumped[2].startswith(
        "baseOffset: 5 lastOffset: 6 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1"
    )
    assert dumped[2].endswith("isvalid: true")
    assert (
        dumped[3]
        == "| offset: 5 CreateTime: 1000 keySize: 1 valueSize: 3 sequence: -1 headerKeys: [] key: k payload: one"
    )
    assert dumped[4].endswith("headerKeys: [] payload: two")
    assert dumped[5] == f"Found 4 invalid bytes at the end of {segment.name}"
    refused = run("dump-log", "--files", str(segment), "--offsets-decoder")
    assert refused.stderr == "Option --offsets-decoder is not supported by Odradek's scripts\n"
