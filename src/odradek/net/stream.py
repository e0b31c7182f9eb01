"""A transport on a TCP socket: frames in, bytes and slices of files out, without needless copies.

What the bytes go through on their way to and from the socket is not known here: `net.plaintext` leaves them as they
are, `net.tls` encrypts them.

A readable socket is read into a buffer that all transports share; whole frames are passed on in place, without a copy.
Only a frame that did not arrive whole gets its own memory (see `net.memory`), and the socket is then read
straight into it. Output that is added while frames are being handled is sent together afterwards.

It has two states, one for receiving and one for sending: see `net.states`.
"""

import logging
import socket
from collections.abc import Callable
from typing import ClassVar, NamedTuple

from odradek.errors import ProtocolError
from odradek.net.moving import MovingTransport
from odradek.net.output import Output, Sent, read_into_memory
from odradek.net.pool import Pool
from odradek.net.security import Security
from odradek.net.states import (
    BLOCKED,
    GATHERING,
    READING,
    SENDING_MOVES,
    STARVED,
    Receiving,
    ReceivingMove,
    Sending,
    SendingMove,
)
from odradek.net.strangers import Where, why_no_frame
from odradek.net.transport import SMALL_FRAME, Converse, Owner, OwnFrame, log_closing
from odradek.wire.frame import SIZE

SIZE_SIZE = SIZE.size
ALL_SENT = Sent.ALL
CLOSED = Receiving.CLOSED
GATHER, EMPTY = SendingMove.GATHER, SendingMove.EMPTY
# A frame slower than this and the rate below is given up when others wait for its memory.
FRAME_GRACE_SECONDS = 5.0
SLOWEST_BYTES_PER_SECOND = 1 << 20
IDLE_FRAME_SECONDS = 2.0  # and so is one of which nothing has arrived for this long


class Connected(NamedTuple):
    """A connected socket, and what is known about it."""

    socket: socket.socket  # does not block
    address: str  # of the peer
    listener: str  # that accepted it; "" if we connected
    security: Security


