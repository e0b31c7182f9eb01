"""A follower's fetch session: a Fetch costs what has changed, and idle partitions are not looked at.

The session knows which of its partitions are *due*: those that the request names, those that have changed since they
were last looked at, and those whose records the replica may not have received yet. The others are watched: their
leaders call back when records are appended, when the high watermark moves, when the ISR changes, and when their epoch
ends. While a replica is not in the ISR, every fetch looks at the partition, because the replica may join by it. A fetch
that waits has such partitions watched too.

A partition that is not looked at has not moved, so the replica has all of it. When it moves, its leader is told the
time of the replica's last fetch: until then the replica was caught up.

A new high watermark does not end a replica's wait: it learns it with the response. Unless the fetch *hurries*, because
consumers wait for it at the followers (KIP-392). A new log start does: whoever had records deleted waits for all
replicas.

Retention, which moves the log start too, calls nobody back, so every few seconds all partitions are due.

A full fetch begins a session, with all partitions due; if it is not kept, it is over with the response.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from odradek.errors import ErrorCode
from odradek.fetching.sessions import FetchSession, Wanted
from odradek.host.interface import Timer
from odradek.replication.leader import Leader
from odradek.replication.source import Fetched
from odradek.replication.waiters import Waiter
from odradek.serving.services import Deadlines

LOOK_AT_ALL_MS = 5_000


class Waiting(Protocol):
    """A fetch that waits."""

    hurries: bool  # a new high watermark ends its wait
    until_ms: int  # the end of its wait

    def woken(self, error: ErrorCode) -> None:
        """Something is due. The error, if there is one, ended the epoch of a leader."""

    def time_out(self) -> None:
        """Respond now."""


class Clock(Protocol):
    """The time, and timers for waits."""

    @property
    def steady_ms(self) -> Callable[[], int]: ...

    @property
    def deadlines(self) -> Deadlines: ...


class Watch:
    """The callbacks for one partition that has not changed."""

    __slots__ = ("has_all", "leader", "moved", "spoken")

    def __init__(self, leader: Leader, moved: Waiter, spoken: Waiter) -> None:
        self.leader = leader
        self.has_all = True  # the replica asked for the end of the log when the leader was last watched
        self.moved = moved  # there is more to read, the ISR has changed, or the epoch has ended
        self.spoken = spoken  # the high watermark has moved: the next response says so

    def end(self) -> None:
        self.leader.forget_waiter(self.moved)
        self.leader.forget_waiter(self.spoken)


class FollowerSession:
    """The state of a follower's session between its fetches."""

    def __init__(self, session: FetchSession, replica_id: int, clock: Clock, now_ms: int) -> None:
        self._session = session
        self.replica_id = replica_id
        self._clock = clock
        self._watches: dict[Wanted, Watch] = {}
        self._due: dict[Wanted, None] = dict.fromkeys(session.partitions.values())
        self._fetched_ms = now_ms
        self._looked_at_all_ms = now_ms
        self._is_over = False  # then nothing is watched any more
        self.waiting: Waiting | None = None
        self._timer: Timer | None = None  # for whichever fetch waits when it fires
        self._timer_ms = 0  # when that is

    def fetched(self, named: list[Wanted], now_ms: int) -> None:
        """A request has come, which names these partitions."""
        self._fetched_ms = now_ms
        if now_ms - self._looked_at_all_ms >= LOOK_AT_ALL_MS:
            self._looked_at_all_ms = now_ms
            self._due = dict.fromkeys(self._session.partitions.values())
            return
        for wanted in named:
            self._due[wanted] = None

    def forgotten(self, wanted: Wanted) -> None:
        """The replica no longer follows this partition."""
        self._due.pop(wanted, None)
        self._unwatch(wanted)

    def end(self) -> None:
        """The session is over. A fetch that waits in it gets its response when its time is up."""
        for wanted in list(self._watches):
            self._unwatch(wanted)
        self._is_over = True
        self._due.clear()
        if self.waiting is None:
            self._cancel_timer()

    # --- waiting ---

    def wait(self, fetch: Waiting) -> None:
        """Let a fetch wait. Nearly all waits end before their time, so one timer serves many of them. A replica that
        asks again without waiting for its response gets that now."""
        if self.waiting is not None:
            self.waiting.time_out()
        self.waiting = fetch
        if self._timer is None or fetch.until_ms < self._timer_ms:
            self._cancel_timer()
            self._set_timer(fetch.until_ms)

    def _set_timer(self, until_ms: int) -> None:
        self._timer_ms = until_ms
        delay_ms = until_ms - self._clock.steady_ms()
        self._timer = self._clock.deadlines.add(delay_ms, self._time_is_up)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_is_up(self) -> None:
        self._timer = None
        fetch = self.waiting
        if fetch is None:
            return
        if fetch.until_ms > self._clock.steady_ms():
            self._set_timer(fetch.until_ms)
        else:
            fetch.time_out()

    # --- which partitions to look at ---

    def take_due(self) -> list[Wanted]:
        due, self._due = self._due, {}
        return list(due)

    def looked_at(self, wanted: Wanted, response: Fetched) -> None:
        """Watch the partition if there is nothing left to send or decide; otherwise it is due again."""
        leader = wanted.leader
        if (
            leader is None
            or leader.closed_with
            or response.error_code
            or response.divergence is not None
            or wanted.asked.fetch_offset != leader.log.end_offset
            or self.replica_id not in leader.isr
        ):
            self._due[wanted] = None
        else:
            self.watch(wanted, leader, has_all=True)

    def is_due(self, wanted: Wanted) -> bool:
        return wanted in self._due

    def watch(self, wanted: Wanted, leader: Leader, has_all: bool) -> None:
        """Have a leader that is not closed call back."""
        watch = self._watches.get(wanted)
        if watch is None or watch.leader is not leader:
            if self._is_over:
                return
            self._unwatch(wanted)
            watch = Watch(leader, partial(self._moved, wanted), partial(self._spoken, wanted))
            self._watches[wanted] = watch
        watch.has_all = has_all
        leader.watch(watch.moved, watch.spoken)

    def _unwatch(self, wanted: Wanted) -> None:
        watch = self._watches.pop(wanted, None)
        if watch is not None:
            watch.end()

    # --- callbacks of the leaders ---

    def _moved(self, wanted: Wanted, error: ErrorCode) -> None:
        watch = self._watches[wanted]
        if watch.has_all:
            watch.leader.was_caught_up(self.replica_id, self._fetched_ms)
        self._due[wanted] = None
        if self.waiting is not None:
            self.waiting.woken(error)

    def _spoken(self, wanted: Wanted, error: ErrorCode) -> None:
        self._due[wanted] = None
        if self.waiting is not None and self.waiting.hurries:
            self.waiting.woken(error)
