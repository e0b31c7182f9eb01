"""Between a wire and those who talk over it: frames, and nothing of what is in them.

A transport turns what arrives into frames and hands them to its receiver, and turns the parts of frames into what
leaves. There is one for each connection: `net.plaintext` on a socket, `net.simulated` on virtual time. A receiver is
the other half: `requests.conversation` for clients that ask us, `net.channel` for nodes that we ask.
"""

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from odradek.host.log_lines import counted
from odradek.net.states import Sending
from odradek.storage.segments.row import Slice

Part = bytes | bytearray | memoryview | Slice

SMALL_FRAME = 16 * 1024  # is let in whoever holds all the memory: the number of connections bounds these


class OwnFrame(NamedTuple):
    """A frame in memory of its own, and how much of that is accounted for until it is given back."""

    frame: memoryview
    claimed: int


class Output(Protocol):
    """What waits to leave."""

    size: int

    def add(self, parts: Sequence[Part]) -> None:
        """Parts of frames, with their sizes in front. They leave with the next flush."""


class Transport(Protocol):
    """What a receiver may do with its connection."""

    address: str  # the peer's, as host:port
    listener: str  # by which it came; "" if we connected

    @property
    def output(self) -> Output: ...

    @property
    def sending(self) -> Sending:
        """While it is IDLE nobody is going to flush."""

    def gather(self) -> None:
        """Whoever calls this calls `flush` in the same turn: what is added in between leaves together."""

    def flush(self) -> None:
        """Send as much as the wire takes now; the rest follows by itself."""

    def flush_soon(self) -> None:
        """In a turn of its own."""

    def pause_reading(self) -> None:
        """Frames that have been read already may still come."""

    def resume_reading(self) -> None: ...

    def give_back(self, own: OwnFrame, is_reusable: bool) -> None:
        """Nobody needs this frame any more; if nobody looks at its memory either, the next one may have it."""

    def close(self, reason: str, level: int = logging.WARNING) -> None:
        """At once: what waits to leave is dropped. The receiver is told by `lost`."""


class Receiver(Protocol):
    """Who gets the frames of a transport, in the order in which they arrived."""

    @property
    def is_busy(self) -> bool:
        """True while the peer waits for something from us."""

    def receive(self, frame: memoryview) -> None:
        """A frame without its size. Its memory is used again once `finish` has returned."""

    def receive_own(self, own: OwnFrame) -> None:
        """A large one, or one that arrived in pieces. It has to be given back."""

    def finish(self) -> None:
        """That was all that has arrived."""

    def flushed(self) -> None:
        """Something left, but not all of it, or not at once: there may be more room for output, or too little."""

    def reading_ended(self) -> None:
        """Nothing more will arrive, though what was asked may still be answered."""

    def lost(self, reason: str) -> None:
        """The connection is closed, by us or by the peer. Called once; nothing is called after it but `finish`."""


Converse = Callable[[Transport], Receiver]


def log_closing(log: logging.Logger, level: int, address: str, reason: str) -> None:
    """Peers that are turned away come again at once: what one of them causes is written once, and counted."""
    host = address.rpartition(":")[0]
    counted(log, level, host, reason, "closing %s: %s", address, reason, address=address)
