"""Retry until a response or until a limit, with a warning now and then in between.

The limit is a function, because it may grow meanwhile: brokers that have been reached once get more time than an
address that may be wrong. So is the advice at the end of a final failure. Pauses between two tries grow tenfold;
warnings come after 5 s and then each after twice the time, so that an outage of an hour takes ten lines.
"""

import logging
import time
from collections.abc import Callable

FIRST_WARNING_S = 5.0
LONGEST_PAUSE = 10  # of the pauses, as a multiple of the first

log = logging.getLogger("odradek.client")


class TimedOut(Exception):
    """No broker responded in time; the message says what was requested and what failed."""


class Deadline:
    """One question, which `purpose` names as a verb with its object; `pause` is called after each failed try."""

    def __init__(
        self,
        purpose: str,
        limit_s: Callable[[], float],
        backoff_s: float,
        advice: Callable[[], str] = str,
        is_given_up: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._purpose, self._limit_s, self._advice = purpose, limit_s, advice
        self._is_given_up = is_given_up
        self._pause_s, self._longest_pause_s = backoff_s, LONGEST_PAUSE * backoff_s
        self._clock, self._sleep = clock, sleep
        self._start_s = clock()
        self._next_warning_s = FIRST_WARNING_S
        self._has_warned = False

    def pause(self, reason: Exception) -> None:
        """Wait before the next try, or give up: `TimedOut`."""
        limit_s, waited_s = self._limit_s(), self._clock() - self._start_s
        if self._is_given_up():
            raise TimedOut(f"could not {self._purpose} before it was stopped: {reason}") from reason
        if waited_s >= limit_s:
            problem = f"could not {self._purpose} within {limit_s:g} s: {reason}"
            raise TimedOut(f"{problem}{self._advice()}") from reason
        if waited_s >= self._next_warning_s:
            self._warn(reason, waited_s, limit_s)
        self._sleep(min(self._pause_s, limit_s - waited_s))
        self._pause_s = min(2 * self._pause_s, self._longest_pause_s)

    def _warn(self, reason: Exception, waited_s: float, limit_s: float) -> None:
        log.warning(
            "still cannot %s after %.0f s: %s. Retrying for up to %.0f s more",
            self._purpose,
            waited_s,
            reason,
            limit_s - waited_s,
        )
        self._has_warned = True
        while self._next_warning_s <= waited_s:
            self._next_warning_s *= 2

    def met(self) -> None:
        """There was a response: if there was a warning, say so."""
        if self._has_warned:
            outage_s = self._clock() - self._start_s
            log.info("brokers are reachable again after %.0f s: could %s", outage_s, self._purpose)
