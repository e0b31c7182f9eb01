"""Apache Kafka on this machine: fetched by Maven, run as a single KRaft node, stopped again.

What "compatible" means is best asked of the original. This module gets its jars by package name (Maven
knows from where), keeps them under the user's cache directory, and runs two things from them: a broker
on free ports with a throw-away data directory, and the command-line tools. Where Java, Maven or the
network is missing, `PeerUnavailable` says so in one sentence, which tests turn into a skip.
"""

import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

KAFKA_VERSION = "4.3.1"
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
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "odradek" / f"kafka-{KAFKA_VERSION}"


def fetch_jars() -> Path:
    """The directory of Kafka's jars, filled on first use; safe to call from several processes."""
    if shutil.which("java") is None:
        raise PeerUnavailable("Java is not installed (Debian: apt-get install default-jre-headless)")
    jars = cache_dir()
    if not jars.is_dir():
        jars.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=jars.parent) as scratch:
            _copy_jars(Path(scratch) / "jars")
            try:
                (Path(scratch) / "jars").rename(jars)
            except OSError:
                if not jars.is_dir():  # otherwise another process was quicker
                    raise
    return jars


def _copy_jars(target: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise PeerUnavailable("Maven is not installed (Debian: apt-get install maven)")
    command = [maven, "-B", "-q", "-f", str(Path(__file__).with_name("pom.xml"))]
    command += [
        "dependency:copy-dependencies",
        f"-DoutputDirectory={target}",
        f"-Dkafka.version={KAFKA_VERSION}",
    ]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise PeerUnavailable(f"Maven did not fetch Kafka within {FETCH_TIMEOUT_S} s") from None
    if result.returncode != 0:
        reason = next((line for line in result.stdout.splitlines() if "ERROR" in line), "no reason given")
        raise PeerUnavailable(f"Maven could not fetch Apache Kafka {KAFKA_VERSION}: {reason.strip()}")


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


class KafkaPeer:
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
        """Where its controller listens."""
        return f"127.0.0.1:{self.controller_port}"

    def bootstrap_of(self, listener: str) -> str:
        return f"127.0.0.1:{self.more_ports[listener]}"

    @property
    def data_dir(self) -> Path:
        return self._home / "data"

    def __enter__(self) -> "KafkaPeer":
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
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"Kafka did not start:\n{self.output()[-4000:]}")
            time.sleep(POLL_INTERVAL_S)

    def _answers(self) -> bool:
        """Whether an ApiVersions request is answered: ports open before the broker is ready."""
        request = struct.pack(">hhih", 18, 0, 0, -1)
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
                connection.sendall(struct.pack(">i", len(request)) + request)
                return len(connection.recv(4)) == 4
        except OSError:
            return False

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
