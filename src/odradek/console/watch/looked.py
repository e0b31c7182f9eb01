"""Values that are read when somebody looks, and not more often than it takes to read them allows. All who look share
it.
"""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

FRESH_S = 3.0
SHARE = 20
Found = TypeVar("Found")


class Looked(Generic[Found]):
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: Found | None = None
        self._seen_s = self._spent_s = 0.0

    def look(self, read: Callable[[], Found]) -> Found:
        with self._lock:
            now_s = time.monotonic()
            if self._found is None or now_s - self._seen_s > max(FRESH_S, SHARE * self._spent_s):
                self._found = read()
                self._seen_s = time.monotonic()
                self._spent_s = self._seen_s - now_s
            return self._found
