"""Between a wire and its users: frames, but not their content.

A transport turns incoming bytes into frames and passes them to its receiver, and turns the parts of frames into
outgoing bytes. There is one for each connection: `net.stream` on a socket, `net.simulated` on virtual time. A
receiver is the other half: `serving.conversation` for incoming requests, `net.channel` for requests to other nodes.

A connection may have to be greeted before it serves anybody: the transport has an exchange of its own (TLS), or its
receiver wants to know first who is there (SASL). The receiver exists once the transport's part is over. Until
both are, frames are small, and whoever accepted the connection, its owner, limits the time (`net.greeting`).
"""

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from odradek.host.log_lines import counted
from odradek.net.states import Sending
from odradek.storage.segments.row import Slice

Part = bytes | bytearray | memoryview | Slice

SMALL_FRAME = 16 * 1024  # always accepted, even without free memory: the number of connections bounds these


class OwnFrame(NamedTuple):
    """A frame in its own memory, and how much of that is accounted for until it is returned."""

    frame: memoryview
    claimed: int


class Output(Protocol):
    """The output queue."""

    @property
    def size(self) -> int: ...

    def add(self, parts: Sequence[Part]) -> None:
        """Parts of frames, with their sizes in front. They leave with the next flush."""


class Transport(Protocol):
    """The things that a receiver may do with its connection."""

    address: str  # the peer's, as host:port
    listener: str  # that accepted it; "" if we connected

    @property
    def peer_certificate(self) -> bytes | None:
        """In DER; None without TLS, or if the peer has shown none."""

    @property
    def output(self) -> Output: ...

    @property
    def sending(self) -> Sending:
        """While it is IDLE no flush is due."""

    def gather(self) -> None:
        """Call `flush` in the same turn: output added in between is sent together."""

    def flush(self) -> None:
        """Send as much as the wire accepts now; the rest follows automatically."""

    def flush_soon(self) -> None:
        """In a separate turn."""

    def flush_now(self) -> None:
        """While it is IDLE: no more output is expected in this turn."""

    def pause_reading(self) -> None:
        """Frames that have already been read may still be delivered."""

    def resume_reading(self) -> None: ...

    def give_back(self, own: OwnFrame, is_reusable: bool) -> None:
        """This frame is no longer needed; if there is no view of its memory either, it can be reused."""

    def begin_greeting(self, max_frame_size: int) -> None:
        """The peer has yet to say who it is: until `end_greeting` its frames may not be larger than this."""

    def end_greeting(self) -> None: ...

    def close(self, reason: str, level: int = logging.WARNING) -> None:
        """At once: pending output is dropped. The receiver is told by `lost`."""


class Receiver(Protocol):
    """Receives the frames of a transport, in the order in which they arrived."""

    @property
    def is_busy(self) -> bool:
        """True while the peer waits for something from us."""

    def receive(self, frame: memoryview) -> None:
        """A frame without its size. Its memory is used again once `finish` has returned."""

    def receive_own(self, own: OwnFrame) -> None:
        """A large one, or one that arrived in pieces. It has to be given back."""

    def finish(self) -> None:
        """Note that this was all that has arrived."""

    def flushed(self) -> None:
        """Some output was sent, but not all of it, or not at once: there may be more room for output, or too little."""

    def reading_ended(self) -> None:
        """Nothing more will arrive, but pending requests may still get their responses."""

    def lost(self, reason: str) -> None:
        """The connection is closed, by us or by the peer. Called once; only `finish` may be called after it."""


Converse = Callable[[Transport], Receiver]


class FrameReceiver:
    """Part of a receiver that handles each frame by itself, and writes little: it need not know of anything else."""

    def finish(self) -> None:
        pass

    def flushed(self) -> None:
        pass

    def reading_ended(self) -> None:
        pass


class Nobody(FrameReceiver):
    """Receives nothing, while a transport has its own greeting."""

    is_busy = False

    def receive(self, frame: memoryview) -> None:
        raise AssertionError("a frame has arrived before its receiver exists")

    def receive_own(self, own: OwnFrame) -> None:
        self.receive(own.frame)

    def lost(self, reason: str) -> None:
        pass


NOBODY = Nobody()


class Owned(Protocol):
    """A transport, as its owner sees it."""

    address: str
    listener: str  # by name; empty for a connection that we opened
    last_active: float  # when bytes last passed, by the host's monotonic clock
    is_greeting: bool

    def close(self, reason: str, level: int = logging.WARNING) -> None: ...


TheirTransport = TypeVar("TheirTransport", bound=Owned, contravariant=True)


class Owner(Protocol[TheirTransport]):
    """Made a transport, and is told what becomes of it."""

    def greeted(self, transport: TheirTransport) -> None:
        """It is no longer greeting."""

    def closed(self, transport: TheirTransport, reason: str) -> None: ...


def log_closing(log: logging.Logger, level: int, address: str, reason: str) -> None:
    """Refused peers try again at once: a line about one of them is written once, and repeats are counted."""
    host = address.rpartition(":")[0]
    counted(log, level, host, reason, "closing %s: %s", address, reason, address=address)