class StreamTransport(MovingTransport):
    log: ClassVar[logging.Logger]  # of the transport that this is

    def __init__(
        self,
        pool: Pool,
        connected: Connected,
        converse: Converse,
        owner: "StreamOwner",
        receive_into: Callable[[memoryview], int],
        output: Output,
    ) -> None:
        """`receive_into` returns 0 at the end, and raises BlockingIOError if nothing has arrived. A subclass calls
        `_open` when frames may pass."""
        super().__init__(pool.max_frame_size)
        self._pool = pool
        self._traffic = pool.traffic
        self._host = pool.host
        self._loop = pool.host.loop
        self._now = pool.host.monotonic
        self._socket, self.address, self.listener, self.security = connected
        self._receive_into = receive_into
        self._descriptor = self._socket.fileno()
        self._converse = converse
        self._owner = owner
        self.output = output
        self.peer_certificate: bytes | None = None
        pool.traffic.connections += 1
        self._start = b""  # up to 3 bytes of a frame's size
        self._frame: memoryview | None = None  # a frame that arrives in pieces
        self._filled = 0
        self._claimed = 0  # how much of it is accounted for
        self._frame_due = 0.0  # when all of it should have arrived
        self.last_active = self._now()

    def _open(self) -> None:
        self.receiver = self._converse(self)
        self.resume_reading()

    # --- reading ---

    def _move_receiving(self, move: ReceivingMove) -> None:
        before = self.receiving
        super()._move_receiving(move)
        after = self.receiving
        if before is READING and after is not READING:
            self._loop.remove_reader(self._descriptor)
        elif after is READING and before is not READING:
            self._loop.add_reader(self._descriptor, self._on_readable)

    def _on_readable(self) -> None:
        self.last_active = self._now()
        self.sending = SENDING_MOVES[self.sending][GATHER]
        try:
            if self._frame is None:
                self._read_frames()
            else:
                self._read_rest(self._frame)
        except (BlockingIOError, InterruptedError):
            pass
        except ProtocolError as error:
            self.close(str(error))
        except OSError as error:
            self.close(f"connection lost: {error}", logging.DEBUG)
        self.receiver.finish()
        self.flush()

    def _read_frames(self) -> None:
        buffer = self._pool.receive_buffer
        start = 0
        if self._start:
            start = len(self._start)
            buffer[:start] = self._start
        count = self._receive_into(buffer[start:] if start else buffer)
        if count == 0:
            self.close("closed by the peer", logging.DEBUG)
            return
        self._traffic.received_bytes += count
        self._split(buffer[: start + count])

    def _split(self, data: memoryview) -> None:
        """Pass on the whole frames in `data`, keep the rest."""
        position, end = 0, len(data)
        receive = self.receiver.receive
        while (begin := position + SIZE_SIZE) <= end:
            (size,) = SIZE.unpack_from(data, position)
            if not 0 <= size <= self._max_frame_size:
                raise ProtocolError(self._why_no_frame(bytes(data[position:begin]), size))
            if begin + size > end:
                self._begin_frame(size, data[position:])
                return
            position = begin + size
            receive(data[begin:position])
            if self.receiving is CLOSED:
                return
        self._start = bytes(data[position:]) if position < end else b""

    def _why_no_frame(self, start: bytes, size: int) -> str:
        where = Where(self.listener, self.security.protocol.name)
        return why_no_frame(start, size, self._max_frame_size, where, self.is_greeting)

    def _begin_frame(self, size: int, received: memoryview) -> None:
        self._start = b""
        beginning = received[SIZE.size :]
        self._frame = self._pool.frame(size)
        self._frame[: len(beginning)] = beginning
        self._filled = len(beginning)
        if size > SMALL_FRAME:
            self._pool.memory.begin(self)
            self._claim(len(beginning))
        self._expect_the_rest(self._frame)

    def _claim(self, size: int) -> None:
        self._claimed += size
        self._pool.memory.take(size)

    def _expect_the_rest(self, frame: memoryview) -> None:
        rest = len(frame) - self._filled
        self._frame_due = self._now() + FRAME_GRACE_SECONDS + rest / SLOWEST_BYTES_PER_SECOND

    def _read_rest(self, frame: memoryview) -> None:
        is_large = len(frame) > SMALL_FRAME
        if is_large and not self._pool.memory.may_grow(self):
            self._move_receiving(ReceivingMove.STARVE)
            self._pool.starved()
            return
        count = self._receive_into(frame[self._filled :])
        if count == 0:
            self.close("closed by the peer in the middle of a frame", logging.INFO)
            return
        self._filled += count
        self._traffic.received_bytes += count
        if is_large:
            self._claim(count)
        if self._filled == len(frame):
            claimed, self._claimed, self._frame = self._claimed, 0, None
            self._pool.memory.end(self)
            self.receiver.receive_own(OwnFrame(frame, claimed))

    def _drop_frame(self) -> None:
        if self._frame is not None:
            claimed, self._claimed, self._frame = self._claimed, 0, None
            self._pool.memory.end(self)
            self._pool.memory.release(claimed)

    def memory_is_free(self) -> None:
        if self._frame is not None:
            self._expect_the_rest(self._frame)
        self._move_receiving(ReceivingMove.FEED)

    def give_back(self, own: OwnFrame, is_reusable: bool) -> None:
        if own.claimed:
            self._pool.memory.release(own.claimed)
            if is_reusable:
                self._pool.recycle(own.frame)

    def is_late(self, now: float) -> bool:
        """True if a frame does not arrive, although there is memory for it."""
        is_idle = self.last_active + IDLE_FRAME_SECONDS < now
        return (
            self._frame is not None and self.receiving is not STARVED and (is_idle or self._frame_due < now)
        )

    # --- writing ---

    def _move_sending(self, move: SendingMove) -> None:
        before = self.sending
        super()._move_sending(move)
        after = self.sending
        if before is BLOCKED and after is not BLOCKED:
            self._loop.remove_writer(self._descriptor)
        elif after is BLOCKED and before is not BLOCKED:
            self._loop.add_writer(self._descriptor, self.flush)

    def flush_soon(self) -> None:
        self.sending = SENDING_MOVES[self.sending][GATHER]  # which does not change what is watched
        self._host.call_soon(self.flush)

    def flush_now(self) -> None:
        self.sending = SENDING_MOVES[self.sending][GATHER]
        self.flush()

    def flush(self) -> None:
        was = self.sending
        if was is not GATHERING and was is not BLOCKED:
            return
        if not self.output.size and was is GATHERING:
            self.sending = SENDING_MOVES[was][EMPTY]
            return
        try:
            sent = self.output.send()
        except OSError as error:
            self.close(f"connection lost: {error}", logging.DEBUG)
            return
        self.last_active = self._now()
        if sent is ALL_SENT:
            if was is GATHERING and self.receiving is READING:  # nearly always
                self.sending = SENDING_MOVES[was][EMPTY]
                return
            self._move_sending(EMPTY)
        elif sent is Sent.SOCKET_FULL:
            self._move_sending(SendingMove.BLOCK)
        else:
            self._move_sending(SendingMove.WARM_UP)
            self._host.create_task(self._warm())
        self.receiver.flushed()

    async def _warm(self) -> None:
        piece = self.output.slice_to_warm()
        try:
            descriptor = piece.file.fileno()
            await self._host.in_thread(read_into_memory, descriptor, piece.position, piece.length)
        except OSError as error:
            self.close(f"cannot read {piece.file.path}: {error}")
        self._move_sending(SendingMove.WARMED)
        if self.sending is Sending.CLOSED:
            self.output.clear()
        else:
            self.output.warmed()
            self.flush()

    # --- life ---

    def close(self, reason: str, level: int = logging.WARNING) -> None:
        if self.receiving is CLOSED:
            return
        self._move_receiving(ReceivingMove.CLOSE)
        log_closing(self.log, level, self.address, reason)
        self._move_sending(SendingMove.CLOSE)
        self._drop_frame()
        self.receiver.lost(reason)
        if self.sending is Sending.CLOSED:
            self.output.clear()
        self._socket.close()
        self._owner.closed(self, reason)


StreamOwner = Owner[StreamTransport]
