"""Where a broker lives: in a process of its own on real files, or in the test on virtual time and a simulated disk.

A kill in the first leaves what the kernel has taken; a kill in the second loses, as a power cut does, every write
that was not synced.
"""

import asyncio
import random
import select
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from tests.protocol.raw import SCHEMA_OF, Raw
from tests.support import RunningBroker

from odradek.api.dispatch import Dispatcher
from odradek.api.registry import APIS, response_type
from odradek.api.request import Request
from odradek.broker.groups import Groups
from odradek.broker.node import Node
from odradek.config.broker import BrokerConfig
from odradek.host.simulated import SimulatedHost, VirtualLoop
from odradek.net.bounds import Bounds
from odradek.net.channel import Channel
from odradek.net.transport import Converse
from odradek.storage.log import Slice
from odradek.storage.simulated import SimulatedFiles
from odradek.wire.codec import read_message
from odradek.wire.frame import SIZE, encode_request, has_tagged_response_header, read_request_header

DATA_DIR = "/data"
MAX_STEPS = 40
MAX_JUMP_MS = 600_000


class Link(Protocol):
    """A client's connection."""

    def send(self, request: Any, version: int | None = None) -> None: ...
    def receive(self) -> Any: ...
    def ask(self, request: Any, version: int | None = None) -> Any: ...
    def has_answer(self) -> bool: ...
    def wait(self, seconds: float) -> None: ...
    def close(self) -> None: ...


class Home(Protocol):
    def now_ms(self) -> int:
        """What a client's clock shows."""

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


class NoNetwork:
    """Nobody can connect: requests are handed to the dispatcher."""

    connection_count = 0

    def serve(self, converse: Converse, bounds: Bounds) -> "NoNetwork":
        return self

    async def connect(self, host: str, port: int, timeout_seconds: float) -> Channel:
        raise ConnectionRefusedError(f"{host} is nowhere")

    def close(self) -> None:
        pass

    def listen(self, name: str, host: str, port: int) -> int:
        return port

    def reconfigure(self, bounds: Bounds) -> None:
        pass

    def stop_listening(self) -> None:
        pass

    def flush_connections(self) -> None:
        pass

    def close_connections(self) -> None:
        pass


class SimulatedHome:
    """`record` is given all that passes between clients and the broker, and when."""

    def __init__(
        self,
        settings: dict[str, str],
        rng: random.Random,
        record: Callable[[bytes], object] = lambda event: None,
    ) -> None:
        self._settings = {name.replace("_", "."): value for name, value in settings.items()}
        self._rng = rng
        self._record = record
        self.files = SimulatedFiles()
        self.loop = VirtualLoop()
        self._jumped_ms = 0
        self._sync_seconds = 0.0
        self._syncs_left = 0  # until the disk is kept as it is then
        self._kept: SimulatedFiles | None = None
        self.start()

    def now_ms(self) -> int:
        return self._host.now_ms()

    def jump(self, milliseconds: int) -> None:
        """Somebody sets the clock."""
        self._jumped_ms += milliseconds
        self._host.jump(milliseconds)

    def connect(self) -> SimulatedLink:
        return SimulatedLink(self)

    def dispatch(self, frame: memoryview) -> "asyncio.Future[bytes]":
        header = read_request_header(frame)
        answered: asyncio.Future[bytes] = self.loop.create_future()

        def answer(request: Request) -> None:
            response = b"".join(_bytes(part) for part in request.parts or ())
            self._record(b"%r %r" % (self.loop.time(), response))
            answered.set_result(response)

        self._record(b"%r %r" % (self.loop.time(), bytes(frame)))
        self._host.call_soon(
            self._handle, Request(header, "127.0.0.1:1", "PLAINTEXT", answer, self._dispatcher.turns), frame
        )
        return answered

    def _handle(self, request: Request, frame: memoryview) -> None:
        """What is left to be done would hold up the next request of a connection: here it is the last one."""
        effect = self._dispatcher.dispatch(request, frame, read_request_header(frame).body)
        effect = effect or self._dispatcher.finish()
        if effect is not None:
            self._host.create_task(_wait_for(effect))

    def start(self) -> None:
        """Loads the disk that the last one left. Now and then somebody has set the clock meanwhile."""
        config = {"listeners": "PLAINTEXT://localhost:9092", "log.dirs": DATA_DIR, **self._settings}
        self.loop = VirtualLoop(self.loop.time() + 1)
        if self._rng.random() < 0.2:
            self._jumped_ms += self._rng.randint(-MAX_JUMP_MS, MAX_JUMP_MS)
        self._sync_seconds = self._rng.choice([0.0002, 0.004])
        self.files.on_sync = self._synced
        self._host = SimulatedHost(self.loop, self._rng, self.files)
        self._host.jump(self._jumped_ms)
        self._broker = self._host.context.run(self._new_node, BrokerConfig(config))
        self._dispatcher = Dispatcher(self._broker.services)
        self._host.run(self._broker.start())

    def _new_node(self, config: BrokerConfig) -> Node:
        return Node(config, self._host, NoNetwork(), self.files, self._rng, new_groups=Groups)

    def _synced(self) -> None:
        """A sync takes some time, on a slow disk so much that it is left to a thread."""
        self.loop.spend(self._rng.random() * self._sync_seconds)
        self._syncs_left -= 1
        if self._syncs_left == 0:
            self._kept = self.files.twin()

    def stop(self) -> None:
        self._host.run(self._broker.stop())
        self.loop.close()
        self._record(b"%r" % self.files.contents())

    def kill(self, soon: bool = False) -> None:
        """The power fails: what was synced is the next broker's. The old one may end in peace on the old disk."""
        if soon:
            self._host.run(self._steps(self._rng.randrange(MAX_STEPS)))
        disk = self.files.twin()
        disk.crash(self._rng if self._rng.random() < 0.5 else None)
        self.stop()
        self.files = disk

    @staticmethod
    async def _steps(count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    def kill_while_starting(self) -> None:
        """At one of its syncs."""
        self._syncs_left, self._kept = self._rng.randrange(1, 12), None
        self.start()
        self._syncs_left = 0
        self.stop()
        if self._kept is not None:
            self.files = self._kept
            self.files.crash(self._rng)


async def _wait_for(effect: Awaitable[None]) -> None:
    await effect


def _bytes(part: Any) -> bytes:
    return part.file.read_at(part.position, part.length) if isinstance(part, Slice) else bytes(part)
