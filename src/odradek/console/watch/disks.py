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


class DisksTask:
    """Asks brokers for their directories; remembers how much was free."""

    def __init__(self) -> None:
        self._free: dict[int, deque[tuple[float, int]]] = {}

    def ask(self, access: Access, brokers: dict[int, Address], now_s: float) -> Disks:
        free: dict[int, int] = {}
        total: dict[int, int] = {}
        largest: dict[tuple[str, int], int] = {}
        for broker, address in brokers.items():
            try:
                answer = ask(access, address, DescribeLogDirsRequest(None), DescribeLogDirsResponse)
            except AdminError:
                continue
            known = [one for one in answer.results if one.usable_bytes >= 0]
            if known:
                fullest = min(known, key=lambda one: one.usable_bytes)
                free[broker], total[broker] = fullest.usable_bytes, fullest.total_bytes
            for directory in answer.results:
                for topic in directory.topics:
                    for one in topic.partitions:
                        place = (topic.name, one.partition_index)
                        largest[place] = max(one.partition_size, largest.get(place, 0))
        sizes: dict[str, int] = {}
        for (name, _), size in largest.items():
            sizes[name] = sizes.get(name, 0) + size
        return Disks(free, total, sizes, self._full_in(free, now_s))

    def _full_in(self, free: dict[int, int], now_s: float) -> dict[int, float]:
        found = {}
        for broker, free_bytes in free.items():
            history = self._free.setdefault(broker, deque(maxlen=HISTORY))
            history.append((now_s, free_bytes))
            then_s, then_bytes = history[0]
            if now_s - then_s >= TREND_S and then_bytes > free_bytes:
                left_s = free_bytes * (now_s - then_s) / (then_bytes - free_bytes)
                if left_s < DISTANT_S:
                    found[broker] = left_s
        return found
