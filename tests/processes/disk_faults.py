"""Faults of disks, for three nodes that keep records: a log is damaged while its node is down, or a disk becomes full.

One node at a time has a bad disk. That is fewer than `min.insync.replicas`, so nothing acknowledged may be lost, not
even where all nodes were killed and nobody remembers who had everything.

A disk can only be filled if it is small and belongs to one node: `small_disks` mounts one for each, where that is
allowed.
"""

import random
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from odradek.records.walk import whole_batches
from tests.processes.nodes import Node, until
from tests.processes.record_faults import OFFSETS, TOPIC, Fault, Stage

DISK_BYTES = 256 << 20
LEADER_EPOCH = range(12, 16)  # bytes of a batch header that neither the CRC nor the order of offsets protects

Repaired = Callable[[], bool]
Damage = Callable[[random.Random, Path], Repaired]  # to the directory of one log


def logs_of(node: Node) -> Iterator[Path]:
    """The directories of the logs of records and of groups' offsets."""
    for topic in (TOPIC, OFFSETS):
        yield from sorted(node.data_dir.glob(f"{topic}-[0-9]*"))


def cut_the_end(rng: random.Random, directory: Path) -> Repaired:
    """The last third is gone, from the middle of some batch on. A replica in sync has it again."""
    newest = max(directory.glob("*.log"))
    with newest.open("r+b") as file:
        file.truncate(newest.stat().st_size * 2 // 3)
    return lambda: True


def flip_a_bit(rng: random.Random, directory: Path) -> Repaired:
    """Somewhere in the records. It is repaired once the byte, or the whole file, is another one."""
    path = rng.choice(sorted(directory.glob("*.log")))
    data = path.read_bytes()
    if not data:
        return lambda: True
    begins = [0]
    for batch in whole_batches(memoryview(data)):
        begins.append(begins[-1] + len(batch.data))
    at = rng.randrange(len(data))
    begin = max(position for position in begins if position <= at)
    if at - begin in LEADER_EPOCH:
        at = begin
    flipped = data[at] ^ (1 << rng.randrange(8))
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes([flipped]))
    return lambda: byte_at(path, at) != flipped


def byte_at(path: Path, position: int) -> int | None:
    try:
        with path.open("rb") as file:
            file.seek(position)
            return next(iter(file.read(1)), None)
    except FileNotFoundError:
        return None


def damage_one(damage: Damage) -> Fault:
    """While one node is down its logs are damaged, and the others go on."""

    def fault(stage: Stage) -> None:
        node = stage.leader()
        node.kill()
        stage.await_records()
        repaired = damage_logs(stage, node, damage)
        node.start()
        for is_repaired in repaired:
            until(is_repaired, f"node {node.id} has found and repaired the damage")

    fault.__name__ = f"{damage.__name__} of a killed leader's logs"
    return fault


def cut_one_of_all(stage: Stage) -> None:
    """All nodes are killed, and one of them comes back with shorter logs: first, last or in between."""
    stage.await_in_sync()
    nodes = list(stage.nodes)
    for node in nodes:
        node.kill()
    damage_logs(stage, stage.rng.choice(nodes), cut_the_end)
    for node in stage.rng.sample(nodes, len(nodes)):
        node.launch()
    for node in nodes:
        node.await_started()


def damage_logs(stage: Stage, node: Node, damage: Damage) -> list[Repaired]:
    return [damage(stage.rng, directory) for directory in logs_of(node)]


def fill_the_disk(stage: Stage) -> None:
    """Fill a leader's disk: it gives its leaderships away, and comes back by itself once there is room."""
    node = stage.leader()
    ballast, written = node.data_dir.parent / "ballast", len(node.log)
    fill(ballast)
    try:
        node.wait_for_line("is full: ", after=written)
        stage.await_records()
    finally:
        ballast.unlink()
    node.wait_for_line("has room again", after=written)


def fill(ballast: Path) -> None:
    """Use up all that is left of the disk on which this file is."""
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1 << 16))


@contextmanager
def small_disks(home: Path, node_ids: range, size: int = DISK_BYTES) -> Iterator[bool]:
    """A file system in memory for the data directory of each node. False, and none, where mounting is not allowed."""
    with ExitStack() as mounted:
        for node_id in node_ids:
            directory = home / f"node-{node_id}"
            directory.mkdir()
            command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)]
            if subprocess.run(command, capture_output=True).returncode != 0:
                yield False
                return
            mounted.callback(subprocess.run, ["umount", "--lazy", str(directory)])
        yield True


DAMAGE: tuple[Fault, ...] = (damage_one(cut_the_end), damage_one(flip_a_bit), cut_one_of_all)
