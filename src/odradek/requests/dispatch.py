"""From a frame to its handler.

A request that cannot be read or is not served closes the connection, as in Kafka: there is no response that a client
could understand. The exception is ApiVersions in a version from the future, which gets a response in version 0 with
the versions that we serve, so that clients and brokers of any age can talk.

No request blocks the event loop for long (see `requests.turns`): a large one is read in steps, its handler may work in
steps, and its response is written in steps. One that names more than `MAX_ELEMENTS` is refused: no client needs
that, and in memory it would be fifty times as large as its frame.

Produce requests are gathered: those that arrive in one read are handled as one (see `api.produce`) when a request
of another kind comes, or when the conversation calls `finish` because there are no more.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine
from types import CoroutineType, GeneratorType
from typing import Any, NamedTuple

from odradek.errors import ErrorCode, KafkaError, ProtocolError
from odradek.host.log_lines import fields
from odradek.host.metrics import ApiCount
from odradek.requests import registry
from odradek.requests.naming import name_of, request_fields, sender_of
from odradek.requests.refusal import refuse
from odradek.requests.refused import log_refusal, subject_of
from odradek.requests.request import Request
from odradek.requests.services import Services
from odradek.requests.turns import Turns
from odradek.wire.codec import Message, Steps, read_in_steps, read_message
from odradek.wire.frame import API_VERSIONS
from odradek.wire.produce import ProduceReader, ProduceRequest
from odradek.wire.replica_fetch import VERSION as FOLLOWERS_FETCH_VERSION

log = logging.getLogger(__name__)

PRODUCE = 0
FETCH = 1
MAX_ELEMENTS = 200_000  # of all arrays of one request together
LARGE_FRAME = 16 * 1024  # is read in steps
LARGE_PRODUCE_FRAME = 4 << 20  # is appended in several turns
MAX_READERS = 1_000  # of Produce requests, one for each connection
MAX_RUN = 500  # Produce requests handled as one: enough to share a write

Effect = Awaitable[None]
HandleRun = Callable[[Services, list[tuple[Request, ProduceRequest]]], Effect | None]


class Route(NamedTuple):
    """Where requests of one API in one version go."""

    message_type: type[Message]
    read: Callable[[memoryview, int], Message]  # from a position on
    handle: registry.Handler
    counter: ApiCount


class Dispatcher:
    """Of all conversations on listeners of one kind, which decides which APIs are served."""

    def __init__(
        self, services: Services, kind: registry.ListenerKind = registry.ListenerKind.BROKER
    ) -> None:
        self._services = services
        self._kind = kind
        self.turns: Turns = services.turns
        self._routes: dict[tuple[int, int], Route] = {}
        self._produced = services.metrics.of_api(PRODUCE)
        self._produce_readers: dict[str, ProduceReader] = {}  # by the client's address
        self._productions: list[tuple[Request, ProduceRequest]] = []
        self._produce_versions = _versions_of(PRODUCE, kind)
        produce = registry.module_of(PRODUCE)
        self._produce_all: HandleRun = produce.handle_all
        self._produce_in_turns: HandleRun = produce.handle_in_turns

    def dispatch(self, request: Request, frame: memoryview, body: int) -> Effect | None:
        """Handle the request; an effect must be awaited before the next one may be handled."""
        if request.api_key == PRODUCE and request.version in self._produce_versions:
            productions = self._productions
            reader = self._produce_readers.get(request.client_address) or self._new_reader(request)
            productions.append((request, reader.read(frame, body, request.version)))
            if len(frame) > LARGE_PRODUCE_FRAME:
                return self._produce_in_turns(self._services, self._take_run())
            return self.finish() if len(productions) >= MAX_RUN else None
        rest = self.finish()
        if rest is not None:
            return self._dispatch_after(rest, request, memoryview(bytes(frame)), body)
        route = self._routes.get((request.api_key, request.version))
        if route is None:
            if not registry.is_served(request.api_key, request.version, self._kind):
                self._refuse(request)
                return None
            route = self._add_route(request.api_key, request.version)
        route.counter.requests += 1
        if len(frame) > LARGE_FRAME:
            return self._handle_in_turns(request, route, frame, body)
        return self._handle(request, route, route.read(frame, body))

    def handle(self, request: Request, message: Message) -> Effect | None:
        """The same for a message that this node sends to itself."""
        route = self._routes.get((request.api_key, request.version))
        if route is None:
            route = self._add_route(request.api_key, request.version)
        route.counter.requests += 1
        return self._handle(request, route, message)

    def keeps(self, api_key: int, size: int) -> bool:
        """Whether a frame of this size is still read after `dispatch` and `finish` have returned."""
        return api_key != PRODUCE and size > LARGE_FRAME

    # --- Produce ---

    def _new_reader(self, request: Request) -> ProduceReader:
        """Of connections that are closed readers remain, until there are too many."""
        if len(self._produce_readers) >= MAX_READERS:
            self._produce_readers.clear()
        reader = self._produce_readers[request.client_address] = ProduceReader()
        return reader

    def finish(self) -> Effect | None:
        """Handle the Produce requests gathered so far: their frames are about to be overwritten."""
        if self._productions:
            return self._produce_all(self._services, self._take_run())
        return None

    def _take_run(self) -> list[tuple[Request, ProduceRequest]]:
        run, self._productions = self._productions, []
        self._produced.requests += len(run)
        return run

    async def _dispatch_after(self, rest: Effect, request: Request, frame: memoryview, body: int) -> None:
        await rest
        effect = self.dispatch(request, frame, body)
        if effect is not None:
            await effect

    # --- everything else ---

    def _add_route(self, api_key: int, version: int) -> Route:
        """Imports the module of the API the first time it is used."""
        try:
            handler = registry.handler(api_key, self._kind)
            message_type = registry.request_type(api_key)
            read = _reader_of(message_type, api_key, version)
            route = Route(message_type, read, handler, self._services.metrics.of_api(api_key))
        except OSError as error:  # out of descriptors: the next request tries again
            raise ProtocolError(
                f"the code that serves {name_of(api_key, version)} cannot be read: {error}"
            ) from error
        self._routes[api_key, version] = route
        return route

    def _handle(self, request: Request, route: Route, message: Message) -> Effect | None:
        outcome: Any
        try:
            outcome = route.handle(self._services, request, message)
            if isinstance(outcome, GeneratorType):
                done = self.turns.advance(outcome)
                outcome = self.turns.finish(outcome) if done is None else done.result
        except ProtocolError:
            raise
        except Exception as error:
            answer_error(request, message, error)
            return request.unfinished
        if isinstance(outcome, CoroutineType):
            return self._finish(request, message, outcome)
        if outcome is not None:
            request.answer(outcome)
        return request.unfinished

    async def _handle_in_turns(self, request: Request, route: Route, frame: memoryview, body: int) -> None:
        reading: Steps[tuple[Message, int]] = read_in_steps(
            route.message_type, request.version, frame, body, MAX_ELEMENTS
        )
        message, _ = await self.turns.finish(reading)
        effect = self._handle(request, route, message)
        if effect is not None:
            await effect

    async def _finish(self, request: Request, message: Message, work: Coroutine[Any, Any, Any]) -> None:
        try:
            answer = await work
            if isinstance(answer, CoroutineType):  # steps may end in something that has to be waited for
                answer = await answer
        except ProtocolError:
            raise
        except Exception as error:
            answer_error(request, message, error)
            answer = None
        if answer is not None:
            request.answer(answer)
        if request.unfinished is not None:
            await request.unfinished

    def _refuse(self, request: Request) -> None:
        if request.api_key != API_VERSIONS:
            raise ProtocolError(registry.why_not_served(request.api_key, request.version, self._kind))
        log.debug("%s: %s", sender_of(request), registry.why_not_served(request.api_key, request.version))
        request.version = 0
        request.answer(registry.module_of(API_VERSIONS).unsupported_version())


def controller_handlers(services: Services) -> dict[str, Dispatcher]:
    """Of the listeners that serve a controller's APIs, by name: for `Conversations`."""
    dispatcher = Dispatcher(services, registry.ListenerKind.CONTROLLER)
    return dict.fromkeys(services.config.controller_listener_names, dispatcher)


