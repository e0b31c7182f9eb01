"""A broker without anything behind its connections: a real server, real conversations, and a test's own `dispatch`."""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable

from odradek.host.real import RealHost
from odradek.net.bounds import Bounds
from odradek.net.server import Server
from odradek.serving.conversation import Conversations
from odradek.serving.request import Request
from odradek.serving.turns import Turns
from odradek.wire.frame import encode_request
from odradek.wire.messages.api_versions import ApiVersionsRequest

BOUNDS = Bounds(1 << 20, 1 << 20, 100, 100, 600, -1, -1)
FRAME = bytes(encode_request(ApiVersionsRequest(), 18, 0, 1, "test"))


class StubBroker:
    def __init__(self, clock: Callable[[], float] = time.monotonic, bounds: Bounds = BOUNDS) -> None:
        self.turns = Turns(clock)
        loop = asyncio.get_running_loop()
        self.conversations = Conversations(self, loop.create_task)
        self.server = Server(RealHost(loop), self.conversations.begin, bounds)
        self.port = self.server.listen("PLAINTEXT", "127.0.0.1", 0)

    def finish(self) -> None:
        pass

    def keeps(self, api_key: int, size: int) -> bool:
        return False

    def dispatch(self, request: Request, frame: memoryview, body: int) -> Awaitable[None] | None:
        raise NotImplementedError

    def connect(self, frames: int) -> socket.socket:
        """A client that has sent so many requests."""
        client = socket.create_connection(("127.0.0.1", self.port))
        client.sendall(FRAME * frames)
        return client

    def close(self) -> None:
        self.server.stop_listening()
        self.server.close_connections()
