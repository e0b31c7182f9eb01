"""From a frame to its handler.

What cannot be read, and what is not served, closes the connection, as Kafka does: there is no answer a client
could understand. The exception is ApiVersions in a version from the future, which is answered in version 0 with
what we do serve, so that clients and brokers of any age can meet.
"""

import inspect
import logging
from collections.abc import Coroutine
from dataclasses import fields
from typing import Any

from odradek.api import registry
from odradek.api.request import Request
from odradek.api.services import Services
from odradek.errors import ErrorCode, KafkaError, ProtocolError
from odradek.wire.codec import read_message
from odradek.wire.frame import API_VERSIONS

log = logging.getLogger(__name__)


class Dispatcher:
    def __init__(self, services: Services) -> None:
        self._services = services

    def dispatch(self, request: Request, frame: memoryview, body: int) -> Coroutine[Any, Any, None] | None:
        """Handle the request; a coroutine is what is left to be done before the next one may be handled."""
        if not registry.is_served(request.api_key, request.version):
            self._refuse(request)
            return None
        message, _ = read_message(registry.request_type(request.api_key), request.version, frame, body)
        try:
            outcome = registry.handler(request.api_key)(self._services, request, message)
        except ProtocolError:
            raise
        except Exception as error:
            answer_error(request, error)
            return None
        if outcome is None:
            return None
        if inspect.iscoroutine(outcome):
            return self._finish(request, outcome)
        request.answer(outcome)  # type: ignore[arg-type]
        return None

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
    names = {field.name for field in fields(response)}
    if request.is_answered or "error_code" not in names:
        raise error
    response.error_code = int(code)  # type: ignore[attr-defined]
    if "error_message" in names:
        response.error_message = str(error)  # type: ignore[attr-defined]
    request.answer(response)
