"""Between a wire and its users: frames, but not their content.

A transport turns incoming bytes into frames and passes them to its receiver, and turns the parts of frames into
outgoing bytes. There is one for each connection: `net.plaintext` on a socket, `net.simulated` on virtual time. A
receiver is the other half: `serving.conversation` for incoming requests, `net.channel` for requests to other nodes.
"""

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

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
    """What a receiver may do with its connection."""

    address: str  # the peer's, as host:port
    listener: str  # that accepted it; "" if we connected

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
        """That was all that has arrived."""

    def flushed(self) -> None:
        """Some output was sent, but not all of it, or not at once: there may be more room for output, or too little."""

    def reading_ended(self) -> None:
        """Nothing more will arrive, but pending requests may still get their responses."""

    def lost(self, reason: str) -> None:
        """The connection is closed, by us or by the peer. Called once; only `finish` may be called after it."""


Converse = Callable[[Transport], Receiver]


def log_closing(log: logging.Logger, level: int, address: str, reason: str) -> None:
    """Refused peers try again at once: a line about one of them is written once, and repeats are counted."""
    host = address.rpartition(":")[0]
    counted(log, level, host, reason, "closing %s: %s", address, reason, address=address)
