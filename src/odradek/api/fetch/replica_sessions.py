"""A replica's fetch session: a Fetch costs what has changed, and idle partitions are not looked at.

The session knows which of its partitions are *due*: those that the request names, those that have changed since they
were last looked at, and those whose records the replica may not have received yet. The others are watched: their
leaders call back when records are appended, when the high watermark moves, when the ISR changes, and when their epoch
ends. While a replica is not in the ISR, every fetch looks at the partition, because the replica may join by it.

A partition that is not looked at has not moved, so the replica has all of it. When it moves, its leader is told the
time of the replica's last fetch: until then the replica was caught up.

A new high watermark does not end a replica's wait: it learns it with the response. Unless the reader *hurries*, because
consumers wait for it at the followers (KIP-392). A new log start does: whoever had records deleted waits for all
replicas.

Retention, which moves the log start too, calls nobody back, so every few seconds all partitions are due.

A `Reader` reads the logs; the clock and the deadlines of waits come with it (`Clock`).
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from odradek.api.fetch.sessions import FetchSession, Wanted
from odradek.errors import ErrorCode
from odradek.host.interface import Timer
from odradek.replication.leader import Leader
from odradek.replication.waiters import Waiter
from odradek.serving.services import Deadlines
from odradek.wire.codec import Steps
from odradek.wire.fetch_response import FetchedPartition

LOOK_AT_ALL_MS = 5_000

Answers = list[tuple[Wanted, FetchedPartition]]


class Reader(Protocol):
    """One Fetch request."""

    @property
    def hurries(self) -> bool:
        """A new high watermark ends its wait."""

    def read_first(self, wanted: Wanted, size_so_far: int) -> FetchedPartition:
        """Read what there is, and count this as a fetch of the replica."""

    def read_partition(self, wanted: Wanted, size_so_far: int) -> FetchedPartition:
        """Read what there is now."""

    def finish(self, answers: Answers) -> None:
        """Send the response."""

    def finish_with(self, read: Callable[[], Answers]) -> None:
        """Read and send the response, even if reading fails."""


class Clock(Protocol):
    """The time, and timers for waits."""

    @property
    def steady_ms(self) -> Callable[[], int]: ...

    @property
    def deadlines(self) -> Deadlines: ...


class Watch:
    """The callbacks for one partition that has not changed."""

    __slots__ = ("leader", "moved", "spoken")

    def __init__(self, leader: Leader, moved: Waiter, spoken: Waiter) -> None:
        self.leader = leader
        self.moved = moved  # there is more to read, the ISR has changed, or the epoch has ended
        self.spoken = spoken  # the high watermark has moved: the next response says so

    def end(self) -> None:
        self.leader.forget_waiter(self.moved)
        self.leader.forget_waiter(self.spoken)


class ReplicaSession:
    """The state of a replica's session between its fetches."""

    def __init__(self, session: FetchSession, replica_id: int, now_ms: int) -> None:
        self._session = session
        self.replica_id = replica_id
        self._watches: dict[Wanted, Watch] = {}
        self._due: dict[Wanted, None] = dict.fromkeys(session.partitions.values())
        self._fetched_ms = now_ms
        self._looked_at_all_ms = now_ms
        self.waiting: ReplicaFetch | None = None
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
        self._due.clear()

    # --- waiting ---

    def wait(self, fetch: "ReplicaFetch", clock: Clock) -> None:
        """Let a fetch wait. Nearly all waits end before their time, so one timer serves many of them. A replica that
        asks again without waiting for its response gets that now."""
        if self.waiting is not None:
            self.waiting.time_out()
        self.waiting = fetch
        if self._timer is None or fetch.until_ms < self._timer_ms:
            self._cancel_timer()
            self._set_timer(fetch.until_ms, clock)

    def _set_timer(self, until_ms: int, clock: Clock) -> None:
        self._timer_ms = until_ms
        delay_ms = until_ms - clock.steady_ms()
        self._timer = clock.deadlines.add(delay_ms, partial(self._time_is_up, clock))

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_is_up(self, clock: Clock) -> None:
        self._timer = None
        fetch = self.waiting
        if fetch is None:
            return
        if fetch.until_ms > clock.steady_ms():
            self._set_timer(fetch.until_ms, clock)
        else:
            fetch.time_out()

    # --- which partitions to look at ---

    def take_due(self) -> list[Wanted]:
        due, self._due = self._due, {}
        return list(due)

    def looked_at(self, wanted: Wanted, answer: FetchedPartition) -> None:
        """Watch the partition if there is nothing left to send or decide; otherwise it is due again."""
        leader = wanted.leader
        if (
            leader is None
            or leader.closed_with
            or answer.error_code
            or answer.divergence is not None
            or wanted.asked.fetch_offset != leader.log.end_offset
            or self.replica_id not in leader.isr
        ):
            self._due[wanted] = None
        else:
            watch = self._watches.get(wanted)
            if watch is None or watch.leader is not leader:
                self._unwatch(wanted)
                watch = Watch(leader, partial(self._moved, wanted), partial(self._spoken, wanted))
                self._watches[wanted] = watch
            leader.watch(watch.moved, watch.spoken)

    def _unwatch(self, wanted: Wanted) -> None:
        watch = self._watches.pop(wanted, None)
        if watch is not None:
            watch.end()

    # --- callbacks of the leaders ---

    def _moved(self, wanted: Wanted, error: ErrorCode) -> None:
        watch = self._watches[wanted]
        watch.leader.was_caught_up(self.replica_id, self._fetched_ms)
        self._due[wanted] = None
        if self.waiting is not None:
            self.waiting.woken(error)

    def _spoken(self, wanted: Wanted, error: ErrorCode) -> None:
        self._due[wanted] = None
        if self.waiting is not None and self.waiting.hurries:
            self.waiting.woken(error)


