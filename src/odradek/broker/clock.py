"""The time of day, as records and logs carry it. Waiting is done by the event loop's monotonic clock."""

import time


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000
