"""Faults of disks, for three nodes that keep records: a node is down, and what it has on its disk is no longer what it
wrote.

One node at a time has a damaged disk. That is fewer than `min.insync.replicas`, so nothing acknowledged may be lost,
not even where all nodes were killed and nobody remembers who had everything.
"""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.processes.nodes import Node
from tests.processes.record_faults import OFFSETS, TOPIC, Fault, Stage

Damage = Callable[[random.Random, Path], None]  # to the directory of one log


def logs_of(node: Node) -> Iterator[Path]:
    """The directories of the logs of records and of groups' offsets."""
    for topic in (TOPIC, OFFSETS):
        yield from sorted(node.data_dir.glob(f"{topic}-[0-9]*"))


def cut_the_end(rng: random.Random, directory: Path) -> None:
    """The last third is gone, from the middle of some batch on."""
    newest = max(directory.glob("*.log"))
    with newest.open("r+b") as file:
        file.truncate(newest.stat().st_size * 2 // 3)


def flip_a_bit(rng: random.Random, directory: Path) -> None:
    """Somewhere in the records."""
    sizes = {path: path.stat().st_size for path in sorted(directory.glob("*.log"))}
    written = [path for path, size in sizes.items() if size]
    if written:
        path = rng.choice(written)
        at = rng.randrange(sizes[path])
        with path.open("r+b") as file:
            file.seek(at)
            (old,) = file.read(1)
            file.seek(at)
            file.write(bytes([old ^ (1 << rng.randrange(8))]))


def damage_one(damage: Damage) -> Fault:
    """While one node is down its logs are damaged, and the others go on."""

    def fault(stage: Stage) -> None:
        node = stage.leader()
        node.kill()
        stage.await_records()
        damage_logs(stage, node, damage)
        node.start()

    fault.__name__ = f"{damage.__name__} of a killed leader's logs"
    return fault


def damage_one_of_all(damage: Damage) -> Fault:
    """All nodes are killed, and one of them comes back damaged: first, last or in between."""

    def fault(stage: Stage) -> None:
        stage.await_in_sync()
        nodes = list(stage.nodes)
        for node in nodes:
            node.kill()
        damage_logs(stage, stage.rng.choice(nodes), damage)
        for node in stage.rng.sample(nodes, len(nodes)):
            node.launch()
        for node in nodes:
            node.await_started()

    fault.__name__ = f"kill all and {damage.__name__} of one node's logs"
    return fault


def damage_logs(stage: Stage, node: Node, damage: Damage) -> None:
    for directory in logs_of(node):
        damage(stage.rng, directory)


DISK_FAULTS: tuple[Fault, ...] = tuple(
    how(damage) for how in (damage_one, damage_one_of_all) for damage in (cut_the_end, flip_a_bit)
)
