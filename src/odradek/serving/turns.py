"""Long work, one piece at a time: no request may block the event loop.

A legal request can ask for much: a hundred thousand partitions, ten thousand requests in one read. Its work is a
generator that yields every few items (`Steps`), and has a share of a turn of the event loop; the rest continues in a
later turn. All waiting work is in one queue, and one of them runs in each turn: the more there are, the longer each
takes, and all other requests notice as little as before.

The share is a time, because that is what the others wait for. Tests have their own clock, which moves with
the work, and count the work of a turn by it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from odradek.wire.codec import Steps

T = TypeVar("T")

TURN_SECONDS = 0.010
ITEMS_PER_STEP = 16


def in_pieces(items: Sequence[T], work: Callable[[Sequence[T]], None]) -> Steps[None]:
    """The same work as for a few items, for many: a few of them in each step."""
    for start in range(0, len(items), ITEMS_PER_STEP):
        work(items[start : start + ITEMS_PER_STEP])
        yield


class Done(NamedTuple, Generic[T]):
    result: T


class Turns:
    def __init__(self, clock: Callable[[], float], on_long_work: Callable[[], None] = lambda: None) -> None:
        """`on_long_work` is called whenever work waits for a turn."""
        self.clock = clock
        self.share = TURN_SECONDS  # what is left of the turn for the next requests
        self._on_long_work = on_long_work
        self._line: deque[Callable[[], object]] = deque()
        self._is_called = False

    def __len__(self) -> int:
        """Return how many wait for a turn."""
        return len(self._line)

    # --- one after the other ---

    def call(self, work: Callable[[], object]) -> None:
        """Call it in a separate turn, after all that wait already."""
        self._line.append(work)
        self._on_long_work()
        if not self._is_called:
            self._is_called = True
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        work = self._line.popleft()
        self._is_called = bool(self._line)
        if self._is_called:
            asyncio.get_running_loop().call_soon(self._next)
        work()

    async def wait(self) -> None:
        """Until it is our turn."""
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def reach() -> None:
            if not reached.cancelled():
                reached.set_result(None)

        self.call(reach)
        await reached

    # --- the share of a turn ---

    def spent(self) -> None:
        """The share of this turn is used up: other connections handle one request each, until the next turn."""
        if self.share:
            self.share = 0.0
            asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        self.share = TURN_SECONDS

    def advance(self, steps: Steps[T]) -> Done[T] | None:
        """Run until it is done, or for one turn's share."""
        try:
            next(steps)  # where code may be imported and compiled, once
            end = self.clock() + TURN_SECONDS
            while self.clock() < end:
                next(steps)
        except StopIteration as stop:
            return Done(stop.value)
        return None

    async def finish(self, steps: Steps[T]) -> T:
        """Work in as many turns as it takes."""
        while True:
            await self.wait()
            if (done := self.advance(steps)) is not None:
                return done.result

    def pace(self) -> "Pace":
        return Pace(self)

    async def complete(self, steps: Steps[T]) -> T:
        """Like `finish`, but start at once."""
        done = self.advance(steps)
        return done.result if done is not None else await self.finish(steps)


class Pace:
    """A pace for long work in a coroutine: a share of this turn, then of later ones."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._end = turns.clock() + TURN_SECONDS

    async def step(self) -> None:
        """To be awaited every few items."""
        if self._turns.clock() >= self._end:
            await self._turns.wait()
            self._end = self._turns.clock() + TURN_SECONDS
