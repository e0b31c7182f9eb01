"""The process that compacts, controlled by the broker's `cleaner.py` through pipes, one JSON object per line.

In:  a job, as `job_to_json` makes it.
Out: `{"group": …}` for each new segment that is on disk; then `{"done": …}` with the round's numbers, or
     `{"failed": reason, "corrupt": whether trying again is useless}`.

A thread in the broker would not do: it would compete with the event loop for the interpreter's lock. This process has
a lower priority than the broker, limits its bytes per second, and never renames or removes a file of the log: it
only writes `.cleaned` files. It exits when its input is closed, and when it finds that its parent is gone, since the
next broker on this directory will start its own worker.
"""

import json
import os
import sys
import time
from collections.abc import Callable

from odradek.storage.compaction.exchange import carry_out
from odradek.storage.compaction.job import Message
from odradek.storage.disk.files import DiskFiles

NICENESS = 10
LONGEST_DEBT_SECONDS = 0.05
LONGEST_SLEEP_SECONDS = 1.0


class RateLimit:
    """Sleeps so that no more than this many bytes per second pass. Unused bytes are not saved up for a later burst."""

    def __init__(
        self,
        bytes_per_second: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        self._paid_until = clock()

    def __call__(self, byte_count: int) -> None:
        now = self._clock()
        self._paid_until = max(self._paid_until, now) + byte_count / self._bytes_per_second
        while self._paid_until - self._clock() > LONGEST_DEBT_SECONDS:
            self._sleep(min(self._paid_until - self._clock(), LONGEST_SLEEP_SECONDS))


def run(files: DiskFiles, message: Message, send: Callable[[Message], None], parent: int) -> None:
    def sleep(seconds: float) -> None:
        time.sleep(seconds)
        exit_if_orphaned(parent)

    limit = RateLimit(message["bytes_per_second"], sleep=sleep)

    def throttle(byte_count: int) -> None:
        limit(byte_count)
        exit_if_orphaned(parent)

    for reply in carry_out(files, message, throttle):
        send(reply)


def exit_if_orphaned(parent: int) -> None:
    if os.getppid() != parent:
        sys.exit("The broker has exited")


def send_line(message: Message) -> None:
    try:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os._exit(1)  # the broker was killed: no one reads this or a traceback


def main() -> None:
    os.nice(NICENESS)
    parent = os.getppid()
    files = DiskFiles()
    for line in sys.stdin:
        run(files, json.loads(line), send_line, parent)


if __name__ == "__main__":
    main()