class ReplicaFetch:
    """One fetch of a replica, from its first look to its response. It waits for data, an error or its deadline."""

    def __init__(self, reader: Reader, known: ReplicaSession, min_bytes: int, until_ms: int) -> None:
        self._reader = reader
        self._known = known
        self._min_bytes = min_bytes
        self.hurries = reader.hurries
        self._answers: dict[Wanted, FetchedPartition] = {}
        self._size = 0
        self._ends_wait = False  # something has to be told at once
        self.until_ms = until_ms  # the end of its wait

    def read(self) -> None:
        for wanted in self._known.take_due():
            self._look_at(wanted, self._reader.read_first)

    def read_in_steps(self) -> Steps[None]:
        for wanted in self._known.take_due():
            self._look_at(wanted, self._reader.read_first)
            yield

    @property
    def is_enough(self) -> bool:
        return self._ends_wait or self._size >= self._min_bytes

    def _look_at(self, wanted: Wanted, read: Callable[[Wanted, int], FetchedPartition]) -> None:
        before = self._answers.get(wanted)
        size_of_others = self._size - (before.length if before is not None else 0)
        answer = self._answers[wanted] = read(wanted, size_of_others)
        self._size = size_of_others + answer.length
        if (
            answer.error_code
            or answer.divergence is not None
            or 0 <= wanted.told_log_start_offset < answer.log_start_offset
            or (self.hurries and answer.high_watermark != wanted.told_high_watermark)
        ):
            self._ends_wait = True
        self._known.looked_at(wanted, answer)

    # --- waiting ---

    def wait(self, clock: Clock) -> None:
        self._known.wait(self, clock)

    def woken(self, error: ErrorCode) -> None:
        self._look_again()
        if error or self.is_enough:
            self.answer()

    def _look_again(self) -> None:
        for wanted in self._known.take_due():
            self._look_at(wanted, self._reader.read_partition)

    def end(self) -> None:
        """End the wait: nothing wakes this fetch any more."""
        if self._known.waiting is self:
            self._known.waiting = None

    # --- answering ---

    def answer(self) -> None:
        """Send what was just read."""
        self.end()
        self._reader.finish(list(self._answers.items()))

    def time_out(self) -> None:
        """Look again at what is due, such as partitions with a new high watermark, and respond."""
        self.end()
        self._reader.finish_with(self._read_at_last)

    def _read_at_last(self) -> Answers:
        self._look_again()
        return list(self._answers.items())
