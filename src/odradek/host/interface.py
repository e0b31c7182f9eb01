"""The machine as a node uses it, besides its disk (`storage.disk.files`) and its random numbers.

Clocks, timers, tasks, threads, processes, free space: a node has no other access to them, so that several
nodes can run in one thread on virtual time, and the same seed gives the same run.

The event loop itself may be used directly: coroutines, futures, `asyncio.sleep` and `asyncio.Event` run on whatever
loop the host has, and that of the simulated host keeps virtual time.

Methods that are called often may be attributes with the loop's own bound methods, which saves a call.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from odradek.storage.compaction.cleaner import Worker

Result = TypeVar("Result")


class DiskSpace(NamedTuple):
    total: int  # bytes
    usable: int


class Timer(Protocol):
    def cancel(self) -> None: ...


class Thread(Protocol):
    """A dedicated thread, which does one piece of work after the other."""

    async def run(self, work: Callable[..., Result], *arguments: Any) -> Result: ...

    def close(self) -> None:
        """Close the thread; no work may be under way."""


class Host(Protocol):
    # --- clocks ---

    def now_ms(self) -> int:
        """The time of day, as in records. It jumps when the clock is set."""

    def steady_ms(self) -> int:
        """The time of day when the host was created, plus the time since, by a clock that never jumps: for sessions."""

    def monotonic(self) -> float:
        """Seconds since some time in the past, for measuring and for deadlines. Any thread may ask."""

    # --- the event loop ---

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> Timer: ...

    def call_later(self, seconds: float, callback: Callable[..., object], *arguments: Any) -> Timer:
        """Timers that are due at the same time run in the order in which they were set."""

    def call_at(self, when: float, callback: Callable[..., object], *arguments: Any) -> Timer:
        """`when` is a time of `loop_time`."""

    def loop_time(self) -> float:
        """The time at which this turn of the event loop began, or a little later: cheaper than `monotonic`."""

    def create_task(self, work: Coroutine[Any, Any, Result]) -> "asyncio.Task[Result]": ...

    # --- blocking work ---

    async def in_thread(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """In one of the threads that all such work shares."""

    def new_thread(self, name: str) -> Thread:
        """Return a thread for work that must not wait for other work."""

    async def start_cleaner(self) -> "Worker":
        """A process that compacts. Raises CannotOpen where the system cannot start one now."""

    # --- the machine ---

    def disk_space(self, path: str) -> DiskSpace: ...

    def hostname(self) -> str: ...


class SocketHost(Host, Protocol):
    """A host whose event loop can watch sockets: what `net.sockets` needs."""

    loop: asyncio.AbstractEventLoop
