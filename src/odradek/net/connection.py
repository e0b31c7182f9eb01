"""One client connection: frames in, answers out in the order of their requests.

Reading. A readable socket is read into a buffer that all connections share; whole frames are handled where they
lie, without a copy. Only a frame that did not arrive whole gets memory of its own (see `net.memory`), and the socket
is then read straight into it. Once a frame was handled, its memory is the next one's: fresh memory would have to be
cleared first, and is in no cache. A handler that is not done with a frame at once has it copied, or its memory kept.

Order. Every request stands in `waiting` until its answer, and all before it, have been handed to the socket.
A handler that must wait for something before its effect is done (a topic being created) is a coroutine, and the
frames behind it are held until it ends: effects keep the order of the requests too. A request that has done its
work and only waits to answer (a Produce for its sync, a Fetch for data) does not hold up the next one.

Bounds. Reading stops while too many requests wait, while too much output waits for a client that does not read,
or while all connections together hold too much. TCP then slows the client down. What was read already is held back
by the same bounds: a buffer full of small requests may have a gigabyte of answers. Requests that arrived together
are handled together only for a share of the turn of the event loop (see `api.turns`); the rest is held back too.
"""

import asyncio
import logging
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from odradek.api.request import Request
from odradek.api.turns import TURN_SECONDS
from odradek.errors import ProtocolError
from odradek.net.memory import new_frame
from odradek.net.output import Output, Sent, read_into_memory
from odradek.wire.frame import SIZE, RequestHeader, read_request_header

if TYPE_CHECKING:
    from odradek.net.server import Server

log = logging.getLogger(__name__)

MAX_WAITING = 1_000  # requests of one connection that are not answered yet
MAX_WAITING_IN_ALL = 100_000  # of all connections; a connection that waits for nothing may always ask
MAX_OUTPUT_BYTES = 8 << 20  # answers that wait for a client to read them, before its requests are left unread
ALL_SENT = Sent.ALL
MAX_SPARE_FRAME = 2 << 20
SMALL_FRAME = 16 * 1024  # is let in whoever holds all the memory: the number of connections bounds these
# A frame slower than this and the rate below is given up when others wait for its memory.
FRAME_GRACE_SECONDS = 5.0
SLOWEST_BYTES_PER_SECOND = 1 << 20
IDLE_FRAME_SECONDS = 2.0  # and so is one of which nothing has arrived for so long


class HeldFrame(NamedTuple):
    """A frame in memory of its own, and how much of that is accounted for."""

    frame: memoryview
    claimed: int


