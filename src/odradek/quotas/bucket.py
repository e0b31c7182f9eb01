"""A token bucket (KIP-599): it fills at the limit, up to what all windows together allow, and may be overdrawn once.

A request is let in while the bucket is not below zero, whatever it takes: so a request that needs more than the bucket
holds is possible, and those after it wait until the bucket has filled up again.
"""


class TokenBucket:
    __slots__ = ("_at_ms", "_burst_seconds", "tokens")

    def __init__(self, burst_seconds: float) -> None:
        """Full at first: it holds what is let in, at the limit, in this time."""
        self._burst_seconds = burst_seconds
        self._at_ms: int | None = None
        self.tokens = 0.0

    def refill(self, limit: float, now_ms: int) -> float:
        """The tokens that it has now."""
        burst = limit * self._burst_seconds
        if self._at_ms is None:
            self.tokens = burst
        else:
            self.tokens = min(burst, self.tokens + limit * max(now_ms - self._at_ms, 0) / 1000)
        self._at_ms = now_ms
        return self.tokens

    def take(self, count: float) -> None:
        self.tokens -= count

    def throttle_ms(self, limit: float) -> int:
        """Return how long it takes to fill up to zero."""
        return round(-self.tokens / limit * 1000) if self.tokens < 0 else 0
