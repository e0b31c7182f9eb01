"""A storm in which disks return other bytes than they were given: a bit is flipped in a log while its node is down.

All that holds in any storm holds here, and damage is bounded: of a partition, fewer replicas than `min.insync.replicas`
are damaged at a time. A replica that is damaged does not count where others compare it with history (`RottenLogs`);
it may lead, and then its readers show whether they skip anything. A client that finds a wrong CRC asks again, as
after an error.

When the faults are over, the integrity check must have found all damage, and the replicas must have been copied again:
the disks are compared, as in any storm.
"""

from typing import Any, NamedTuple

from odradek.model import TopicPartition
from odradek.storage.disk.checkpoints import RECOVERY_POINTS, read_offsets
from odradek.storage.segments.segment import LOG_SUFFIX
from tests.cluster.chronicle import Chronicle
from tests.cluster.clusters import Cluster
from tests.cluster.committed import Committed, read_files
from tests.cluster.faults import Fault
from tests.cluster.leader_faults import WHOLE_WITHIN
from tests.cluster.replicated import ReplicatedLogs
from tests.cluster.replicated_log import ReplicatedLog
from tests.cluster.storm import MIN_ISR, Storm
from tests.cluster.traffic import Reader
from tests.cluster.watch import Watch
from tests.simulation.batches import is_intact, whole_batches
from tests.simulation.machine import DATA_DIR, Machine
from tests.simulation.trace import Trace

SETTINGS = {
    "log.integrity.check.bytes.per.second": "100000",
    "log.integrity.check.interval.ms": "1000",
}
SMALL_SEGMENTS = {"internal_segment_bytes": "400"}
# The bytes of a batch that the CRC does not cover. The leader epoch, between length and magic, is checked by nobody.
HEADER_BYTES = (*range(12), *range(16, 21))
# The times of a batch are left alone: retention believes them, and here a segment may have a single batch. If its time
# goes back by years, the segment is deleted, as Kafka would delete it.
TIMES, CRC = range(27, 43), 17


class Flipped(NamedTuple):
    """A bit on a disk."""

    node_id: int
    name: str  # of the partition
    path: str
    position: int
    byte: int  # as it is now

    def is_there(self, cluster: Cluster) -> bool:
        """The log was not copied again yet, nor has upkeep removed that part of it."""
        data = cluster.machines[self.node_id].files.contents().get(self.path, b"")
        return self.position < len(data) and data[self.position] == self.byte


