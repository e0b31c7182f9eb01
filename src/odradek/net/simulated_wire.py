"""The two ends of a simulated connection, and the pipes between them (see `net.simulated`)."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context
from random import Random
from typing import NamedTuple, Protocol

from odradek.net.moving import MovingTransport
from odradek.net.states import (
    BLOCKED,
    GATHERING,
    READING,
    SENDING_MOVES,
    Receiving,
    ReceivingMove,
    SendingMove,
)
from odradek.net.transport import (
    SMALL_FRAME,
    Converse,
    Owner,
    OwnFrame,
    Part,
    log_closing,
)
from odradek.storage.segments.row import Slice
from odradek.wire.frame import SIZE

log = logging.getLogger(__name__)

GIVE_UP_SECONDS = 30.0  # how long an end waits for a cut to heal
WINDOW = 64 * 1024  # bytes that the network accepts before the other end has read them
MAX_FRAME_SIZE = 1 << 31


class Ways(Protocol):
    """The link between two places."""

    loop: asyncio.AbstractEventLoop
    rng: Random
    context: Context

    def at(self, name: str, work: Callable[..., None], *arguments: object) -> None:
        """Run this in the context of that place."""

    def is_cut(self, source: str, target: str) -> bool: ...

    def delay(self) -> float:
        """In seconds."""

    def stall(self, source: str, target: str, go_on: Callable[[], None]) -> None:
        """Continue when the cut has healed."""


class Ending(NamedTuple):
    """The last thing that comes out of a pipe."""

    reason: str


class Piece(bytearray):
    """Bytes of a protected connection (`net.simulated_greeting`). Anything else that a pipe carries is a frame."""


class Pipe:
    """One direction of a connection: frames come out in the order they went in, each after its delay."""

    def __init__(self, ways: Ways, source: str, target: str) -> None:
        self._ways = ways
        self._source, self._target = source, target
        self.sender: SimulatedTransport | None = None
        self.taker: SimulatedTransport | None = None
        self._content: deque[tuple[float, bytearray | Ending]] = deque()  # when it arrives, if nothing is cut
        self._is_moving = False
        self._stalls = 0
        self._is_ended = False
        self.unread = 0  # bytes that were put in and not taken

    @property
    def rng(self) -> Random:
        return self._ways.rng

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._ways.loop

    def put(self, frame: bytearray) -> None:
        self.unread += len(frame)
        self._add(frame)

    def end(self, reason: str) -> None:
        """After everything that is in it already."""
        if not self._is_ended:
            self._is_ended = True
            self._add(Ending(reason))

    def reset(self) -> None:
        """Even if data or an end is still under way."""
        self._is_ended = False
        self.end("reset by the peer")

    def _add(self, content: bytearray | Ending) -> None:
        earliest = self._content[-1][0] if self._content else 0.0
        self._content.append((max(earliest, self.loop.time() + self._ways.delay()), content))
        self._move_on()

    def _move_on(self) -> None:
        if self._content and not self._is_moving:
            self._is_moving = True
            self.loop.call_at(self._content[0][0], self._arrive, context=self._ways.context)

    def _arrive(self) -> None:
        """Everything that is due comes out."""
        self._is_moving = False
        if not self._content:
            return
        if self._ways.is_cut(self._source, self._target):
            self._stall()
            return
        now = self.loop.time()
        arrived: list[bytearray] = []
        ending: Ending | None = None
        while self._content and self._content[0][0] <= now and ending is None:
            _, content = self._content.popleft()
            if isinstance(content, Ending):
                ending = content
            else:
                arrived.append(content)
        self._move_on()
        self._deliver(arrived, ending)

    def _deliver(self, arrived: list[bytearray], ending: Ending | None) -> None:
        if self.taker is not None:
            self._ways.at(self._target, self.taker.arrive, arrived, ending.reason if ending else None)
        elif arrived and self.sender is not None:
            self.sender.hear_reset()

    def _stall(self) -> None:
        """The sender notices a cut only by waiting too long."""
        self._is_moving = True
        self._stalls += 1
        self._ways.stall(self._source, self._target, self._healed)
        self.loop.call_later(GIVE_UP_SECONDS, self._maybe_give_up, self._stalls, context=self._ways.context)

    def _healed(self) -> None:
        self._stalls += 1
        self._is_moving = False
        self._move_on()

    def _maybe_give_up(self, stalls: int) -> None:
        if stalls == self._stalls and self.sender is not None:
            self._content.clear()
            self._is_ended = True  # without telling the other end
            self._ways.at(
                self._source,
                self.sender.close,
                "timed out: the peer does not acknowledge what was sent",
                logging.DEBUG,
            )

    def taken(self, size: int) -> None:
        self.unread -= size
        if self.sender is not None and self.sender.sending is BLOCKED:
            self.loop.call_soon(self._ways.at, self._source, self.sender.flush, context=self._ways.context)

    # --- faults ---

    def break_off(self) -> None:
        """A beginning of what is under way arrives, then the connection is lost."""
        self._lose_some()
        self.reset()

    def _lose_some(self) -> None:
        for _ in range(self._ways.rng.randrange(len(self._content) + 1)):
            self._content.pop()

    def fall_silent(self) -> None:
        """The sending place is gone: a beginning of the data under way arrives, and nothing else."""
        self._lose_some()
        self._is_ended = True


class SimulatedTransport(MovingTransport):
    """One end of a connection."""

    peer_certificate: bytes | None = None

    def __init__(
        self,
        outgoing: Pipe,
        incoming: Pipe,
        address: str,
        listener: str,
        converse: Converse,
        owner: "SimulatedOwner",
    ) -> None:
        super().__init__(MAX_FRAME_SIZE)
        self._outgoing, self._incoming = outgoing, incoming
        self._converse = converse
        self._owner = owner
        self.address = address
        self.listener = listener
        self.output = self._new_output()
        self.last_active = outgoing.loop.time()
        self.claimed = 0  # bytes of frames that were not given back yet
        self._unread: deque[bytearray] = deque()
        self._ending: str | None = None
        self._begin()

    def _new_output(self) -> "SimulatedOutput":
        return SimulatedOutput(self._outgoing)

    def _begin(self) -> None:
        self._open()
        self._outgoing.sender = self._incoming.taker = self
        self.resume_reading()

    def _open(self) -> None:
        self.receiver = self._converse(self)

    # --- reading ---

    def arrive(self, frames: list[bytearray], ending: str | None) -> None:
        self.last_active = self._incoming.loop.time()
        self._unread += frames
        self._ending = ending
        self._read()

    def _read(self) -> None:
        """The arrived data, as a socket would deliver it: small frames together, a large one alone."""
        while self._unread and self.receiving is READING:
            if why := self._why_no_frame(self._unread[0]):
                self.close(why)
                return
            self.sending = SENDING_MOVES[self.sending][SendingMove.GATHER]
            if len(self._unread[0]) > SMALL_FRAME:
                self._read_large(self._unread.popleft())
            else:
                self._read_small()
            self.flush()
        if self._ending is not None and not self._unread and self.receiving is READING:
            self.close(self._ending, logging.DEBUG)

    def _why_no_frame(self, frame: bytearray) -> str:
        if isinstance(frame, Piece):
            return "it speaks TLS, but this listener is PLAINTEXT"
        if len(frame) > self._max_frame_size:
            return f"it announced a frame of {len(frame)} bytes before it has authenticated"
        return ""

    def _take(self, frame: bytearray) -> None:
        """It is read: there is room for more."""
        self._incoming.taken(len(frame))

    def _read_large(self, frame: bytearray) -> None:
        self._take(frame)
        self.claimed += len(frame)
        self.receiver.receive_own(OwnFrame(memoryview(frame), len(frame)))
        self.receiver.finish()

    def _read_small(self) -> None:
        read: list[bytearray] = []
        while self._unread and len(self._unread[0]) <= SMALL_FRAME and self.receiving is not Receiving.CLOSED:
            if self._why_no_frame(self._unread[0]):
                break  # and close it next
            read.append(frame := self._unread.popleft())
            self._take(frame)
            self.receiver.receive(memoryview(frame))
        self.receiver.finish()
        for frame in read:
            frame[:] = bytes(len(frame))

    def give_back(self, own: OwnFrame, is_reusable: bool) -> None:
        self.claimed -= own.claimed
        if is_reusable and own.claimed:
            own.frame[:] = bytes(len(own.frame))

    def resume_reading(self) -> None:
        super().resume_reading()
        if self._unread or self._ending is not None:
            self._incoming.loop.call_soon(self._read)

    # --- writing ---

    def flush_soon(self) -> None:
        self._move_sending(SendingMove.GATHER)
        self._outgoing.loop.call_soon(self.flush)

    def flush_now(self) -> None:
        """At the end of the step, and not at all if the node loses its power before that: whoever checks nodes looks at
        them after every step, and must have seen what a message tells of."""
        self.flush_soon()

    def flush(self) -> None:
        was = self.sending
        if was is not GATHERING and was is not BLOCKED:
            return
        self.output.send()
        self._move_sending(SendingMove.BLOCK if self.output.size else SendingMove.EMPTY)
        if was is BLOCKED or self.output.size or self.receiving is not READING:
            self.receiver.flushed()

    # --- life ---

    def hear_reset(self) -> None:
        """The other end no longer exists: its place resets the connection."""
        self._incoming.reset()

    def close(self, reason: str, level: int = logging.WARNING) -> None:
        if self.receiving is Receiving.CLOSED:
            return
        log_closing(log, level, self.address, reason)
        self._outgoing.end("closed by the peer")
        self._end()
        self.receiver.lost(reason)
        self._owner.closed(self, reason)

    def vanish(self) -> None:
        """Together with its place, without telling the other end."""
        if self.receiving is not Receiving.CLOSED:
            self._end()

    def _end(self) -> None:
        self._move_receiving(ReceivingMove.CLOSE)
        self._move_sending(SendingMove.CLOSE)
        self._outgoing.sender = self._incoming.taker = None
        self._unread.clear()
        self.output.clear()


SimulatedOwner = Owner[SimulatedTransport]


class SimulatedOutput:
    """Frames that the network does not accept yet."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._frames: deque[bytearray] = deque()
        self.size = 0

    def add(self, parts: Sequence[Part]) -> None:
        """The parts of one frame, its size in front, or nothing."""
        frame = bytearray().join(map(content, parts))
        if frame:
            (size,) = SIZE.unpack_from(frame)
            assert size == len(frame) - SIZE.size, "not one whole frame"
            self._frames.append(frame[SIZE.size :])
            self.size += size

    def send(self) -> None:
        while self._frames and self._pipe.unread < WINDOW:
            frame = self._frames.popleft()
            self.size -= len(frame)
            self._put(frame)

    def _put(self, frame: bytearray) -> None:
        self._pipe.put(frame)

    def clear(self) -> None:
        self._frames.clear()
        self.size = 0


def content(part: Part) -> bytes | bytearray | memoryview:
    return part.file.read_at(part.position, part.length) if isinstance(part, Slice) else part
