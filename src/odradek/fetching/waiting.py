"""A request that waits at many sources for more to read, for an error, or for its deadline, whichever comes first."""

from collections.abc import Callable
from functools import partial

from odradek.errors import ErrorCode
from odradek.host.interface import Timer
from odradek.replication.source import Source
from odradek.replication.waiters import Waiter
from odradek.serving.services import Deadlines


class Wait:
    """A source that changes wakes the request, which then looks at that one again: waiting for ten thousand partitions
    costs no more than the one that has data.

    It waits on the sources themselves, not on the names of partitions: when a topic is deleted the names are gone
    before its sources are closed, and those of other topics deleted with it are closed later still.
    """

    __slots__ = ("_timer", "_watches", "_woken")

    def __init__(
        self,
        deadlines: Deadlines,
        max_wait_ms: int,
        woken: Callable[[int, ErrorCode], None],
        timed_out: Callable[[], None],
    ) -> None:
        """`woken` gets the position of the source that has changed, and the error that closed it, if one did. It calls
        `again`, or ends the wait."""
        self._woken = woken
        self._watches: list[tuple[Source, Waiter]] = []  # none once the wait is over
        self._timer: Timer | None = deadlines.add(max_wait_ms, timed_out)  # None once the wait is over

    def __len__(self) -> int:
        """The number of sources: the position of the next one."""
        return len(self._watches)

    @property
    def is_over(self) -> bool:
        return self._timer is None

    def add(self, source: Source) -> None:
        """One more source; `again` begins the wait there."""
        self._watches.append((source, partial(self._woken, len(self._watches))))

    def again(self, position: int) -> None:
        """Wait for the next change of the source at this position."""
        source, watch = self._watches[position]
        source.when_high_watermark_moves(watch)

    def end(self) -> None:
        """End the wait: nothing wakes the request any more."""
        assert self._timer is not None
        self._timer.cancel()
        self._timer = None
        self._woken = (
            _nothing  # it refers to the request, and that to this: a cycle, left to the garbage collector
        )
        watches, self._watches = self._watches, []
        for source, watch in watches:
            source.forget_waiter(watch)


def _nothing(position: int, error: ErrorCode) -> None:
    """Nobody waits any more."""
