"""A command that runs on until it is told to stop.

A handler of a signal runs between any two steps of the main thread, which may hold the very lock that `stop` wants, as
`threading.Event` has one. So the handler only leaves the signal in a queue that is made for that, and a thread of its
own calls `stop`. Nothing is raised either: libraries drop exceptions that reach them in a callback.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Thread

NO_SIGNAL = 0


@contextlib.contextmanager
def stopping(stop: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C and SIGTERM stop cleanly; a second one does not wait."""

    def handle(number: int, _: object) -> None:
        if asked:
            os._exit(128 + number)
        asked.append(number)
        signals.put(number)

    def wait() -> None:
        if signals.get() != NO_SIGNAL:
            stop()

    asked: list[int] = []
    signals = SimpleQueue[int]()
    waiting = Thread(target=wait, name="stopping", daemon=True)
    waiting.start()
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signals.put(NO_SIGNAL)
        waiting.join()
