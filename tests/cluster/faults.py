"""Faults of any cluster: nodes lose their power, stand still or stop, links are cut, disks are full.

Whoever plans a run says which of these happen, and in which order: `bag`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import Any

from odradek.errors import ErrorCode
from odradek.wire.messages import add_raft_voter
from odradek.wire.messages.add_raft_voter import AddRaftVoterRequest
from odradek.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from tests.cluster.clusters import CLUSTER_ID, CONTROLLER_PORT, Cluster
from tests.simulation.connection import Disconnected, Violation
from tests.simulation.machine import CannotStart, Machine
from tests.simulation.world import World

LONGEST_SLEEP = 0.1
LEADER_WITHIN = 10.0
SETTLED_WITHIN = 20.0

Fault = Callable[[], Coroutine[Any, Any, None]]


class Faults:
    pace = 1.0  # how long faults last, and what is between them

    def __init__(self, world: World, cluster: Cluster, rng: Random) -> None:
        self.world = world
        self.cluster = cluster
        self._rng = rng
        self.counts: dict[str, int] = {}
        self._bag: list[Fault] = []
        self._starting: dict[int, None] = {}  # nodes whose start is under way, or to be repeated
        self._busy: dict[int, None] = {}  # nodes with a fault of their own
        self._is_replacing = False
        self._is_over = False
        self._crashed_at: list[float] = []
        for machine in cluster.machines.values():
            machine.on_power_cut = partial(self._lost_power, machine)

    def _lost_power(self, machine: Machine) -> None:
        """Clients hear of it soon, as of a killed process, or only when the machine is back."""
        self._crashed_at.append(self.world.now())
        if self._rng.random() < 0.7:
            self.world.notice_soon(machine)

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def bag(self) -> list[Fault]:
        """Return the next faults, each once, in any order."""
        raise NotImplementedError

    async def carry_out(self) -> None:
        """The whole run."""
        raise NotImplementedError

    @property
    def worth(self) -> tuple[int, ...]:
        raise NotImplementedError

    @property
    def is_worth(self) -> bool:
        """It has seen enough to count."""
        raise NotImplementedError

    @property
    def has_seen_enough(self) -> bool:
        """The faults may stop."""
        return self.is_worth

    @property
    def totals(self) -> dict[str, int]:
        machines = self.cluster.machines.values()
        return {
            "seeds that count": int(self.is_worth),
            "crashes": sum(machine.crashes for machine in machines),
            "crashes with a loss": sum(machine.lossy_crashes for machine in machines),
            "virtual seconds": int(self.world.now()),
            **self.counts,
        }

    # --- waiting ---

    async def _settle(self) -> None:
        """All faults are over."""
        self._heal()
        for node_id, machine in self.cluster.machines.items():
            if not machine.is_on:
                self._start_soon(node_id)
        await self._wait_for(
            self._has_controller, LEADER_WITHIN, "there is no controller, though all faults are over"
        )
        await self._wait_for(
            self._all_serve, SETTLED_WITHIN, "not all nodes serve, though all faults are over"
        )

    async def _wait_for(self, condition: Callable[[], bool], seconds: float, complaint: str) -> None:
        end = self.world.now() + seconds
        while not condition():
            if self.world.now() > end:
                raise Violation(complaint)
            await asyncio.sleep(0.02)

    def _has_controller(self) -> bool:
        return bool(self.cluster.leaders())

    def _all_serve(self) -> bool:
        is_quiet = not self._starting and not self._busy and not self._is_replacing
        return is_quiet and all(machine.is_on for machine in self.cluster.machines.values())

    # --- starting ---

    def _start_soon(self, node_id: int) -> None:
        if node_id not in self._starting:
            self._starting[node_id] = None
            self.world.spawn(self._start(node_id))

    async def _start(self, node_id: int) -> None:
        """Until it serves."""
        machine = self.cluster.machines[node_id]
        while not machine.is_on:
            crashes = machine.crashes
            try:
                await machine.start()
            except CannotStart as error:
                if machine.crashes == crashes and not machine.was_short_lately:
                    raise Violation(f"node {node_id} does not start: {error}") from error
                await asyncio.sleep(0.1 + self._rng.random() * 0.2)
        machine.cut_power_at()  # no more: it got through its start
        del self._starting[node_id]

    # --- faults ---

    async def _suffer(
        self, at_least: float, at_most: float, at_once: int = 2, look_every: float = 0.1
    ) -> None:
        """Have faults, `at_once` at a time, until the run has seen enough or its time is over; then let all recover."""
        faults = [self.world.spawn(self._have_faults()) for _ in range(at_once)]
        faults.append(self.world.spawn(self._keep_running()))
        began, passed = self.world.now(), 0.0
        while passed <= at_most and not (passed > at_least and self.has_seen_enough):
            await asyncio.sleep(look_every)
            passed = self.world.now() - began
        self._is_over = True
        for task in faults:
            await task
        await self._settle()

    async def _have_faults(self) -> None:
        while not self._is_over:
            if not self._bag:
                self._bag = self.bag()
                self._rng.shuffle(self._bag)
            fault = self._bag.pop()
            await self._wait(0.0, 0.8)
            await fault()

    async def _keep_running(self) -> None:
        """Whoever looks after the nodes starts those that have stopped by themselves."""
        while not self._is_over:
            await asyncio.sleep(0.3)
            for node_id, machine in self.cluster.machines.items():
                if not machine.is_on and node_id not in self._busy:
                    self._start_soon(node_id)

    def _heal(self) -> None:
        self.world.network.heal_all()
        self.world.network.max_delay_seconds = 0.005
        for machine in self.cluster.machines.values():
            machine.heal()
            machine.resume()
            machine.cut_power_at()

    def _victim(self) -> int | None:
        """A node that nothing else happens to; often the controller."""
        leaders = self.cluster.leaders()
        free = [node_id for node_id in self.cluster.machines if self._is_free(node_id)]
        if leaders and leaders[-1] in free and self._rng.random() < 0.4:
            return leaders[-1]
        return self._rng.choice(free) if free else None

    def _is_free(self, node_id: int) -> bool:
        return (
            node_id not in self._busy
            and node_id not in self._starting
            and self.cluster.machines[node_id].is_on
        )

    async def _wait(self, least: float, most: float) -> None:
        """Wait as long as a fault lasts; all end when the run is over."""
        end = self.world.now() + self.pace * (least + self._rng.random() * (most - least))
        while (left := end - self.world.now()) > 0 and not self._is_over:
            await asyncio.sleep(min(left, LONGEST_SLEEP))

    async def _crash(self) -> None:
        node_id = self._victim()
        if node_id is None:
            return
        self._busy[node_id] = None
        machine = self.cluster.machines[node_id]
        loss = self.world.new_rng() if self._rng.random() < 0.6 else None
        is_scattered = self._rng.random() < 0.3
        kind = self._rng.choice(["sync", "change", "now"])
        if kind == "sync":
            machine.cut_power_at(syncs=self._rng.randint(1, 4), loss=loss, is_scattered=is_scattered)
        elif kind == "change":
            machine.cut_power_at(changes=self._rng.randint(1, 20), loss=loss, is_scattered=is_scattered)
        if kind != "now":
            end = self.world.now() + 0.5
            while machine.is_on and self.world.now() < end:
                await asyncio.sleep(0.01)
        if machine.is_on:
            machine.cut_power(loss, is_scattered)
        self._count("power cuts")
        await self._wait(0.0, 1.2)
        if self._rng.random() < 0.2:
            machine.cut_power_at(changes=self._rng.randint(1, 30), loss=self.world.new_rng())
        self._start_soon(node_id)
        del self._busy[node_id]

    async def _crash_all(self) -> None:
        """A power failure of the whole site; or everything is stopped by its operators."""
        self._count("restarts of all nodes at once")
        is_clean = self._rng.random() < 0.3
        for node_id in [node_id for node_id in self.cluster.machines if self._is_free(node_id)]:
            machine = self.cluster.machines[node_id]
            if is_clean:
                self._busy[node_id] = None
                self.world.spawn(self._stop_and_start(node_id))
            else:
                machine.cut_power(self.world.new_rng(), self._rng.random() < 0.3)
                self._start_soon(node_id)

    async def _pause(self) -> None:
        node_id = self._victim()
        if node_id is None:
            return
        self._count("pauses")
        self._busy[node_id] = None
        self.cluster.machines[node_id].pause()
        await self._wait(0.1, 1.5)
        self.cluster.machines[node_id].resume()
        del self._busy[node_id]

    async def _cut_link(self) -> None:
        names = [machine.name for machine in self.cluster.machines.values()]
        one, other = self._rng.sample(names, 2)
        self._count("cut links")
        self.world.note("network", f"cut from {one} to {other}")
        self.world.network.cut(one, other)
        if self._rng.random() < 0.5:
            self.world.network.cut(other, one)
        await self._wait(0.2, 2.0)
        self.world.note("network", f"healed between {one} and {other}")
        self.world.network.heal_both_ways(one, other)

    async def _isolate(self) -> None:
        """A node from all others, but not from the operators."""
        node_id = self._victim()
        if node_id is None:
            return
        self._count("isolated nodes")
        await self._cut_off(node_id, 0.3, 2.5)

    async def _cut_off(self, node_id: int, least: float, most: float) -> None:
        """Cut it off from all other nodes, for so many seconds, one way or both."""
        name = self.cluster.machines[node_id].name
        others = [machine.name for machine in self.cluster.machines.values() if machine.name != name]
        way = self._rng.choice(["in", "out", "both", "both"])
        self.world.note("network", f"{name} is cut off from all others: {way}")
        for other in others:
            if way != "in":
                self.world.network.cut(name, other)
            if way != "out":
                self.world.network.cut(other, name)
        await self._wait(least, most)
        self.world.note("network", f"{name} is connected again")
        for other in others:
            self.world.network.heal_both_ways(name, other)

    async def _slow_down(self) -> None:
        self._count("times of a slow network")
        self.world.network.max_delay_seconds = self._rng.choice([0.03, 0.1, 0.2])
        await self._wait(0.3, 1.5)
        self.world.network.max_delay_seconds = 0.005

    async def _fill_disk(self) -> None:
        node_id = self._victim()
        if node_id is None:
            return
        self._count("full disks")
        self._busy[node_id] = None
        machine = self.cluster.machines[node_id]
        machine.fill_disk(self._rng.randrange(600))
        await self._wait(0.2, 1.5)
        machine.heal()
        if not machine.is_on:
            self._start_soon(node_id)
        del self._busy[node_id]

    async def _stop(self) -> None:
        node_id = self._victim()
        if node_id is not None:
            self._busy[node_id] = None
            await self._stop_and_start(node_id)

    async def _stop_and_start(self, node_id: int) -> None:
        self._count("clean stops")
        await self.cluster.machines[node_id].stop()
        await self._wait(0.0, 0.5)
        self._start_soon(node_id)
        del self._busy[node_id]

    # --- disks that are lost for good ---

    async def _replace_a_disk(self) -> None:
        """One at a time, and never that of the only voter: what is on no disk any more is lost."""
        node_id = self._victim()
        if node_id is None or self._is_replacing or self.cluster.controllers == (node_id,):
            return
        self._is_replacing = True
        self._busy[node_id] = None
        self._count("lost disks")
        machine = self.cluster.machines[node_id]
        old = self.cluster.key(node_id)
        machine.cut_power()
        self.cluster.replace_disk(node_id)
        if node_id not in self.cluster.controllers:
            self._is_replacing = False
        else:
            self.world.spawn(self._replace_voter(node_id, old.directory_id))
        await self._wait(0.0, 0.5)
        self._start_soon(node_id)
        del self._busy[node_id]

    async def _replace_voter(self, node_id: int, old_directory: Any) -> None:
        """Act as an operator would: the voter on the lost disk leaves, and the one on the new disk joins."""
        await self._until_done(
            RemoveRaftVoterRequest(CLUSTER_ID, node_id, old_directory), {ErrorCode.VOTER_NOT_FOUND}
        )
        key = self.cluster.key(node_id)
        listener = add_raft_voter.Listener("CONTROLLER", f"node{node_id}", CONTROLLER_PORT)
        request = AddRaftVoterRequest(CLUSTER_ID, 1_000, node_id, key.directory_id, [listener])
        await self._until_done(request, {ErrorCode.DUPLICATE_VOTER})
        self._count("replaced voters")
        self._is_replacing = False

    async def _until_done(self, request: Any, done: set[ErrorCode]) -> None:
        while True:
            await asyncio.sleep(0.1)
            brokers = [node_id for node_id in self.cluster.brokers if self.cluster.machines[node_id].is_on]
            if not brokers:
                continue
            try:
                response = await self.cluster.ask(
                    self._rng.choice(brokers), request, request.MAX_VERSION, "mender"
                )
            except Disconnected:
                continue
            if not response.error_code or response.error_code in done:
                return
