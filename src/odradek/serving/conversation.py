"""The requests and responses of one connection: requests in, responses out in the same order.

Order. Every request is in `waiting` until its response, and all before it, have been given to the transport.
A handler that must wait before its effect is done (a topic being created) is a coroutine, and later
frames are held until it ends: requests also take effect in order. A request that has done its
work and only waits to respond (a Produce for its sync, a Fetch for data) does not block the next one.

Sending. A response leaves at once if the client waits for no other: a follower has its records, and a lone producer
its acknowledgement, before this node goes on with anything else. If others are owed, they may follow in the same turn
of the event loop, and all leave together at its end.

Bounds. Frames are held, and no more are read, while too many or too large requests wait, or while too much output
waits for a client that does not read; TCP then slows the client down. A buffer full of small requests may have a
gigabyte of responses, so the bounds hold for what was read already too. Requests that arrived together are handled
together only for a share of the turn of the event loop (see `serving.turns`); the rest is held.

Frames. One in the buffer that all transports share is copied if it has to be held, or if its handler is not
done with it at once. One in its own memory is kept, and returned once its request has been handled.

Quotas. A client over its quota has its response at once, and is not read from for as long as that says: a bound that
ends with time. What it has sent before is held. That begins even if the response has to wait for an earlier one: a
client could otherwise put its requests behind a Fetch that waits, and leave.

Greeting. A client that has to authenticate first (`serving.session`) sends small frames until it has, and its transport
gives it only so much time.

A conversation has one state; `conversation_states` has its legal moves.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import Any, Protocol

from odradek.errors import AuthenticationFailed, ProtocolError
from odradek.host.interface import Timer
from odradek.model import Caller
from odradek.net.states import IDLE, next_state
from odradek.net.transport import SMALL_FRAME, OwnFrame, Transport
from odradek.serving import audit
from odradek.serving.conversation_states import (
    BEGIN,
    CLOSED,
    FULL,
    GATED,
    HANDLING,
    HOLDING,
    MOVES,
    READY,
    REST,
    Move,
)
from odradek.serving.quotas import NO_QUOTAS, ClientQuotas, NoQuotas
from odradek.serving.refused_login import delay
from odradek.serving.request import Request
from odradek.serving.session import NewSession, Session, open_session
from odradek.serving.turns import TURN_SECONDS, Turns
from odradek.serving.watch import Watch
from odradek.wire.frame import SIZE, read_request_header
from odradek.wording import shown

log = logging.getLogger(__name__)

NO_API = -1
MAX_WAITING = 1_000  # requests of one conversation that are not answered yet
MAX_WAITING_IN_ALL = 100_000  # of all conversations; one without waiting requests may always send one
# Large requests of one conversation that are not answered yet. A producer that does not wait for its responses could
# otherwise put a leader further ahead of its followers than they can catch up with in `replica.lag.time.max.ms`.
MAX_WAITING_BYTES = 16 << 20
MAX_OUTPUT_BYTES = 8 << 20  # responses that a client has not read; beyond that, its requests are not read


CallLater = Callable[[float, Callable[[], None]], Timer]


def _call_later(seconds: float, callback: Callable[[], None]) -> Timer:
    return asyncio.get_running_loop().call_later(seconds, callback)


class RequestHandler(Protocol):
    """Handles the requests of all conversations."""

    turns: Turns

    def dispatch(self, request: Request, frame: memoryview, body: int) -> Awaitable[None] | None:
        """An awaitable must be awaited before the conversation's next request may be handled."""

    def finish(self) -> Awaitable[None] | None:
        """Release all frames: their memory is about to be reused. Returns the same as `dispatch`."""

    def keeps(self, api_key: int, size: int) -> bool:
        """True if a frame of this size must stay unchanged until the result of `dispatch` has been awaited."""


