"""Suspends full garbage collections while a large request is handled.

A request of a hundred thousand elements is as many objects while it is handled. They need no garbage collector:
reference counting frees them when the request is answered. But a full collection in the meantime visits every one of
them and stops the event loop for a tenth of a second or more. So there are none while such a request is handled in
turns, nor for a second after, but for no longer than a minute. Collections of young objects continue.
"""

import asyncio
import gc

PAUSE_SECONDS = 1.0  # full collections resume this long after the last large request
LONGEST_PAUSE_SECONDS = 60.0
NEVER = 1 << 30


class Collector:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._usual = gc.get_threshold()
        self._paused_at: float | None = None
        self._last_work = 0.0

    def long_work(self) -> None:
        """A request is being handled in turns."""
        self._last_work = self._loop.time()
        if self._paused_at is None:
            self._paused_at = self._last_work
            self._usual = gc.get_threshold()
            gc.set_threshold(*self._usual[:2], NEVER)
            self._loop.call_later(PAUSE_SECONDS, self._look_again)

    def _look_again(self) -> None:
        assert self._paused_at is not None
        now = self._loop.time()
        if now < self._last_work + PAUSE_SECONDS and now < self._paused_at + LONGEST_PAUSE_SECONDS:
            self._loop.call_later(PAUSE_SECONDS, self._look_again)
            return
        self._paused_at = None
        gc.set_threshold(*self._usual)
