"""Requests to other replicas: at most one is under way to each, with a backoff after a failure.

A request that gets no response within the request timeout is given up. After that, or after an error, the replica gets
no request for `retry_backoff_ms`. A role that ends forgets its requests: their responses are dropped.

A replica that says that it belongs to another cluster gets no request for FOREIGN_BACKOFF_MS, whatever the role: only
an operator can change that, and the other cluster should hardly notice it.
"""

from dataclasses import dataclass

FOREIGN_BACKOFF_MS = 10_000


@dataclass(slots=True, eq=False)
class _Peer:
    """One that is sent requests."""

    correlation_id: int | None = None  # of the request that is under way
    due_ms: int = 0  # when it times out; without a request, the earliest time for the next one
    is_foreign: bool = False  # it belongs to another cluster


class Requests:
    def __init__(self, timeout_ms: int, backoff_ms: int, last_id: int) -> None:
        """`last_id` is random, so that a response to an earlier process of this replica does not match."""
        self._timeout_ms = timeout_ms
        self._backoff_ms = backoff_ms
        self._peers: dict[int, _Peer] = {}
        self._last_id = last_id

    def may_send(self, node_id: int, now_ms: int) -> bool:
        peer = self._peers.get(node_id)
        return peer is None or (peer.correlation_id is None and now_ms >= peer.due_ms)

    def expire(self, now_ms: int) -> None:
        """Give up requests that got no response in time."""
        for node_id, peer in self._peers.items():
            if peer.correlation_id is not None and now_ms >= peer.due_ms:
                self.back_off(node_id, now_ms)

    def is_under_way(self, node_id: int) -> bool:
        peer = self._peers.get(node_id)
        return peer is not None and peer.correlation_id is not None

    def start(self, node_id: int, now_ms: int) -> int:
        """Returns the correlation id of a new request."""
        self._last_id += 1
        self._peers[node_id] = _Peer(self._last_id, now_ms + self._timeout_ms)
        return self._last_id

    def complete(self, node_id: int, correlation_id: int) -> bool:
        """Returns False if this is not the awaited response."""
        peer = self._peers.get(node_id)
        if peer is None or peer.correlation_id != correlation_id:
            return False
        del self._peers[node_id]
        return True

    def back_off(self, node_id: int, now_ms: int) -> None:
        self._peers[node_id] = peer = self._peers.get(node_id, _Peer())
        peer.correlation_id, peer.due_ms = None, now_ms + self._backoff_ms

    def back_off_from_foreign(self, node_id: int, now_ms: int) -> None:
        """It belongs to another cluster."""
        self._peers[node_id] = _Peer(None, now_ms + FOREIGN_BACKOFF_MS, is_foreign=True)

    def due_ms(self, node_id: int) -> int:
        """Return when the request under way times out; without one, the earliest time for the next request."""
        peer = self._peers.get(node_id)
        return peer.due_ms if peer is not None else 0

    def reset(self) -> None:
        self._peers = {node_id: peer for node_id, peer in self._peers.items() if peer.is_foreign}
