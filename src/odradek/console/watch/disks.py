"""Space of brokers, sizes of topics, and when a disk will be full if it goes on like this."""

from collections import deque

from odradek.admin.access import Access, Address
from odradek.admin.failures import AdminError
from odradek.admin.requests import ask
from odradek.console.watch.seen import Disks
from odradek.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

HISTORY = 120  # looks
TREND_S = 300.0  # shorter ones say little
DISTANT_S = 30 * 86_400.0


class FreeSpace:
    """The free space of one disk over time."""

    def __init__(self) -> None:
        self._history: deque[tuple[float, int]] = deque(maxlen=HISTORY)

    def note(self, free_bytes: int, now_s: float) -> float | None:
        """Seconds until it is full if it goes on like this; None if that is not soon, or nobody knows yet."""
        self._history.append((now_s, free_bytes))
        then_s, then_bytes = self._history[0]
        if now_s - then_s < TREND_S or then_bytes <= free_bytes:
            return None
        left_s = free_bytes * (now_s - then_s) / (then_bytes - free_bytes)
        return left_s if left_s < DISTANT_S else None


class DisksTask:
    """Asks brokers for their directories; remembers how much was free."""

    def __init__(self) -> None:
        self._free: dict[int, FreeSpace] = {}

    def ask(self, access: Access, brokers: dict[int, Address], now_s: float) -> Disks:
        free: dict[int, int] = {}
        total: dict[int, int] = {}
        largest: dict[tuple[str, int], int] = {}
        for broker, address in brokers.items():
            try:
                response = ask(access, address, DescribeLogDirsRequest(None), DescribeLogDirsResponse)
            except AdminError:
                continue
            known = [one for one in response.results if one.usable_bytes >= 0]
            if known:
                fullest = min(known, key=lambda one: one.usable_bytes)
                free[broker], total[broker] = fullest.usable_bytes, fullest.total_bytes
            for directory in response.results:
                for topic in directory.topics:
                    for one in topic.partitions:
                        place = (topic.name, one.partition_index)
                        largest[place] = max(one.partition_size, largest.get(place, 0))
        sizes: dict[str, int] = {}
        for (name, _), size in largest.items():
            sizes[name] = sizes.get(name, 0) + size
        forecasts = {
            broker: self._free.setdefault(broker, FreeSpace()).note(free_bytes, now_s)
            for broker, free_bytes in free.items()
        }
        full_in_s = {broker: left_s for broker, left_s in forecasts.items() if left_s is not None}
        return Disks(free, total, sizes, full_in_s)
