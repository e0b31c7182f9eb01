"""Callbacks that wait for something to happen to a partition: plain callbacks, without a clock or a socket.

A waiter is called once for each wait, with the error that ended the wait, or NONE when the awaited event happened. It
may do anything: end other waits, wait again, close the partition. If one raises, that is logged, and the others are
still called: a failed response to one client must not affect another's, nor interrupt the change that woke them.
"""

import logging
from collections import deque
from collections.abc import Callable

from odradek.errors import ErrorCode
from odradek.model import TopicPartition

logger = logging.getLogger(__name__)

Waiter = Callable[[ErrorCode], None]


def _log_failure(name: TopicPartition) -> None:
    logger.exception("%s: a request that waited for it failed: this is a bug; the others continue", name)


class ChangeWaiters:
    """They wait for the next change."""

    __slots__ = ("_name", "_waiters")

    def __init__(self, name: TopicPartition) -> None:
        self._name = name
        self._waiters: dict[Waiter, None] = {}

    def __len__(self) -> int:
        return len(self._waiters)

    def add(self, waiter: Waiter) -> None:
        self._waiters[waiter] = None

    def discard(self, waiter: Waiter) -> None:
        self._waiters.pop(waiter, None)

    def wake(self, error: ErrorCode = ErrorCode.NONE) -> None:
        waiters = self._waiters
        for waiter in list(waiters):
            if waiter in waiters:  # unless one before it ended its wait
                del waiters[waiter]
                try:
                    waiter(error)
                except Exception:
                    _log_failure(self._name)


NOBODY: deque[tuple[int, Waiter]] = deque()  # shared by all partitions without waiters: most of them


class OffsetWaiters:
    """They wait for a rising offset to reach theirs; the lowest are called first."""

    __slots__ = ("_name", "_waiters")

    def __init__(self, name: TopicPartition) -> None:
        self._name = name
        self._waiters = NOBODY  # ordered by offset

    def __len__(self) -> int:
        return len(self._waiters)

    def add(self, offset: int, waiter: Waiter) -> None:
        if self._waiters is NOBODY:
            self._waiters = deque()
        waiters = self._waiters
        if not waiters or offset >= waiters[-1][0]:
            waiters.append((offset, waiter))
            return
        # Rare: a repeated batch waits for its first offset, a large Produce for what it appended turns ago.
        place = next(index for index, (other, _) in enumerate(waiters) if other > offset)
        waiters.insert(place, (offset, waiter))

    def reached(self, offset: int) -> None:
        waiters = self._waiters
        while waiters and waiters[0][0] <= offset:
            self._tell(waiters.popleft()[1], ErrorCode.NONE)

    def end(self, error: ErrorCode) -> None:
        """End all waits: their offsets will never be reached."""
        while self._waiters:
            self._tell(self._waiters.popleft()[1], error)

    def _tell(self, waiter: Waiter, error: ErrorCode) -> None:
        try:
            waiter(error)
        except Exception:
            _log_failure(self._name)