def _reader_of(
    message_type: type[Message], api_key: int, version: int
) -> Callable[[memoryview, int], Message]:
    if (api_key, version) == (FETCH, FOLLOWERS_FETCH_VERSION):
        from odradek.wire.fetch_request import read_fetch_request

        return read_fetch_request
    return lambda frame, body: read_message(message_type, version, frame, body)[0]


def _versions_of(api_key: int, kind: registry.ListenerKind) -> range:
    api = registry.SERVED[kind].get(api_key)
    return range(0) if api is None else range(api.min_version, api.max_version + 1)


def answer_error(request: Request, message: Message, error: Exception) -> None:
    """Refuse the whole request, with the error's code wherever its response has a place for one."""
    reason = (
        error if isinstance(error, KafkaError) else KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
    )
    if reason.code is ErrorCode.UNKNOWN_SERVER_ERROR:
        log.error(
            "%s from %s failed, its client gets UNKNOWN_SERVER_ERROR: this is a bug",
            name_of(request.api_key, request.version),
            sender_of(request),
            exc_info=error,
            extra=fields(**request_fields(request)),
        )
    else:
        log_refusal(request, subject_of(request), reason.code, reason.message)
    if request.is_answered:
        raise error
    response_type = registry.response_type(request.api_key)
    request.answer_when_made(refuse(response_type, message, request.version, reason))
