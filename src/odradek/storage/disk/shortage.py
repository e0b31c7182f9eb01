"""A moment without descriptors: what it means, and the reserve for it.

A process may have only so many descriptors, and so may the whole system. When there is none left, no file can be
opened, but nothing is wrong with the disk either: nothing was read, written or synced, and the same call succeeds a
moment later. So code that opens files raises `CannotOpen` for this and for nothing else, so that a log can tell
"try again" from "the disk has failed".

A few descriptors are kept open on `/dev/null` from the start. They are closed, one by one, when storage can get
none otherwise: undoing a failed write or writing a checkpoint must not wait for a client to disconnect.
"""

import errno
import os

SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


class CannotOpen(OSError):
    """There is no descriptor, or no memory for one, right now. Nothing has happened: try again later."""


def is_shortage(error: OSError) -> bool:
    """True if a call that opens something failed for lack of a descriptor or of memory."""
    return error.errno in SHORTAGES


class Reserve:
    """Open descriptors whose only purpose is to be closed when others are needed."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._held: list[int] = []
        self.refill()

    def __len__(self) -> int:
        return len(self._held)

    def refill(self) -> None:
        """Returns as many as there are descriptors for."""
        try:
            while len(self._held) < self._size:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            pass  # tried again after the next file that could be opened

    def give_one(self) -> bool:
        """Close one; False if there is none."""
        if not self._held:
            return False
        os.close(self._held.pop())
        return True

    def __del__(self) -> None:
        while self.give_one():
            pass