class Conversations:
    """All conversations of a broker, and what they share."""

    def __init__(
        self,
        handler: RequestHandler,
        create_task: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
        new_session: NewSession = open_session,
        watch: Watch | None = None,
        handlers: Mapping[str, RequestHandler] | None = None,
        quotas: ClientQuotas | None = None,
        call_later: CallLater | None = None,
    ) -> None:
        """`handlers`: by listener name, for listeners with another handler than the default. `quotas`: of the clients
        of all others."""
        self._quotas = quotas
        self.call_later = call_later or _call_later
        self.handler = handler
        self._handlers = handlers or {}
        self.watch = watch or Watch.off()
        self.create_task = create_task
        self.waiting_in_all = 0  # requests without a response
        self._new_session = new_session

    def begin(self, transport: Transport) -> "Conversation":
        handler = self._handlers.get(transport.listener, self.handler)
        caller = Caller(address=transport.address, listener=transport.listener)
        session = self._new_session(caller, transport.peer_certificate)
        quotas = self._quotas if transport.listener not in self._handlers else None
        conversation = Conversation(self, handler, transport, session, quotas or NO_QUOTAS)
        self.watch.conversations[conversation] = None
        return conversation


class Conversation:
    """Receives the frames of one transport."""

    def __init__(
        self,
        all_of_them: Conversations,
        handler: RequestHandler,
        transport: Transport,
        session: Session,
        quotas: ClientQuotas | NoQuotas,
    ) -> None:
        self._quotas = quotas
        self._is_muted = False  # by a quota, until `_mute_ends`
        self._mute_ends = 0.0
        self._unmuting: Timer | None = None
        self._all = all_of_them
        self._handler = handler
        self._turns = handler.turns
        self._clock = handler.turns.clock
        self._watch = all_of_them.watch
        self._transport = transport
        self._output = transport.output
        self._address = transport.address
        self._session = session
        self.state = READY
        self._waiting: deque[Request] = deque()
        self._waiting_bytes = 0  # of those that are large
        self._held: deque[OwnFrame] = deque()
        self._gate: asyncio.Task[None] | None = None
        self._gate_frames: list[OwnFrame] = []  # that the gate works on
        self._turn_ends = 0.0  # when our share of this turn of the event loop is used up
        if session.sasl is not None:
            transport.begin_greeting(session.sasl.max_frame_size)
            session.when_open(transport.end_greeting)

    def _move(self, move: Move) -> None:
        self.state = next_state(MOVES, self.state, move)

    @property
    def is_busy(self) -> bool:
        """True while a request awaits its response; a client that does not read its responses is idle."""
        return bool(self._waiting)

    @property
    def waiting(self) -> Iterable[Request]:
        return self._waiting

    # --- frames ---

    def receive(self, frame: memoryview) -> None:
        if not self._may_handle():
            self._hold(OwnFrame(memoryview(bytearray(frame)), 0))
            return
        try:
            self._handle(frame, is_shared=True)
        except Exception as error:
            self._fail(error)

    def receive_own(self, own: OwnFrame) -> None:
        if not self._may_handle():
            self._hold(own)
            return
        try:
            self._handle_own(own)
        except Exception as error:
            self._fail(error)

    def _may_handle(self) -> bool:
        """True if the next frame is handled now; we are HANDLING then."""
        if self.state is HANDLING:
            if self._clock() >= self._turn_ends:
                self._end_turn()
                return False
        elif self.state is READY:
            self._turn_ends = self._clock() + self._turns.share
            self.state = MOVES[READY][BEGIN]
            if not self._watch.is_awake:
                self._watch.wake()
        else:
            return False
        if self._is_over_bound():
            self._move(Move.HOLD)
            return False
        return True

    def _end_turn(self) -> None:
        """Other frames that have arrived are for a later turn."""
        self._move(Move.HOLD)
        self._turns.spent()

    def _is_over_bound(self) -> bool:
        return (
            len(self._waiting) >= MAX_WAITING
            or self._waiting_bytes >= MAX_WAITING_BYTES
            or self._output.size > MAX_OUTPUT_BYTES
            or self._is_muted
            or (self._all.waiting_in_all >= MAX_WAITING_IN_ALL and len(self._waiting) > 0)
        )

    def _hold(self, own: OwnFrame) -> None:
        if not self._held:
            self._transport.pause_reading()
        self._held.append(own)

    def _drop_held(self) -> None:
        held, self._held = self._held, deque()
        for own in held:
            self._transport.give_back(own, is_reusable=False)

    # --- handling ---

    def _fail(self, error: Exception) -> None:
        """An error ends this conversation and no other."""
        who = f" (client {shown(self._waiting[-1].caller.client_id)})" if self._waiting else ""
        if isinstance(error, AuthenticationFailed):
            audit.login_failed(self._session.caller, str(error))
            self._transport.close(f"authentication failed: {error}{who}", logging.DEBUG)
        elif isinstance(error, ProtocolError):
            self._transport.close(f"protocol error: {error}{who}")
        elif isinstance(error, OSError):
            self._transport.close(f"its request cannot be handled: {error}{who}")
        else:
            log.error("a request from %s%s failed: this is a bug", self._address, who, exc_info=error)
            self._transport.close(f"an internal error, logged above{who}")

    def _handle_own(self, own: OwnFrame) -> None:
        frame, claimed = own
        if not claimed:
            self._handle(frame)
            return
        try:
            self._handle(frame)
            self._finish_run()
        finally:
            if self._gate is None:
                self._transport.give_back(own, is_reusable=True)
            else:
                self._gate_frames.append(own)

    def _handle(self, frame: memoryview, is_shared: bool = False) -> None:
        """`is_shared`: the frame is in the buffer of all transports."""
        session = self._session
        if session.login is not None and session.is_raw:
            session.check_size(len(frame))
            self._wait_at_gate(self._answer_raw(bytes(frame)))
            return
        header = read_request_header(frame)
        if session.login is not None:
            session.check(header.api_key, header.version, len(frame))
        caller = session.caller
        if caller.client_id != header.client_id:  # nearly never: a client keeps its id
            caller = session.caller = caller._replace(client_id=header.client_id)
        request = Request(header, caller, self._answered, self._turns, session)
        self._waiting.append(request)
        self._all.waiting_in_all += 1
        if len(frame) > SMALL_FRAME:
            request.size = len(frame)
            self._waiting_bytes += request.size
            if is_shared and self._handler.keeps(header.api_key, request.size):
                frame = memoryview(bytearray(frame))
        self._watch.last = request
        if self._quotas.is_active:
            effect = self._dispatch_metered(request, frame, header.body)
        else:
            effect = self._handler.dispatch(request, frame, header.body)
        if effect is not None:
            self._wait_at_gate(effect)

    def _dispatch_metered(self, request: Request, frame: memoryview, body: int) -> Awaitable[None] | None:
        """A quota may apply to it, perhaps one on the time that it takes."""
        request.metered, request.frame_size = self._quotas.find(request.api_key, request.caller), len(frame)
        if not self._quotas.times_requests:
            return self._handler.dispatch(request, frame, body)
        began = self._clock()
        effect = self._handler.dispatch(request, frame, body)
        if request.metered is not None:  # it is not a request of a replica
            request.metered.spend(self._clock() - began)
        return effect

    async def _answer_raw(self, message: bytes) -> None:
        """A message of a SASL mechanism, after SaslHandshake v0: it has no header, and neither has the response."""
        session = self._session
        if self._waiting or session.sasl is None:
            raise ProtocolError("a message of its login comes before the response to its handshake")
        reply = session.authenticate(message)
        if reply.failure:
            await delay(session.sasl)
            raise AuthenticationFailed(reply.failure)
        if self.state is CLOSED:
            return  # its client has left meanwhile
        self._output.add((SIZE.pack(len(reply.token)), reply.token))
        self._transport.flush_soon()

    def _finish_run(self) -> None:
        effect = self._finish_timed() if self._quotas.times_requests else self._handler.finish()
        if effect is not None:
            self._wait_at_gate(effect)

    def finish(self) -> None:
        try:
            effect = self._finish_timed() if self._quotas.times_requests else self._handler.finish()
            if effect is not None:
                self._wait_at_gate(effect)
        except Exception as error:
            self._fail(error)
        if self.state is HANDLING:
            self.state = MOVES[HANDLING][REST]
        elif self.state is not READY and self.state is not CLOSED:
            self._settle()

    def _finish_timed(self) -> Awaitable[None] | None:
        """The run of Produce requests that arrived together takes its time here."""
        began = self._clock()
        effect = self._handler.finish()
        metered = self._quotas.find(NO_API, self._session.caller)
        if metered is not None:
            metered.spend(self._clock() - began)
        return effect

    def _settle(self) -> None:
        """Do what has to happen before the next frame may be handled."""
        if self.state is HOLDING or self.state is FULL:
            if not self._is_over_bound():
                self._line_up() if self._held else self._move(REST)
            elif self.state is HOLDING:
                self._move(Move.FILL)
        if not self._held and self.state is not FULL:
            self._transport.resume_reading()

    # --- held frames ---

    def _line_up(self) -> None:
        self._move(Move.LINE_UP)
        self._turns.call(self._take_turn)

    def _take_turn(self) -> None:
        if self.state is not CLOSED:
            self._go_on()

    def _go_on(self) -> None:
        """Handle held frames, as far as the bounds allow; reading resumes when none is left."""
        self._move(BEGIN)
        self._turn_ends = self._clock() + TURN_SECONDS
        self._transport.gather()
        try:
            self._handle_held()
        except Exception as error:
            self._fail(error)
        self.finish()
        if self.state is READY:
            self._transport.resume_reading()
        self._transport.flush()

    def _handle_held(self) -> None:
        while self._held and self.state is HANDLING:
            if self._is_over_bound():
                self._move(Move.HOLD)
                return
            self._handle_own(self._held.popleft())
            if self.state is HANDLING and self._clock() >= self._turn_ends:
                self._end_turn()

    # --- effects that are awaited ---

    def _wait_at_gate(self, effect: Awaitable[None]) -> None:
        assert self._gate is None, "a request is handled while another one's effect is awaited"
        self._move(Move.GATE)
        self._gate = self._all.create_task(self._wait_for(effect))

    async def _wait_for(self, effect: Awaitable[None]) -> None:
        try:
            await effect
        except Exception as error:
            self._fail(error)
        finally:
            self._gate = None
            frames, self._gate_frames = self._gate_frames, []
            for own in frames:
                self._transport.give_back(own, is_reusable=False)
        if self.state is GATED:
            self._go_on()

    # --- responses ---

    def _answered(self, request: Request) -> None:
        """The head of the queue may be sent now, and responses that are ready behind it."""
        if self.state is CLOSED:
            return
        waiting, output = self._waiting, self._output
        while waiting and (parts := waiting[0].parts) is not None:
            first = waiting.popleft()
            output.add(parts)
            if first.size:
                self._waiting_bytes -= first.size
            self._all.waiting_in_all -= 1
        if self._transport.sending is IDLE and output.size:
            if waiting:  # their responses may follow in this turn, and leave together with this one
                self._transport.flush_soon()
            else:
                self._transport.flush_now()
        if request.throttle_ms:
            self._mute(request.throttle_ms / 1000)
        if self.state is FULL:
            self._settle()

    # --- quotas ---

    def _mute(self, seconds: float) -> None:
        """The client was told to be silent for so long: until then nothing more is read from it, and what has arrived
        is held. That is a bound like others, but one that a timer ends."""
        ends = self._clock() + seconds
        if self.state is CLOSED or (self._is_muted and ends <= self._mute_ends):
            return
        if self._unmuting is not None:
            self._unmuting.cancel()
        self._is_muted, self._mute_ends = True, ends
        self._unmuting = self._all.call_later(seconds, self._unmute)
        self._all.call_later(0, self._fall_silent)

    def _fall_silent(self) -> None:
        """Once the frames that arrived together have been handled."""
        if self._is_muted and self.state is READY:
            self._move(Move.FILL)
            self._transport.pause_reading()

    def _unmute(self) -> None:
        self._is_muted = False
        self._unmuting = None
        if self.state is FULL:
            self._settle()

    def flushed(self) -> None:
        if self.state is FULL:
            self._settle()
        elif self.state is READY and self._output.size > MAX_OUTPUT_BYTES:
            self._move(Move.FILL)
            self._transport.pause_reading()

    # --- the end ---

    def reading_ended(self) -> None:
        self._drop_held()

    def lost(self, reason: str) -> None:
        self._move(Move.CLOSE)
        if self._unmuting is not None:
            self._unmuting.cancel()
        self._watch.conversations.pop(self, None)
        self._drop_held()
        for request in self._waiting:
            request.abandon()
        self._all.waiting_in_all -= len(self._waiting)
        self._waiting.clear()
