"""The exchange on a connection before its first request, within bounds of time, number and size.

A connection that we opened is greeted by us: first the transport's own exchange is awaited (`Handshakes`), then `greet`
of its security asks what it has to, in a few small frames. Whoever connects gets an OSError if that fails, as if
the peer could not be reached.

A connection that was accepted has to be greeted by its peer, who may be anybody (`Greetings`). A peer that does not get
there in time is closed. While too many are at it, others wait in the backlog, and one that sends nothing is closed
soon: peers that say nothing must not keep out those that do. Each listener has a number of its own: strangers at the
door for clients must not keep nodes from each other.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable

from odradek.errors import ProtocolError
from odradek.host.interface import Timer
from odradek.net.channel import Channel
from odradek.net.security import Greet
from odradek.net.transport import Owned, Part

MAX_FRAME_SIZE = 64 * 1024
MAX_EXCHANGES = 20  # frames that we send
GREETING_SECONDS = 5.0  # of a connection that we opened
ACCEPTED_SECONDS = 10.0  # of one that was accepted
MAX_GREETINGS = 500  # of accepted connections of one listener at the same time
STALLED_SECONDS = 1.0  # without a byte from the peer, while others wait
CHECK_SECONDS = 0.5


class GreetingRefused(ConnectionError):
    """One end did not let the other in."""


# --- connections that we opened ---


class Greeting:
    """The exchange with one peer."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._left = MAX_EXCHANGES

    async def ask(self, *frame: Part) -> memoryview:
        if not self._left:
            raise GreetingRefused(f"{self._channel.address} asks for more than {MAX_EXCHANGES} exchanges")
        self._left -= 1
        return await self._channel.send(*frame)


async def greeted(channel: Channel, greet: Greet | None) -> Channel:
    """Returns the channel once requests may be sent on it. Raises OSError, and closes it then."""
    if greet is None:
        return channel
    channel.begin_greeting(MAX_FRAME_SIZE)
    try:
        await greet(Greeting(channel))
    except ProtocolError as error:
        channel.close(f"its greeting cannot be read: {error}")
        raise GreetingRefused(f"the greeting of {channel.address} cannot be read: {error}") from error
    except BaseException as error:
        channel.close(f"it was not greeted: {error or type(error).__name__}")
        raise
    channel.end_greeting()
    return channel


class Handshakes:
    """Transports that we opened, whose own exchange is not over."""

    def __init__(self) -> None:
        self._waiting: dict[Owned, asyncio.Future[None]] = {}

    async def finish(self, transport: Owned) -> None:
        """Raises GreetingRefused if the connection is lost in it. If the caller gives up, it is closed."""
        if not transport.is_greeting:
            return
        over = self._waiting[transport] = asyncio.get_running_loop().create_future()
        try:
            await over
        except BaseException:
            transport.close("its handshake did not end in time", logging.DEBUG)
            raise
        finally:
            self._waiting.pop(transport, None)

    def greeted(self, transport: Owned) -> None:
        over = self._waiting.pop(transport, None)
        if over is not None and not over.done():
            over.set_result(None)

    def closed(self, transport: Owned, reason: str) -> None:
        over = self._waiting.pop(transport, None)
        if over is not None and not over.done():
            over.set_exception(GreetingRefused(f"{transport.address}: {reason}"))


# --- connections that were accepted ---


class Greetings:
    """Accepted connections that are not greeted yet."""

    def __init__(
        self, now: Callable[[], float], call_later: Callable[..., Timer], on_room: Callable[[], None]
    ) -> None:
        """`on_room` is called when one that waits could be accepted."""
        self._now = now
        self._call_later = call_later
        self._on_room = on_room
        self._due: dict[Owned, float] = {}  # in the order in which they began
        self._of_listener: Counter[str] = Counter()  # how many of them
        self._check: Timer | None = None

    def is_full(self, listener: str) -> bool:
        return self._of_listener[listener] >= MAX_GREETINGS

    def begin(self, connection: Owned) -> None:
        self._due[connection] = self._now() + ACCEPTED_SECONDS
        self._of_listener[connection.listener] += 1
        if self._check is None:
            self._check_later()

    def end(self, connection: Owned) -> None:
        """It is greeted, or closed."""
        if self._due.pop(connection, None) is None:
            return
        was_full = self.is_full(connection.listener)
        self._of_listener[connection.listener] -= 1
        if was_full:
            self._on_room()

    def stop(self) -> None:
        if self._check is not None:
            self._check.cancel()
            self._check = None

    def _check_later(self) -> None:
        self._check = self._call_later(CHECK_SECONDS, self._close_late)

    def _close_late(self) -> None:
        self._check = None
        now = self._now()
        for connection, due in list(self._due.items()):
            if due <= now:
                connection.close(f"it was not ready for requests within {ACCEPTED_SECONDS:g} s", logging.INFO)
            elif connection.last_active + STALLED_SECONDS < now and self.is_full(connection.listener):
                connection.close("it sends nothing before its first request, and others wait", logging.INFO)
        if self._due and self._check is None:
            self._check_later()
