"""Run a system that is measured: start it, load it by its own best client, and stop it.

Every system keeps all its files in one directory, listens on free ports of localhost, and runs with the
settings it comes with; what differs is said in `settings`. A system may be several processes, and several
nodes: `processes` holds one for each node, so a cluster can lose a part of itself.

Here are those that speak Kafka's protocol; `other_systems` has the rest.
"""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from confluent_kafka.admin import AdminClient, NewTopic

import odradek
from bench import kafka_requests, native
from bench.measure import process_tree
from bench.native import Unavailable
from tools.peer.kafka import KAFKA_VERSION, PeerUnavailable, fetch_jars, free_port

START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 60
POLL_INTERVAL_S = 0.002
PROBE_TOPIC = "probe"
NOT_SYNCED = "not synced"
SYNCED = "synced"


def as_installed(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment, without what makes Python compile its sources at every start: pip compiles what it installs."""
    return {name: value for name, value in environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


class System:
    """One or more server processes. Subclasses say how they are started and loaded."""

    name: ClassVar[str]
    title: ClassVar[str]
    durability: ClassVar[str] = (
        NOT_SYNCED  # what has happened to a record when its producer gets the response
    )
    settings: ClassVar[Mapping[str, str]] = {}
    speaks_kafka: ClassVar[bool] = False
    keeps_in_memory: ClassVar[bool] = False
    compiles_as_it_runs: ClassVar[bool] = False  # so that it gets faster for a long time
    node_count: ClassVar[int] = 1

    def __init__(self, scratch: Path) -> None:
        """Raise `Unavailable` if it cannot be had here."""
        self.home = scratch / self.name
        self.processes: list[subprocess.Popen[bytes]] = []
        self.start_seconds = 0.0

    def version(self) -> str:
        raise NotImplementedError

    def runtime(self) -> str:
        """The runtime of its programs, where that is worth knowing."""
        return ""

    def prepare(self) -> None:
        """Lay out an empty `home`; called once, before the first start."""

    def spawn(self) -> list[subprocess.Popen[bytes]]:
        raise NotImplementedError

    def accepts(self) -> bool:
        """True if a message is accepted now."""
        raise NotImplementedError

    def load(self, mode: str, **arguments: object) -> dict[str, Any]:
        """Run the load generator: modes and arguments as in load.c."""
        raise NotImplementedError

    def create_topic(self, topic: str, partitions: int, replication: int = 1) -> None:
        raise NotImplementedError

    def delete_topic(self, topic: str, partitions: int) -> None:
        raise NotImplementedError

    def start(self) -> None:
        """Return once the first message was accepted; `start_seconds` is how long that took."""
        if not self.home.exists():
            self.home.mkdir(parents=True)
            self.prepare()
        begin = time.monotonic()
        self.processes = self.spawn()
        while not self.accepts():
            if not self.is_running or time.monotonic() - begin > START_TIMEOUT_S:
                raise Unavailable(f"{self.title} did not start: {self.log()[-400:].strip()}")
            time.sleep(POLL_INTERVAL_S)
        self.start_seconds = time.monotonic() - begin

    def stop(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes = []

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.home, ignore_errors=True)

    def discard(self) -> None:
        """Like `remove`, for a system whose end is not worth waiting for."""
        for process in self.processes:
            process.kill()
        self.remove()

    def pids(self) -> list[int]:
        return process_tree([process.pid for process in self.processes if process.poll() is None])

    @property
    def is_running(self) -> bool:
        return all(process.poll() is None for process in self.processes)

    def environ(self) -> Mapping[str, str]:
        """The environment in which its processes run."""
        return os.environ

    def run_process(self, command: list[str]) -> subprocess.Popen[bytes]:
        environ = as_installed(self.environ())
        with (self.home / "output.log").open("ab") as output:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environ
            )

    def log(self) -> str:
        path = self.home / "output.log"
        return path.read_text(errors="replace") if path.exists() else ""


class KafkaProtocolSystem(System):
    """Driven by librdkafka."""

    speaks_kafka = True

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        native.tool("load")
        self.ports = [free_port() for _ in range(self.node_count)]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    @property
    def nodes(self) -> range:
        """Their ids. A node's process is at the same place of `processes`, counted from 1."""
        return range(1, self.node_count + 1)

    def spawn_node(self, node: int) -> subprocess.Popen[bytes]:
        raise NotImplementedError

    def spawn(self) -> list[subprocess.Popen[bytes]]:
        return [self.spawn_node(node) for node in self.nodes]

    def process_of(self, node: int) -> subprocess.Popen[bytes]:
        return self.processes[node - 1]

    def start_node(self, node: int) -> None:
        """Once more, after its process has ended."""
        self.processes[node - 1] = self.spawn_node(node)

    def accepts(self) -> bool:
        return any(kafka_requests.accepts_produce(port, PROBE_TOPIC) for port in self.ports)

    def start(self) -> None:
        super().start()
        while len(self.admin().list_topics(timeout=60).brokers) < self.node_count:
            time.sleep(0.1)

    def load(self, mode: str, **arguments: object) -> dict[str, Any]:
        return native.run("load", mode, {"bootstrap": self.bootstrap, **arguments})

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create_topic(self, topic: str, partitions: int, replication: int = 1) -> None:
        """Return once every partition has a leader and all its replicas."""
        self._create(NewTopic(topic, partitions, replication), partitions, replication)

    def place_topic(self, topic: str, replicas: Sequence[Sequence[int]]) -> None:
        """Like `create_topic`, with the nodes that keep each partition; the first of them is its preferred leader."""
        wanted = NewTopic(topic, len(replicas), replica_assignment=[list(nodes) for nodes in replicas])
        self._create(wanted, len(replicas), len(replicas[0]))

    def _create(self, wanted: NewTopic, partitions: int, replication: int) -> None:
        admin, topic = self.admin(), wanted.topic
        admin.create_topics([wanted], operation_timeout=60, request_timeout=120)[topic].result()
        while not self._is_complete(admin, topic, partitions, replication):
            time.sleep(0.05)

    @staticmethod
    def _is_complete(admin: AdminClient, topic: str, partitions: int, replication: int) -> bool:
        found = admin.list_topics(topic, timeout=60).topics[topic].partitions.values()
        ready = [each for each in found if each.leader >= 0 and len(each.isrs) == replication]
        return len(ready) == partitions

    def delete_topic(self, topic: str, partitions: int) -> None:
        admin = self.admin()  # a result dies with the client it came from
        admin.delete_topics([topic], request_timeout=120)[topic].result()


class Odradek(KafkaProtocolSystem):
    name = "odradek"
    title = "Odradek"
    durability = SYNCED
    settings = {"log.sync.commit": "true"}

    def version(self) -> str:
        return odradek.__version__

    def spawn_node(self, node: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "odradek", "up", "--log-level", "warning"]
        command += ["--data-dir", str(self.home / "data")]
        command += ["--set", f"listeners=PLAINTEXT://127.0.0.1:{self.ports[0]}"]
        for name, value in self.settings.items():
            command += ["--set", f"{name}={value}"]
        return self.run_process(command)


class UnsyncedOdradek(Odradek):
    name = "odradek-unsynced"
    title = "Odradek, unsynced"
    durability = NOT_SYNCED
    settings = {"log.sync.commit": "false"}


class Quorum(KafkaProtocolSystem):
    """Nodes that are broker and controller at once. Each has a settings file in Kafka's words, and a directory that
    is formatted with all of them as first voters."""

    properties: ClassVar[str]  # what stands in the file beside its own settings

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        self.controller_ports = [free_port() for _ in self.nodes]

    def format_command(self, properties: Path, cluster: str, voters: str) -> list[str]:
        raise NotImplementedError

    def prepare(self) -> None:
        cluster = random_id()
        voters = ",".join(
            f"{node}@127.0.0.1:{port}:{random_id()}" for node, port in enumerate(self.controller_ports, 1)
        )
        for node in self.nodes:
            self.properties_file(node).write_text(self._properties(node))
            command = self.format_command(self.properties_file(node), cluster, voters)
            result = subprocess.run(command, capture_output=True, text=True, env=dict(self.environ()))
            if result.returncode != 0:
                raise Unavailable(
                    f"{self.title}: its directory was not formatted: {result.stderr or result.stdout}"
                )

    def properties_file(self, node: int) -> Path:
        return self.home / f"node-{node}.properties"

    def _properties(self, node: int) -> str:
        text = (NODE_PROPERTIES + self.properties).format(
            node=node,
            port=self.ports[node - 1],
            controller_port=self.controller_ports[node - 1],
            quorum=",".join(f"127.0.0.1:{port}" for port in self.controller_ports),
            data_dir=self.home / f"data-{node}",
            replication=self.node_count,
        )
        return text + "".join(f"{name}={value}\n" for name, value in self.settings.items())


NODE_PROPERTIES = """\
process.roles=broker,controller
node.id={node}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers={quorum}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data_dir}
offsets.topic.replication.factor={replication}
"""


class OdradekCluster(Quorum):
    """Three nodes with the settings that `odradek up --brokers 3` gives them."""

    name = "odradek-cluster"
    title = "Odradek, 3 nodes"
    durability = SYNCED
    settings = {"log.sync.commit": "true"}
    properties = "default.replication.factor=3\nmin.insync.replicas=2\n"
    node_count = 3

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        self.metrics_ports = [free_port() for _ in self.nodes]

    def version(self) -> str:
        return odradek.__version__

    def format_command(self, properties: Path, cluster: str, voters: str) -> list[str]:
        command = [sys.executable, "-m", "odradek", "format", "--config", str(properties)]
        return [*command, "--cluster-id", cluster, "--initial-controllers", voters]

    def spawn_node(self, node: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "odradek", "broker", "--config", str(self.properties_file(node))]
        command += ["--set", f"metrics.listener=127.0.0.1:{self.metrics_ports[node - 1]}"]
        return self.run_process([*command, "--log-level", "warning"])


class UnsyncedOdradekCluster(OdradekCluster):
    name = "odradek-cluster-unsynced"
    title = "Odradek, 3 nodes, unsynced"
    durability = NOT_SYNCED
    settings = {"log.sync.commit": "false"}


# kafka-server-start.sh and kafka-run-class.sh give these to the Java machine.
KAFKA_JAVA_OPTIONS = (
    *("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15"),
    *("-Djava.awt.headless=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"),
)
KAFKA_PROPERTIES = """\
transaction.state.log.replication.factor={replication}
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor={replication}
share.coordinator.state.topic.min.isr=1
"""


class Kafka(Quorum):
    """Apache Kafka in KRaft mode, all nodes both broker and controller, with its scripts' Java options."""

    name = "kafka"
    title = "Apache Kafka"
    compiles_as_it_runs = True
    properties = KAFKA_PROPERTIES

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        try:
            self.jars = fetch_jars()
        except PeerUnavailable as error:
            raise Unavailable(str(error)) from None

    def version(self) -> str:
        return KAFKA_VERSION

    def runtime(self) -> str:
        said = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr.strip()
        return said.rpartition("\n")[2]

    def format_command(self, properties: Path, cluster: str, voters: str) -> list[str]:
        command = self._java("kafka.tools.StorageTool", "format", "-t", cluster)
        return [*command, "--initial-controllers", voters, "-c", str(properties)]

    def spawn_node(self, node: int) -> subprocess.Popen[bytes]:
        return self.run_process(self._java("kafka.Kafka", str(self.properties_file(node))))

    def _java(self, main_class: str, *arguments: str) -> list[str]:
        return ["java", *KAFKA_JAVA_OPTIONS, "-cp", f"{self.jars}/*", main_class, *arguments]


class SyncedKafka(Kafka):
    """Told to sync every append: as durable as Odradek is by default."""

    name = "kafka-synced"
    title = "Apache Kafka, synced"
    durability = SYNCED
    settings = {"log.flush.interval.messages": "1"}


class KafkaCluster(Kafka):
    name = "kafka-3"
    title = "Apache Kafka, 3 nodes"
    node_count = 3


def random_id() -> str:
    """A UUID as Kafka writes it. Its tools take a leading dash for an option, hence the bit that rules it out."""
    first, *rest = secrets.token_bytes(16)
    return urlsafe_b64encode(bytes([first & 0x7F, *rest])).decode().rstrip("=")
