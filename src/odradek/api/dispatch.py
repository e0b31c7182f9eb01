"""From a frame to its handler.

What cannot be read, and what is not served, closes the connection, as Kafka does: there is no answer a client
could understand. The exception is ApiVersions in a version from the future, which is answered in version 0 with
what we do serve, so that clients and brokers of any age can meet.

Produce requests are gathered: those that arrive in one read are handled as one (see `api.produce`) when a request
of another kind comes, or when the connection says by `finish` that there are no more.
"""

import logging
from collections.abc import Callable, Coroutine
from types import CoroutineType
from typing import Any, NamedTuple

from odradek.api import registry
from odradek.api.produce import handle_all as handle_productions
from odradek.api.request import Request
from odradek.api.services import Services
from odradek.errors import ErrorCode, KafkaError, ProtocolError
from odradek.wire.codec import fields_in, read_message
from odradek.wire.frame import API_VERSIONS
from odradek.wire.produce import ProduceReader, ProduceRequest

log = logging.getLogger(__name__)

PRODUCE = 0
PRODUCE_VERSIONS = range(registry.APIS[PRODUCE].min_version, registry.APIS[PRODUCE].max_version + 1)


class Route(NamedTuple):
    """Where requests of one API in one version go."""

    read: Callable[[memoryview, int], Any]
    handle: registry.Handler


class Dispatcher:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._routes: dict[tuple[int, int], Route] = {}
        self._produce_reader = ProduceReader()
        self._productions: list[tuple[Request, ProduceRequest]] = []

    def dispatch(self, request: Request, frame: memoryview, body: int) -> Coroutine[Any, Any, None] | None:
        """Handle the request; a coroutine is what is left to be done before the next one may be handled."""
        if request.api_key == PRODUCE and request.version in PRODUCE_VERSIONS:
            message = self._produce_reader.read(frame, body, request.version)
            self._productions.append((request, message))
            return None
        self.finish()
        route = self._routes.get((request.api_key, request.version))
        if route is None:
            if not registry.is_served(request.api_key, request.version):
                self._refuse(request)
                return None
            route = self._add_route(request.api_key, request.version)
        message = route.read(frame, body)
        try:
            outcome = route.handle(self._services, request, message)
        except ProtocolError:
            raise
        except Exception as error:
            answer_error(request, error)
            return None
        if outcome is None:
            return None
        if isinstance(outcome, CoroutineType):
            return self._finish(request, outcome)
        request.answer(outcome)  # type: ignore[arg-type]
        return None

    def finish(self) -> None:
        """Handle the Produce requests gathered so far: what they view is about to be read over."""
        if self._productions:
            run, self._productions = self._productions, []
            handle_productions(self._services, run)

    def _add_route(self, api_key: int, version: int) -> Route:
        """Imports what serves the API, the first time it is asked for."""
        try:
            message_type = registry.request_type(api_key)
            handle = registry.handler(api_key)
        except (
            OSError
        ) as error:  # out of descriptors: the connection is closed, and the next request tries again
            log.error("the code for request %s v%d cannot be read: %s", api_key, version, error)
            raise
        route = Route(lambda frame, body: read_message(message_type, version, frame, body)[0], handle)
        self._routes[api_key, version] = route
        return route

    async def _finish(self, request: Request, work: Coroutine[Any, Any, Any]) -> None:
        try:
            answer = await work
        except Exception as error:
            answer_error(request, error)
            return
        if answer is not None:
            request.answer(answer)

    def _refuse(self, request: Request) -> None:
        if request.api_key != API_VERSIONS:
            raise ProtocolError(f"api key {request.api_key} version {request.version} is not served")
        from odradek.api.api_versions import unsupported_version

        request.version = 0
        request.answer(unsupported_version())


def answer_error(request: Request, error: Exception) -> None:
    """Answer with an error code for the whole request, where the answer has a place for one."""
    code = error.code if isinstance(error, KafkaError) else ErrorCode.UNKNOWN_SERVER_ERROR
    if code is ErrorCode.UNKNOWN_SERVER_ERROR:
        log.error("request %s v%d failed", request.api_key, request.version, exc_info=error)
    response = registry.response_type(request.api_key)()
    names = fields_in(type(response), request.version)
    if request.is_answered or "error_code" not in names:
        raise error
    response.error_code = int(code)  # type: ignore[attr-defined]
    if "error_message" in names:
        response.error_message = str(error)  # type: ignore[attr-defined]
    request.answer(response)
