"""The home of a broker: a process of its own, on real files. A kill leaves what the kernel has taken.

Power cuts, which lose every write that was not synced, are simulated: see `tests/simulation`.
"""

import random
import select
import time
from typing import Any, Protocol

from tests.protocol.raw import Raw
from tests.support import RunningBroker

KILLED_WITHIN_S = (0.003, 0.05)  # while the first request is handled, or one of those behind it


class Link(Protocol):
    """A client's connection."""

    def send(self, request: Any, version: int | None = None) -> None: ...
    def receive(self) -> Any: ...
    def ask(self, request: Any, version: int | None = None) -> Any: ...
    def has_response(self) -> bool: ...
    def wait(self, seconds: float) -> None: ...
    def close(self) -> None: ...


class Home(Protocol):
    def now_ms(self) -> int:
        """Return what a client's clock shows."""

    def connect(self) -> Link: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self, soon: bool = False) -> None:
        """End it; `soon`: let it come a little further with what it was asked, nobody knows how far."""

    def kill_while_starting(self) -> None: ...


class SocketLink(Raw):
    def has_response(self) -> bool:
        return bool(select.select([self.socket], [], [], 0)[0])

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        self.socket.close()


class ProcessHome:
    def __init__(self, broker: RunningBroker, rng: random.Random) -> None:
        self._broker = broker
        self._rng = rng

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def connect(self) -> SocketLink:
        return SocketLink(self._broker.bootstrap)

    def start(self) -> None:
        self._broker.start()

    def stop(self) -> None:
        status = self._broker.stop()
        assert status == 0, f"the broker stopped with {status}"

    def kill(self, soon: bool = False) -> None:
        if soon:
            time.sleep(self._rng.random() * self._rng.choice(KILLED_WITHIN_S))
        self._broker.kill()

    def kill_while_starting(self) -> None:
        self._broker.launch()
        time.sleep(self._rng.random() * 0.5)
        self._broker.kill()
