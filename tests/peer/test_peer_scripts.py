"""Our scripts beside Kafka's own, on our broker: the same flags, exit statuses, and output that parses to the same."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import RunningBroker, run_command, running_broker
from tools.peer.kafka import run_tool

CLASSES = {
    "topics": "org.apache.kafka.tools.TopicCommand",
    "console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "configs": "kafka.admin.ConfigCommand",
    "get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "transactions": "org.apache.kafka.tools.TransactionsCommand",
    "storage": "kafka.tools.StorageTool",
    "dump-log": "org.apache.kafka.tools.DumpLogSegments",
}
SUBCOMMANDS = {
    "metadata-quorum": ("describe", "add-controller", "remove-controller"),
    "transactions": ("list", "describe", "describe-producers", "abort", "find-hanging"),
    "storage": ("info", "format"),
}
Result = subprocess.CompletedProcess[str]


def ours(script: str, *arguments: str, stdin: str = "") -> Result:
    command = [sys.executable, "-m", "odradek.scripts", script, *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120)


def theirs(script: str, *arguments: str, stdin: str = "") -> Result:
    return run_tool(CLASSES[script], *arguments, stdin=stdin)


def flags(result: Result) -> set[str]:
    """Return the flags that `--help` names at the start of a line."""
    text = result.stdout + result.stderr
    return set(re.findall(r"^\s{0,3}(?:-\w, )?(--[a-z][a-z.-]*[a-z])", text, re.MULTILINE))


@pytest.fixture(scope="module")
def broker(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("scripts"), group_initial_rebalance_delay_ms="0") as running:
        address = ("-b", running.bootstrap)
        created = run_command(
            "topic", "create", "t", "--partitions", "2", "--config", "retention.ms=-1", *address
        )
        assert created.returncode == 0, created.stderr
        run_command("produce", "t", "-p", "0", *address, stdin="one\ntwo\n")
        run_command("consume", "t", "--group", "g", "--from-beginning", "-n", "2", *address)
        yield running


@pytest.mark.parametrize("script", CLASSES)
def test_the_flags_are_kafkas(jars: Path, script: str) -> None:
    mine, kafkas = ours(script, "--help"), theirs(script, "--help")
    assert (flags(mine), mine.returncode) == (flags(kafkas), kafkas.returncode)


@pytest.mark.parametrize(
    ("script", "command"), [(script, one) for script, names in SUBCOMMANDS.items() for one in names]
)
def test_the_flags_of_subcommands_are_kafkas(jars: Path, script: str, command: str) -> None:
    before = () if script == "storage" else ("--bootstrap-server", "localhost:1")
    mine = ours(script, *before, command, "--help")
    kafkas = theirs(script, *before, command, "--help")
    assert (flags(mine), mine.returncode) == (flags(kafkas), kafkas.returncode)


def cells(text: str) -> list[list[str]]:
    """The words of each line that has any."""
    return [line.split() for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("topics", ("--list",)),
        ("topics", ("--describe", "--topic", "t")),
        ("topics", ("--describe", "--topic", "no-such-topic")),
        ("topics", ("--create", "--topic", "t")),
        ("topics", ("--describe", "--under-replicated-partitions")),
        ("get-offsets", ("--topic", "t")),
        ("get-offsets", ("--topic-partitions", "t:1-", "--time", "-2")),
        ("get-offsets", ("--topic", "no-such-topic")),
        ("consumer-groups", ("--list",)),
        ("consumer-groups", ("--list", "--state", "--type")),
        ("consumer-groups", ("--describe", "--group", "g")),
        ("consumer-groups", ("--describe", "--group", "g", "--verbose")),
        ("consumer-groups", ("--describe", "--group", "g", "--state")),
        ("consumer-groups", ("--describe", "--group", "g", "--members")),
        ("consumer-groups", ("--describe", "--group", "nobody")),
        (
            "consumer-groups",
            ("--reset-offsets", "--group", "g", "--topic", "t:0", "--to-earliest", "--dry-run"),
        ),
        (
            "consumer-groups",
            (
                "--reset-offsets",
                "--group",
                "g",
                "--topic",
                "t:0",
                "--shift-by",
                "-1",
                "--dry-run",
                "--export",
            ),
        ),
        ("configs", ("--describe", "--entity-type", "topics", "--entity-name", "t")),
        ("configs", ("--describe", "--broker-defaults")),
        ("configs", ("--alter", "--topic", "t", "--delete-config", "segment.ms")),
        ("transactions", ("list",)),
        ("transactions", ("describe-producers", "--topic", "t", "--partition", "0")),
        ("reassign-partitions", ("--list",)),
        ("console-consumer", ("--topic", "t", "--from-beginning", "--max-messages", "2")),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_output_and_status_are_kafkas(broker: RunningBroker, script: str, arguments: tuple[str, ...]) -> None:
    address = ("--bootstrap-server", broker.bootstrap)
    mine, kafkas = ours(script, *address, *arguments), theirs(script, *address, *arguments)
    assert mine.returncode == kafkas.returncode, mine.stderr + kafkas.stderr
    assert sorted(cells(mine.stdout)) == sorted(cells(kafkas.stdout))


def test_the_quorum_is_described_alike(broker: RunningBroker) -> None:
    arguments = ("--bootstrap-server", broker.bootstrap, "describe", "--status")
    mine, kafkas = ours("metadata-quorum", *arguments), theirs("metadata-quorum", *arguments)
    assert mine.returncode == kafkas.returncode == 0
    parsed = [dict(re.findall(r"^(\w+):\s+(.*)$", one.stdout, re.MULTILINE)) for one in (mine, kafkas)]
    assert parsed[0].keys() == parsed[1].keys()
    for name in ("ClusterId", "LeaderId", "LeaderEpoch", "MaxFollowerLag"):
        assert parsed[0][name] == parsed[1][name]
    for name in ("CurrentVoters", "CurrentObservers"):
        assert json.loads(parsed[0][name]) == json.loads(parsed[1][name])


def test_what_one_produces_the_other_consumes(broker: RunningBroker) -> None:
    address = ("--bootstrap-server", broker.bootstrap, "--topic", "both")
    keyed = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    assert ours("console-producer", *address, *keyed, stdin="a:1\n").returncode == 0
    assert theirs("console-producer", *address, *keyed, stdin="b:2\n").returncode == 0
    shown = ("--from-beginning", "--max-messages", "2", "--formatter-property", "print.key=true")
    texts = [tool("console-consumer", *address, *shown).stdout for tool in (ours, theirs)]
    assert texts[0] == texts[1] == "a\t1\nb\t2\n"


def test_segments_are_dumped_alike(broker: RunningBroker) -> None:
    file = str(broker.data_dir / "t-0" / "00000000000000000000.log")
    mine, kafkas = (tool("dump-log", "--files", file, "--print-data-log") for tool in (ours, theirs))
    assert (mine.returncode, cells(mine.stdout)) == (kafkas.returncode, cells(kafkas.stdout))


def test_a_directory_that_ours_formatted_is_one_for_kafkas(jars: Path, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        "listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n"
        f"controller.quorum.bootstrap.servers=localhost:9093\nlog.dirs={tmp_path}/data\n"
    )
    identity = ours("storage", "random-uuid").stdout.strip()
    formatted = ours("storage", "format", "-c", str(file), "-t", identity, "--standalone")
    assert formatted.returncode == 0, formatted.stderr
    assert theirs("storage", "info", "-c", str(file)).returncode == 0


def test_quotas_that_one_sets_the_other_describes(broker: RunningBroker) -> None:
    """Kafka's own admin client sets quotas here, and lists them."""
    address = ("--bootstrap-server", broker.bootstrap)
    values = "producer_byte_rate=1048576000,consumer_byte_rate=2000000,request_percentage=150.5"
    for place, entity in enumerate(
        (("--user", "ada"), ("--user", "ada", "--client", "c"), ("--client-defaults",))
    ):
        one, other = (theirs, ours) if place % 2 else (ours, theirs)
        altered = [
            tool("configs", *address, "--alter", *entity, "--add-config", values) for tool in (one, other)
        ]
        assert [result.returncode for result in altered] == [0, 0], altered
        assert altered[0].stdout == altered[1].stdout
        texts = [tool("configs", *address, "--describe", *entity).stdout for tool in (one, other)]
        told, told_too = (sorted(re.split(r"[ ,\n]+", text)) for text in texts)
        assert told == told_too
        assert "producer_byte_rate=1.048576E9" in texts[0]
        removed = one("configs", *address, "--alter", *entity, "--delete-config", "producer_byte_rate")
        assert removed.returncode == 0, removed.stderr
