"""Who is alive, as far as the active controller has heard: brokers, and when they last said so.

A broker that is silent for longer than its session is fenced. A controller that becomes active has heard of nobody, and
gives every broker a whole session.

Pure: the time is an argument, of a clock that never jumps.
"""

from collections.abc import Iterable

ALREADY_OVER = -(2**62)


class Sessions:
    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._heard_ms: dict[int, int] = {}  # by broker

    def start_over(self, broker_ids: Iterable[int], now_ms: int) -> None:
        self._heard_ms = dict.fromkeys(broker_ids, now_ms)

    def heard_from(self, broker_id: int, now_ms: int) -> None:
        self._heard_ms[broker_id] = now_ms

    def expire_now(self, broker_id: int) -> None:
        """It is known that its process has ended."""
        self._heard_ms[broker_id] = ALREADY_OVER

    def is_over(self, broker_id: int, now_ms: int) -> bool:
        """One that was never heard of begins its session now."""
        return now_ms - self._heard_ms.setdefault(broker_id, now_ms) >= self._timeout_ms

    def next_end_ms(self) -> int | None:
        """When the first session that is not over yet ends."""
        ends = [
            heard_ms + self._timeout_ms for heard_ms in self._heard_ms.values() if heard_ms > ALREADY_OVER
        ]
        return min(ends, default=None)
