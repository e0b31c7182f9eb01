"""SaslAuthenticate (36): the next message of the mechanism that the client chose (see `security.login`).

The response to a failed login comes after a delay, says no more than that it failed, and is the last one.
"""

from odradek.errors import ErrorCode
from odradek.serving.cluster import Cluster
from odradek.serving.refused_login import refuse_login
from odradek.serving.request import Request
from odradek.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


async def handle(
    cluster: Cluster, request: Request, message: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    session = request.session
    if session is None or session.login is None:
        reason = "SaslAuthenticate request received after successful authentication"
        return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=reason)
    reply = session.authenticate(message.auth_bytes)
    response = SaslAuthenticateResponse(reply.error, reply.message, reply.token, reply.lifetime_ms)
    if reply.failure:
        await refuse_login(request, response, f"{reply.failure} ({session.login.mechanism})")
    return response
