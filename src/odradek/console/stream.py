"""One event stream for each browser: which parts of which cluster's watch have changed. Pages then ask for what they
show of it, so a stream costs a line now and then, however many tabs there are."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterable

KEEP_ALIVE_S = 20.0
MOST_STREAMS = 200


class Listener:
    """The changes that one stream has not told yet."""

    def __init__(self) -> None:
        self.changed: dict[str, set[str]] = {}
        self.woken = asyncio.Event()


class Hub:
    """Passes changes from pollers, which are threads, to streams."""

    def __init__(self) -> None:
        self._listeners: set[Listener] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    @property
    def count(self) -> int:
        return len(self._listeners)

    @property
    def is_full(self) -> bool:
        return len(self._listeners) >= MOST_STREAMS

    def open(self) -> None:
        self._loop, self._is_closed = asyncio.get_running_loop(), False

    def close(self) -> None:
        self._is_closed = True
        for listener in self._listeners:
            listener.woken.set()

    def publish(self, cluster: str, parts: Iterable[str]) -> None:
        """May be called from any thread."""
        if self._loop is not None and not self._is_closed:
            try:
                self._loop.call_soon_threadsafe(self._tell, cluster, set(parts))
            except RuntimeError:
                pass  # the loop has just ended

    def _tell(self, cluster: str, parts: set[str]) -> None:
        for listener in self._listeners:
            listener.changed.setdefault(cluster, set()).update(parts)
            listener.woken.set()

    async def lines(self) -> AsyncIterator[bytes]:
        """Server-sent events, until the browser or the console goes."""
        listener = Listener()
        self._listeners.add(listener)
        try:
            yield b"retry: 2000\n\n"
            while not self._is_closed:
                try:
                    await asyncio.wait_for(listener.woken.wait(), KEEP_ALIVE_S)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                listener.woken.clear()
                changed, listener.changed = listener.changed, {}
                for cluster, parts in changed.items():
                    data = json.dumps({"cluster": cluster, "parts": sorted(parts)})
                    yield f"event: changed\ndata: {data}\n\n".encode()
        finally:
            self._listeners.discard(listener)
