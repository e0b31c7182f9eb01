"""Kafka's own tools at work on three of our nodes while one of them dies: none fails, and nothing is lost."""

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.processes.nodes import BOTH, TIMEOUT_S, Nodes, cluster, until
from tests.processes.record_load import read_all
from tools.peer.kafka import java_command, run_tool

TOPICS = "org.apache.kafka.tools.TopicCommand"
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
VERIFIABLE = "org.apache.kafka.tools.VerifiableProducer"

VERIFIED, CONSOLE = "verified", "console"
PARTITIONS = 3
RECORDS, LINES = 2000, 100

pytestmark = pytest.mark.timeout(600)


class Running:
    """A tool that runs; its output is read as it comes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    def write(self, lines: list[str]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("".join(f"{line}\n" for line in lines))
        self.process.stdin.flush()

    def finish(self) -> list[str]:
        """Wait until it has ended, well; what it printed."""
        assert self.process.stdin is not None and self.process.stderr is not None
        self.process.stdin.close()
        status = self.process.wait(TIMEOUT_S)
        self._reader.join()
        assert status == 0, self.process.stderr.read()
        return self.lines

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()


@contextmanager
def running(main_class: str, *arguments: str) -> Iterator[Running]:
    pipe = subprocess.PIPE
    command = java_command(main_class, *arguments)
    tool = Running(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True))
    try:
        yield tool
    finally:
        tool.end()


def run(main_class: str, *arguments: str) -> str:
    done = run_tool(main_class, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def events(lines: list[str], name: str) -> list[dict[str, Any]]:
    return [event for event in map(json.loads, lines) if event["name"] == name]


def described(nodes: Nodes, *options: str) -> list[dict[str, str]]:
    """The partitions that `kafka-topics --describe` lists."""
    output = run(TOPICS, "--bootstrap-server", nodes.bootstrap, "--describe", *options)
    rows = [
        dict(part.split(":", 1) for part in line.strip().split("\t")) for line in output.splitlines() if line
    ]
    return [{name: value.strip() for name, value in row.items()} for row in rows if "Partition" in row]


def test_tools_go_on_when_a_broker_dies(jars: Path, tmp_path: Path) -> None:
    with cluster(tmp_path, {1: BOTH, 2: BOTH, 3: BOTH}, min_insync_replicas="2") as nodes:
        server = ("--bootstrap-server", nodes.bootstrap)
        shape = ("--partitions", str(PARTITIONS), "--replication-factor", "3")
        for topic in (VERIFIED, CONSOLE):
            run(TOPICS, *server, "--create", "--topic", topic, *shape)
        retrying = tmp_path / "producer.properties"
        retrying.write_text(f"retries={2**31 - 1}\n")  # the tool's own default is none
        sending = (*server, "--topic", VERIFIED, "--max-messages", str(RECORDS), "--throughput", "100")
        sending = (*sending, "--command-config", str(retrying))
        reading = ("--topic", CONSOLE, "--group", "g", "--from-beginning", "--max-messages", str(LINES))
        lines = [f"line {number}" for number in range(LINES)]
        with (
            running(VERIFIABLE, *sending, "--acks", "-1") as verifiable,
            running(PRODUCER, *server, "--topic", CONSOLE) as producer,
            running(CONSUMER, *server, *reading) as consumer,
        ):
            producer.write(lines[: LINES // 2])
            until(lambda: consumer.lines and len(verifiable.lines) > 10, "some is written and read")
            victim = nodes[int(described(nodes, "--topic", VERIFIED)[0]["Leader"])]
            victim.kill()
            producer.write(lines[LINES // 2 :])
            _check_described_without(nodes, victim.id)
            producer.finish()
            assert set(consumer.finish()) == set(lines)
            told = verifiable.finish()
        assert not events(told, "producer_send_error")
        _check_all_there(nodes, events(told, "producer_send_success"))
        victim.start()
        _check_preferred_leaders_again(nodes)


def _check_described_without(nodes: Nodes, victim: int) -> None:
    def look() -> bool:
        return all(
            int(one["Leader"]) not in (victim, -1) and str(victim) not in one["Isr"].split(",")
            for one in described(nodes, "--topic", VERIFIED)
        )

    until(look, f"nothing is led by broker {victim}")
    behind = described(nodes, "--under-replicated-partitions")
    assert {one["Partition"] for one in behind if one["Topic"] == VERIFIED} == {"0", "1", "2"}
    assert not described(nodes, "--unavailable-partitions")


def _check_all_there(nodes: Nodes, acknowledged: list[dict[str, Any]]) -> None:
    assert len(acknowledged) == RECORDS
    ends = dict.fromkeys(range(PARTITIONS), 0)
    for one in acknowledged:
        ends[one["partition"]] = max(ends[one["partition"]], one["offset"] + 1)
    records = read_all(nodes.bootstrap, VERIFIED, ends, TIMEOUT_S)
    lost = [
        one for one in acknowledged if records[one["partition"]].get(one["offset"]) != one["value"].encode()
    ]
    assert not lost, lost[:5]


def _check_preferred_leaders_again(nodes: Nodes) -> None:
    until(lambda: not described(nodes, "--under-replicated-partitions"), "all is in sync again")
    run(
        ELECTION,
        "--bootstrap-server",
        nodes.bootstrap,
        "--election-type",
        "preferred",
        "--all-topic-partitions",
    )

    def look() -> bool:
        return all(one["Leader"] == one["Replicas"].split(",")[0] for one in described(nodes))

    until(look, "everything is led by its preferred leader")
