"""Apache Kafka on this machine: fetched by Maven, run as a single KRaft node, stopped again.

What "compatible" means is best asked of the original. This module gets its jars by package name (Maven
knows from where), keeps them under the user's cache directory, and runs two things from them: a broker
on free ports with a throw-away data directory, and the command-line tools. Where Java, Maven or the
network is missing, `PeerUnavailable` says so in one sentence, which tests turn into a skip.
"""

import os
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from base64 import urlsafe_b64encode
from pathlib import Path
from types import TracebackType
from typing import Self
from zlib import crc32

KAFKA_VERSION = "4.3.1"
POM = Path(__file__).with_name("pom.xml")  # which jars
FETCH_TIMEOUT_S = 600
START_TIMEOUT_S = 90
STOP_TIMEOUT_S = 30
TOOL_TIMEOUT_S = 120
POLL_INTERVAL_S = 0.05

HEAP_OPTIONS = ("-Xms256m", "-Xmx1g", "-XX:+UseG1GC")
LOG_OPTIONS = ("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",)

BROKER_PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners={listeners}
advertised.listeners={listeners}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:{controller_port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,LOGIN:SASL_SSL
log.dirs={data_dir}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""


class PeerUnavailable(Exception):
    """Kafka cannot be had on this machine; the message says why."""


def cache_dir() -> Path:
    """Return the directory in which Kafka's jars are kept."""
    return _cache_of(POM, f"kafka-{KAFKA_VERSION}")


def _cache_of(pom: Path, name: str) -> Path:
    """Another list of jars gets another directory."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "odradek" / f"{name}-{crc32(pom.read_bytes()):08x}"


def fetch_jars() -> Path:
    """The directory of Kafka's jars."""
    title = f"Apache Kafka {KAFKA_VERSION}"
    return jars_of(POM, f"kafka-{KAFKA_VERSION}", title, f"-Dkafka.version={KAFKA_VERSION}")


def jars_of(pom: Path, name: str, title: str, *definitions: str) -> Path:
    """The directory of a POM's jars, filled on first use; safe to call from several processes."""
    if shutil.which("java") is None:
        raise PeerUnavailable("Java is not installed (Debian: apt-get install default-jre-headless)")
    jars = _cache_of(pom, name)
    if not jars.is_dir():
        jars.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=jars.parent) as scratch:
            _copy_jars(pom, title, Path(scratch) / "jars", definitions)
            try:
                (Path(scratch) / "jars").rename(jars)
            except OSError:
                if not jars.is_dir():  # otherwise another process was quicker
                    raise
    return jars


def _copy_jars(pom: Path, title: str, target: Path, definitions: tuple[str, ...]) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerUnavailable("Maven is not installed (Debian: apt-get install maven)")
    command = [maven, "-B", "-q", "-f", str(pom)]
    command += ["dependency:copy-dependencies", f"-DoutputDirectory={target}", *definitions]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise PeerUnavailable(f"Maven did not fetch {title} within {FETCH_TIMEOUT_S} s") from None
    if result.returncode != 0:
        reason = next((line for line in result.stdout.splitlines() if "ERROR" in line), "no reason given")
        raise PeerUnavailable(f"Maven could not fetch {title}: {reason.strip()}")


def java_command(main_class: str, *arguments: str) -> list[str]:
    return ["java", *HEAP_OPTIONS, *LOG_OPTIONS, "-cp", f"{fetch_jars()}/*", main_class, *arguments]


