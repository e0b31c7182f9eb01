"""Files that are no longer part of a log, but may still be being sent to a consumer.

They already have another name (`.deleted`, `-delete`), so that after a crash they are known to be garbage,
and are removed for good once `file.delete.delay.ms` has passed.

A failed removal is tried again, each time after a longer pause, and does not block other removals.
"""

import heapq
import logging
from collections.abc import Callable
from itertools import count
from typing import NamedTuple

logger = logging.getLogger(__name__)

FIRST_RETRY_MS = 1_000
LONGEST_RETRY_MS = 600_000


class Deletion(NamedTuple):
    due_ms: int
    order: int  # files that are due at the same time are removed in the order in which they were scheduled
    remove: Callable[[], None]
    failures: int = 0

    def again(self, now_ms: int) -> "Deletion":
        delay_ms = min(FIRST_RETRY_MS << min(self.failures, 20), LONGEST_RETRY_MS)
        return self._replace(due_ms=now_ms + delay_ms, failures=self.failures + 1)


class Deletions:
    """Files to remove, by the time at which they may be removed."""

    def __init__(self) -> None:
        self._due: list[Deletion] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._due)

    def schedule(self, due_ms: int, remove: Callable[[], None]) -> None:
        """`remove` is called until it returns, so it must cope with files that an earlier call has removed."""
        heapq.heappush(self._due, Deletion(due_ms, next(self._order), remove))

    def run_next(self, now_ms: int) -> bool:
        """Remove the file that has been due longest; returns whether there was one. A topic may have a thousand
        partitions, so the caller does other work in between."""
        if not self._due or self._due[0].due_ms > now_ms:
            return False
        deletion = heapq.heappop(self._due)
        try:
            deletion.remove()
        except Exception as error:
            heapq.heappush(self._due, deletion.again(now_ms))
            if not deletion.failures:
                is_ours = not isinstance(error, OSError)
                logger.error("cannot remove a deleted file, trying again: %s", error, exc_info=is_ours)
        else:
            if deletion.failures:
                logger.info("removed a deleted file at attempt %d", deletion.failures + 1)
        return True
