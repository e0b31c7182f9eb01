"""Several real nodes: `odradek broker --config` in processes of their own, as a user runs them.

    with cluster(tmp_path, {1: BOTH, 2: BOTH, 3: BOTH}) as nodes:
        nodes.leader().kill()
        nodes.new_leader(...)

Every port that a node advertises belongs to a proxy (`proxy.py`), which keeps it while the node is down. Where the node
itself listens is chosen anew at every start, and kept until the next one, so nothing else can take its place; where a
port cannot be kept and is taken between the choice and the start, another one is tried.

What happens is heard of through the protocol, or by lines in the nodes' logs. Nobody sleeps and hopes.
"""

import random
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TypeVar

from odradek.cli.format import main as format_directory
from odradek.client.connection import Connection, ConnectionLost
from odradek.client.settings import ClientSettings
from odradek.errors import KafkaError
from odradek.metadata.properties import random_id
from odradek.model import METADATA_TOPIC, id_to_text
from odradek.testing.port import KeptPort
from odradek.wire.codec import Message
from odradek.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionDataInRequest,
    PartitionDataInResponse,
    ReplicaState,
    TopicDataInRequest,
)
from odradek.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from tests.processes.proxy import HOST, Proxy
from tests.support import RunningBroker, odradek_command

BROKER, CONTROLLER, BOTH = "broker", "controller", "broker,controller"
TIMEOUT_S = 120  # of anything that should happen; far more than it takes
LOOK_AGAIN_S = 0.05
STARTS = 5  # attempts, where ports are taken
NODE_ID = "{node}"  # in the value of a setting
PORT_TAKEN = re.compile(r"error: port \d+ is in use")

KEPT: list[KeptPort] = []

Response = TypeVar("Response", bound=Message)
Found = TypeVar("Found")


def until(look: Callable[[], Found | None], what: str, timeout_s: float = TIMEOUT_S) -> Found:
    """Return what `look` finds, as soon as it finds something."""
    deadline = time.monotonic() + timeout_s
    while not (found := look()):
        assert time.monotonic() < deadline, f"in {timeout_s:g} s this did not happen: {what}"
        threading.Event().wait(LOOK_AGAIN_S)
    return found


def free_ports(count: int) -> list[int]:
    """Ports that no other process gets until this one ends, even while their nodes are down."""
    kept = [KeptPort(must_be_known=True) for _ in range(count)]
    KEPT.extend(kept)
    return [one.number for one in kept]


def ask(host: str, port: int, request: Message, response: type[Response]) -> Response:
    """One question on a connection of its own. Raises ConnectionLost or KafkaError."""
    settings = ClientSettings(((host, port),), client_id="test", connect_timeout_s=5, request_timeout_s=10)
    connection = Connection(host, port, settings)
    try:
        return connection.call(request, response)
    finally:
        connection.close()


