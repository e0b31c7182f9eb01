"""Decides whether a disk has room for users' records. Pure: free space and time are arguments.

A disk is FULL when its free space falls below a reserve, or when a write failed for want of space although enough
seemed to be free (a quota, no inodes). In the first case users' records are refused, so that the reserve remains for
what the broker itself has to write: metadata, committed offsets, the state of transactions, and what deletion needs. In
the second each write shows by itself whether it is possible.

It is FULL until there is twice the reserve, and a probe shows that the disk accepts writes again. It is LOW before
that: when little more than the reserve is left, or when the reserve will be reached within two minutes at the current
rate.
"""

from collections import deque
from enum import IntEnum

PART_OF_DISK = 20  # a reserve takes at most this part of a small disk: a twentieth
LOW_RESERVES = 4  # this many times the reserve is little
WARN_SECONDS = 120.0
RATE_SECONDS = 30.0  # the rate at which space is used is that of this time
SHORTEST_RATE_SECONDS = 3.0  # a shorter time says nothing about the rate
LONGEST_LOOK_SECONDS = 1.0
SHORTEST_LOOK_SECONDS = 0.1
FASTEST_RATE = 2e9  # bytes per second: no disk is filled faster
# A write failed though enough seemed to be free: the disk is taken for full for this long, whatever it says.
DISTRUST_SECONDS = 10.0


class Level(IntEnum):
    PLENTY = 0
    LOW = 1
    FULL = 2


class Room:
    def __init__(self, reserve_bytes: int) -> None:
        self.reserve_bytes = reserve_bytes
        self.level = Level.PLENTY
        self.total_bytes = 0
        self.free_bytes = 0
        self._distrusted_until = float("-inf")
        self._seen: deque[tuple[float, int]] = deque()  # when, and how much was free; the oldest first

    @property
    def reserve(self) -> int:
        """Below this much free space users' records are refused."""
        return min(self.reserve_bytes, self.total_bytes // PART_OF_DISK)

    @property
    def is_short(self) -> bool:
        """There is not enough room to leave FULL, once it was reached."""
        return self.free_bytes < 2 * self.reserve

    @property
    def next_look_seconds(self) -> float:
        """The reserve cannot be used up before, or hardly."""
        soonest = (self.free_bytes - self.reserve) / FASTEST_RATE
        return min(max(soonest, SHORTEST_LOOK_SECONDS), LONGEST_LOOK_SECONDS)

    def wants_probe(self, now: float) -> bool:
        """There seems to be room again: a probe has to show it."""
        return self.level is Level.FULL and not self.is_short and now >= self._distrusted_until

    def look(self, total_bytes: int, free_bytes: int, now: float) -> None:
        self.total_bytes, self.free_bytes = total_bytes, free_bytes
        while self._seen and self._seen[0][0] < now - RATE_SECONDS:
            self._seen.popleft()
        if not self._seen or now - self._seen[-1][0] >= LONGEST_LOOK_SECONDS:
            self._seen.append((now, free_bytes))
        if free_bytes < self.reserve:
            self.level = Level.FULL
        elif self.level is not Level.FULL:
            self._look_for_shortage(now)

    def write_failed(self, now: float) -> None:
        """Note that a write found no space, though the last look found enough."""
        self.level = Level.FULL
        self._distrusted_until = now + DISTRUST_SECONDS

    def probe_succeeded(self, now: float) -> None:
        """Forget what was seen before: it says nothing about the time from now on."""
        self._seen.clear()
        self.level = Level.LOW
        self._look_for_shortage(now)

    def seconds_left(self, now: float) -> float | None:
        """Return when the reserve is reached, at the current rate; None if the free space does not shrink."""
        if not self._seen or now - self._seen[0][0] < SHORTEST_RATE_SECONDS:
            return None
        began, then_free = self._seen[0]
        used = then_free - self.free_bytes
        if used <= 0:
            return None
        return max(self.free_bytes - self.reserve, 0) * (now - began) / used

    def _look_for_shortage(self, now: float) -> None:
        """Enter LOW, or leave it where there is clearly more than it takes to enter."""
        margin = 1.25 if self.level is Level.LOW else 1.0
        seconds = self.seconds_left(now)
        is_little = self.free_bytes < margin * LOW_RESERVES * self.reserve
        is_soon = seconds is not None and seconds < margin * WARN_SECONDS
        self.level = Level.LOW if is_little or is_soon else Level.PLENTY
