"""A command that runs on until it is told to stop."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def stopping(stop: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C and SIGTERM stop cleanly; a second one does not wait."""

    def handle(number: int, _: object) -> None:
        if asked:
            os._exit(128 + number)
        asked.append(number)
        stop()

    asked: list[int] = []
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
