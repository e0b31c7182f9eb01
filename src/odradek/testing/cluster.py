"""A cluster for tests: several brokers, each in a separate process, which can be killed, paused and cut off one by one.

    from odradek.testing import cluster

    with cluster() as kafka:
        topic = kafka.create_topic()
        kafka.leader(topic).crash()

Every node is a broker and a controller. All start at the same time, and each formats its own directory.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from odradek.model import id_to_text
from odradek.testing.block import Block
from odradek.testing.broker import BrokerFailed, Setting, as_settings
from odradek.testing.node import Node, Place
from odradek.testing.patience import until
from odradek.testing.port import KeptPort
from odradek.testing.security import Login, Security

if TYPE_CHECKING:
    from odradek.testing.topics import Assignment

PATIENCE_S = 60.0
GROUP, TRANSACTION = 0, 1  # what a coordinator coordinates
NOBODY = -1
MOST_BROKERS = 9
MOST_REPLICAS = 3
# Each node has its own.
OWN_SETTINGS = frozenset(
    {
        *("node.id", "broker.id", "process.roles", "broker.rack", "log.dirs", "log.dir", "metadata.log.dir"),
        *("listeners", "advertised.listeners", "inter.broker.listener.name", "controller.listener.names"),
        *("controller.quorum.bootstrap.servers", "controller.quorum.voters"),
    }
)


def default_settings(brokers: int) -> dict[str, str]:
    """Chooses as many replicas as make sense, of which one may fail while records are written; and less patience than
    in production, where a broker that falls silent is given 9 s."""
    replicas = str(min(MOST_REPLICAS, brokers))
    in_sync = "2" if brokers >= MOST_REPLICAS else "1"
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": "5",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": "5",
        "controller.quorum.election.timeout.ms": "200",
        "broker.heartbeat.interval.ms": "500",
        "broker.session.timeout.ms": "3000",
    }


class Cluster(Block):
    """`cluster[1]` to `cluster[3]` are its brokers, `bootstrap` the addresses of all. It is a context manager: its
    brokers are ended, and their data removed, at the end of the block."""

    def __init__(
        self,
        brokers: int = 3,
        settings: Mapping[str, Setting] | None = None,
        security: Security | None = None,
    ) -> None:
        from odradek.testing.view import View  # the protocol: not before somebody needs it

        given = as_settings(settings or {})
        if own := sorted(OWN_SETTINGS & given.keys()):
            raise ValueError(f"every broker of a cluster has its own {', '.join(own)}")
        if not 1 <= brokers <= MOST_BROKERS:
            raise ValueError(f"a cluster has 1 to {MOST_BROKERS} brokers, not {brokers}")
        self.settings = default_settings(brokers) | given
        places = [
            Place(
                node_id, id_to_text(uuid.uuid4()), KeptPort(must_be_known=True), KeptPort(must_be_known=True)
            )
            for node_id in range(1, brokers + 1)
        ]
        cluster_id = id_to_text(uuid.uuid4())
        self._security = security or Security("PLAINTEXT")
        self._nodes = {
            place.node_id: Node(place, places, cluster_id, self.settings, self._security) for place in places
        }
        self._view = View(tuple(self._nodes.values()))

    # --- its brokers ---

    def __getitem__(self, node_id: int) -> Node:
        return self._nodes[node_id]

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes.values())

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self)

    @property
    def log(self) -> str:
        """The lines of all brokers; each says which."""
        return "".join(node.log for node in self)

    # --- life ---

    def start(self) -> None:
        """Start all brokers that do not run, at the same time, and wait until they serve."""
        for node in self:
            node.launch()
        for node in self:
            node.await_started()

    def heal(self) -> None:
        """Undo every fault: all brokers run, and all replicas are in sync when this returns. Raises BrokerFailed if a
        broker had died unexpectedly."""
        deaths = [death for node in self if (death := node.begin_to_heal())]
        for node in self:
            node.await_started()
        self.wait_until_in_sync()
        if deaths:
            raise BrokerFailed("\n".join(deaths))

    def close(self) -> None:
        """End all brokers, and remove their data."""
        for node in self:
            node.close()

    # --- who connects ---

    @property
    def login(self) -> Login:
        """A client's settings, by the names that it knows: `login.librdkafka`, `login.python`, `login.java`."""
        return self._security.login

    def set_password(self, user: str, password: str) -> Login:
        """Add a user that logs in with SCRAM, or give it a new password; all brokers that run know it when this
        returns how the user connects."""
        serving = [node for node in self if node.serves_clients]
        login = self._security.set_password(serving[0].bootstrap, user, password)
        for node in serving:
            self._security.await_login(node.bootstrap, login)
        return login

    # --- what a test asks of it ---

    def create_topic(
        self,
        name: str | None = None,
        partitions: int = 1,
        config: Mapping[str, Setting] | None = None,
        replicas: "Assignment | None" = None,
    ) -> str:
        """Create a topic and wait until all brokers that can know it do; returns its name, generated if none is given.
        `replicas` has the brokers of each partition, its leader first: `[[1, 2, 3], [2, 3, 1]]`."""
        from odradek.testing.topics import AS_CONFIGURED, create_topic

        name = name or f"topic-{uuid.uuid4().hex[:12]}"
        some = next((node for node in self if node.is_whole), self[1])
        create_topic(
            some.bootstrap, name, partitions, as_settings(config or {}), AS_CONFIGURED, replicas, self.login
        )
        self._wait_until_nothing(lambda: self._view.unknown(name), PATIENCE_S)
        return name

    def leader(
        self, topic: str, partition: int = 0, *, other_than: Node | None = None, timeout: float = PATIENCE_S
    ) -> Node:
        """The broker that leads this partition. Waits until there is one that runs, and is not `other_than`."""
        look = self._running(lambda: self._view.leader(topic, partition), other_than)
        return until(look, lambda: f"{_another(other_than)} leads {topic}-{partition}", timeout)

    def coordinator(self, group: str, *, other_than: Node | None = None, timeout: float = PATIENCE_S) -> Node:
        """The broker that coordinates this group. Waits as `leader` does."""
        look = self._running(lambda: self._view.coordinator(group, GROUP), other_than)
        return until(look, lambda: f"{_another(other_than)} coordinates group {group}", timeout)

    def transaction_coordinator(
        self, transactional_id: str, *, other_than: Node | None = None, timeout: float = PATIENCE_S
    ) -> Node:
        """The broker that coordinates the transactions of this id. Waits as `leader` does."""
        look = self._running(lambda: self._view.coordinator(transactional_id, TRANSACTION), other_than)
        return until(look, lambda: f"{_another(other_than)} coordinates {transactional_id}", timeout)

    def controller(self, *, other_than: Node | None = None, timeout: float = PATIENCE_S) -> Node:
        """The active controller. Waits as `leader` does."""
        look = self._running(self._view.controller, other_than)
        return until(look, lambda: f"{_another(other_than)} is the active controller", timeout)

    def move_leader(self, topic: str, partition: int, to: Node, timeout: float = PATIENCE_S) -> None:
        """Let another replica lead, as an operator does: it is put first of the replicas, and elected. Waits until it
        leads. Raises ValueError if the broker has no replica."""
        self._view.put_first(topic, partition, to.id)

        def look() -> bool | None:
            self._view.elect_preferred(topic, partition)
            return self._view.leader(topic, partition) == to.id or None

        until(look, lambda: f"broker {to.id} leads {topic}-{partition}", timeout)

    def wait_until_in_sync(self, topic: str | None = None, timeout: float = PATIENCE_S) -> None:
        """Wait until every broker is back, and every replica of this topic, or of all topics, is in sync."""
        self._wait_until_nothing(lambda: self._view.missing(topic), timeout)

    def _wait_until_nothing(self, missing: Callable[[], str], timeout: float) -> None:
        last = ""

        def look() -> bool | None:
            nonlocal last
            last = missing()
            return True if not last else None

        until(look, lambda: f"the cluster is whole, but {last}", timeout)

    def _running(self, find: Callable[[], int | None], other_than: Node | None) -> Callable[[], Node | None]:
        def look() -> Node | None:
            node = self._nodes.get(NOBODY if (found := find()) is None else found)
            return node if node is not None and node.is_running and node is not other_than else None

        return look


def _another(other_than: Node | None) -> str:
    return "a broker" if other_than is None else f"another broker than {other_than.id}"


@contextmanager
def cluster(brokers: int = 3, security: str = "PLAINTEXT", **settings: Setting) -> Iterator[Cluster]:
    """A cluster for the length of a block. `settings` are for all of its brokers, by Kafka's names with '_' for '.';
    `security` is the protocol of clients and between brokers."""
    with Cluster(brokers, settings, Security(security)) as running:
        yield running
