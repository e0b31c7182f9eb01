"""Run what a user might take instead of Kafka: Redis Streams, NATS JetStream and RabbitMQ streams.

They come from Debian's packages and run with their own defaults, but for what makes them keep data on disk and
listen on free ports. None of them has partitions: a topic of N partitions is N streams. Compression, acks=1 and
very many partitions have no counterpart that could be compared, so those workloads leave them out.
"""

import os
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench import native
from bench.native import LoadFailed, Unavailable
from bench.systems import PROBE_TOPIC, SYNCED, System
from tools.peer.kafka import free_port

RABBITMQ_SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # without the wrapper that changes the user


def output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True).stdout


def require(program: str, package: str) -> None:
    if shutil.which(program) is None:
        raise Unavailable(f"{program} is not installed (Debian: apt-get install {package})")


class OtherSystem(System):
    """One server process on one port, loaded by `client`."""

    client: str

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        native.tool(self.client)
        self.port = free_port()

    def load(self, mode: str, **arguments: object) -> dict[str, Any]:
        return native.run(self.client, mode, {"port": self.port, **arguments})


class Redis(OtherSystem):
    """Entries are kept in memory, and appended to a file that is synced once a second."""

    name = "redis"
    title = "Redis Streams"
    durability = "synced each second"
    settings = {"appendonly": "yes", "appendfsync": "everysec", "save": ""}
    keeps_in_memory = True
    client = "redis_load"

    def __init__(self, scratch: Path) -> None:
        require("redis-server", "redis-server")
        super().__init__(scratch)

    def version(self) -> str:
        return output_of("redis-server", "--version").split("v=")[1].split()[0]

    def spawn(self) -> list[subprocess.Popen[bytes]]:
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.home)]
        for name, value in self.settings.items():
            command += [f"--{name}", value]
        return [self.run_process(command)]

    def accepts(self) -> bool:
        try:
            return self._command(f"XADD {PROBE_TOPIC} * v x").startswith(b"$")
        except OSError:
            return False

    def _command(self, text: str) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(text.encode() + b"\r\n")
            return connection.recv(100)

    def create_topic(self, topic: str, partitions: int, replication: int = 1) -> None:
        """A stream begins with its first entry."""

    def delete_topic(self, topic: str, partitions: int) -> None:
        self._command("DEL " + " ".join(f"{topic}-{number}" for number in range(partitions)))


class SyncedRedis(Redis):
    name = "redis-synced"
    title = "Redis Streams, synced"
    durability = SYNCED
    settings = {**Redis.settings, "appendfsync": "always"}


class StreamsSystem(OtherSystem):
    """Loaded by the program in streams/."""

    client = "streams"

    def load(self, mode: str, **arguments: object) -> dict[str, Any]:
        return super().load(mode, server=self.name, **arguments)

    def create_topic(self, topic: str, partitions: int, replication: int = 1) -> None:
        self.load("create", topic=topic, partitions=partitions)

    def delete_topic(self, topic: str, partitions: int) -> None:
        self.load("delete", topic=topic, partitions=partitions)

    def accepts(self) -> bool:
        """The stream for probes is made on the first start and found on later ones."""
        if not self._listens():
            return False
        try:
            if not (self.home / "probed").exists():
                self.create_topic(PROBE_TOPIC, 1)
                (self.home / "probed").touch()
            self.load("produce", topic=PROBE_TOPIC, count=1)
        except LoadFailed:
            return False
        return True

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
        except OSError:
            return False
        return True


class Nats(StreamsSystem):
    """Written to files, which are synced every two minutes."""

    name = "nats"
    title = "NATS JetStream"

    def __init__(self, scratch: Path) -> None:
        require("nats-server", "nats-server")
        super().__init__(scratch)

    def version(self) -> str:
        return output_of("nats-server", "--version").split()[-1].lstrip("v")

    def spawn(self) -> list[subprocess.Popen[bytes]]:
        command = ["nats-server", "-js", "-sd", str(self.home / "data"), "-a", "127.0.0.1"]
        return [self.run_process([*command, "-p", str(self.port)])]


class RabbitMq(StreamsSystem):
    """Streams are written to files and never synced by the server."""

    name = "rabbitmq"
    title = "RabbitMQ streams"

    def __init__(self, scratch: Path) -> None:
        if not RABBITMQ_SERVER.exists():
            raise Unavailable("rabbitmq-server is not installed (Debian: apt-get install rabbitmq-server)")
        super().__init__(scratch)
        self.other_ports = [free_port() for _ in range(3)]

    def version(self) -> str:
        return output_of("dpkg-query", "-W", "-f", "${Version}", "rabbitmq-server").partition("-")[0]

    def prepare(self) -> None:
        (self.home / "plugins").write_text("[rabbitmq_stream].\n")
        (self.home / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.other_ports[0]}\n"
            f"stream.listeners.tcp.1 = 127.0.0.1:{self.port}\n"
            f"stream.advertised_host = 127.0.0.1\nstream.advertised_port = {self.port}\n"
        )

    def environ(self) -> Mapping[str, str]:
        return os.environ | {
            "HOME": str(self.home),
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_MNESIA_BASE": str(self.home / "data"),
            "RABBITMQ_LOG_BASE": str(self.home / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.home / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(self.home / "rabbitmq.conf"),
            "RABBITMQ_LOGS": "-",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self.other_ports[1]),
            "RABBITMQ_DIST_PORT": str(self.other_ports[2]),
        }

    def spawn(self) -> list[subprocess.Popen[bytes]]:
        """Start the server, and before it a port mapper, which the server would otherwise start and leave behind."""
        mapper = self.run_process(["epmd"])
        return [self.run_process([str(RABBITMQ_SERVER)]), mapper]