class Connection:
    def __init__(self, server: "Server", sock: socket.socket, address: str, listener: str) -> None:
        self._server = server
        self._loop = server.loop
        self._socket = sock
        self._descriptor = sock.fileno()
        self.address = address
        self.listener = listener
        self._output = Output(sock)
        self._waiting: deque[Request] = deque()
        # Frames behind a request whose effect is not done, or over a bound.
        self._held: deque[HeldFrame] = deque()
        self._gate: asyncio.Task[None] | None = None
        self._gate_claim = 0  # memory of the frames that the gate works on
        self._turns = server.dispatcher.turns
        self._turn_ends = 0.0  # when our share of this turn of the event loop is used up
        self._turn_is_over = False
        self._is_in_line = False  # for a turn to handle held frames
        self._start = b""  # up to 3 bytes of a frame's size
        self._frame: memoryview | None = None  # a frame that arrives in pieces
        self._filled = 0
        self._claimed = 0  # how much of it is accounted for
        self._frame_due = 0.0  # when all of it should have arrived
        self._reading = False
        self._starved = False  # no memory for a frame of which a part has arrived
        self._writing = False
        self._warming = False
        self._flush_is_due = False
        self._may_read = True
        self.closed = False
        self.last_active = time.monotonic()
        self._resume_reading()

    # --- reading ---

    def _on_readable(self) -> None:
        self.last_active = now = self._turns.clock()
        self._turn_ends = now + self._turns.share
        self._turn_is_over = False
        self._guarded(self._read_rest if self._frame is not None else self._read_frames)

    def _guarded(self, work: Callable[[], None]) -> None:
        """Do some of this connection's work; what goes wrong ends this connection and no other."""
        self._flush_is_due = True  # all answers of this turn leave together, below
        self._attempt(work)
        self._attempt(self._finish_run)
        if self._held and not self._must_hold:
            self._go_on_soon()
        self.flush()

    def _finish_run(self) -> None:
        effect = self._server.dispatcher.finish()
        if effect is not None:
            self._wait_at_gate(effect)

    def _attempt(self, work: Callable[[], None]) -> None:
        try:
            work()
        except (BlockingIOError, InterruptedError):
            pass
        except ProtocolError as error:
            self.close(f"protocol error: {error}")
        except OSError as error:
            self.close(f"connection lost: {error}", logging.DEBUG)
        except Exception:
            log.exception("connection %s: a request could not be handled", self.address)
            self.close("internal error")

    def _read_frames(self) -> None:
        buffer = self._server.receive_buffer
        start = len(self._start)
        buffer[:start] = self._start
        count = self._socket.recv_into(buffer[start:])
        if count == 0:
            self.close("closed by the client", logging.DEBUG)
            return
        self._split(buffer[: start + count])

    def _split(self, data: memoryview) -> None:
        """Handle the whole frames in `data`, keep what is left."""
        position, end = 0, len(data)
        while end - position >= SIZE.size:
            (size,) = SIZE.unpack_from(data, position)
            if not 0 <= size <= self._server.max_frame_size:
                raise ProtocolError(f"a frame of {size} bytes (0 to {self._server.max_frame_size} allowed)")
            begin = position + SIZE.size
            if begin + size > end:
                self._begin_frame(size, data[position:])
                return
            position = begin + size
            self._receive(data[begin:position])
            if self.closed:
                return
            if position < end and self._turns.clock() >= self._turn_ends:
                self._end_turn()
        self._start = bytes(data[position:])

    def _begin_frame(self, size: int, received: memoryview) -> None:
        self._start = b""
        beginning = received[SIZE.size :]
        self._frame = self._frame_memory(size)
        self._frame[: len(beginning)] = beginning
        self._filled = len(beginning)
        if size > SMALL_FRAME:
            self._server.memory.begin(self)
            self._claim(len(beginning))
        self._expect_the_rest()

    def _frame_memory(self, size: int) -> memoryview:
        if size <= SMALL_FRAME:
            return memoryview(bytearray(size))
        spare, self._server.spare_frame = self._server.spare_frame, memoryview(b"")
        return spare[:size] if len(spare) >= size else new_frame(size)

    def _claim(self, size: int) -> None:
        self._claimed += size
        self._server.memory.take(size)

    def _expect_the_rest(self) -> None:
        assert self._frame is not None
        rest = len(self._frame) - self._filled
        self._frame_due = time.monotonic() + FRAME_GRACE_SECONDS + rest / SLOWEST_BYTES_PER_SECOND

    def memory_is_free(self) -> None:
        self._starved = False
        self._expect_the_rest()
        self._resume_reading()

    def _read_rest(self) -> None:
        frame, memory = self._frame, self._server.memory
        assert frame is not None
        is_large = len(frame) > SMALL_FRAME
        if is_large and not memory.may_grow(self):
            self._starved = True
            self._server.starved()
            self._pause_reading()
            return
        count = self._socket.recv_into(frame[self._filled :])
        if count == 0:
            self.close("closed by the client in the middle of a request", logging.INFO)
            return
        self._filled += count
        if is_large:
            self._claim(count)
        if self._filled == len(frame):
            claimed, self._claimed, self._frame = self._claimed, 0, None
            memory.end(self)
            self._receive_own(HeldFrame(frame, claimed))

    def _drop_frame(self) -> None:
        if self._frame is not None:
            claimed, self._claimed, self._frame = self._claimed, 0, None
            self._server.memory.end(self)
            self._server.memory.release(claimed)

    # --- handling ---

    def _receive(self, frame: memoryview) -> None:
        """A frame in the buffer that all connections share."""
        if self._held or self._turn_is_over or self._must_hold:
            self._hold(HeldFrame(memoryview(bytearray(frame)), 0))
            return
        header = read_request_header(frame)
        if len(frame) > SMALL_FRAME and self._server.dispatcher.keeps(header.api_key, len(frame)):
            frame = memoryview(bytearray(frame))
        self._handle(header, frame)

    def _receive_own(self, held: HeldFrame) -> None:
        if self._held or self._must_hold:
            self._hold(held)
        else:
            self._handle_own(held)

    def _hold(self, held: HeldFrame) -> None:
        self._held.append(held)
        self._pause_reading()

    def _end_turn(self) -> None:
        """Whatever else has arrived is for a later turn."""
        self._turn_is_over = True
        self._turns.spent()

    @property
    def _must_hold(self) -> bool:
        return (
            self._gate is not None
            or len(self._waiting) >= MAX_WAITING
            or (self._server.waiting_in_all >= MAX_WAITING_IN_ALL and len(self._waiting) > 0)
            or self._output.size > MAX_OUTPUT_BYTES
        )

    def _handle(self, header: RequestHeader, frame: memoryview) -> None:
        request = Request(header, self.address, self.listener, self._answered, self._turns)
        self._waiting.append(request)
        self._server.waiting_in_all += 1
        effect = self._server.dispatcher.dispatch(request, frame, header.body)
        if effect is not None:
            self._wait_at_gate(effect)

    def _handle_own(self, held: HeldFrame) -> None:
        frame, claimed = held
        if not claimed:
            self._handle(read_request_header(frame), frame)
            return
        try:
            self._handle(read_request_header(frame), frame)
            self._finish_run()
        finally:
            if self._gate is None:
                self._server.memory.release(claimed)
                if len(frame) <= MAX_SPARE_FRAME:
                    self._server.spare_frame = frame
            else:
                self._gate_claim += claimed

    def _wait_at_gate(self, effect: Awaitable[None]) -> None:
        assert self._gate is None, "a request is handled while another one's effect is awaited"
        self._gate = self._loop.create_task(self._wait_for(effect))

    async def _wait_for(self, effect: Awaitable[None]) -> None:
        try:
            await effect
        except ProtocolError as error:
            self.close(f"protocol error: {error}")
        except Exception:
            log.exception("connection %s: a request could not be handled", self.address)
            self.close("internal error")
        finally:
            self._gate = None
            claimed, self._gate_claim = self._gate_claim, 0
            self._server.memory.release(claimed)
        self._go_on()

    def _answered(self, request: Request) -> None:
        """The head of the queue may be sent now, and what is answered behind it."""
        if self.closed:
            return
        waiting = self._waiting
        while waiting and waiting[0].parts is not None:
            self._output.add(waiting.popleft().parts or ())
            self._server.waiting_in_all -= 1
        if not self._flush_is_due and self._output.size:
            self._flush_is_due = True
            self._loop.call_soon(self.flush)
        if self._held and not self._must_hold:
            self._go_on_soon()

    def _go_on_soon(self) -> None:
        if not self._is_in_line:
            self._is_in_line = True
            self._turns.call(self._take_turn)

    def _take_turn(self) -> None:
        self._is_in_line = False
        self._go_on()

    def _go_on(self) -> None:
        """Handle held frames, as far as the bounds allow; reading resumes when none is left."""
        self._turn_ends = self._turns.clock() + TURN_SECONDS
        self._turn_is_over = False
        self._guarded(self._handle_held)

    def _handle_held(self) -> None:
        while self._held and not self.closed and not self._must_hold and not self._turn_is_over:
            self._handle_own(self._held.popleft())
            if self._turns.clock() >= self._turn_ends:
                self._end_turn()

    # --- writing ---

    def flush(self) -> None:
        self._flush_is_due = False
        if self.closed or self._warming:
            return
        if not self._output.size:
            self._resume_reading()
            return
        try:
            sent = self._output.send()
        except OSError as error:
            self.close(f"connection lost: {error}", logging.DEBUG)
            return
        self.last_active = time.monotonic()
        if sent is ALL_SENT and self._reading and not self._writing:
            return
        if sent is Sent.NEEDS_DISK:
            self._warming = True
            self._loop.create_task(self._warm())
        self._watch_writable(sent is Sent.SOCKET_FULL)
        if self._output.size > MAX_OUTPUT_BYTES:
            self._pause_reading()
        elif self._held and not self._must_hold:
            self._go_on_soon()
        else:
            self._resume_reading()

    async def _warm(self) -> None:
        piece = self._output.slice_to_warm()
        try:
            descriptor = piece.file.fileno()
            await self._loop.run_in_executor(None, read_into_memory, descriptor, piece.position, piece.length)
        except OSError as error:
            self.close(f"cannot read {piece.file.path}: {error}")
        if self.closed:
            self._warming = False
            self._output.clear()
            return
        self._warming = False
        self._output.warmed()
        self.flush()

    def _watch_writable(self, watch: bool) -> None:
        if watch != self._writing:
            self._writing = watch
            if watch:
                self._loop.add_writer(self._descriptor, self.flush)
            else:
                self._loop.remove_writer(self._descriptor)

    # --- life ---

    def _pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._descriptor)

    def _resume_reading(self) -> None:
        if self._reading or self.closed or self._held or self._starved or not self._may_read:
            return
        if self._output.size <= MAX_OUTPUT_BYTES:
            self._reading = True
            self._loop.add_reader(self._descriptor, self._on_readable)

    def stop_reading(self) -> None:
        """For good: what was asked is answered, and nothing more is heard."""
        self._may_read = False
        self._drop_held()
        self._pause_reading()

    @property
    def is_busy(self) -> bool:
        """Somebody who waits for us; who does not read our answers is idle."""
        return bool(self._waiting)

    def is_late(self, now: float) -> bool:
        """Whether a frame does not arrive, though there is memory for it."""
        is_idle = self.last_active + IDLE_FRAME_SECONDS < now
        return self._frame is not None and not self._starved and (is_idle or self._frame_due < now)

    def _drop_held(self) -> None:
        held, self._held = self._held, deque()
        self._server.memory.release(sum(frame.claimed for frame in held))

    def close(self, reason: str, level: int = logging.WARNING) -> None:
        if self.closed:
            return
        self.closed = True
        log.log(level, "connection %s closed: %s", self.address, reason)
        self._pause_reading()
        self._watch_writable(False)
        self._drop_frame()
        self._drop_held()
        if not self._warming:  # a thread still reads from the pinned file
            self._output.clear()
        for request in self._waiting:
            request.abandon()
        self._server.waiting_in_all -= len(self._waiting)
        self._waiting.clear()
        self._socket.close()
        self._server.closed(self)
