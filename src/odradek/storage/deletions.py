"""Files that are no longer part of a log, but may still be on their way to a consumer.

They carry another name already (`.deleted`, `-delete`), so that after a crash they are known to be rubbish,
and are removed for good once `file.delete.delay.ms` has passed.
"""

import heapq
from collections.abc import Callable
from itertools import count


class Deletions:
    """What is to be removed, by the time at which it may be."""

    def __init__(self) -> None:
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._due)

    def schedule(self, due_ms: int, remove: Callable[[], None]) -> None:
        heapq.heappush(self._due, (due_ms, next(self._order), remove))

    def run_next(self, now_ms: int) -> bool:
        """Remove what has been due longest; whether there was something. A topic may have a thousand partitions,
        so whoever calls this does other work in between."""
        if not self._due or self._due[0][0] > now_ms:
            return False
        heapq.heappop(self._due)[2]()
        return True
