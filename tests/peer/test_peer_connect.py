"""Kafka Connect in distributed mode on three of our brokers, its workers killed on the way together with brokers.

A source with exactly-once support counts into a topic; a sink that keeps its offsets with its data writes the topic to
files. Both connectors are small ones of ours (tests/peer/java). Neither the topic nor the files may miss a record or
have one twice.
"""

import json
import urllib.error
import urllib.request
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.peer.big_clients import (
    CLUSTER,
    PARTITIONS,
    Program,
    Progress,
    committed,
    create_topics,
    kill_both,
    running,
)
from tests.processes.nodes import BOTH, cluster, until
from tools.peer.kafka import free_port

TASKS = "2"
STRING = "org.apache.kafka.connect.storage.StringConverter"

pytestmark = pytest.mark.timeout(900)


def settings(bootstrap: str, port: int) -> dict[str, str]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": "connect",
        "listeners": f"http://127.0.0.1:{port}",
        "key.converter": STRING,
        "value.converter": STRING,
        "plugin.discovery": "service_load",
        "exactly.once.source.support": "enabled",
        "offset.flush.interval.ms": "200",
        "config.storage.topic": "connect-configs",
        "offset.storage.topic": "connect-offsets",
        "offset.storage.partitions": "3",
        "status.storage.topic": "connect-status",
        "status.storage.partitions": "1",
        "session.timeout.ms": "10000",
        "scheduled.rebalance.max.delay.ms": "1000",
    }


SOURCE = {"connector.class": "odradek.NumbersSource", "tasks.max": TASKS, "exactly.once.support": "required"}


def sink(directory: Path) -> dict[str, str]:
    return {
        "connector.class": "odradek.FilesSink",
        "tasks.max": TASKS,
        "topics": "numbers",
        "directory": str(directory),
        "consumer.override.isolation.level": "read_committed",
        "consumer.override.auto.offset.reset": "earliest",
    }


def call(port: int, method: str, path: str, body: Any = None) -> Any:
    """The response of a worker; None while it has none: it starts, or its group rebalances."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return json.loads(response.read() or b"true")
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return None


def test_source_and_sink_are_exact_through_kills(java_classes: Path, tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    with cluster(tmp_path, dict.fromkeys((1, 2, 3), BOTH), **CLUSTER) as nodes:
        create_topics(nodes.bootstrap, "numbers")
        ports = [free_port(), free_port()]
        workers = [
            Program(
                "org.apache.kafka.connect.cli.ConnectDistributed",
                java_classes,
                tmp_path / f"worker-{port}",
                settings(nodes.bootstrap, port),
            )
            for port in ports
        ]
        progress = Progress(nodes.bootstrap, "numbers", *workers)
        with running(*workers):
            for name, config in (("source", SOURCE), ("sink", sink(files))):
                until(
                    lambda name=name, config=config: call(  # type: ignore[misc]
                        ports[0], "PUT", f"/connectors/{name}/config", config
                    ),
                    f"the connector {name} is accepted",
                )
            progress.await_more()
            for worker, node in zip(workers, nodes, strict=False):
                kill_both(worker, nodes, node, progress)
            offsets = stop_source(ports[0])
            numbers = committed(nodes.bootstrap, "numbers")
            until(lambda: written(files) == numbers or None, "the sink has written what is committed")
        progress.close()
    by_task = defaultdict(list)
    for records in numbers.values():
        for _, task, number in records:
            by_task[task].append(int(number))
    assert {task: sorted(found) for task, found in by_task.items()} == {
        task: list(range(end)) for task, end in offsets.items()
    }


def stop_source(port: int) -> dict[str, int]:
    """Stop the source; the number after the last one of each of its tasks, as its stored offsets say."""
    until(lambda: call(port, "PUT", "/connectors/source/stop"), "the source is told to stop")

    def is_stopped() -> bool:
        status = call(port, "GET", "/connectors/source/status")
        return bool(status) and status["connector"]["state"] == "STOPPED" and not status["tasks"]

    until(is_stopped, "the source has stopped")
    stored = until(lambda: call(port, "GET", "/connectors/source/offsets"), "the offsets of the source")
    return {one["partition"]["task"]: one["offset"]["next"] for one in stored["offsets"]}


def written(files: Path) -> dict[int, list[tuple[int, str, str]]]:
    """Offset, key and value of every line, by partition."""
    found: dict[int, list[tuple[int, str, str]]] = {}
    for number in range(PARTITIONS):
        file = files / f"partition-{number}"
        lines = file.read_text().splitlines() if file.exists() else []
        words = [line.split(" ") for line in lines]
        found[number] = [(int(one[0]), one[1], one[2]) for one in words if len(one) == 3]
    return found
