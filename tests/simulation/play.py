"""The common ground of all clients of a simulated run: the cluster, the histories that they write, and when to stop."""

import asyncio
from random import Random
from typing import Any

from tests.cluster.clusters import Cluster
from tests.cluster.router import Router
from tests.simulation.connection import Connection, Disconnected, Violation
from tests.simulation.group_history import GroupHistories, GroupHistory
from tests.simulation.log_history import LogHistory, PartitionHistory, TopicHistory
from tests.simulation.machine import Machine
from tests.simulation.world import World

NAMES = ["apple", "bear"]
SESSION_MS = 400
REBALANCE_MS = 600


class Play:
    def __init__(self, world: World, cluster: Cluster) -> None:
        self.world = world
        self.cluster = cluster
        self.rng = world.new_rng()
        self.logs = LogHistory(world.now)
        self.groups = GroupHistories(
            {
                name: GroupHistory(name, world.now, SESSION_MS / 1000, REBALANCE_MS / 1000)
                for name in ("classic", "consumer")
            }
        )
        self.is_over = False
        self.acknowledged = 0  # batches
        self.counts: dict[str, int] = {}
        self._producer_ids: dict[int, str] = {}  # who was given them

    @property
    def machine(self) -> Machine:
        """The only one of a cluster of one."""
        (machine,) = self.cluster.machines.values()
        return machine

    @property
    def lives(self) -> int:
        """A number that changes with every coordinator."""
        return sum(machine.starts for machine in self.cluster.machines.values())

    def give_producer_id(self, producer_id: int, client: str) -> None:
        """Nobody is given one that was given before."""
        if producer_id in self._producer_ids:
            raise Violation(
                f"producer id {producer_id} was given to {self._producer_ids[producer_id]} and {client}"
            )
        self._producer_ids[producer_id] = client

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def topics(self) -> list[TopicHistory]:
        return [topic for topic in self.logs.current.values() if topic.is_stable]

    def any_partition(self, rng: Random) -> PartitionHistory | None:
        topics = self.topics()
        return rng.choice(rng.choice(topics).partitions) if topics else None

    def check_unknown(self, topic: TopicHistory, code: int) -> None:
        """A partition was answered with this error, perhaps that it is unknown."""
        self.logs.check_unknown(topic, code, self.machine.was_short_lately)

    def crashed(self) -> None:
        self.logs.crashed()
        self.groups.crashed()


class Client:
    """Whoever plays a part: a name, connections that are opened again when they are lost, a source of chance."""

    def __init__(self, play: Play, name: str) -> None:
        self.play = play
        self.name = name
        self.rng = play.world.new_rng()
        self.router = Router(play.cluster, name)

    async def connection(self) -> Connection:
        """To any broker. Raises Disconnected."""
        return await self.router.any_connection()

    async def ask(self, request: Any, version: int | None = None) -> Any:
        """Raises Disconnected."""
        return await (await self.connection()).ask(request, version)

    def hang_up(self) -> None:
        self.router.hang_up()

    async def live(self) -> None:
        """Until the play is over."""
        while not self.play.is_over:
            try:
                await self.act()
            except Disconnected:
                await self.pause(0.03)

    async def act(self) -> None:
        raise NotImplementedError

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(self.rng.random() * seconds)
