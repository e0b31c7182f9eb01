"""The meter of each client that a quota applies to: its rate, or its token bucket.

Memory is bounded. Clients choose their client ids, so there may be any number of them; whoever has not been seen for
long is forgotten first, which changes nothing for it.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from odradek.quotas.keys import MAX_NAME_LENGTH, Quotas
from odradek.quotas.limits import Limits, Sharers

T = TypeVar("T")

MOST_KEPT = 10_000


class Meter(Generic[T]):
    """The use that one client, or those who share its limit, have made of it, and may make."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: float, used: T) -> None:
        self.limit = limit
        self.used = used


class Meters(Generic[T]):
    """The meters of one quota."""

    def __init__(self, key: str, new: Callable[[], T], most_kept: int = MOST_KEPT) -> None:
        self._key = key
        self._new = new
        self._most_kept = most_kept
        self._limits = Limits(key, {})
        self._kept: dict[Sharers, Meter[T]] = {}  # those asked for last at the end

    def __bool__(self) -> bool:
        """True if the quota is set for anybody."""
        return bool(self._limits)

    def __len__(self) -> int:
        return len(self._kept)

    def apply(self, quotas: Quotas) -> None:
        """Use other limits from now on. What clients have used is not forgotten."""
        self._limits = Limits(self._key, quotas)
        if not self._limits:
            self._kept.clear()

    def find(self, user: str, client_id: str) -> Meter[T] | None:
        """None if nothing limits this client. Clients whose ids begin alike for very long are taken for one."""
        client_id = client_id[:MAX_NAME_LENGTH]
        limit = self._limits.find(user, client_id) if self._limits else None
        if limit is None:
            return None
        meter = self._kept.pop(limit.sharers, None)
        if meter is None:
            meter = Meter(limit.value, self._new())
            while len(self._kept) >= self._most_kept:
                del self._kept[next(iter(self._kept))]
        meter.limit = limit.value
        self._kept[limit.sharers] = meter
        return meter
