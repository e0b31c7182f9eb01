"""Reads a request from a frame and passes it to its handler.

A request that cannot be read or is not served closes the connection, as in Kafka: there is no response that a client
could understand. The exception is ApiVersions in a version from the future, which gets a response in version 0 with
the versions that we serve, so that clients and brokers of any age can talk.

No request blocks the event loop for long (see `serving.turns`): a large one is read in steps, its handler may work in
steps, and its response is written in steps. One that names more than `MAX_ELEMENTS` is refused: no client needs
that, and in memory it would be fifty times as large as its frame.

Produce requests are gathered: those that arrive in one read are handled as one (see `api.produce`) when a request
of another kind comes, or when the conversation calls `finish` because there are no more.
"""

import logging
from collections.abc import Awaitable, Callable

from odradek.apis.row import ListenerKind
from odradek.apis.table import BROKER, CONTROLLER, SERVED, named, why_not_served
from odradek.errors import ProtocolError
from odradek.serving.naming import sender_of
from odradek.serving.request import Request
from odradek.serving.road import Route
from odradek.serving.services import Services
from odradek.serving.turns import Turns
from odradek.wire.codec import Message, Steps, read_in_steps, read_message
from odradek.wire.frame import API_VERSIONS
from odradek.wire.produce import ProduceReader, ProduceRequest
from odradek.wire.replica_fetch import VERSION as FOLLOWERS_FETCH_VERSION

log = logging.getLogger(__name__)

PRODUCE, FETCH = named("Produce").key, named("Fetch").key
MAX_ELEMENTS = 200_000  # of all arrays of one request together
LARGE_FRAME = 16 * 1024  # is read in steps
LARGE_PRODUCE_FRAME = 4 << 20  # is appended in several turns
MAX_READERS = 1_000  # of Produce requests, one for each connection
MAX_RUN = 500  # Produce requests handled as one: enough to share a write

Effect = Awaitable[None]
Read = Callable[[memoryview, int], Message]  # from a position on


class Dispatcher:
    """The dispatcher of all conversations on listeners of one kind, which decides which APIs are served."""

    def __init__(self, services: Services, kind: ListenerKind = BROKER) -> None:
        self._kind = kind
        self.turns: Turns = services.node.turns
        self._road = services.road(kind)
        self._readers: dict[tuple[int, int], Read] = {}
        self._produce_readers: dict[str, ProduceReader] = {}  # by the client's address
        self._productions: list[tuple[Request, ProduceRequest]] = []
        self._produce_versions = _versions_of(PRODUCE, kind)

    def dispatch(self, request: Request, frame: memoryview, body: int) -> Effect | None:
        """Handle the request; an effect must be awaited before the next one may be handled."""
        if request.api_key == PRODUCE and request.version in self._produce_versions:
            productions = self._productions
            reader = self._produce_readers.get(request.caller.address) or self._new_reader(request)
            productions.append((request, reader.read(frame, body, request.version)))
            if len(frame) > LARGE_PRODUCE_FRAME:
                return self._road.take_run_in_turns(self._take_run())
            return self.finish() if len(productions) >= MAX_RUN else None
        rest = self.finish()
        if rest is not None:
            return self._dispatch_after(rest, request, memoryview(bytes(frame)), body)
        route = self._road.admit(request.api_key, request.version)
        if route is None:
            self._refuse(request)
            return None
        if len(frame) > LARGE_FRAME:
            return self._handle_in_turns(request, route, frame, body)
        read = self._readers.get((request.api_key, request.version)) or self._new_read(request, route)
        return self._road.take(route, request, read(frame, body))

    def keeps(self, api_key: int, size: int) -> bool:
        """True if a frame of this size is still read after `dispatch` and `finish` have returned."""
        return api_key != PRODUCE and size > LARGE_FRAME

    # --- Produce ---

    def _new_reader(self, request: Request) -> ProduceReader:
        """Add the reader of a connection. Readers of closed connections remain until there are too many."""
        if len(self._produce_readers) >= MAX_READERS:
            self._produce_readers.clear()
        reader = self._produce_readers[request.caller.address] = ProduceReader()
        return reader

    def finish(self) -> Effect | None:
        """Handle the Produce requests gathered so far: their frames are about to be overwritten."""
        if self._productions:
            return self._road.take_run(self._take_run())
        return None

    def _take_run(self) -> list[tuple[Request, ProduceRequest]]:
        run, self._productions = self._productions, []
        return run

    async def _dispatch_after(self, rest: Effect, request: Request, frame: memoryview, body: int) -> None:
        await rest
        effect = self.dispatch(request, frame, body)
        if effect is not None:
            await effect

    # --- everything else ---

    def _new_read(self, request: Request, route: Route) -> Read:
        read = _reader_of(route.message_type, request.api_key, request.version)
        self._readers[request.api_key, request.version] = read
        return read

    async def _handle_in_turns(self, request: Request, route: Route, frame: memoryview, body: int) -> None:
        reading: Steps[tuple[Message, int]] = read_in_steps(
            route.message_type, request.version, frame, body, MAX_ELEMENTS
        )
        message, _ = await self.turns.finish(reading)
        effect = self._road.take(route, request, message)
        if effect is not None:
            await effect

    def _refuse(self, request: Request) -> None:
        if request.api_key != API_VERSIONS:
            raise ProtocolError(why_not_served(request.api_key, request.version, self._kind))
        log.debug("%s: %s", sender_of(request), why_not_served(request.api_key, request.version))
        request.version = 0
        request.answer(self._road.unsupported_version())


def controller_handlers(services: Services) -> dict[str, Dispatcher]:
    """The dispatchers of the listeners that serve a controller's APIs, by name: for `Conversations`."""
    dispatcher = Dispatcher(services, CONTROLLER)
    return dict.fromkeys(services.node.config.controller_listener_names, dispatcher)


def _reader_of(
    message_type: type[Message], api_key: int, version: int
) -> Callable[[memoryview, int], Message]:
    if (api_key, version) == (FETCH, FOLLOWERS_FETCH_VERSION):
        from odradek.wire.fetch_request import read_fetch_request

        return read_fetch_request
    return lambda frame, body: read_message(message_type, version, frame, body)[0]


def _versions_of(api_key: int, kind: ListenerKind) -> range:
    api = SERVED[kind].get(api_key)
    return range(0) if api is None else range(api.min_version, api.max_version + 1)