class Rot:
    """All bits that were flipped in a run."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._flipped: list[Flipped] = []
        self._ever: list[Flipped] = []

    def add(self, flipped: Flipped) -> None:
        self._flipped.append(flipped)
        self._ever.append(flipped)

    def brought_back(self, node_id: int) -> set[str]:
        """Damaged files that upkeep had removed: a power cut may undo that."""
        return {one.path for one in self._ever if one.node_id == node_id and one.is_there(self._cluster)}

    def left(self) -> list[Flipped]:
        self._flipped = [one for one in self._flipped if one.is_there(self._cluster)]
        return list(self._flipped)

    def is_in(self, name: str, node_id: int | None = None) -> bool:
        """The partition has a damaged replica, or this one of it is damaged."""
        return any(one.name == name and node_id in (None, one.node_id) for one in self.left())


class RottenLogs(ReplicatedLogs):
    """Replicas that are damaged, and have not been copied again, are not compared with history."""

    def __init__(self, cluster: Cluster, chronicle: Chronicle, min_isr: int, rot: Rot) -> None:
        super().__init__(cluster, chronicle, min_isr, has_upkeep=True)
        self._rot = rot

    def _check_has(self, log: ReplicatedLog, broker_id: int, start: int, end: int, why: str) -> None:
        if not self._rot.is_in(log.name, broker_id):
            super()._check_has(log, broker_id, start, end, why)

    def disk_contents(self, broker_id: int) -> dict[str, bytes]:
        damaged = self._rot.brought_back(broker_id)
        files = super().disk_contents(broker_id)
        return {path: data for path, data in files.items() if path not in damaged}


class CarefulReader(Reader):
    """Compares CRCs, as clients do, and asks again if one is wrong and a replica of the partition is damaged."""

    rot: Rot

    def _is_damaged(self, name: str, found: Any) -> bool:
        batches = whole_batches(memoryview(found.records or b""))
        return any(not is_intact(data, header) for header, data in batches) and self.rot.is_in(name)


class RottenStorm(Storm):
    plain = SMALL_SEGMENTS
    reader = CarefulReader
    settings = SETTINGS

    def __init__(self, seed: int, trace: Trace | None = None) -> None:
        super().__init__(seed, trace)
        self.mood = "rot"
        self.rot = Rot(self.cluster)
        self.replicated = RottenLogs(self.cluster, self.chronicle, MIN_ISR, self.rot)
        self.play.replicated = self.replicated
        self.world.loop.watch = Watch(  # type: ignore[attr-defined]
            self.cluster, self.chronicle, self.replicated
        )
        for reader in self._readers:
            assert isinstance(reader, CarefulReader)
            reader.rot = self.rot

    @property
    def is_worth(self) -> bool:
        return super().is_worth and self.counts.get("flipped bits", 0) > 0

    def bag(self) -> list[Fault]:
        """No disk is lost or full: that would be one more than a partition can bear."""
        return [self._strand_leader, self._crash_leader, self._elect, self._lag, self._stop, self._pause] + [
            self._decay
        ] * 4

    async def _decay(self) -> None:
        """A node stops, or loses its power; while it is down, a bit is flipped in its logs."""
        node_id = self._victim()
        if node_id is None or node_id not in self.cluster.brokers:
            return
        self._busy[node_id] = None
        machine = self.cluster.machines[node_id]
        is_clean = self._rng.random() < 0.6
        if is_clean:
            await machine.stop()
        elif machine.is_on:
            machine.cut_power()
        if not machine.is_on:
            for _ in range(self._rng.randint(1, 3)):
                self._flip_a_bit(node_id, machine, is_clean)
        await self._wait(0.0, 0.5)
        self._start_soon(node_id)
        del self._busy[node_id]

    def _flip_a_bit(self, node_id: int, machine: Machine, is_clean: bool) -> None:
        places = [
            (log.name, path, position, item)
            for log in self.replicated.logs.values()
            if self._may_be_damaged(log, node_id)
            for path, position, item in self._batches(log, machine, is_clean)
        ]
        if not places:
            return
        name, path, position, item = self._rng.choice(places)
        within = HEADER_BYTES if self._rng.random() < 0.7 else range(16, len(item.data))
        chosen = self._rng.choice(within)
        position += CRC if chosen in TIMES else chosen
        flipped = flip(machine, path, position, 1 << self._rng.randrange(8))
        self.rot.add(Flipped(node_id, name, path, position, flipped))
        self._count("flipped bits")
        self.world.note(
            machine.name, f"has a flipped bit at byte {position} of {path}, of offset {item.base_offset}"
        )

    def _may_be_damaged(self, log: ReplicatedLog, node_id: int) -> bool:
        """True if nothing is promised, because records may be lost by an unclean election."""
        registration = log.registration
        others = set(registration.replicas) - {node_id}
        return (
            log.topic_id in self.replicated.image.topics_by_id
            and others <= set(registration.isr)
            and not (self.kind == "unclean" and log.name == "cedar-0")
            and not self.rot.is_in(log.name)
        )

    @staticmethod
    def _batches(log: ReplicatedLog, machine: Machine, is_clean: bool) -> list[tuple[str, int, Committed]]:
        """Path and position of each batch that is committed. After a crash, only in segments that are not read again at
        the next start: whether what was synced is found there is another matter."""
        directory = f"{DATA_DIR}/{log.name}/"
        contents = machine.files.contents()
        paths = sorted(path for path in contents if path.startswith(directory) and path.endswith(LOG_SUFFIX))
        if not is_clean:
            topic, _, index = log.name.rpartition("-")
            points = read_offsets(machine.files, f"{DATA_DIR}/{RECOVERY_POINTS}")
            point = points.get(TopicPartition(topic, int(index)), 0)
            bases = [int(path.removeprefix(directory).removesuffix(LOG_SUFFIX)) for path in paths]
            paths = [path for path, following in zip(paths, bases[1:], strict=False) if following <= point]
        found, known = [], {item.base_offset for item in log.history}
        for path in paths:
            position = 0
            for item in read_files({path.removeprefix(directory): contents[path]}):
                if item.base_offset in known and item.base_offset >= log.kept.start_offset:
                    found.append((path, position, item))
                position += len(item.data)
        return found

    async def _check_end(self) -> None:
        if not self.replicated.without_candidates():
            await self._wait_for(
                lambda: not self.rot.left(), WHOLE_WITHIN, "damage was not found, or not copied again"
            )
        await super()._check_end()


def flip(machine: Machine, path: str, position: int, bit: int) -> int:
    """On the disk of a machine that is off. Returns the byte as it is now."""
    data = machine.files.data(path)
    for content in (data.seen, data.durable):
        if position < len(content):
            content[position] ^= bit
    return data.seen[position]
