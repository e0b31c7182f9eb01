"""A log's report that it has changed: once, until its listener has looked.

A log is appended to thousands of times between two looks. So it reports only the first change, and an append costs one
look at `is_told`.
"""

from collections.abc import Callable


class Changes:
    __slots__ = ("_listener", "is_told")

    def __init__(self) -> None:
        self._listener: Callable[[], None] | None = None
        self.is_told = False  # the listener has not looked since it was last called

    def listen(self, listener: Callable[[], None]) -> None:
        """Call this at the first change, and at the first one after each `looked`."""
        self._listener = listener

    def tell(self) -> None:
        if not self.is_told:
            self.is_told = True
            if self._listener is not None:
                self._listener()

    def looked(self) -> None:
        self.is_told = False
