"""The two ends of a simulated connection with TLS: a handshake, and bytes that arrive in pieces.

Three messages make the handshake: the client's hello, the server's, and the client's end of it. They and all frames
after them are cut into pieces wherever chance has it, each with its own delay. So an end may have got half a message
when the connection is cut or lost, as over TCP. An end may also stop in the middle of its message, for good, or close
the connection there: `GreetingFaults` says how often.

Nothing is encrypted: what is simulated is when things arrive.
"""

import logging
from random import Random
from typing import NamedTuple

from odradek.net.simulated_wire import Piece, Pipe, SimulatedOutput, SimulatedOwner, SimulatedTransport
from odradek.net.transport import Converse
from odradek.wire.frame import SIZE

MAX_CUTS = 4
MESSAGE_SIZES = (200, 3000)  # in bytes, from and to


class GreetingFaults(NamedTuple):
    """The probabilities that an end, in each of its messages of a handshake, does this."""

    stall: float
    drop: float


NO_FAULTS = GreetingFaults(0.0, 0.0)


class ProtectedTransport(SimulatedTransport):
    """One end; its messages of the handshake are counted down."""

    to_hear: int  # messages of the handshake that are still to come from the other end

    def __init__(
        self,
        outgoing: Pipe,
        incoming: Pipe,
        address: str,
        listener: str,
        converse: Converse,
        owner: SimulatedOwner,
        faults: GreetingFaults,
    ) -> None:
        self._rng = outgoing.rng
        self._faults = faults
        self._arrived = bytearray()  # of a message that is not complete
        super().__init__(outgoing, incoming, address, listener, converse, owner)

    def _new_output(self) -> SimulatedOutput:
        return CutOutput(self._outgoing)

    def _begin(self) -> None:
        self.is_greeting = True
        self._outgoing.sender = self._incoming.taker = self
        self.resume_reading()

    # --- the handshake ---

    def _say(self) -> bool:
        """Send a message of the handshake; False if that was the last thing this end does."""
        message = bytearray(self._rng.randrange(*MESSAGE_SIZES))
        pieces = cut(self._rng, bytearray(SIZE.pack(len(message))) + message)
        mood = self._rng.random()
        goes_on = mood >= self._faults.stall + self._faults.drop
        if not goes_on:
            del pieces[self._rng.randrange(len(pieces)) :]
        for piece in pieces:
            self._outgoing.put(piece)
        if not goes_on and mood >= self._faults.stall:
            self._outgoing.loop.call_soon(self.close, "this end drops the handshake", logging.DEBUG)
        return goes_on

    def _hear(self) -> None:
        """A message of the handshake has arrived."""
        raise NotImplementedError

    def _end_handshake(self) -> None:
        self.is_greeting = False
        self._open()
        if not self.is_greeting:
            self._owner.greeted(self)

    # --- reading ---

    def arrive(self, frames: list[bytearray], ending: str | None) -> None:
        if any(not isinstance(piece, Piece) for piece in frames):
            self.close("it does not speak TLS, but this listener wants it")
            return
        complete: list[bytearray] = []
        for piece in frames:
            self._arrived += piece
            while (message := self._next_message()) is not None:
                if not self.to_hear:
                    complete.append(message)
                    continue
                self._take(message)
                self.to_hear -= 1
                self._hear()
        super().arrive(complete, ending)

    def _next_message(self) -> bytearray | None:
        if len(self._arrived) < SIZE.size:
            return None
        end = SIZE.size + SIZE.unpack_from(self._arrived)[0]
        if len(self._arrived) < end:
            return None
        message = self._arrived[SIZE.size : end]
        del self._arrived[:end]
        return message

    def _take(self, frame: bytearray) -> None:
        self._incoming.taken(SIZE.size + len(frame))


class OpenedTransport(ProtectedTransport):
    """The client's end."""

    to_hear = 1

    def _begin(self) -> None:
        super()._begin()
        self._say()

    def _hear(self) -> None:
        if self._say():
            self._end_handshake()


class AcceptedTransport(ProtectedTransport):
    """The server's end."""

    to_hear = 2

    def _hear(self) -> None:
        if self.to_hear:
            self._say()
        else:
            self._end_handshake()


class CutOutput(SimulatedOutput):
    """Frames leave in pieces."""

    def _put(self, frame: bytearray) -> None:
        for piece in cut(self._pipe.rng, bytearray(SIZE.pack(len(frame))) + frame):
            self._pipe.put(piece)


def cut(rng: Random, message: bytearray) -> list[Piece]:
    ends = sorted(rng.randrange(1, len(message)) for _ in range(rng.randrange(MAX_CUTS)))
    starts = [0, *ends]
    return [Piece(message[start:end]) for start, end in zip(starts, [*ends, len(message)], strict=True)]
