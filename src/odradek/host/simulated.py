"""A host on virtual time: nothing waits, nothing is real, and one seed always gives the same run.

The event loop never sleeps: when nothing is ready, its clock jumps to the next timer. Work for a thread is done in one
go, but never at once: it is done at a later time that is drawn from the seed, so that what a node does during a sync
can happen before its end and after it. The same goes for the process that compacts, one step at a time, on the same
simulated disk.

Several hosts may share a loop, one for each node. Log lines of a node have its id, whoever calls it: callbacks that a
host schedules run in the host's own context. A host whose power is cut runs nothing any more: everything that its node
had scheduled, and every task that is at an `await`, is abandoned. A host that is paused, like a process by SIGSTOP,
later continues with everything that became due meanwhile.
"""

import asyncio
import gc
import heapq
import json
import math
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any, TypeVar

from odradek.host.interface import DiskSpace
from odradek.storage.compaction.exchange import carry_out
from odradek.storage.compaction.job import Message
from odradek.storage.disk.simulated import SimulatedFiles

Result = TypeVar("Result")

MAX_WORK_SECONDS = 0.003
EPOCH_MS = 1_700_000_000_000  # the time of day when a loop's clock shows 0
DISK_BYTES = 1 << 40
KILLED = -9
MAX_TURNS_AT_A_TIME = 10_000  # of the event loop, before its clock has to move; a busy node takes a few dozen


class NothingWillHappen(RuntimeError):
    """All tasks wait, and no timer is set."""


class TimeStandsStill(RuntimeError):
    """A task never finishes and never waits: on a real machine it would use up a core."""


@contextmanager
def repeatable() -> Iterator[None]:
    """Without the cyclic collector, whose timing depends on what else the process has done."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


# --- time ---


# The host whose code runs, if any.
_host: ContextVar["SimulatedHost | None"] = ContextVar("host", default=None)


class VirtualLoop(asyncio.BaseEventLoop):
    """Timers that are due at the same time run in the order in which they were set."""

    _ready: deque[asyncio.Handle]  # the base class's

    def __init__(self, now: float = 0.0) -> None:
        super().__init__()
        self._now = now
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timers_set = 0
        self._turns = 0  # since the clock last moved
        self._turns_began = now
        self.ran: dict[str, None] = {}  # hosts that ran something, by name, until somebody empties this

    def time(self) -> float:
        return self._now

    def spend(self, seconds: float) -> None:
        """The current callback takes this long."""
        self._now += seconds

    def go_on_with(self, handles: list[asyncio.Handle]) -> None:
        self._ready.extend(handles)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *arguments: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, arguments, self, context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *arguments: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self._timers_set += 1
        timer = asyncio.TimerHandle(when, callback, arguments, self, context)
        heapq.heappush(self._timers, (when, self._timers_set, timer))
        return timer

    def run_until_time(self, when: float) -> None:
        """Run everything that is due by then, also where no task waits for it."""
        while self._ready or self._next_due() <= when:
            self._run_once()
        self._now = max(self._now, when)

    def _next_due(self) -> float:
        timers = self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        return timers[0][0] if timers else math.inf

    def _run_once(self) -> None:
        """Instead of the base class's, which waits for sockets when nothing is ready: here time jumps."""
        timers, ready = self._timers, self._ready
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not ready:
            if not timers:
                raise NothingWillHappen("all tasks wait, and no event is scheduled")
            self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            ready.append(heapq.heappop(timers)[2])
        self._count_turn()
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                self._run(handle)

    def _count_turn(self) -> None:
        if self._now != self._turns_began:
            self._turns, self._turns_began = 0, self._now
        self._turns += 1
        if self._turns > MAX_TURNS_AT_A_TIME:
            raise TimeStandsStill(
                f"at {self._now:.6f} s, after {MAX_TURNS_AT_A_TIME:,} turns: {self._ready[0]}"
            )

    def _run(self, handle: asyncio.Handle) -> None:
        host = handle._context.get(_host)  # type: ignore[attr-defined]
        if host is None:
            handle._run()
        elif host.is_off:
            host.abandoned.append(handle)
        elif host.is_paused:
            host.held.append(handle)
        else:
            self.ran[host.name] = None
            handle._run()

    def _write_to_self(self) -> None:
        raise RuntimeError("a thread called into a simulation")


# --- the host ---


