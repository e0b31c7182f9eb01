"""What all clients of one simulated run share: the node, the histories that they write, and when to stop."""

import asyncio
from random import Random
from typing import Any

from tests.simulation.connection import Connection, Disconnected
from tests.simulation.group_history import GroupHistories, GroupHistory
from tests.simulation.log_history import LogHistory, PartitionHistory, TopicHistory
from tests.simulation.machine import Machine
from tests.simulation.world import World

NAMES = ["apple", "bear"]
SESSION_MS = 400
REBALANCE_MS = 600


class Play:
    def __init__(self, world: World, machine: Machine) -> None:
        self.world = world
        self.machine = machine
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
    """Whoever plays a part: a name, a connection that is opened again when it is lost, a source of chance."""

    def __init__(self, play: Play, name: str) -> None:
        self.play = play
        self.name = name
        self.rng = play.world.new_rng()
        self._connection: Connection | None = None

    async def connection(self) -> Connection:
        """Raises Disconnected."""
        if self._connection is None or not self._connection.is_open:
            self._connection = await self.play.world.connect(self.name, self.play.machine)
        return self._connection

    async def ask(self, request: Any, version: int | None = None) -> Any:
        """Raises Disconnected."""
        return await (await self.connection()).ask(request, version)

    def hang_up(self) -> None:
        if self._connection is not None and self._connection.is_open:
            self._connection.close()

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
