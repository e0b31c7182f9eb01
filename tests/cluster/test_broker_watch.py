"""The controller's connection to a broker, on virtual time: what its end says, and how often it is made again."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any
from uuid import UUID

from odradek.host.simulated import SimulatedHost, VirtualLoop
from odradek.metadata.image import Broker, MetadataImage
from odradek.metadata.records import BrokerEndpoint
from odradek.services.cluster.broker_watch import BrokerWatch
from odradek.storage.disk.simulated import SimulatedFiles

BROKER = Broker(2, 7, UUID(int=1), (BrokerEndpoint("PLAINTEXT", "there", 9092),), None, False, False, ())
IMAGE = MetadataImage("cluster", brokers={2: BROKER})


class Connection:
    """Is closed after so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def closed(self) -> None:
        await asyncio.sleep(self._seconds)

    def close(self) -> None:
        pass


class Connecting:
    """In place of a dialer."""

    def __init__(self, connect: Callable[[int], Connection]) -> None:
        """`connect` makes the connection of this number, or raises."""
        self._connect = connect
        self.attempts = 0

    async def connect(self, address: tuple[str, int], timeout_seconds: float) -> Any:
        self.attempts += 1
        return self._connect(self.attempts)


def watch(connect: Callable[[int], Connection], seconds: float) -> tuple[Connecting, list[Broker]]:
    """Return what is seen in this time."""
    loop, gone = VirtualLoop(), []
    host, connecting = SimulatedHost(loop, Random(1), SimulatedFiles(), "here"), Connecting(connect)

    async def look() -> None:
        watching: Any = BrokerWatch(1, "PLAINTEXT", host, connecting, gone.append)  # type: ignore[arg-type]
        watching.look_at(IMAGE)
        await asyncio.sleep(seconds)
        watching.stop()

    loop.run_until_complete(look())
    return connecting, gone


def test_a_connection_that_is_closed_is_made_again_at_once_and_a_refusal_is_the_end() -> None:
    def connect(number: int) -> Connection:
        if number > 1:
            raise ConnectionRefusedError
        return Connection(10)

    connecting, gone = watch(connect, 10.5)
    assert (connecting.attempts, gone) == (2, [BROKER])


def test_who_accepts_and_closes_is_not_asked_without_a_pause() -> None:
    """A proxy does so for a broker that is down."""
    connecting, gone = watch(lambda number: Connection(0), 10.5)
    assert (connecting.attempts, gone) == (11, [])
