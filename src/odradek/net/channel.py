"""Requests of this node to another one over one connection: frames out, responses in, in the order of the requests.

A response belongs to the oldest request that has none yet. A caller that stops waiting (a timeout) leaves a place in
the order behind, so that the next response goes to the next request. If the connection is lost, all requests without a
response fail: it is not known whether they had an effect.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence

from odradek.net.states import IDLE
from odradek.net.transport import OwnFrame, Part, Transport

MAX_UNDER_WAY = 1_000

Response = asyncio.Future[memoryview]


class ChannelClosed(ConnectionError):
    """There is no response, and there will be none."""


class Channel:
    """Receives the responses of one transport."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._under_way: deque[Response] = deque()
        self._lost_because: str | None = None
        self._closed = asyncio.Event()

    @property
    def address(self) -> str:
        return self._transport.address

    @property
    def is_open(self) -> bool:
        return self._lost_because is None

    @property
    def is_busy(self) -> bool:
        """True while a request has no response yet."""
        return bool(self._under_way)

    @property
    def unsent_bytes(self) -> int:
        """Of requests that the peer, or the network, does not take."""
        return self._transport.output.size

    # --- requests ---

    def send(self, *frame: Part) -> Response:
        """Send one frame, its size in front; the result is the frame of its response, without the size."""
        if self._lost_because is not None:
            raise ChannelClosed(self._lost_because)
        assert len(self._under_way) < MAX_UNDER_WAY, "requests are sent faster than they are answered"
        response: Response = asyncio.get_running_loop().create_future()
        self._under_way.append(response)
        self._add(frame)
        return response

    def _add(self, frame: Sequence[Part]) -> None:
        self._transport.output.add(frame)
        if self._transport.sending is IDLE:
            self._transport.flush_soon()

    def close(self, reason: str = "closed by us") -> None:
        self._transport.close(reason, logging.DEBUG)

    async def closed(self) -> str:
        """Wait until the connection is closed; returns why."""
        await self._closed.wait()
        assert self._lost_because is not None
        return self._lost_because

    # --- responses ---

    def receive(self, frame: memoryview) -> None:
        self._respond(memoryview(bytes(frame)))

    def receive_own(self, own: OwnFrame) -> None:
        self._respond(own.frame)
        self._transport.give_back(own, is_reusable=False)

    def _respond(self, frame: memoryview) -> None:
        if not self._under_way:
            self._transport.close("protocol error: a response to no request")
            return
        response = self._under_way.popleft()
        if not response.done():
            response.set_result(frame)

    def finish(self) -> None:
        pass

    def flushed(self) -> None:
        pass

    def reading_ended(self) -> None:
        pass

    def lost(self, reason: str) -> None:
        self._lost_because = f"connection to {self.address} lost: {reason}"
        under_way, self._under_way = self._under_way, deque()
        for response in under_way:
            if not response.done():
                response.set_exception(ChannelClosed(self._lost_because))
                response.exception()  # marks it as retrieved, if no caller waits for it
        self._closed.set()