def run_tool(main_class: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's command-line tools to its end; output and errors come back as text."""
    command = java_command(main_class, *arguments)
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def responses(port: int) -> bool:
    """True if an ApiVersions request gets a response: ports open before the broker is ready."""
    request = struct.pack(">hhih", 18, 0, 0, -1)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            return len(connection.recv(4)) == 4
    except OSError:
        return False


class _Started:
    """Something that runs for the length of a `with` block, in a directory that is new."""

    def __enter__(self) -> Self:
        fetch_jars()
        self._home = Path(tempfile.mkdtemp(prefix="odradek-kafka-"))
        try:
            self._format()
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _format(self) -> None:
        raise NotImplementedError

    def _start(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError


class KafkaPeer(_Started):
    """A one-node Kafka cluster for the length of a `with` block. All it wrote is gone afterwards."""

    def __init__(self, *more_listeners: str, **settings: str) -> None:
        """`more_listeners` are to be there beside PLAINTEXT: SSL, LOGIN (SASL_SSL). `settings` are broker
        properties, with '_' for '.'."""
        self.settings = {name.replace("_", "."): value for name, value in settings.items()}
        self.port = self.controller_port = 0
        self.more_ports = dict.fromkeys(more_listeners, 0)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def controller(self) -> str:
        """The address at which its controller listens."""
        return f"127.0.0.1:{self.controller_port}"

    def bootstrap_of(self, listener: str) -> str:
        return f"127.0.0.1:{self.more_ports[listener]}"

    @property
    def data_dir(self) -> Path:
        return self._home / "data"

    def _format(self) -> None:
        self.port, self.controller_port = free_port(), free_port()
        self.more_ports = {name: free_port() for name in self.more_ports}
        ports = {"PLAINTEXT": self.port, "CONTROLLER": self.controller_port, **self.more_ports}
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
        properties = BROKER_PROPERTIES.format(
            listeners=listeners, controller_port=self.controller_port, data_dir=self.data_dir
        )
        extra = "".join(f"{name}={value}\n" for name, value in self.settings.items())
        self._properties_file = self._home / "server.properties"
        self._properties_file.write_text(properties + extra)
        cluster_id = run_tool("kafka.tools.StorageTool", "random-uuid").stdout.strip()
        result = run_tool(
            "kafka.tools.StorageTool",
            *("format", "--standalone", "-t", cluster_id, "-c", str(self._properties_file)),
        )
        if result.returncode != 0:
            raise RuntimeError(f"Kafka's storage tool failed: {result.stderr or result.stdout}")

    def _start(self) -> None:
        command = java_command("kafka.Kafka", str(self._properties_file))
        with (self._home / "output.log").open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        deadline = time.monotonic() + START_TIMEOUT_S
        while not responses(self.port):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Kafka did not start:\n{self.output()[-4000:]}")
            time.sleep(POLL_INTERVAL_S)

    def output(self) -> str:
        return (self._home / "output.log").read_text(errors="replace")

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        shutil.rmtree(self._home, ignore_errors=True)


CLUSTER_PROPERTIES = """\
process.roles=broker,controller
node.id={node}
listeners={listeners}
advertised.listeners={listeners}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers={quorum}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data_dir}
"""


class KafkaPeers(_Started):
    """A cluster of three such nodes, each a broker and a controller, for the length of a `with` block. Where a setting
    has {node} in it, each node has its own id there."""

    def __init__(self, **settings: str) -> None:
        self.settings = {name.replace("_", "."): value for name, value in settings.items()}
        self.ports: dict[int, int] = {}
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def bootstrap_of(self, node: int) -> str:
        return f"127.0.0.1:{self.ports[node]}"

    def _file(self, node: int, name: str) -> Path:
        return self._home / f"node-{node}.{name}"

    def _format(self) -> None:
        nodes = (1, 2, 3)
        self.ports = {node: free_port() for node in nodes}
        controllers = {node: f"127.0.0.1:{free_port()}" for node in nodes}
        voters = ",".join(f"{node}@{controllers[node]}:{_random_id()}" for node in nodes)
        cluster_id = _random_id()
        for node in nodes:
            text = CLUSTER_PROPERTIES.format(
                node=node,
                listeners=f"PLAINTEXT://{self.bootstrap_of(node)},CONTROLLER://{controllers[node]}",
                quorum=",".join(controllers.values()),
                data_dir=self._home / f"data-{node}",
            )
            extra = "".join(f"{name}={value}\n" for name, value in self.settings.items())
            extra = extra.replace("{node}", str(node))
            self._file(node, "properties").write_text(text + extra)
            result = run_tool(
                "kafka.tools.StorageTool",
                *("format", "--initial-controllers", voters),
                *("-t", cluster_id, "-c", str(self._file(node, "properties"))),
            )
            if result.returncode != 0:
                raise RuntimeError(f"Kafka's storage tool failed: {result.stderr or result.stdout}")

    def _start(self) -> None:
        for node in self.ports:
            command = java_command("kafka.Kafka", str(self._file(node, "properties")))
            with self._file(node, "log").open("wb") as output:
                self.processes[node] = subprocess.Popen(
                    command, stdout=output, stderr=output, start_new_session=True
                )
        deadline = time.monotonic() + START_TIMEOUT_S
        for node, process in self.processes.items():
            while not responses(self.ports[node]):
                if process.poll() is not None or time.monotonic() > deadline:
                    log = self._file(node, "log").read_text(errors="replace")
                    raise RuntimeError(f"node {node} of Kafka did not start:\n{log[-4000:]}")
                time.sleep(POLL_INTERVAL_S)

    def signal(self, node: int, number: signal.Signals) -> None:
        self.processes[node].send_signal(number)

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        shutil.rmtree(self._home, ignore_errors=True)


def _random_id() -> str:
    """A UUID as Kafka writes it. Its tools take a leading dash for an option, hence the bit that rules it out."""
    first, *rest = secrets.token_bytes(16)
    return urlsafe_b64encode(bytes([first & 0x7F, *rest])).decode().rstrip("=")