class SimulatedHost:
    def __init__(
        self, loop: VirtualLoop, rng: Random, files: SimulatedFiles, name: str = "localhost"
    ) -> None:
        self.loop = loop
        self.is_off = False
        self.abandoned: list[asyncio.Handle] = []  # due after that; keeps tasks that wait for them alive
        self.is_paused = False
        self.held: list[asyncio.Handle] = []  # became due in a pause
        self.context = copy_context()  # build the node in here
        self.context.run(_host.set, self)
        self._rng = rng
        self._files = files
        self.name = name
        self.max_work_seconds = MAX_WORK_SECONDS  # how long a thread takes until it has done a piece of work
        self._jumped_ms = 0
        self._steady_offset_ms = self.now_ms() - self._passed_ms()
        self.monotonic = self.loop_time = loop.time

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run it in the node's context, until it is done."""
        return self.loop.run_until_complete(self.create_task(work))

    def cut_power(self) -> None:
        """Nothing that its node started ever continues."""
        self.is_off = True
        self.abandoned += self.held

    def pause(self) -> None:
        """Its node stops without noticing; data from the network must wait elsewhere."""
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        held, self.held = self.held, []
        self.loop.go_on_with(held)

    # --- clocks ---

    def _passed_ms(self) -> int:
        return int(self.loop.time() * 1000)

    def now_ms(self) -> int:
        return EPOCH_MS + self._passed_ms() + self._jumped_ms

    def jump(self, milliseconds: int) -> None:
        """Set the clock."""
        self._jumped_ms += milliseconds

    def steady_ms(self) -> int:
        return self._passed_ms() + self._steady_offset_ms

    # --- the event loop ---

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> asyncio.Handle:
        return self.loop.call_soon(callback, *arguments, context=self.context)

    def call_later(
        self, seconds: float, callback: Callable[..., object], *arguments: Any
    ) -> asyncio.TimerHandle:
        return self.loop.call_later(seconds, callback, *arguments, context=self.context)

    def call_at(self, when: float, callback: Callable[..., object], *arguments: Any) -> asyncio.TimerHandle:
        return self.loop.call_at(when, callback, *arguments, context=self.context)

    def create_task(self, work: Coroutine[Any, Any, Result]) -> "asyncio.Task[Result]":
        return self.loop.create_task(work, context=self.context)

    # --- blocking work ---

    def work_seconds(self) -> float:
        return self._rng.random() * self.max_work_seconds

    async def in_thread(self, work: Callable[..., Result], *arguments: Any) -> Result:
        return await self.new_thread("any").run(work, *arguments)

    def new_thread(self, name: str) -> "SimulatedThread":
        return SimulatedThread(self)

    async def start_cleaner(self) -> "SimulatedCleaner":
        await asyncio.sleep(self.work_seconds())
        return SimulatedCleaner(self, self._files)

    # --- the machine ---

    def disk_space(self, path: str) -> DiskSpace:
        free = self._files.free_bytes
        return DiskSpace(DISK_BYTES, DISK_BYTES if free is None else free)

    def hostname(self) -> str:
        return self.name


class SimulatedThread:
    def __init__(self, host: SimulatedHost) -> None:
        self._host = host
        self._busy_until = 0.0

    async def run(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """A thread finishes its work, even if nothing waits for it any more."""
        done: asyncio.Future[Result] = self._host.loop.create_future()

        def do_it() -> None:
            try:
                result = work(*arguments)
            except Exception as error:
                if not done.cancelled():
                    done.set_exception(error)
            else:
                if not done.cancelled():
                    done.set_result(result)

        self._busy_until = max(self._busy_until, self._host.loop.time()) + self._host.work_seconds()
        self._host.call_at(self._busy_until, do_it)
        return await done

    def close(self) -> None:
        pass


class SimulatedCleaner:
    """The process that compacts: the same work, in the event loop."""

    def __init__(self, host: SimulatedHost, files: SimulatedFiles) -> None:
        self._host = host
        self._files = files
        self._jobs: deque[Iterator[Message]] = deque()
        self.has_ended = False

    async def send(self, line: bytes) -> None:
        if self.has_ended:
            raise BrokenPipeError("the simulated process has ended")
        self._jobs.append(carry_out(self._files, json.loads(line), lambda byte_count: None))

    async def receive(self) -> bytes:
        """The next message: work until there is one, and a way to the broker. Meanwhile the process may be killed."""
        await asyncio.sleep(self._host.work_seconds())
        if self.has_ended:
            return b""
        message = next(self._jobs[0])
        if "group" not in message:
            self._jobs.popleft()
        await asyncio.sleep(self._host.work_seconds())
        if self.has_ended:
            return b""
        return json.dumps(message).encode() + b"\n"

    def kill(self) -> None:
        self.has_ended = True

    async def wait(self) -> int:
        return KILLED
