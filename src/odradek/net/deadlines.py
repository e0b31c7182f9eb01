"""Deadlines of many waiting requests, on one timer.

Nearly all of them are cancelled, because the data arrives or the batch is committed. So a deadline is an entry in a
set, one for every 2 ms, and only the next set has a timer. A deadline fires up to 2 ms late, never early; longer would
be cheaper, but a thousand waiting consumers would get their responses in bursts that other clients notice.
"""

import heapq
import logging
from collections.abc import Callable

from odradek.host.interface import Host, Timer

log = logging.getLogger(__name__)

TICK_SECONDS = 0.002
MIN_FORGET_AT = 10_000  # sets; more than that is waiting for the far future

Callback = Callable[[], None]


class Deadline:
    """Whoever holds it is often held by its callback. It lets go of both when it is over, so that no cycle is left to
    the garbage collector."""

    __slots__ = ("_bucket", "callback")

    def __init__(self, bucket: "Bucket", callback: Callback) -> None:
        self._bucket = bucket
        self.callback = callback

    def cancel(self) -> None:
        self._bucket.pop(self, None)
        self.callback = _nothing


def _nothing() -> None:
    pass


Bucket = dict[Deadline, None]


class Deadlines:
    def __init__(self, host: Host) -> None:
        self._now = host.loop_time
        self._call_at = host.call_at
        self._buckets: dict[int, Bucket] = {}
        self._ticks: list[int] = []  # a heap of the keys of the buckets
        self._timer: Timer | None = None
        self._forget_at = MIN_FORGET_AT

    def add(self, delay_ms: float, callback: Callback) -> Deadline:
        tick = int((self._now() + delay_ms / 1000) / TICK_SECONDS) + 1
        bucket = self._buckets.get(tick)
        if bucket is None:
            if len(self._buckets) >= self._forget_at:
                self._forget_empty()
            bucket = self._buckets[tick] = {}
            heapq.heappush(self._ticks, tick)
            if self._ticks[0] == tick:
                self._set_timer()
        deadline = Deadline(bucket, callback)
        bucket[deadline] = None
        return deadline

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._call_at(self._ticks[0] * TICK_SECONDS, self._fire)

    def _fire(self) -> None:
        """Run the deadlines that are due, and drop sets that are empty by now."""
        self._timer = None
        now = self._now()
        while self._ticks and (self._ticks[0] * TICK_SECONDS <= now or not self._buckets[self._ticks[0]]):
            bucket = self._buckets.pop(heapq.heappop(self._ticks))
            for deadline in list(bucket):
                if deadline in bucket:  # not cancelled by one that ran before it
                    self._run(deadline.callback)
                    deadline.cancel()
        if self._ticks and self._timer is None:
            self._set_timer()

    @staticmethod
    def _run(callback: Callback) -> None:
        """One that fails does not stop the others from being run."""
        try:
            callback()
        except Exception:
            log.exception("a timer callback failed: this is a bug; the others still run")

    def _forget_empty(self) -> None:
        """Sets far in the future whose deadlines were all cancelled."""
        self._buckets = {tick: bucket for tick, bucket in self._buckets.items() if bucket}
        self._ticks = sorted(self._buckets)
        self._forget_at = max(2 * len(self._ticks), MIN_FORGET_AT)
