"""A wrapper around the request handler, which applies the armed faults.

A fault that lets a request be handled and changes its response gives the inner handler a shadow of the
request (`_handle`), and decides what to do with its response. Order is kept as usual: a conversation sends no
response before those of earlier requests, so a delayed one delays later ones, and after a lost one no response
is sent any more. A held request is an effect that is awaited: later requests on its connection wait, those of
other connections do not.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from odradek.apis.items import Division, merge
from odradek.apis.messages import request_type
from odradek.apis.table import is_served, named
from odradek.faults.connections import Connections
from odradek.faults.plan import Fault, Kind, Plan
from odradek.faults.responses import READS, SESSION_ERRORS, Responses, read_response, refusal, request_frame
from odradek.faults.wires import CLIENTS, Wires
from odradek.serving.conversation import RequestHandler
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.codec import Message, read_message
from odradek.wire.frame import RequestHeader

Effect = Awaitable[None]
PRODUCE = named("Produce").key


@dataclass(slots=True)
class Met:
    """A request that has met a fault."""

    fault: Fault
    request: Request
    message: Message
    division: Division  # of the message
    frame: memoryview
    body: int  # where the message starts in the frame

    @property
    def api_key(self) -> int:
        return self.request.api_key

    @property
    def version(self) -> int:
        return self.request.version

    @property
    def wants_no_response(self) -> bool:
        return self.api_key == PRODUCE and self.message.acks == 0  # type: ignore[attr-defined]


class FaultyRequests:
    """A `RequestHandler` around another one."""

    def __init__(
        self,
        inner: RequestHandler,
        services: Services,
        plan: Plan,
        connections: Connections,
        wires: Wires,
    ) -> None:
        self.turns = inner.turns
        self.finish = inner.finish
        self.keeps = inner.keeps
        self._inner = inner
        self._host = services.node.host
        self._plan = plan
        self._connections = connections
        self._wires = wires
        self._responses = Responses(services)
        self._actions: dict[Kind, Callable[[Met], Effect | None]] = {
            Kind.ANSWER: self._answer,
            Kind.DELAY: self._delay,
            Kind.LOSE: self._lose,
            Kind.HOLD: self._hold,
            Kind.CUT: self._cut,
        }

    def dispatch(self, request: Request, frame: memoryview, body: int) -> Effect | None:
        met = self._meet(request, frame, body)
        if met is None:
            return self._inner.dispatch(request, frame, body)
        self._plan.take(met.fault)
        return self._actions[met.fault.kind](met)

    def _meet(self, request: Request, frame: memoryview, body: int) -> Met | None:
        faults = self._plan.of_api(request.api_key)
        if not faults or not is_served(request.api_key, request.version):
            return None
        message: Any = read_message(request_type(request.api_key), request.version, frame, body)[0]
        is_client = self._wires.peer_named(request.caller.client_id) is CLIENTS
        for fault in faults:
            # Other nodes ask too, and fetch all the time: they have to be named.
            if fault.concern.client_id == request.caller.client_id or (
                fault.concern.client_id is None and is_client
            ):
                division = self._responses.divide(request.api_key, request.version, message, fault.concern)
                if division is not None:
                    met = Met(fault, request, message, division, frame, body)
                    if not (met.wants_no_response and fault.kind in (Kind.DELAY, Kind.LOSE)):
                        return met
        return None

    # --- handled, and then something becomes of the response ---

    def _handle(
        self, met: Met, answered: Callable[[Request], None], message: Message | None = None
    ) -> Effect | None:
        """Let the request, or another message instead of it, be handled."""
        real = met.request

        def done(shadow: Request) -> None:
            if met.fault.is_undone and message is None:
                real.answer_parts(shadow.parts or ())
            else:
                answered(shadow)

        header = RequestHeader(real.api_key, real.version, real.correlation_id, None, met.body)
        shadow = Request(header, real.caller, done, real.turns, real.session)
        real.on_abandoned = shadow.abandon
        if message is None:
            return self._inner.dispatch(shadow, met.frame, met.body)
        return self._inner.dispatch(shadow, request_frame(message, real.version), 0)

    def _fire(self, met: Met) -> None:
        self._plan.fire(met.fault, met.request)

    def _delay(self, met: Met) -> Effect | None:
        def answered(shadow: Request) -> None:
            def send() -> None:
                timer.cancel()
                met.fault.ended(send)
                if not met.request.is_answered:
                    met.request.answer_parts(shadow.parts or ())

            timer = self._host.call_later(met.fault.seconds or 0, send)
            met.fault.endings.append(send)
            self._fire(met)

        return self._handle(met, answered)

    def _lose(self, met: Met) -> Effect | None:
        """The connection stays open, and nothing more is sent on it. When the fault is undone, it is closed: its client
        reconnects, instead of waiting for a response that never comes."""
        close = self._connections.closer(met.request, "a response on it was lost, as the test asked for")
        met.fault.endings.append(close)
        return self._handle(met, lambda shadow: self._fire(met))

    def _cut(self, met: Met) -> Effect | None:
        return self._close(met, "the test asked for a cut")

    def _close(self, met: Met, reason: str) -> Effect | None:
        """Before the request is handled, or instead of its response."""
        cut = self._connections.closer(met.request, reason)

        def close() -> None:
            cut()
            self._fire(met)

        def answered(shadow: Request) -> None:
            """In a separate turn: earlier responses are sent first, and no code that is using the connection finds it
            closed."""
            self._host.call_soon(close)

        if met.fault.after_handling:
            return self._handle(met, answered)
        close()
        return None

    # --- not handled yet ---

    def _hold(self, met: Met) -> Effect:
        released = asyncio.Event()

        def release() -> None:
            released.set()
            met.fault.ended(release)

        met.fault.endings.append(release)
        if met.fault.seconds is not None:
            self._host.call_later(met.fault.seconds, release)
        before = self._inner.finish()
        met.frame = memoryview(bytearray(met.frame))  # appends patch it in place
        self._fire(met)
        return self._handle_when(released, before, met)

    async def _handle_when(self, released: asyncio.Event, before: Effect | None, met: Met) -> None:
        """Even if its client has disconnected by then: this makes a late request."""
        if before is not None:
            await before
        await released.wait()
        effect = self._inner.dispatch(met.request, met.frame, met.body)
        if effect is not None:
            await effect
        effect = self._inner.finish()
        if effect is not None:
            await effect

    # --- an error ---

    def _answer(self, met: Met) -> Effect | None:
        fault, division = met.fault, met.division
        if met.wants_no_response:  # with acks=0 any error closes the client's connection
            return self._close(met, "a Produce with acks=0 failed, as the test asked for")
        if met.api_key in READS and fault.error not in SESSION_ERRORS:
            return self._spoil(met)
        refused = refusal(met.version, division.concerned, fault.error)
        if division.rest is not None:
            return self._answer_in_part(met, division.rest, refused)
        if fault.after_handling:
            return self._handle(met, lambda shadow: self._answer_with(met, refused))
        self._answer_with(met, refused)
        return met.request.unfinished

    def _answer_with(self, met: Met, response: Message) -> None:
        met.request.answer(response)
        self._fire(met)

    def _answer_in_part(self, met: Met, rest: Message, refused: Message) -> Effect | None:
        def answered(shadow: Request) -> None:
            response = read_response(met.api_key, met.version, shadow.parts or ())
            self._answer_with(met, merge(response, refused))

        return self._handle(met, answered, None if met.fault.after_handling else rest)

    def _spoil(self, met: Met) -> Effect | None:
        fault = met.fault

        def answered(shadow: Request) -> None:
            response = read_response(met.api_key, met.version, shadow.parts or ())
            spoilt = self._responses.spoil(met.message, response, fault.concern, fault.error)
            self._answer_with(met, spoilt)

        message = None if fault.after_handling else self._responses.only_to_be_answered(met.message)
        return self._handle(met, answered, message)
