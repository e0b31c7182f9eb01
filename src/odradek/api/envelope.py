"""Envelope (58): a client's request that a broker forwards to the active controller, with the client's principal.

It is handled like a request on the controller's listener, and gets a response in the version of the request inside.
A controller that is not active returns NOT_CONTROLLER, on the envelope. A request that is not forwardable, or cannot be
read, is INVALID_REQUEST (see `requests.envelope`).
"""

from collections.abc import Coroutine
from typing import Any

from odradek.errors import KafkaError
from odradek.requests import registry
from odradek.requests.envelope import Forwarded, unwrap_in_steps, wrap_response_in_steps
from odradek.requests.refusal import refuse
from odradek.requests.request import Request
from odradek.requests.services import Services
from odradek.requests.session import Principal, Session
from odradek.wire.codec import Message, Steps
from odradek.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse


def handle(
    services: Services, request: Request, message: EnvelopeRequest
) -> Steps[Coroutine[Any, Any, EnvelopeResponse]]:
    forwarded = yield from unwrap_in_steps(message)
    return _answer(services, request, forwarded)


async def _answer(services: Services, request: Request, forwarded: Forwarded) -> EnvelopeResponse:
    header = forwarded.header
    response = await _handle(services, _request_inside(request, forwarded), forwarded.request)
    return await services.turns.complete(wrap_response_in_steps(response, header))


def _request_inside(request: Request, forwarded: Forwarded) -> Request:
    """As if the client were connected here."""
    session = Session()
    kind, _, name = forwarded.context.principal.partition(":")
    session.principal = Principal(kind, name)
    client = forwarded.context.client_host
    return Request(forwarded.header, client, request.listener, _never_answered, request.turns, session)


def _never_answered(request: Request) -> None:
    raise AssertionError("what is forwarded is answered by its envelope")


async def _handle(services: Services, request: Request, message: Message) -> Message:
    """Every forwarded request is handled by a coroutine: it waits for a commit."""
    handling: Any = registry.handler(request.api_key, registry.CONTROLLER)(services, request, message)
    try:
        response: Message = await handling
    except KafkaError as error:
        response_type = registry.response_type(request.api_key)
        return await services.turns.complete(refuse(response_type, message, request.version, error))
    return response
