"""Two clusters of three real nodes, and a mirror of two processes between them.

Nodes and processes are killed and stopped under load; at the end the copy has every record once, in order.
"""

import random
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.mirror.lab import Process, ledger, running, write_file
from tests.peer.big_clients import CLUSTER, Feed, Progress, create_topics
from tests.processes.nodes import BOTH, Node, Nodes, cluster, until

TOPIC, COPY = "orders", "west.orders"
LONG_STOP_S = 14.0  # longer than a member's session


@dataclass
class Scene:
    """The targets of faults. `more` returns once records have arrived that were not written at the call."""

    west: Nodes
    east: Nodes
    mirrors: list[Process]
    progress: Progress
    rng: random.Random

    def more(self) -> None:
        self.progress.await_more()


Fault = Callable[[Scene], None]


def kill_a_mirror(scene: Scene) -> None:
    victim = scene.rng.choice(scene.mirrors)
    victim.kill()
    scene.more()
    victim.start()


def kill_both_mirrors(scene: Scene) -> None:
    for one in scene.mirrors:
        one.kill()
    for one in scene.mirrors:
        one.start()
    scene.more()


def stop_a_mirror(scene: Scene) -> None:
    """Until the group has given its partitions to the other."""
    victim = scene.rng.choice(scene.mirrors)
    assert victim.process is not None
    victim.process.send_signal(signal.SIGSTOP)
    threading.Event().wait(LONG_STOP_S)
    victim.process.send_signal(signal.SIGCONT)
    scene.more()


def kill_a_node_of_the_source(scene: Scene) -> None:
    _kill_node(scene, scene.rng.choice(list(scene.west)))


def kill_a_node_of_the_target(scene: Scene) -> None:
    _kill_node(scene, scene.rng.choice(list(scene.east)))


def kill_one_of_each(scene: Scene) -> None:
    victim = scene.rng.choice(scene.mirrors)
    victim.kill()
    _kill_node(scene, scene.rng.choice(list(scene.east)))
    victim.start()
    scene.more()


def _kill_node(scene: Scene, node: Node) -> None:
    node.kill()
    scene.more()
    node.start()


FAULTS: tuple[Fault, ...] = (
    kill_a_mirror,
    kill_both_mirrors,
    stop_a_mirror,
    kill_a_node_of_the_source,
    kill_a_node_of_the_target,
    kill_one_of_each,
)


def play(directory: Path, faults: Iterator[Fault], rng: random.Random) -> int:
    """Play, and return how many records were copied."""
    homes = [directory / name for name in ("west", "east")]
    for home in homes:
        home.mkdir()
    roles = dict.fromkeys((1, 2, 3), BOTH)
    with cluster(homes[0], roles, **CLUSTER) as west, cluster(homes[1], roles, **CLUSTER) as east:
        create_topics(west.bootstrap, TOPIC)
        file = write_file(directory, west.bootstrap, east.bootstrap)
        mirrors = [Process(file), Process(file)]
        with running(*mirrors):
            with Feed(west.bootstrap, TOPIC) as feed:
                until(lambda: COPY in east[1].topics(), "the copy is there")
                progress = Progress(east.bootstrap, COPY, *mirrors)  # type: ignore[arg-type]
                scene = Scene(west, east, mirrors, progress, rng)
                scene.more()
                for fault in faults:
                    fault(scene)
                progress.close()
            source = ledger(west.bootstrap, TOPIC)
            until(lambda: ledger(east.bootstrap, COPY) == source, "everything is copied, once and in order")
        values = {number: [(one.value or b"").decode() for one in found] for number, found in source.items()}
        assert values == feed.written
    return sum(map(len, source.values()))
