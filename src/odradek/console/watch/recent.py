"""A cluster's recent responses about one topic or group, shared by all who look at it: however many there are,
brokers are asked once in a while, and what takes long to ask for is asked for less often.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

MOST_KEPT = 100
FRESH_S = 1.0
SHARE = 10  # asking takes at most this part of the time

Result = TypeVar("Result")


@dataclass
class Kept:
    result: Any = None
    until_s: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)


class Recent:
    def __init__(self) -> None:
        self._kept: OrderedDict[Hashable, Kept] = OrderedDict()
        self._lock = threading.Lock()

    def look(self, key: Hashable, ask: Callable[[], Result]) -> Result:
        """Return what `ask` returned a moment ago, or what it returns now. The key names who asks, if that makes a
        difference.
        """
        with self._lock:
            kept = self._kept.setdefault(key, Kept())
            self._kept.move_to_end(key)
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
        with kept.lock:
            began_s = time.monotonic()
            if began_s >= kept.until_s:
                kept.result = ask()
                ended_s = time.monotonic()
                kept.until_s = ended_s + max(FRESH_S, SHARE * (ended_s - began_s))
            result: Result = kept.result
            return result

    def forget(self) -> None:
        """Something was changed from here, and whoever did it wants to see that."""
        with self._lock:
            self._kept.clear()
