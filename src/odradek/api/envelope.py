"""Envelope (58): a client's request that a broker forwards to the active controller, with the client's principal.

It is handled like a request on the controller's listener, and gets a response in the version of the request inside.
A controller that is not active returns NOT_CONTROLLER, on the envelope. A request that is not forwardable, or cannot be
read, is INVALID_REQUEST (see `serving.envelope`).
"""

from odradek.apis.table import CONTROLLER
from odradek.serving.envelope import Forwarded, unwrap_in_steps, wrap_response_in_steps
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.codec import Steps
from odradek.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse


def handle(services: Services, request: Request, message: EnvelopeRequest) -> Steps[None]:
    forwarded = yield from unwrap_in_steps(message)
    request.then(_answer(services, request, forwarded))


async def _answer(services: Services, request: Request, forwarded: Forwarded) -> EnvelopeResponse:
    """The request inside enters the road as if its client were connected here."""
    header, caller = forwarded.header, forwarded.caller._replace(listener=request.caller.listener)
    response = await services.road(CONTROLLER).ask(forwarded.request, header.version, caller).answered()
    return await services.node.turns.complete(wrap_response_in_steps(response, header))
