"""Faults of a cluster with data: leaders of partitions are cut off, left alone, or killed at a bad moment."""

import asyncio

from odradek.host.simulated import MAX_WORK_SECONDS
from odradek.wire.messages.elect_leaders import ElectLeadersRequest
from tests.cluster.faults import Faults
from tests.cluster.replicated import ReplicatedLogs
from tests.cluster.router import Router
from tests.simulation.connection import Disconnected, Violation

BROKERS = (1, 2, 3)
WHOLE_WITHIN = 60.0


class LeaderFaults(Faults):
    replicated: ReplicatedLogs
    elector: Router  # by which an operator reaches the brokers

    async def _become_whole(self) -> None:
        try:
            await self._wait_for(self.replicated.is_whole, WHOLE_WITHIN, "not all replicas are in sync")
        except Violation as error:
            raise Violation(f"{error}, though all faults are over: {self.replicated.missing()}") from None

    def _leading(self) -> int | None:
        """A broker that leads something, and that nothing else happens to."""
        leaders = {log.registration.leader for log in self.replicated.logs.values()}
        free = [node_id for node_id in sorted(leaders) if node_id > 0 and self._is_free(node_id)]
        return self._rng.choice(free) if free else None

    async def _strand_leader(self) -> None:
        """A leader is cut off from all other nodes, but not from its clients: what it still takes is lost later."""
        node_id = self._leading()
        if node_id is None:
            return
        self._count("stranded leaders")
        await self._cut_off(node_id, 0.8, 2.0)
        if self._rng.random() < 0.3:
            await self._wait(0.1, 0.5)
            await self._elect()

    async def _lone_leader(self) -> None:
        """Nobody can fetch from a leader, so that it is alone in sync; then it loses its power, and the others are left
        without it."""
        node_id = self._leading()
        if node_id is None:
            return
        self._count("lone leaders")
        self._busy[node_id] = None
        machine = self.cluster.machines[node_id]
        others = [broker_id for broker_id in self.cluster.brokers if broker_id != node_id]
        for other in others:
            self.world.note("network", f"cut from node{other} to {machine.name}")
            self.world.network.cut(f"node{other}", machine.name)
        await self._wait(0.8, 1.4)
        if machine.is_on:
            machine.cut_power(self.world.new_rng())
        for other in others:
            self.world.network.heal_both_ways(f"node{other}", machine.name)
        await self._wait(0.3, 1.0)
        self._start_soon(node_id)
        del self._busy[node_id]

    async def _crash_at_shrink(self) -> None:
        """A leader loses its power just after a follower has left the ISR, and the other one does not know yet what was
        committed without it."""
        node_id = self._leading()
        if node_id is None:
            return
        self._count("power cuts after an ISR has shrunk")
        self._busy[node_id] = None
        machine = self.cluster.machines[node_id]
        other = f"node{self._rng.choice([broker_id for broker_id in self.cluster.brokers if broker_id != node_id])}"
        self.world.note("network", f"cut from {other} to {machine.name}")
        self.world.network.cut(other, machine.name)
        shrinks, end = self.replicated.counts["shrinks"], self.world.now() + 1.5
        while self.replicated.counts["shrinks"] == shrinks and self.world.now() < end:
            await asyncio.sleep(0.005)
        await self._wait(0.0, 0.08)
        if machine.is_on:
            machine.cut_power(self.world.new_rng())
        self.world.network.heal_both_ways(other, machine.name)
        await self._wait(0.3, 1.0)
        self._start_soon(node_id)
        del self._busy[node_id]

    async def _crash_leader(self) -> None:
        node_id = self._leading()
        if node_id is None:
            return
        self._count("power cuts of leaders")
        self._busy[node_id] = None
        self.cluster.machines[node_id].cut_power(
            self.world.new_rng() if self._rng.random() < 0.5 else None, self._rng.random() < 0.3
        )
        await self._wait(0.0, 1.5)
        self._start_soon(node_id)
        del self._busy[node_id]

    async def _lag(self) -> None:
        """A broker cannot fetch from another for a while, one way or the other, or its disk is slow."""
        one, other = self._rng.sample(self.cluster.brokers, 2)
        self._count("lags")
        names = self.cluster.machines[one].name, self.cluster.machines[other].name
        if self._rng.random() < 0.7:
            self.world.note("network", f"cut from {names[0]} to {names[1]}")
            self.world.network.cut(*names)
            await self._wait(0.1, 1.5)
            self.world.note("network", f"healed from {names[0]} to {names[1]}")
            self.world.network.heal_both_ways(*names)
            return
        machine = self.cluster.machines[one]
        host = machine.host
        if host is not None:
            host.max_work_seconds = 0.4
            await self._wait(0.2, 1.0)
            # Not what it was before: two faults may slow down the same disk.
            host.max_work_seconds = machine.max_work_seconds or MAX_WORK_SECONDS

    async def _elect(self) -> None:
        """An operator gives all partitions to their preferred leaders."""
        self._count("preferred elections")
        try:
            connection = await self.elector.any_connection()
            await connection.ask(ElectLeadersRequest(0, None), 2)
        except Disconnected:
            pass

    async def _roll(self) -> None:
        """All nodes are stopped and started, one after the other."""
        self._count("rolling restarts")
        for node_id, machine in self.cluster.machines.items():
            if self._is_free(node_id):
                self._busy[node_id] = None
                await self._stop_and_start(node_id)
                while not machine.is_on or node_id in self._starting:
                    await asyncio.sleep(0.05)
                    if self._is_over:
                        return

    async def _wipe(self) -> None:
        """A disk is lost for good while everybody is in sync: never that of an only voter, and no second one before the
        first has caught up."""
        if self.replicated.all_in_sync():
            await self._replace_a_disk()
