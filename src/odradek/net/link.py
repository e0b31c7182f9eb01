"""One connection to another node, for one purpose, with reconnects.

A caller gets the response, or an OSError within the time given: the peer cannot be reached, the connection was
lost, or no response came. After a failure the next attempt waits a little, and a little longer each time, so that a
node that is down costs nothing; the first success ends that. A connection on which a response is overdue is
closed, because its state is unknown. One that must be greeted (`net.greeting`) is connected once that is done, and a
peer that does not let this node in is as one that cannot be reached.

Requests are bounded by `MAX_UNDER_WAY`: a peer that does not respond must not fill our memory.
"""

import asyncio

from odradek.host.interface import Host
from odradek.net.channel import Channel, ChannelClosed
from odradek.net.network import Dialer
from odradek.net.security import Address

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 0.5
CONNECT_SECONDS = 2.0  # a node that does not respond at all, as behind a cut link
MAX_UNDER_WAY = 200


class Link:
    def __init__(self, host: Host, dialer: Dialer) -> None:
        self._host = host
        self._dialer = dialer
        self._address: Address | None = None
        self._channel: Channel | None = None
        self._connecting = asyncio.Lock()
        self._attempt: asyncio.Timeout | None = None  # to connect; it ends early if it has become useless
        self._pause_seconds = 0.0  # between the last attempt to connect and the next
        self._next_attempt = 0.0  # not before this time, however many callers give up meanwhile
        self._under_way = 0
        self._is_closed = False

    async def ask(self, address: Address, frame: bytes | bytearray, timeout_seconds: float) -> memoryview:
        """Send a frame to the node at this address; the frame of its response. Raises OSError."""
        if self._under_way >= MAX_UNDER_WAY:
            raise ChannelClosed(f"too many requests wait for {address[0]}:{address[1]}")
        self._under_way += 1
        try:
            async with asyncio.timeout(timeout_seconds):
                channel = await self.connected(address, timeout_seconds)
                try:
                    return await channel.send(frame)
                except BaseException:  # its time is up, or we are closed
                    channel.close("no response in time")
                    raise
        finally:
            self._under_way -= 1

    async def connected(self, address: Address, timeout_seconds: float) -> Channel:
        """The connection to the node at this address. Raises OSError."""
        async with self._connecting:
            channel = self._channel
            if channel is not None and channel.is_open and self._address == address:
                return channel
            if channel is not None:
                channel.close("the peer has moved to another address")
            if self._address != address:
                self._pause_seconds = self._next_attempt = 0.0
            self._address, self._channel = address, None
            if (left := self._next_attempt - self._host.monotonic()) > 0:
                await asyncio.sleep(left)
            if self._is_closed:
                raise ChannelClosed("this node is stopping")
            try:
                self._channel = channel = await self._connect(address, timeout_seconds)
            except BaseException:
                self._pause_seconds = min(
                    max(2 * self._pause_seconds, FIRST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS
                )
                self._next_attempt = self._host.monotonic() + self._pause_seconds
                raise
            self._pause_seconds = self._next_attempt = 0.0
            return channel

    async def _connect(self, address: Address, timeout_seconds: float) -> Channel:
        try:
            async with asyncio.timeout(None) as self._attempt:
                return await self._dialer.connect(address, min(timeout_seconds, CONNECT_SECONDS))
        finally:
            self._attempt = None

    def _end_attempt(self) -> None:
        if self._attempt is not None:
            self._attempt.reschedule(self._host.loop_time())

    def go_to(self, address: Address) -> None:
        """The peer is at this address now: requests that wait for the old address fail."""
        if self._address == address:
            return
        self._end_attempt()
        if self._channel is not None:
            self._channel.close("the peer has moved to another address")

    def close(self) -> None:
        self._is_closed = True
        self._end_attempt()
        if self._channel is not None:
            self._channel.close()
