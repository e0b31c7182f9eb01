"""The road of every request: admit, authorize, handle, amend. Handlers are called here and nowhere else.

Requests come from connections (`dispatch`), out of Envelopes, from this node to itself and from the node's own parts.
All of them are counted, authorized and refused alike. A request from a connection gets its response there; one that is
asked here (`ask`) gets it as a message, unless the API has a codec of its own.

The row of an API says how its handler works (`row.Handling`), and which access it needs (`access`). What is denied, or
hidden from the caller, changes the response when it leaves (`reply`). Produce and Fetch ask for each topic themselves.
Produce requests that arrived together are handled as one (see `api.produce`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from odradek.apis.messages import request_type
from odradek.apis.row import Api, Handling, ListenerKind, May, Need
from odradek.apis.table import SERVED, is_served, name_of, named
from odradek.errors import ProtocolError
from odradek.host.metrics import ApiCount
from odradek.model import Caller
from odradek.net.transport import Part
from odradek.serving import registry
from odradek.serving.access import Amendment, Hide, Permitted, authorize
from odradek.serving.authorizer import may_of
from odradek.serving.reply import answer_error
from odradek.serving.request import Request
from odradek.wire.codec import Message, Steps
from odradek.wire.frame import RequestHeader
from odradek.wire.produce import ProduceRequest

if TYPE_CHECKING:
    from odradek.serving.services import Services

AT_ONCE, WAITS = Handling.AT_ONCE, Handling.WAITS
API_VERSIONS, PRODUCE = named("ApiVersions").key, named("Produce").key

Effect = Awaitable[None]
Run = list[tuple[Request, ProduceRequest]]


class Route(NamedTuple):
    """The message type, the handler and the counter for requests of one API in one version."""

    api: Api
    message_type: type[Message]
    handle: Callable[[Request, Any], Any]
    handling: Handling
    counter: ApiCount
    is_asked_here: bool  # whether its caller may have what it asks for; else the handler asks
    access: Callable[[Any, int, May], tuple[Need, ...]] | None  # where the needs depend on the request
    hide: Hide | None


class Road:
    """The road of all requests to listeners of one kind, which decides which APIs are served."""

    def __init__(self, services: "Services", kind: ListenerKind) -> None:
        self._services = services
        self._kind = kind
        self._turns = services.node.turns
        self._authorizer = services.authorizer
        self._asks = not services.authorizer.allows_all
        self._routes: dict[tuple[int, int], Route] = {}
        self._handlers: dict[int, Any] = {}
        produce = registry.new_handler(services, PRODUCE)
        self._produced = services.node.metrics.of_api(PRODUCE)
        self._produce_all = produce.handle_all
        self._produce_in_turns = produce.handle_in_turns

    def admit(self, api_key: int, version: int) -> Route | None:
        """Returns None if this is not served here."""
        route = self._routes.get((api_key, version))
        if route is None:
            if not is_served(api_key, version, self._kind):
                return None
            route = self._add_route(api_key, version)
        route.counter.requests += 1
        return route

    def _add_route(self, api_key: int, version: int) -> Route:
        """Imports the module of the API the first time it is used."""
        api = SERVED[self._kind][api_key]
        try:
            handle = self.handler(api_key).handle
            message_type = request_type(api_key)
        except OSError as error:  # out of descriptors: the next request tries again
            raise ProtocolError(
                f"the code that serves {name_of(api_key, version)} cannot be read: {error}"
            ) from error
        module, access = registry.module_of(api_key, self._kind), api.access
        route = self._routes[api_key, version] = Route(
            api,
            message_type,
            handle,
            api.handling,
            self._services.node.metrics.of_api(api_key),
            self._kind not in access.asked_by_handler,
            getattr(module, access.function) if access.function else None,
            getattr(module, access.hides) if access.hides else None,
        )
        return route

    def handler(self, api_key: int) -> Any:
        """The handler of an API, with what it keeps between requests."""
        handler = self._handlers.get(api_key)
        if handler is None:
            handler = self._handlers[api_key] = registry.new_handler(self._services, api_key, self._kind)
        return handler

    # --- one request ---

    def take(self, route: Route, request: Request, message: Message) -> Effect | None:
        """Authorize and handle a request that was admitted. An effect must be awaited before the next request of the
        same connection may be handled."""
        if self._asks and route.is_asked_here:
            return self._authorize(route, request, message)
        return self._handle(route, request, message)

    def _handle(self, route: Route, request: Request, message: Message) -> Effect | None:
        handling = route.handling
        try:
            if handling is AT_ONCE:
                response = route.handle(request, message)
            elif handling is WAITS:
                return self._finish(request, message, route.handle(request, message))
            else:
                steps: Steps[Message | None] = route.handle(request, message)
                done = self._turns.advance(steps)
                if done is None:
                    return self._finish(request, message, self._turns.finish(steps))
                response = done.result
        except ProtocolError:
            raise
        except Exception as error:
            answer_error(request, message, error)
            return request.unfinished
        if request.rest is not None:
            return self._finish(request, message, request.rest)
        if response is not None:
            request.answer(response)
        return request.unfinished

    async def _finish(
        self, request: Request, message: Message, work: Coroutine[Any, Any, Message | None]
    ) -> None:
        try:
            response = await work
            if request.rest is not None and request.rest is not work:
                response = await request.rest
        except ProtocolError:
            raise
        except Exception as error:
            answer_error(request, message, error)
            response = None
        if response is not None:
            request.answer(response)
        if request.unfinished is not None:
            await request.unfinished

    # --- what the caller may have ---

    def _authorize(self, route: Route, request: Request, message: Message) -> Effect | None:
        may = may_of(self._authorizer, request)
        try:
            asking = self._asking(route, request, message, may)
            done = self._turns.advance(asking)
        except Exception as error:
            answer_error(request, message, error)
            return request.unfinished
        if done is None:
            return self._handle_later(route, request, message, may, asking)
        return self._handle_permitted(route, request, message, may, done.result)

    def _asking(self, route: Route, request: Request, message: Message, may: May) -> Steps[Permitted]:
        needs, version = route.api.access.needs, request.version
        if route.access is not None:
            needs = route.access(message, version, may)
        return authorize(route.api, needs, message, version, may, self._services.cluster.topic_name)

    async def _handle_later(
        self, route: Route, request: Request, message: Message, may: May, asking: Steps[Permitted]
    ) -> None:
        try:
            permitted = await self._turns.finish(asking)
        except Exception as error:
            answer_error(request, message, error)
            effect: Effect | None = request.unfinished
        else:
            effect = self._handle_permitted(route, request, message, may, permitted)
        if effect is not None:
            await effect

    def _handle_permitted(
        self, route: Route, request: Request, message: Message, may: May, permitted: Permitted
    ) -> Effect | None:
        if permitted.rest is None:
            assert permitted.refused is not None
            request.answer(permitted.refused)
            return request.unfinished
        if permitted.refused is not None or route.hide is not None:
            request.amend = Amendment(message, permitted, route.hide, may).amend
        return self._handle(route, request, permitted.rest)

    # --- a run of Produce requests ---

    def take_run(self, run: Run) -> Effect | None:
        self._produced.requests += len(run)
        effect: Effect | None = self._produce_all(run)
        return effect

    def take_run_in_turns(self, run: Run) -> Effect:
        self._produced.requests += len(run)
        effect: Effect = self._produce_in_turns(run)
        return effect

    # --- asked for a message ---

    def ask(self, message: Any, version: int, caller: Caller) -> "Asked":
        """Its `response` may be there at once."""
        request = Asked(RequestHeader(message.API_KEY, version, 0, None, 0), caller, _nothing, self._turns)
        route = self.admit(message.API_KEY, version)
        assert route is not None, f"{name_of(message.API_KEY, version)} is not served here"
        request.effect = self.take(route, request, message)
        return request

    def unsupported_version(self) -> Message:
        """The response to ApiVersions in a version from the future."""
        response: Message = registry.module_of(API_VERSIONS).unsupported_version()
        return response


class Asked(Request):
    """A request whose response stays a message. Who asked logs what was refused."""

    __slots__ = ("effect", "response", "when_answered")

    effect: Effect | None  # awaited by `answered`
    response: Message | None  # None until it is answered
    when_answered: asyncio.Future[None] | None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.effect = self.response = self.when_answered = None

    def answer(self, message: Message) -> None:
        self.response = self.amended(message)
        self.answer_parts(())
        if self.when_answered is not None and not self.when_answered.done():
            self.when_answered.set_result(None)

    def answer_parts(self, parts: Sequence[Part]) -> None:
        assert not parts, "Produce and Fetch answer connections only"
        super().answer_parts(parts)

    def answer_when_made(self, making: Steps[Message]) -> None:
        self.unfinished = asyncio.get_running_loop().create_task(self._make(making))

    async def _make(self, making: Steps[Message]) -> None:
        self.answer(await self.turns.finish(making))

    async def answered(self) -> Message:
        if self.effect is not None:
            await self.effect
        if self.response is None:
            self.when_answered = asyncio.get_running_loop().create_future()
            await self.when_answered
        assert self.response is not None
        return self.response


def _nothing(request: Request) -> None:
    pass
