"""Waiting for something to become true that nobody tells us of."""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

LOOK_AGAIN_S = 0.02

Found = TypeVar("Found")


class NotInTime(AssertionError):
    """The cluster did not become what the test waited for."""


def until(look: Callable[[], Found | None], what: Callable[[], str], timeout_s: float) -> Found:
    """Returns what `look` finds, once it finds something. Raises NotInTime, which says that `what` did not happen."""
    deadline = time.monotonic() + timeout_s
    while (found := look()) is None:
        if time.monotonic() >= deadline:
            raise NotInTime(f"not within {timeout_s:g} s: {what()}")
        threading.Event().wait(LOOK_AGAIN_S)
    return found
