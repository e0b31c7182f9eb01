"""Where a broker lives: in a process of its own on real files, or in the test on virtual time and a simulated disk.

A kill in the first leaves what the kernel has taken; a kill in the second loses, as a power cut does, every write
that was not synced.
"""

import asyncio
import copy
import os
import random
import select
import time
from collections import deque
from collections.abc import Awaitable
from typing import Any, Protocol

from tests.lives.virtual_loop import VirtualLoop
from tests.protocol.raw import SCHEMA_OF, Raw
from tests.support import RunningBroker

from odradek.api.dispatch import Dispatcher
from odradek.api.registry import APIS, response_type
from odradek.api.request import Request
from odradek.broker.main import Broker
from odradek.config.broker import BrokerConfig
from odradek.storage.log import Slice
from odradek.storage.simulated import SimulatedFiles
from odradek.wire.codec import read_message
from odradek.wire.frame import SIZE, encode_request, has_tagged_response_header, read_request_header

DATA_DIR = "/data"
MAX_STEPS = 40


class Link(Protocol):
    """A client's connection."""

    def send(self, request: Any, version: int | None = None) -> None: ...
    def receive(self) -> Any: ...
    def ask(self, request: Any, version: int | None = None) -> Any: ...
    def has_answer(self) -> bool: ...
    def wait(self, seconds: float) -> None: ...
    def close(self) -> None: ...


class Home(Protocol):
    def connect(self) -> Link: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self, soon: bool = False) -> None:
        """End it; `soon`: let it come a little further with what it was asked, nobody knows how far."""

    def kill_while_starting(self) -> None: ...


# --- a process ---


class SocketLink(Raw):
    def has_answer(self) -> bool:
        return bool(select.select([self.socket], [], [], 0)[0])

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        self.socket.close()


class ProcessHome:
    def __init__(self, broker: RunningBroker, rng: random.Random) -> None:
        self._broker = broker
        self._rng = rng

    def connect(self) -> SocketLink:
        return SocketLink(self._broker.bootstrap)

    def start(self) -> None:
        self._broker.start()

    def stop(self) -> None:
        status = self._broker.stop()
        assert status == 0, f"the broker stopped with {status}"

    def kill(self, soon: bool = False) -> None:
        if soon:
            time.sleep(self._rng.random() * 0.003)
        self._broker.kill()

    def kill_while_starting(self) -> None:
        self._broker.launch()
        time.sleep(self._rng.random() * 0.5)
        self._broker.kill()


# --- in the test ---


class SimulatedLink:
    def __init__(self, home: "SimulatedHome") -> None:
        self._home = home
        self._answers: deque[tuple[type[Any], int, int, asyncio.Future[Any]]] = deque()

    def send(self, request: Any, version: int | None = None) -> None:
        schema = SCHEMA_OF[type(request).__name__.removesuffix("Request")]
        version = APIS[schema.key].max_version if version is None else version
        frame = memoryview(encode_request(request, schema.key, version, 1, "lives"))[SIZE.size :]
        answered = self._home.dispatch(frame)
        self._answers.append((response_type(schema.key), schema.key, version, answered))

    def receive(self) -> Any:
        kind, key, version, answered = self._answers.popleft()
        frame = self._home.loop.run_until_complete(asyncio.wait_for(answered, 60))
        body = 9 if has_tagged_response_header(key, version) else 8
        return read_message(kind, version, frame, body)[0]

    def ask(self, request: Any, version: int | None = None) -> Any:
        self.send(request, version)
        return self.receive()

    def has_answer(self) -> bool:
        return self._answers[0][3].done()

    def wait(self, seconds: float) -> None:
        self._home.loop.run_until_complete(asyncio.sleep(seconds))

    def close(self) -> None:
        self._answers.clear()


class SimulatedHome:
    def __init__(self, settings: dict[str, str], rng: random.Random) -> None:
        self._settings = {name.replace("_", "."): value for name, value in settings.items()}
        self._rng = rng
        self._files = SimulatedFiles()
        self._files.make_directory(DATA_DIR)
        self._files.sync_directory(os.path.dirname(DATA_DIR))
        self.start()

    def connect(self) -> SimulatedLink:
        return SimulatedLink(self)

    def dispatch(self, frame: memoryview) -> "asyncio.Future[bytes]":
        header = read_request_header(frame)
        answered: asyncio.Future[bytes] = self.loop.create_future()

        def answer(request: Request) -> None:
            answered.set_result(b"".join(_bytes(part) for part in request.parts or ()))

        self.loop.call_soon(
            self._handle, Request(header, "127.0.0.1:1", "PLAINTEXT", answer, self._turns), frame
        )
        return answered

    def _handle(self, request: Request, frame: memoryview) -> None:
        """What is left to be done would hold up the next request of a connection: here it is the last one."""
        effect = self._dispatcher.dispatch(request, frame, read_request_header(frame).body)
        effect = effect or self._dispatcher.finish()
        if effect is not None:
            self.loop.create_task(_wait_for(effect))

    def start(self) -> None:
        """Loads the disk that the last one left."""
        config = {
            "listeners": "PLAINTEXT://localhost:0",
            "log.dirs": DATA_DIR,
            "log.cleaner.enable": "false",  # its process works on real files
            **self._settings,
        }
        self.loop = VirtualLoop(self._rng)
        self._broker = Broker(BrokerConfig(config), self.loop, self._rng, self._files)  # type: ignore[arg-type]
        self._dispatcher = Dispatcher(self._broker.services)
        self._turns = self._dispatcher.turns
        self.loop.run_until_complete(self._broker.start())

    def stop(self) -> None:
        self.loop.run_until_complete(self._broker.stop())
        self.loop.close()

    def kill(self, soon: bool = False) -> None:
        """The power fails: what was synced is the next broker's. The old one may end in peace on the old disk."""
        if soon:
            self.loop.run_until_complete(self._steps(self._rng.randrange(MAX_STEPS)))
        disk = copy.deepcopy(self._files)
        disk.crash(self._rng if self._rng.random() < 0.5 else None)
        self.stop()
        self._files = disk

    @staticmethod
    async def _steps(count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    def kill_while_starting(self) -> None:
        """At one of its syncs."""
        left = self._rng.randrange(1, 12)
        disks = []

        def crash_at_last() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self._files.on_sync = None
                disks.append(copy.deepcopy(self._files))

        self._files.on_sync = crash_at_last
        self.start()
        self._files.on_sync = None
        self.stop()
        if disks:
            self._files = disks[0]
            self._files.crash(self._rng)


async def _wait_for(effect: Awaitable[None]) -> None:
    await effect


def _bytes(part: Any) -> bytes:
    return part.file.read_at(part.position, part.length) if isinstance(part, Slice) else bytes(part)
