"""Repeated log lines are counted instead of written.

A client that speaks TLS to a plaintext listener tries again twenty times a second. The first line is written; those
that follow within a minute are counted, and the count is written once that minute is over. As long as they keep coming,
that is one line a minute; after a minute of silence the next one is written in full.

There is one timer for all of them, and none while nothing has been repeated. Memory is bounded: if there are more than
`MAX_KINDS` kinds of lines within a minute, the surplus is counted together. A source has a share of that, so that one
that asks for ever other things does not hide the lines about others.
"""

import logging
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, Protocol

WINDOW_SECONDS = 60.0
MAX_KINDS = 200
MAX_KINDS_OF_A_SOURCE = 100


class Timer(Protocol):
    def cancel(self) -> None: ...


class Kind(NamedTuple):
    """Lines that are counted as the same."""

    logger: logging.Logger
    level: int
    source: str
    what: str


class Window:
    __slots__ = ("began", "count")

    def __init__(self, began: float) -> None:
        self.began = began
        self.count = 0  # lines that were not written


class Repeats:
    def __init__(
        self,
        now: Callable[[], float],
        call_later: Callable[..., Timer],
        window_seconds: float = WINDOW_SECONDS,
        max_kinds: int = MAX_KINDS,
        max_kinds_of_a_source: int = MAX_KINDS_OF_A_SOURCE,
    ) -> None:
        self._now = now
        self._call_later = call_later
        self._window_seconds = window_seconds
        self._max_kinds = max_kinds
        self._max_kinds_of_a_source = max_kinds_of_a_source
        self._windows: dict[Kind, Window] = {}
        self._sources: Counter[str] = Counter()  # how many of the windows each has
        self._timer: Timer | None = None

    def is_new(self, logger: logging.Logger, level: int, source: str, what: str) -> bool:
        """True if this line is to be written; if not, it is counted."""
        now = self._now()
        kind = Kind(logger, level, source, what)
        window = self._windows.get(kind)
        if window is None and self._is_full(source):
            self._forget_old(now)
            if self._is_full(source):
                surplus = source if len(self._windows) < self._max_kinds else "others"
                kind = Kind(logger, level, surplus, "lines like the ones above")
                window = self._windows.setdefault(kind, Window(now))  # one more for each logger and level
                self._count(window, now)
                return False
        if window is None:
            self._sources[source] += 1
        elif window.count or now - window.began < self._window_seconds:
            self._count(window, now)
            return False
        self._windows[kind] = Window(now)
        return True

    def _is_full(self, source: str) -> bool:
        return len(self._windows) >= self._max_kinds or self._sources[source] >= self._max_kinds_of_a_source

    def _count(self, window: Window, now: float) -> None:
        window.count += 1
        if self._timer is None:
            self._set_timer(window.began + self._window_seconds - now)

    def _set_timer(self, seconds: float) -> None:
        self._timer = self._call_later(max(seconds, 0.0), self._report_due)

    def _report_due(self) -> None:
        self._timer = None
        now = self._now()
        for kind, window in self._windows.items():
            if window.count and now - window.began >= self._window_seconds - 0.001:
                self._report(kind, window, now)
        counting = [window.began for window in self._windows.values() if window.count]
        if counting:
            self._set_timer(min(counting) + self._window_seconds - now)

    def _report(self, kind: Kind, window: Window, now: float) -> None:
        kind.logger.log(
            kind.level,
            "… %d more in the last %.0f s from %s: %s",
            window.count,
            max(now - window.began, 1.0),
            kind.source,
            kind.what,
            extra={"fields": {"repeats": window.count, "source": kind.source}},
        )
        window.began, window.count = now, 0

    def _forget_old(self, now: float) -> None:
        self._windows = {
            kind: window
            for kind, window in self._windows.items()
            if window.count or now - window.began < self._window_seconds
        }
        self._sources = Counter(kind.source for kind in self._windows)

    def close(self) -> None:
        """Write the counts now: there will be no later chance."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._now()
        for kind, window in self._windows.items():
            if window.count:
                self._report(kind, window, now)
