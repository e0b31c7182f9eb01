"""Work that stands in line: some of it in each turn of the event loop, so that many who want it at once do not keep
everybody else waiting."""

from collections import deque
from collections.abc import Callable

from odradek.host.interface import Host

SHARE_SECONDS = 0.001  # of each turn; what has begun is finished


class Line:
    def __init__(self, host: Host) -> None:
        self._host = host
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_moving = False

    def add(self, work: Callable[[], None]) -> None:
        """In a later turn; it must not raise."""
        self._waiting.append(work)
        self._move_on()

    def _move_on(self) -> None:
        if self._waiting and not self._is_moving:
            self._is_moving = True
            self._host.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._is_moving = False
        ends = self._host.monotonic() + SHARE_SECONDS
        try:
            while self._waiting:
                self._waiting.popleft()()
                if self._host.monotonic() >= ends:
                    break
        finally:
            self._move_on()
