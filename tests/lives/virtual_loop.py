"""An event loop on virtual time: it never waits, and a thread's work is done later, at a time drawn from a seed.

When nothing is ready, the clock jumps to the next timer. Threads' work completes in one go, but not inline: what is
appended while a sync is under way must be able to come before its end and after it.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any

MAX_WORK_SECONDS = 0.003


class VirtualLoop(asyncio.BaseEventLoop):
    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng
        self._now = 1_000.0
        self._selector = self  # of what `_run_once` of the base class wants, all is here
        self.slow_callback_duration = float("inf")

    def time(self) -> float:
        return self._now

    def select(self, timeout: float | None) -> list[Any]:
        """In place of waiting for sockets: there are none."""
        if timeout is None:
            raise RuntimeError("everybody waits, and nothing will ever happen")
        self._now += timeout
        return []

    def _process_events(self, events: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        raise RuntimeError("no thread has business here")

    def run_in_executor(self, executor: Any, work: Callable[..., Any], *arguments: Any) -> Any:
        future = self.create_future()
        self.call_later(self._rng.random() * MAX_WORK_SECONDS, self._work, future, work, arguments)
        return future

    @staticmethod
    def _work(future: asyncio.Future[Any], work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        try:
            result = work(*arguments)
        except Exception as error:
            if not future.cancelled():
                future.set_exception(error)
        else:
            if not future.cancelled():
                future.set_result(result)

    # A broker watches its listening sockets, at which nobody knocks here.

    def add_reader(self, descriptor: Any, callback: Any, *arguments: Any) -> None:
        pass

    def remove_reader(self, descriptor: Any) -> bool:
        return False