class Node(RunningBroker):
    """One node. `log` is all that it has written, over all its lives."""

    def __init__(
        self, node_id: int, roles: str, home: Path, proxy: Proxy, settings: Mapping[str, str]
    ) -> None:
        super().__init__(home / f"node-{node_id}" / "data", settings)
        self.home = home
        self._log = home / f"node-{node_id}.log"  # not on the node's disk, which may be full
        self.id = node_id
        self.roles = roles
        self.config_file = home / f"node-{node_id}.properties"
        self.ports = {name: proxy.open(node_id) for name in self._listener_names()}  # as advertised
        self.is_paused = False
        self._proxy = proxy
        self._is_announced = False
        self._kept_ports: list[KeptPort] = []

    def _listener_names(self) -> Iterator[str]:
        if "broker" in self.roles:
            yield "PLAINTEXT"
        if "controller" in self.roles:
            yield "CONTROLLER"

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    @property
    def is_running(self) -> bool:
        return self._is_announced and self.process.poll() is None and not self.is_paused

    def address(self, listener: str) -> str:
        return f"{HOST}:{self.ports[listener]}"

    def configure(self, servers: Iterable[str]) -> None:
        """Choose ports, and write the settings file."""
        self.release_ports()
        self._kept_ports = [KeptPort(must_be_known=True) for _ in self.ports]
        real = {name: kept.number for name, kept in zip(self.ports, self._kept_ports, strict=True)}
        settings = {
            "process.roles": self.roles,
            "node.id": str(self.id),
            "listeners": _listeners(real),
            "advertised.listeners": _listeners(self.ports),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": ",".join(servers),
            "log.dirs": str(self.data_dir),
            **{name: value.replace(NODE_ID, str(self.id)) for name, value in self.settings.items()},
        }
        self.config_file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        for name, port in real.items():
            self._proxy.lead_to(self.ports[name], port)
        self._servers = tuple(servers)

    def release_ports(self) -> None:
        while self._kept_ports:
            self._kept_ports.pop().close()

    def launch(self) -> None:
        """Start it, and do not wait."""
        self.configure(self._servers)
        self._is_announced = self.is_paused = False
        self._spawn(odradek_command("broker", "--json", "--config", str(self.config_file)))

    def await_started(self) -> None:
        """Wait until it serves: a broker is registered then. If its ports were taken, start it again."""
        for attempt in range(STARTS):
            assert self.process.stdout is not None
            line = (
                self.process.stdout.readline()
            )  # or the end, where it could not start; the test's timeout bounds it
            if line:
                self._is_announced = True
                return
            self.kill()
            assert PORT_TAKEN.search(self.log.splitlines()[-1]), f"node {self.id} did not start:\n{self.log}"
            assert attempt < STARTS - 1, f"node {self.id} found no ports:\n{self.log}"
            self.launch()

    def start(self) -> None:
        self.launch()
        self.await_started()

    def kill(self) -> None:
        super().kill()
        self._proxy.refuse(self.id)

    def pause(self) -> None:
        """SIGSTOP: it is there and does nothing, and does not know it."""
        self.process.send_signal(signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.is_paused = False

    def wait_for_line(self, pattern: str, after: int = 0) -> str:
        """The first line of its log that has this in it, behind so many characters."""

        def look() -> str | None:
            found = re.search(rf".*(?:{pattern}).*", self.log[after:])
            return found[0] if found else None

        return until(look, f"node {self.id} logs {pattern!r}")

    # The protocol

    def ask(self, request: Message, response: type[Response], listener: str | None = None) -> Response:
        """One question on a connection of its own. Raises ConnectionLost or KafkaError."""
        return ask(HOST, self.ports[listener or next(iter(self.ports))], request, response)

    def quorum(self, listener: str | None = None) -> PartitionDataInResponse | None:
        """The quorum as this node describes it: a controller that does not lead cannot. None: it does not say."""
        try:
            response = self.ask(DESCRIBE, DescribeQuorumResponse, listener)
        except (ConnectionLost, KafkaError):
            return None
        if response.error_code:
            return None
        (partition,) = response.topics[0].partitions
        return None if partition.error_code else partition

    def topics(self) -> dict[str, MetadataResponseTopic]:
        response = self.ask(MetadataRequest(None), MetadataResponse)
        return {topic.name: topic for topic in response.topics if topic.name is not None}


DESCRIBE = DescribeQuorumRequest([TopicDataInRequest(METADATA_TOPIC, [PartitionDataInRequest(0)])])


def _listeners(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())


class Nodes:
    """The nodes of a cluster, by id."""

    def __init__(self, home: Path, roles: Mapping[int, str], settings: Mapping[str, str]) -> None:
        self.proxy = Proxy()
        self.cluster_id = id_to_text(random_id(random.SystemRandom()))
        self.by_id = {id: Node(id, role, home, self.proxy, settings) for id, role in roles.items()}
        self.servers = [node.address("CONTROLLER") for node in self.controllers]
        for node in self:
            node.configure(self.servers)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.by_id.values())

    def __getitem__(self, node_id: int) -> Node:
        return self.by_id[node_id]

    @property
    def controllers(self) -> list[Node]:
        return [node for node in self if node.is_controller]

    @property
    def brokers(self) -> list[Node]:
        return [node for node in self if node.is_broker]

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address("PLAINTEXT") for node in self.brokers)

    def others(self, node: Node) -> list[Node]:
        return [one for one in self if one is not node]

    def format(self) -> None:
        """Format as docs/CLUSTER.md says: all controllers are the first voters."""
        ids = {node.id: id_to_text(random_id(random.SystemRandom())) for node in self.controllers}
        voters = ",".join(
            f"{node.id}@{node.address('CONTROLLER')}:{ids[node.id]}" for node in self.controllers
        )
        for node in self:
            self.format_one(node, *(("-I", voters) if node.is_controller else ("-N",)))

    def format_one(self, node: Node, *options: str) -> None:
        """Format by the command, but not in a process of its own: that takes longer than the rest of it."""
        with redirect_stdout(StringIO()):
            status = format_directory(["-c", str(node.config_file), "-t", self.cluster_id, *options])
        assert status == 0, f"node {node.id} could not be formatted"

    def replace_disk(self, node: Node) -> None:
        """Replace the disk by an empty one, formatted as docs/CLUSTER.md says: the same node id, and a directory id
        of its own. The node must be off.
        """
        shutil.rmtree(node.data_dir)
        self.format_one(node, "-N")

    def add(self, node_id: int, roles: str) -> Node:
        """A node that joins the others, formatted, and not started yet."""
        any_node = next(iter(self))
        node = Node(node_id, roles, any_node.home, self.proxy, any_node.settings)
        self.by_id[node_id] = node
        node.configure(self.servers)
        self.format_one(node, "-N")
        return node

    def start(self, *nodes: Node) -> None:
        """Start nodes, all of them unless some are named, and wait until they serve."""
        for node in nodes or self:
            node.launch()
        for node in nodes or self:
            node.await_started()

    def stop(self) -> None:
        """SIGTERM to all at once."""
        for node in self:
            if node.process.poll() is None:
                node.process.send_signal(signal.SIGTERM)
        for node in self:  # asked once: a second signal would end a process that is about to end
            node.process.wait(TIMEOUT_S)
            status = node.stop()
            assert status == 0, f"node {node.id} stopped with {status}:\n{node.log}"

    def close(self) -> None:
        for node in self:
            if hasattr(node, "process"):
                node.kill()
            node.release_ports()
        self.proxy.close()

    # The quorum

    def quorum(self) -> PartitionDataInResponse | None:
        """The quorum as its leader describes it; if two say that they lead, as the one of the later epoch does."""
        views = [node.quorum("CONTROLLER") for node in self.controllers if node.is_running]
        return max((view for view in views if view), key=lambda view: view.leader_epoch, default=None)

    def leader(self) -> Node:
        return self.view_and_leader()[1]

    def view_and_leader(self) -> tuple[PartitionDataInResponse, Node]:
        view = until(self.quorum, "a controller leads")
        return view, self.by_id[view.leader_id]

    def new_leader(self, than: PartitionDataInResponse) -> Node:
        """Return who leads in a later epoch."""

        def look() -> PartitionDataInResponse | None:
            view = self.quorum()
            return view if view and view.leader_epoch > than.leader_epoch else None

        return self.by_id[until(look, f"a leader after epoch {than.leader_epoch}").leader_id]

    def await_caught_up(self, *nodes: Node) -> PartitionDataInResponse:
        """Until these, or all that run, hold everything that is committed; the quorum then."""
        wanted = {node.id for node in nodes or self if node.is_running}

        def look() -> PartitionDataInResponse | None:
            view = self.quorum()
            if view is None:
                return None
            ends = {one.replica_id: one.log_end_offset for one in replicas(view)}
            is_done = all(ends.get(node_id, -1) >= view.high_watermark for node_id in wanted)
            return view if is_done else None

        return until(look, f"nodes {sorted(wanted)} caught up")


def replicas(view: PartitionDataInResponse) -> list[ReplicaState]:
    return [*view.current_voters, *view.observers]


@contextmanager
def cluster(home: Path, roles: Mapping[int, str], **settings: str) -> Iterator[Nodes]:
    """Nodes that run, for the length of a block. `settings` are Kafka's names, with '_' for '.'; where a value has
    {node} in it, each node has its own id there."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    nodes = Nodes(home, roles, named)
    try:
        nodes.format()
        nodes.start()
        yield nodes
    finally:
        nodes.close()
