"""A limit on how fast new connections may come from one address (`connection_creation_rate`, KIP-612).

A connection over the limit is not served: it is held for as long as its address has to wait, at most for one window,
and then closed. A client that tries again at once would otherwise keep a node busy with connections that it refuses.
Only so many are held; beyond that they are closed at once.

Pure: time is an argument.
"""

from collections.abc import Mapping

from odradek.quotas.windows import Rate

MOST_KEPT = 10_000  # addresses


class AddressRates:
    def __init__(self, limits: Mapping[str | None, float], windows: int, window_ms: int) -> None:
        """`limits`: by address; that of None is for all others."""
        self.limits = limits
        self._windows, self._window_ms = windows, window_ms
        self._rates: dict[str, Rate] = {}

    def throttle_ms(self, address: str, now_ms: int) -> int:
        """Count a new connection. Returns how long it is held before it is closed; 0 if it is served."""
        limit = self.limits.get(address, self.limits.get(None))
        if limit is None:
            return 0
        rate = self._rates.get(address)
        if rate is None:
            if len(self._rates) >= MOST_KEPT:
                del self._rates[next(iter(self._rates))]
            rate = self._rates[address] = Rate(self._windows, self._window_ms)
        rate.record(1, now_ms)
        throttle_ms = rate.throttle_ms(limit, now_ms)
        if throttle_ms:
            rate.record(-1, now_ms)
        return min(throttle_ms, self._window_ms)
