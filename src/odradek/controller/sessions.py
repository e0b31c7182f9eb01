"""Which brokers are alive, as far as the active controller has heard. Pure: time is an argument, of the steady clock.

A broker has a session from its registration on, and every heartbeat renews it. Without one for
`broker.session.timeout.ms` the session is over, and the broker has to be fenced. A new active controller has heard of
nobody yet, so every broker has a fresh session with it. Time in which the controller itself stood still counts for
nobody: heartbeats may have come meanwhile and wait to be read.

What heartbeats say of the metadata is kept, too: a broker that shuts down goes on serving until every other active
broker knows who leads instead.
"""

from collections.abc import Iterable

NEVER = float("-inf")


class Sessions:
    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._heard_ms: dict[int, float] = {}  # when, by broker; NEVER if it is known to be gone
        self._offsets: dict[int, int] = {}  # how far each has followed the metadata log
        self._shutdown_offsets: dict[
            int, int
        ] = {}  # where the records end that took away a broker's leaderships

    def restart(self, broker_ids: Iterable[int], now_ms: int) -> None:
        """This node has become the active controller."""
        self._heard_ms = dict.fromkeys(broker_ids, now_ms)
        self._offsets = {}
        self._shutdown_offsets = {}

    def begin(self, broker_id: int, now_ms: int) -> None:
        """A broker has registered."""
        self.forget(broker_id)
        self._heard_ms[broker_id] = now_ms

    def heard(self, broker_id: int, metadata_offset: int, now_ms: int) -> None:
        self._heard_ms[broker_id] = now_ms
        self._offsets[broker_id] = metadata_offset

    def forget(self, broker_id: int) -> None:
        for known in (self._heard_ms, self._offsets, self._shutdown_offsets):
            known.pop(broker_id, None)

    def expire_now(self, broker_id: int) -> None:
        """Its process is known to be gone: nobody has to wait for the end of its session."""
        if broker_id in self._heard_ms:
            self._heard_ms[broker_id] = NEVER

    def stood_still(self, duration_ms: int) -> None:
        """The controller heard nobody for so long, through no fault of theirs."""
        for broker_id, heard_ms in self._heard_ms.items():
            self._heard_ms[broker_id] = heard_ms + duration_ms

    def is_alive(self, broker_id: int, now_ms: int) -> bool:
        return now_ms - self._heard_ms.get(broker_id, NEVER) < self.timeout_ms

    def overdue(self, broker_ids: Iterable[int], now_ms: int) -> list[int]:
        """Those of them whose session is over, the one that was heard of least recently first."""
        silent = [broker_id for broker_id in broker_ids if not self.is_alive(broker_id, now_ms)]
        return sorted(silent, key=lambda broker_id: (self._heard_ms.get(broker_id, NEVER), broker_id))

    # Controlled shutdown

    def has_moved_away(self, broker_id: int) -> bool:
        """It leads nothing any more, and is in no ISR, as far as this controller has looked."""
        return broker_id in self._shutdown_offsets

    def shut_down(self, broker_id: int, offset: int) -> None:
        """What took its leaderships away ends at this offset."""
        self._shutdown_offsets[broker_id] = offset

    def shutdown_known_by_all(self, broker_id: int, end_offset: int, others: Iterable[int]) -> bool:
        """Whether the others have read all that a broker's shutdown wrote. If an earlier controller wrote that, it is
        not past the end of the log."""
        needed = self._shutdown_offsets.setdefault(broker_id, end_offset)
        return all(self._offsets.get(other, -1) >= needed for other in others)
