"""One simulated run of a node: several lives, each with its faults and its end.

A life lasts until enough was acknowledged in it. Meanwhile links are cut and healed, connections are lost, the disk is
full or the descriptors are used up for a while, and somebody sets the clock. It ends with a power cut, mostly in the
middle of a change to the disk, before a sync, or while compacted segments take their place; now and then with a clean
stop. Then the node is started, perhaps losing its power again on the way, and everything is compared with what it had
promised.

A run goes on until it has seen what makes it worth anything (`Worth`), and fails if that takes too long.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from tests.cluster.clusters import Cluster
from tests.simulation.admin import REMADE, Admin
from tests.simulation.audit import Auditor
from tests.simulation.connection import Violation
from tests.simulation.disk import check_disk
from tests.simulation.machine import CannotStart
from tests.simulation.members import ClassicMember, ConsumerMember
from tests.simulation.play import SESSION_MS, Play
from tests.simulation.producer import Producer
from tests.simulation.reader import Reader
from tests.simulation.world import World

# Everything that a broker does now and then, it does all the time.
SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "group.consumer.min.session.timeout.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "10",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.heartbeat.interval.ms": "50",
    "log.cleaner.backoff.ms": "50",
    "log.retention.check.interval.ms": "150",
    "offsets.topic.num.partitions": "2",
    "replica.high.watermark.checkpoint.interval.ms": "100",
}
NODE = "node1"
CUTTABLE = ["producer1", "producer2", "reader1", "classic1", "consumer1"]
MAX_LIVES = 16
PATIENT_STARTS = 5  # after so many, power cuts are made to lose something
MAX_LIFE_SECONDS = 2.0
MAX_START_TRIES = 20
MAX_JUMP_MS = 3_600_000


class Worth(NamedTuple):
    """The least that a seed must have seen to count."""

    acknowledged: int
    lossy_crashes: int
    remade: int
    rebalances: int
    read_back: int

    def reaches(self, other: "Worth") -> bool:
        return all(mine >= wanted for mine, wanted in zip(self, other, strict=True))


WANTED = Worth(acknowledged=200, lossy_crashes=2, remade=1, rebalances=1, read_back=1)


class Plan:
    def __init__(self, world: World) -> None:
        self.world = world
        self._rng = world.new_rng()
        self.cluster = Cluster(world, controllers=(), brokers=(1,), settings=SETTINGS)
        (self.machine,) = self.cluster.machines.values()
        self.machine.sync_seconds = self._rng.choice([0.0002, 0.004])
        # On some machines a sync in a thread takes so long that checkpoints, rolls and deletions come before its end.
        self.machine.max_work_seconds = self._rng.choice([None, None, 0.03])
        self.play = Play(world, self.cluster)
        self.machine.on_power_cut = self.play.crashed
        self._admin = Admin(self.play, "admin")
        self._auditor = Auditor(self.play, "auditor")
        self._producers = [Producer(self.play, "producer1"), Producer(self.play, "producer2")]
        self._read_back = 0  # commits, after a restart
        self._faults: list[Callable[[], None]] = []  # those that come next, the last one first
        self._clients = [
            *self._producers,
            Reader(self.play, "reader1"),
            Reader(self.play, "reader2"),
            ClassicMember(self.play, "classic1"),
            ClassicMember(self.play, "classic2"),
            ConsumerMember(self.play, "consumer1"),
            ConsumerMember(self.play, "consumer2"),
            self._admin,
        ]

    @property
    def totals(self) -> dict[str, int]:
        return {
            "acknowledged batches": self.play.acknowledged,
            "starts": self.machine.starts,
            "power cuts": self.machine.crashes,
            "power cuts with a loss": self.machine.lossy_crashes,
            **self.play.counts,
        }

    @property
    def worth(self) -> Worth:
        return Worth(
            self.play.acknowledged,
            self.machine.lossy_crashes,
            self.play.counts.get(REMADE, 0),
            sum(max(0, group.rebalances - 1) for group in self.play.groups.groups.values()),
            self._read_back,
        )

    # --- the whole run ---

    async def carry_out(self) -> None:
        await self.machine.start()
        await self._admin.prepare()
        tasks = [self.world.spawn(client.live()) for client in self._clients]
        for _ in range(MAX_LIVES):
            await self._live()
            await self._end()
            await self._begin()
            if self.worth.reaches(WANTED):
                break
        else:
            raise Violation(f"this seed is worth nothing: {self.worth}, wanted {WANTED}")
        await self._finish(tasks)

    async def _finish(self, tasks: "list[asyncio.Task[None]]") -> None:
        """All faults stop: the node serves everybody again, and keeps everything over a clean stop."""
        self._heal()
        self.play.is_over = True
        for task in tasks:
            await task
        for producer in self._producers:
            await asyncio.wait_for(producer.settle(), 10)
        await self.machine.stop()
        await self._start()
        self._auditor.hang_up()
        if not await self._auditor.audit():
            raise Violation("the node cannot be asked, though all faults are over")
        await self.machine.stop()
        check_disk(self.machine.files.contents(), self._compacted_logs())

    def _compacted_logs(self) -> set[str]:
        return {
            partition.name
            for topic in self.play.logs.current.values()
            for partition in topic.partitions
            if topic.may_be_compacted
        }

    # --- a life ---

    async def _live(self) -> None:
        goal = self.play.acknowledged + self._rng.randint(25, 55)
        end = self.world.now() + MAX_LIFE_SECONDS
        faults = self.world.spawn(self._have_faults())
        while self.play.acknowledged < goal and self.world.now() < end and self.machine.is_on:
            await asyncio.sleep(0.02)
        faults.cancel()

    async def _have_faults(self) -> None:
        """Every kind once, in any order, before any comes again."""
        while True:
            if not self._faults:
                self._faults = [self._cut, self._drop, self._fill_disk, self._take_descriptors, self._jump]
                self._rng.shuffle(self._faults)
            await asyncio.sleep(self._rng.random() * 0.2)
            self._faults.pop()()
            await asyncio.sleep(self._rng.random() * 0.15)
            self._heal()

    def _heal(self) -> None:
        self.world.heal_all()
        self.machine.heal()

    def _cut(self) -> None:
        way = self._rng.choice([(True, True), (True, False), (False, True)])
        self.world.cut(self._rng.choice(CUTTABLE), NODE, *way)

    def _drop(self) -> None:
        self.world.drop(self._rng.choice([*CUTTABLE, "admin", "consumer2"]), NODE)

    def _fill_disk(self) -> None:
        self.play.count("full disks")
        self.machine.fill_disk(self._rng.randrange(500))

    def _take_descriptors(self) -> None:
        self.play.count("times without descriptors")
        self.machine.take_descriptors(self._rng.randrange(4))

    def _jump(self) -> None:
        self.play.count("jumps of the clock")
        self.machine.jump(self._rng.randint(-MAX_JUMP_MS, MAX_JUMP_MS))

    # --- its end ---

    async def _end(self) -> None:
        if not self.machine.is_on:
            return
        kind = self._rng.choices(["sync", "change", "swap", "checkpoint", "now", "stop"], [5, 4, 2, 2, 1, 1])[
            0
        ]
        if kind == "stop":
            await self.machine.stop()
            return
        loss = self.world.new_rng() if self._rng.random() < 0.6 else None
        is_scattered = self._rng.random() < 0.3
        if self.machine.starts > PATIENT_STARTS and self.machine.lossy_crashes < WANTED.lossy_crashes:
            kind, loss = "sync", None
        if kind == "sync":
            self.machine.cut_power_at(syncs=self._rng.randint(1, 4), loss=loss, is_scattered=is_scattered)
        elif kind == "change":
            self.machine.cut_power_at(changes=self._rng.randint(1, 30), loss=loss, is_scattered=is_scattered)
        elif kind == "swap":
            self.machine.cut_power_at(self._rng.randint(1, 12), 0, loss, is_scattered, near=".swap")
        elif kind == "checkpoint":  # once it is on disk, though what it tells of may not be
            loss, is_scattered = self.world.new_rng(), True
            self.machine.cut_power_at(self._rng.randint(4, 8), 0, loss, True, near="/data/recovery-point")
        else:
            await asyncio.sleep(self._rng.random() * 0.01)
        if kind != "now":
            await self._wait_until_off(0.3)
        if self.machine.is_on:
            self.machine.cut_power(loss, is_scattered)

    async def _wait_until_off(self, seconds: float) -> None:
        end = self.world.now() + seconds
        while self.machine.is_on and self.world.now() < end:
            await asyncio.sleep(0.002)

    # --- and a new beginning ---

    async def _begin(self) -> None:
        await asyncio.sleep(self._rng.random() * 0.05)
        if self._rng.random() < 0.2:
            self._lose_power_while_starting()
        await self._start()
        self._heal()
        before = self.play.counts.get("commits read back", 0)
        if await self._auditor.audit():
            self._read_back += self.play.counts.get("commits read back", 0) - before

    def _lose_power_while_starting(self) -> None:
        loss = self.world.new_rng()
        if self._rng.random() < 0.5:
            self.machine.cut_power_at(changes=self._rng.randint(1, 15), loss=loss)
        else:
            self.machine.cut_power_at(syncs=self._rng.randint(1, 8), loss=loss)

    async def _start(self) -> None:
        for _ in range(MAX_START_TRIES):
            crashes = self.machine.crashes
            try:
                await self.machine.start()
            except CannotStart as error:
                if self.machine.crashes == crashes and not self.machine.is_short:
                    raise Violation(f"the node does not start: {error}") from error
                self._heal()
            else:
                return
        raise Violation(f"the node did not start in {MAX_START_TRIES} tries")
