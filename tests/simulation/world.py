"""A simulated world: machines with brokers, clients, a network between them, and one clock for all.

Everything runs in one thread on virtual time, and everything random comes from one seed, so a seed is a run. What the
brokers are built from is the product itself, from the connection's states down to the bytes on the disk.

    world = World(seed)
    machine = world.machine("node1", SETTINGS)

    async def scenario() -> None:
        await machine.start()
        connection = await world.connect("alice", machine)
        response = await connection.ask(MetadataRequest(topics=None), 12)
        machine.cut_power(world.new_rng())
        await machine.start()

    world.run(scenario())
"""

import asyncio
import logging
import warnings
from collections.abc import Coroutine
from contextlib import suppress
from random import Random
from typing import Any

from odradek.host.simulated import VirtualLoop, repeatable
from odradek.net.simulated import SimulatedNetwork
from odradek.storage.disk.simulated import PowerCut
from tests.simulation.connection import Connection, Violation, connect
from tests.simulation.machine import PORT, Machine
from tests.simulation.trace import LogLines, Trace

MAX_KEEPALIVE_SECONDS = 0.2

__all__ = ["Violation", "World"]


class World:
    def __init__(self, seed: int, trace: Trace | None = None, loop: VirtualLoop | None = None) -> None:
        self.seed = seed
        self.trace = trace
        self._seeds = Random(seed)
        self.loop = loop or VirtualLoop()
        self.loop.set_exception_handler(self._unhandled)
        self.network = SimulatedNetwork(self.loop, self.new_rng())
        self._machines: dict[str, Machine] = {}
        self._fault_counts: dict[tuple[str, str], int] = {}
        self._cuts: dict[tuple[str, str], None] = {}
        self.connections: dict[Connection, None] = {}  # those that their clients believe to be open
        self.failure: BaseException | None = None
        self._main: asyncio.Task[Any] | None = None
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def new_rng(self) -> Random:
        """A source of chance of its own, so that one party's draws do not change another's."""
        return Random(self._seeds.getrandbits(64))

    def now(self) -> float:
        return self.loop.time()

    def note(self, who: str, what: str) -> None:
        if self.trace is not None:
            self.trace.add(self.loop.time(), who, what)

    # --- who is there ---

    def machine(self, name: str, settings: dict[str, str], sync_seconds: float = 0.0002) -> Machine:
        self._machines[name] = Machine(self, name, settings, sync_seconds)
        return self._machines[name]

    async def connect(self, client: str, machine: Machine, port: int = PORT) -> Connection:
        """Raises Disconnected."""
        return await connect(self, client, machine.name, port)

    def started(self, machine: Machine) -> None:
        """Whoever still waits for the broker that was there before notices soon."""
        self.notice_soon(machine)

    def notice_soon(self, machine: Machine) -> None:
        """Clients find their connections to this machine lost, as by a keepalive."""
        for connection in [connection for connection in self.connections if connection.node == machine.name]:
            delay = self.network.rng.random() * MAX_KEEPALIVE_SECONDS
            self.loop.call_later(delay, connection.close, "no keepalive")

    # --- faults of the network ---

    def cut(self, client: str, node: str, to_node: bool = True, to_client: bool = True) -> None:
        self.note("network", f"cut between {client} and {node}, to node: {to_node}, to client: {to_client}")
        self._cuts[client, node] = None
        if to_node:
            self.network.cut(client, node)
        if to_client:
            self.network.cut(node, client)

    def heal(self, client: str, node: str) -> None:
        self.note("network", f"healed between {client} and {node}")
        if self._cuts.pop((client, node), 0) is None:
            self._count_fault(client, node)
        self.network.heal_both_ways(client, node)

    def heal_all(self) -> None:
        for client, node in list(self._cuts):
            self.heal(client, node)

    def drop(self, client: str, node: str) -> None:
        """Lose the connections between the two."""
        self.note("network", f"loses the connections between {client} and {node}")
        self._count_fault(client, node)
        self.network.drop_connections(client, node)

    def _count_fault(self, client: str, node: str) -> None:
        self._fault_counts[client, node] = self._fault_counts.get((client, node), 0) + 1

    def is_cut(self, client: str, node: str) -> bool:
        machine = self._machines[node]
        return (client, node) in self._cuts or not machine.is_on or machine.is_paused

    def fault_count(self, client: str, node: str) -> int:
        """A number that grows whenever a request on its way between the two might be lost."""
        machine = self._machines[node]
        return self._fault_counts.get((client, node), 0) + machine.starts + machine.pauses

    # --- running ---

    def spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Do this beside everything else; if it fails, the simulation fails."""
        task = self.loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._done)
        return task

    def _done(self, task: "asyncio.Task[None]") -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """The simulation ends here; the first failure counts."""
        if self.failure is None:
            self.failure = error
            self.note("world", f"FAILED: {error!r}")
            if self._main is not None:
                self._main.cancel()

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, PowerCut):
            self.fail(error or Violation(context["message"]))

    def _logged(self, record: logging.LogRecord, line: str) -> None:
        self.note("log", line)
        if record.exc_info:
            self.fail(Violation(f"a node logged a traceback: {line}"))

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Until this is done. Raises the first failure of anybody."""
        lines = LogLines(self._logged)
        logger = logging.getLogger("odradek")
        level, propagates = logger.level, logger.propagate
        logger.addHandler(lines)
        logger.setLevel(logging.WARNING if self.trace is None else logging.INFO)
        logger.propagate = False
        try:
            with repeatable():
                self._main = self.loop.create_task(work)
                try:
                    self.loop.run_until_complete(self._main)
                except asyncio.CancelledError:
                    pass
                except Exception as error:
                    self.fail(error)
                if self.failure is not None:
                    raise self.failure
        finally:
            logger.removeHandler(lines)
            logger.setLevel(level)
            logger.propagate = propagates
            self._dispose()

    def _dispose(self) -> None:
        """End unheard what was under way on machines without power, or in clients that nobody waits for."""
        logging.disable()
        self.loop.set_exception_handler(lambda loop, context: None)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for task in asyncio.all_tasks(self.loop):
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    with suppress(BaseException):
                        task.get_coro().close()  # type: ignore[union-attr]
        finally:
            logging.disable(logging.NOTSET)
            self.loop.close()
