"""A client that sends and receives frames over the simulated network, and trusts nothing that comes back.

Several requests may be under way on a connection; responses come in the order of the requests, one for each. A
response that nobody asked for, or that carries the number of another request, is a `Violation` at once, and so is a
request that a node, which could be reached all the time, neither answers nor closes the connection for.
"""

import asyncio
import logging
from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.apis.messages import response_type
from odradek.apis.table import BROKER, SERVED
from odradek.net.security import Endpoint
from odradek.net.states import IDLE
from odradek.net.transport import FrameReceiver, OwnFrame, Transport
from odradek.wire.codec import read_message
from odradek.wire.frame import SIZE, encode_request, has_tagged_response_header
from tests.protocol.raw import SCHEMA_OF
from tests.simulation.trace import brief

if TYPE_CHECKING:
    from tests.simulation.world import World

CORRELATION_ID = Struct(">i")
CONNECT_SECONDS = 0.5
PATIENCE_SECONDS = 5.0  # after this a node that could have answered should have


class Violation(AssertionError):
    """A node broke a promise."""


class Disconnected(Exception):
    """There is no response, and there will be none: whether the request had an effect, nobody knows."""


class Expected(NamedTuple):
    api_key: int
    version: int
    correlation_id: int
    response: "asyncio.Future[Any]"


class Connection(FrameReceiver):
    """One connection of a client; the receiver of its transport."""

    def __init__(self, world: "World", client: str, node: str, transport: Transport) -> None:
        self._world = world
        self._client, self.node = client, node
        self._transport = transport
        self._expected: deque[Expected] = deque()
        self._faults: dict[asyncio.Future[Any], int] = {}  # how many there had been when a request was sent
        self._correlation_id = 0
        self._lost: str | None = None

    @property
    def is_open(self) -> bool:
        return self._lost is None

    @property
    def is_busy(self) -> bool:
        return bool(self._expected)

    # --- requests ---

    def send(self, request: Any, version: int | None = None) -> "asyncio.Future[Any]":
        """The response, to be waited for with `ask` or `until`."""
        response: asyncio.Future[Any] = self._world.loop.create_future()
        api_key, version = self._send(request, version)
        self._expected.append(Expected(api_key, version, self._correlation_id, response))
        self._faults[response] = self._world.fault_count(self._client, self.node)
        return response

    def send_only(self, request: Any, version: int | None = None) -> None:
        """A request that has no response: Produce with acks=0."""
        self._send(request, version)

    def _send(self, request: Any, version: int | None) -> tuple[int, int]:
        if self._lost is not None:
            raise Disconnected(self._lost)
        key = SCHEMA_OF[type(request).__name__.removesuffix("Request")].key
        version = SERVED[BROKER][key].max_version if version is None else version
        self._correlation_id += 1
        frame = encode_request(request, key, version, self._correlation_id, self._client)
        if self._world.trace is not None:
            self._world.trace.add_bytes(frame)
            self._world.note(
                self._client, f"→ {self.node} #{self._correlation_id} v{version} {brief(request)}"
            )
        self._transport.output.add([frame])
        if self._transport.sending is IDLE:
            self._transport.flush_soon()
        return key, version

    async def until(self, response: "asyncio.Future[Any]", seconds: float = PATIENCE_SECONDS) -> Any:
        """Wait for a response. Raises Disconnected; so it does after this many seconds if the client and the node could
        not reach each other in the meantime."""
        faults = self._faults.pop(response)
        if response.done():
            return response.result()
        timer = self._world.loop.call_later(seconds, self._give_up, response, faults, seconds)
        try:
            return await response
        finally:
            timer.cancel()

    def _give_up(self, response: "asyncio.Future[Any]", faults: int, seconds: float) -> None:
        if response.done():
            return
        if self._world.fault_count(self._client, self.node) == faults and not self._world.is_cut(
            self._client, self.node
        ):
            self._world.fail(Violation(f"{self._client} got no response from {self.node} in {seconds} s"))
        self.close("no response in time")

    async def ask(self, request: Any, version: int | None = None, seconds: float = PATIENCE_SECONDS) -> Any:
        return await self.until(self.send(request, version), seconds)

    def close(self, reason: str = "closed by the client") -> None:
        self._transport.close(reason, logging.DEBUG)

    # --- responses ---

    def receive(self, frame: memoryview) -> None:
        self._take(bytes(frame))

    def receive_own(self, own: OwnFrame) -> None:
        self._take(bytes(own.frame))
        self._transport.give_back(own, is_reusable=False)

    def _take(self, frame: bytes) -> None:
        (correlation_id,) = CORRELATION_ID.unpack_from(frame)
        if not self._expected:
            self._world.fail(
                Violation(f"{self.node} sent {self._client} response #{correlation_id}, unasked")
            )
            return
        key, version, expected_id, response = self._expected.popleft()
        if correlation_id != expected_id:
            self._world.fail(
                Violation(f"{self.node} sent {self._client} response #{correlation_id}, not #{expected_id}")
            )
            return
        start = SIZE.size + (1 if has_tagged_response_header(key, version) else 0)
        message, end = read_message(response_type(key), version, frame, start)
        if end != len(frame):
            self._world.fail(Violation(f"{len(frame) - end} bytes after the end of {message}"))
        if self._world.trace is not None:
            self._world.trace.add_bytes(frame)
            self._world.note(self._client, f"← {self.node} #{correlation_id} {brief(message)}")
        if not response.done():
            response.set_result(message)

    def lost(self, reason: str) -> None:
        self._lost = reason
        self._world.connections.pop(self, None)
        if self._world.trace is not None:
            self._world.note(self._client, f"lost its connection to {self.node}: {reason}")
        expected, self._expected = self._expected, deque()
        for item in expected:
            if not item.response.done():
                item.response.set_exception(Disconnected(reason))
                item.response.exception()  # whoever does not wait for it does not care


async def connect(world: "World", client: str, node: str, port: int) -> Connection:
    """Raises Disconnected."""
    try:
        receiver = await world.network.place(client).converse(
            Endpoint(node, port),
            CONNECT_SECONDS,
            lambda transport: Connection(world, client, node, transport),
        )
    except OSError as error:
        raise Disconnected(str(error) or type(error).__name__) from None
    assert isinstance(receiver, Connection)
    world.connections[receiver] = None
    return receiver
