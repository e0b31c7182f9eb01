"""Which brokers are alive, according to their heartbeats. Pure: time is an argument, from the steady clock.

A broker has a session from its registration on, and every heartbeat renews it. Without one for
`broker.session.timeout.ms` the session expires, and the broker must be fenced. A new active controller has received no
heartbeats yet, so it gives every broker a new session. Time in which the controller itself was paused does not count:
heartbeats may have arrived meanwhile and wait to be read.

The metadata offsets in heartbeats are kept, too: a broker that shuts down continues to serve until every other active
broker knows the new leaders.
"""

from collections.abc import Iterable

NEVER = float("-inf")


class Sessions:
    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._heard_ms: dict[int, float] = {}  # last heartbeat, by broker; NEVER if it is gone
        self._offsets: dict[int, int] = {}  # how far each broker has read the metadata log
        # The offset of the last record that took leaderships away from a broker that shuts down.
        self._shutdown_offsets: dict[int, int] = {}

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
        """Its process is known to be gone: end its session now."""
        if broker_id in self._heard_ms:
            self._heard_ms[broker_id] = NEVER

    def stood_still(self, duration_ms: int) -> None:
        """The controller was paused for this long, and read no heartbeats."""
        for broker_id, heard_ms in self._heard_ms.items():
            self._heard_ms[broker_id] = heard_ms + duration_ms

    def is_alive(self, broker_id: int, now_ms: int) -> bool:
        return now_ms - self._heard_ms.get(broker_id, NEVER) < self.timeout_ms

    def overdue(self, broker_ids: Iterable[int], now_ms: int) -> list[int]:
        """Return those whose sessions have expired, the one with the oldest heartbeat first."""
        silent = [broker_id for broker_id in broker_ids if not self.is_alive(broker_id, now_ms)]
        return sorted(silent, key=lambda broker_id: (self._heard_ms.get(broker_id, NEVER), broker_id))

    # Controlled shutdown

    def has_moved_away(self, broker_id: int) -> bool:
        """This controller has taken it out of every leadership and ISR."""
        return broker_id in self._shutdown_offsets

    def shut_down(self, broker_id: int, offset: int) -> None:
        """The records that took its leaderships away end at this offset."""
        self._shutdown_offsets[broker_id] = offset

    def shutdown_known_by_all(self, broker_id: int, end_offset: int, others: Iterable[int]) -> bool:
        """True if the others have read all records of a broker's shutdown. If an earlier controller wrote them, they
        are below the end of the log."""
        needed = self._shutdown_offsets.setdefault(broker_id, end_offset)
        return all(self._offsets.get(other, -1) >= needed for other in others)
