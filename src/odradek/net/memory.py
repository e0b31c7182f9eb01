"""Memory for frames that arrive in pieces, over all connections.

A client says how large its request is before it sends it, and may never send it. So only bytes that have arrived count:
a frame's memory is an anonymous map, whose pages the kernel provides when the first byte is written to them.

While the limit is reached, clients whose frames are arriving wait; only the frame that began first continues, whatever
its size, so that none waits forever. A frame that has arrived counts until its request has been handled.
"""

import mmap
from typing import Protocol

MAP_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


class Claimant(Protocol):
    def memory_is_free(self) -> None:
        """The claimant may try again."""

    def is_late(self, now: float) -> bool:
        """True if its frame does not arrive, although there is memory for it."""

    def close(self, reason: str) -> None:
        """Give up, so that others get the memory."""


class RequestMemory:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.in_use = 0
        self.arriving: dict[Claimant, None] = {}  # in the order in which their frames began
        self._waiting: dict[Claimant, None] = {}

    @property
    def is_exhausted(self) -> bool:
        return self.in_use >= self.limit

    @property
    def is_waited_for(self) -> bool:
        return bool(self._waiting)

    def begin(self, claimant: Claimant) -> None:
        self.arriving[claimant] = None

    def may_grow(self, claimant: Claimant) -> bool:
        """True if it may; otherwise the claimant is told when to try again."""
        if not self.is_exhausted or next(iter(self.arriving)) is claimant:
            return True
        self._waiting[claimant] = None
        return False

    def take(self, size: int) -> None:
        self.in_use += size

    def end(self, claimant: Claimant) -> None:
        """Its frame has arrived, or never will."""
        self.arriving.pop(claimant, None)
        self._waiting.pop(claimant, None)
        self._wake()

    def release(self, size: int) -> None:
        self.in_use -= size
        self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for claimant in waiting:
            claimant.memory_is_free()


def new_frame(size: int) -> memoryview:
    return memoryview(mmap.mmap(-1, size, flags=MAP_FLAGS))
