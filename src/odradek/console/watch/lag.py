"""The lag of groups that somebody looks at, partition by partition over time, and when they will have caught up."""

import threading
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from odradek.admin.places import Place

MOST_GROUPS = 50
POINTS_KEPT = 60
LEAST_S = 1.0  # between two points
TREND_S = 4.0  # shorter trends say little


@dataclass
class LagHistory:
    """`times_s` has one time for each point of every partition."""

    times_s: deque[float] = field(default_factory=lambda: deque(maxlen=POINTS_KEPT))
    lags: dict[Place, deque[int]] = field(default_factory=dict)

    def note(self, lags: Mapping[Place, int], now_s: float) -> None:
        if self.times_s and now_s - self.times_s[-1] < LEAST_S:
            return
        self.times_s.append(now_s)
        self.lags = {place: self.lags.get(place, deque(maxlen=POINTS_KEPT)) for place in lags}
        for place, lag in lags.items():
            self.lags[place].append(lag)

    def total(self) -> list[tuple[float, int]]:
        """Time and lag of all partitions together, while each of them was known."""
        if not self.lags:
            return []
        count = min(len(points) for points in self.lags.values())
        columns = zip(*(list(points)[-count:] for points in self.lags.values()), strict=True)
        return list(zip(list(self.times_s)[-count:], map(sum, columns), strict=True))


class LagHistories:
    def __init__(self) -> None:
        self._groups: OrderedDict[str, LagHistory] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, group: str, lags: Mapping[Place, int], now_s: float) -> LagHistory:
        with self._lock:
            history = self._groups.setdefault(group, LagHistory())
            self._groups.move_to_end(group)
            while len(self._groups) > MOST_GROUPS:
                self._groups.popitem(last=False)
            history.note(lags, now_s)
            return history


def caught_up_in_s(points: Sequence[tuple[float, int]]) -> float | None:
    """Seconds until the lag is gone, if it shrinks on as it did; None if it does not, or nobody knows yet."""
    if not points:
        return None
    (then_s, then), (now_s, now) = points[0], points[-1]
    if now == 0:
        return 0.0
    if now_s - then_s < TREND_S or now >= then:
        return None
    return now * (now_s - then_s) / (then - now)
