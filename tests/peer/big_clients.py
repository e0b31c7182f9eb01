"""The common parts of the tests of Kafka's big clients: Java programs that are killed and started again, and exact
reading.

Streams, Connect and MirrorMaker are ordinary programs here: they do not know what happens to the brokers. Each test
runs two of them, and kills each together with a broker of three (`kill_both`).
"""

import shutil
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.processes.nodes import Node, Nodes, until
from tests.read_topic import read_to_the_end
from tools.peer.kafka import LOG_OPTIONS, PeerUnavailable, fetch_jars

JAVA = Path(__file__).with_name("java")
QUICK_START = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
COMPILE_TIMEOUT_S = 120
PARTITIONS = 3
MORE = 300  # committed records that show that the work goes on
PACE_S = 0.005  # between two records of a feed
WAITING = 200  # records of a feed that may wait for their acknowledgement
DELIVERY_TIMEOUT_MS = 300_000

# Brokers that are missed soon, and topics that can lose one.
CLUSTER = {
    "min_insync_replicas": "2",
    "default_replication_factor": "3",
    "offsets_topic_replication_factor": "3",
    "transaction_state_log_replication_factor": "3",
    "transaction_state_log_min_isr": "2",
    "group_initial_rebalance_delay_ms": "0",
    "broker_session_timeout_ms": "3000",
    "broker_heartbeat_interval_ms": "500",
}


def compile_programs(target: Path) -> Path:
    """Compile tests/peer/java; returns the directory of its classes."""
    if shutil.which("javac") is None:
        raise PeerUnavailable("javac is not installed (Debian: apt-get install default-jdk-headless)")
    classes = target / "classes"
    shutil.copytree(JAVA / "META-INF", classes / "META-INF")
    command = ["javac", "-nowarn", "-cp", f"{fetch_jars()}/*", "-d", str(classes)]
    sources = [str(source) for source in sorted(JAVA.rglob("*.java"))]
    done = subprocess.run([*command, *sources], capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return classes


class Program:
    """A Java program with a settings file as its argument. It can be killed and started again."""

    def __init__(self, main_class: str, classes: Path, home: Path, settings: Mapping[str, str]) -> None:
        home.mkdir()
        self.log_file = home / "log"
        file = home / "settings.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._command = ["java", *QUICK_START, *LOG_OPTIONS, "-cp", f"{classes}:{fetch_jars()}/*"]
        self._command += [main_class, str(file)]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def check(self) -> None:
        """Fail if it has ended by itself."""
        assert self.process is None or self.process.poll() is None, self.log_file.read_text()[-4000:]


@contextmanager
def running(*programs: Program) -> Iterator[None]:
    for program in programs:
        program.start()
    try:
        yield
    finally:
        for program in programs:
            program.kill()


def create_topics(bootstrap: str, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, PARTITIONS) for name in names]).values():
        future.result(30)


class Feed:
    """An idempotent producer that writes numbered records without a pause, for the length of a `with` block. At its end
    all are acknowledged, each once: `written` has them by partition."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.written: dict[int, list[str]] = defaultdict(list)
        self._topic = topic
        self._is_over = threading.Event()
        self._failures: list[object] = []
        self._thread = threading.Thread(target=self._run)
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "socket.timeout.ms": 4000,
                "message.timeout.ms": DELIVERY_TIMEOUT_MS,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )

    def _run(self) -> None:
        number = 0
        while not self._is_over.wait(PACE_S):
            partition, value = number % PARTITIONS, f"word-{number % 7} word-{number % 11} {number}"
            self._producer.produce(self._topic, value, partition=partition, on_delivery=self._delivered)
            self.written[partition].append(value)
            number += 1
            self._producer.poll(0)
            while len(self._producer) > WAITING and not self._failures:
                self._producer.poll(0.1)
        self._producer.flush(DELIVERY_TIMEOUT_MS / 1000)

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self._failures.append(error)

    def __enter__(self) -> "Feed":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()
        assert not self._failures, self._failures[0]


class Progress:
    """Counts the committed records of a topic as they come."""

    def __init__(self, bootstrap: str, topic: str, *programs: Program) -> None:
        self._programs = programs
        self._records = 0
        self._since_ms = self._records_since = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "progress",
                "enable.auto.commit": False,
                "socket.timeout.ms": 4000,
                "reconnect.backoff.max.ms": 500,
                "allow.auto.create.topics": False,
                "log_level": 0,
            }
        )
        self._topic = topic
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])

    def _count(self) -> int:
        for program in self._programs:
            program.check()
        for message in self._consumer.consume(1000, timeout=0.2):
            if message.error() is None:
                self._records += 1
                self._records_since += message.timestamp()[1] >= self._since_ms
        return self._records

    def await_more(self) -> None:
        """Return once MORE records are committed whose origin was written after this call."""
        self._since_ms, self._records_since = time.time_ns() // 1_000_000, 0
        until(lambda: self._count() and self._records_since >= MORE, f"more records in {self._topic}")

    def await_records(self, records: int) -> None:
        until(lambda: self._count() >= records, f"{records} records in {self._topic}")

    def close(self) -> None:
        self._consumer.close()


def kill_both(program: Program, nodes: Nodes, node: Node, progress: Progress) -> None:
    """Kill a program and a broker, see that the others go on, and start both again."""
    node.kill()
    program.kill()
    progress.await_more()
    node.start()
    program.start()
    progress.await_more()
    until(lambda: _is_in_sync(nodes), "all replicas are in sync again")


def _is_in_sync(nodes: Nodes) -> bool:
    topics = next(iter(nodes)).topics().values()
    return all(
        set(partition.isr_nodes) == set(partition.replica_nodes)
        for topic in topics
        for partition in topic.partitions
    )


def committed(bootstrap: str, topic: str) -> dict[int, list[tuple[int, str, str]]]:
    """Offset, key and value of every committed record, by partition."""
    found: dict[int, list[tuple[int, str, str]]] = {number: [] for number in range(PARTITIONS)}
    for message in read_to_the_end(bootstrap, topic, range(PARTITIONS)):
        key, value = (message.key() or b"").decode(), message.value().decode()
        found[message.partition()].append((message.offset(), key, value))
    return found
