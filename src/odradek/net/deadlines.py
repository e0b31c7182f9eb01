"""Deadlines of many waiting requests, on one timer.

Nearly all of them are cancelled: the data comes, the batch is committed. So a deadline is an entry in a set, one for
each hundredth of a second, and only the next set has a timer. A deadline fires up to 10 ms late, never early.
"""

import asyncio
import heapq
from collections.abc import Callable

TICK_SECONDS = 0.01

Callback = Callable[[], None]


class Deadline:
    __slots__ = ("_bucket", "callback")

    def __init__(self, bucket: "set[Deadline]", callback: Callback) -> None:
        self._bucket = bucket
        self.callback = callback

    def cancel(self) -> None:
        self._bucket.discard(self)


class Deadlines:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._buckets: dict[int, set[Deadline]] = {}
        self._ticks: list[int] = []  # a heap of the keys of the buckets
        self._timer: asyncio.TimerHandle | None = None

    def add(self, delay_ms: float, callback: Callback) -> Deadline:
        tick = int((self._loop.time() + delay_ms / 1000) / TICK_SECONDS) + 1
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = set()
            heapq.heappush(self._ticks, tick)
            if self._ticks[0] == tick:
                self._set_timer()
        deadline = Deadline(bucket, callback)
        bucket.add(deadline)
        return deadline

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._ticks[0] * TICK_SECONDS, self._fire)

    def _fire(self) -> None:
        """Run what is due; sets that emptied meanwhile go with it."""
        self._timer = None
        now_tick = self._loop.time() / TICK_SECONDS
        while self._ticks and (self._ticks[0] <= now_tick or not self._buckets[self._ticks[0]]):
            bucket = self._buckets.pop(heapq.heappop(self._ticks))
            while bucket:
                bucket.pop().callback()
        if self._ticks and self._timer is None:
            self._set_timer()
