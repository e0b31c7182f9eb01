"""Requests of this node to another one over one connection: frames out, responses in, in the order of the requests.

A response belongs to the oldest request that has none yet. A caller that stops waiting (a timeout) leaves a place in
the order behind, so that the next response goes to the next request. If the connection is lost, all requests without a
response fail: it is not known whether they had an effect.

A caller that awaits its response gets it in a later turn of the event loop, in memory of its own. A `Taker` is called
in the turn in which the response arrives, with the memory that it arrived in; what it sends then leaves in that turn.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from odradek.net.states import IDLE
from odradek.net.transport import FrameReceiver, OwnFrame, Part, Transport

MAX_UNDER_WAY = 1_000

Response = asyncio.Future[memoryview]


class ChannelClosed(ConnectionError):
    """There is no response, and there will be none."""


class Taker(Protocol):
    """Takes the response to one request."""

    keeps_frame: bool  # it has a view on the frame after `take`

    def take(self, frame: memoryview) -> None: ...

    def fail(self, error: ChannelClosed) -> None: ...


class Promise:
    """Keeps the response for whoever awaits it."""

    __slots__ = ("response",)

    keeps_frame = True

    def __init__(self) -> None:
        self.response: Response = asyncio.get_running_loop().create_future()

    def take(self, frame: memoryview) -> None:
        if not self.response.done():
            self.response.set_result(frame)

    def fail(self, error: ChannelClosed) -> None:
        if not self.response.done():
            self.response.set_exception(error)
            self.response.exception()  # marks it as retrieved, if no caller waits for it


class Channel(FrameReceiver):
    """Receives the responses of one transport."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._under_way: deque[Taker] = deque()
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
        """The size of requests that the peer, or the network, does not take."""
        return self._transport.output.size

    # --- requests ---

    def send(self, *frame: Part) -> Response:
        """Send one frame, its size in front; the result is the frame of its response, without the size."""
        promise = Promise()
        self.send_for(promise, *frame)
        return promise.response

    def send_for(self, taker: Taker, *frame: Part) -> None:
        """Send one frame, its size in front; the taker gets the frame of its response, without the size."""
        if self._lost_because is not None:
            raise ChannelClosed(self._lost_because)
        assert len(self._under_way) < MAX_UNDER_WAY, "requests are sent faster than they are answered"
        self._under_way.append(taker)
        self._add(frame)

    def _add(self, frame: Sequence[Part]) -> None:
        self._transport.output.add(frame)
        if self._transport.sending is IDLE:
            self._transport.flush_soon()

    def begin_greeting(self, max_frame_size: int) -> None:
        """Until `end_greeting`, responses may not be larger than this."""
        self._transport.begin_greeting(max_frame_size)

    def end_greeting(self) -> None:
        self._transport.end_greeting()

    def close(self, reason: str = "closed by us") -> None:
        self._transport.close(reason, logging.DEBUG)

    async def closed(self) -> str:
        """Wait until the connection is closed; returns why."""
        await self._closed.wait()
        assert self._lost_because is not None
        return self._lost_because

    # --- responses ---

    def receive(self, frame: memoryview) -> None:
        taker = self._next_taker()
        if taker is not None:
            taker.take(memoryview(bytes(frame)) if taker.keeps_frame else frame)

    def receive_own(self, own: OwnFrame) -> None:
        taker = self._next_taker()
        if taker is not None:
            taker.take(own.frame)
        self._transport.give_back(own, is_reusable=taker is None or not taker.keeps_frame)

    def _next_taker(self) -> Taker | None:
        if not self._under_way:
            self._transport.close("protocol error: a response to no request")
            return None
        return self._under_way.popleft()

    def lost(self, reason: str) -> None:
        self._lost_because = f"connection to {self.address} lost: {reason}"
        under_way, self._under_way = self._under_way, deque()
        for taker in under_way:
            taker.fail(ChannelClosed(self._lost_because))
        self._closed.set()
