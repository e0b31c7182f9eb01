"""SaslHandshake (17): a client chooses how it logs in.

- Version 0 is followed by the messages of the mechanism without a header, version 1 by SaslAuthenticate.
- On a listener without SASL, and in a session that cannot begin again (see `security.login`), it is refused with
  ILLEGAL_SASL_STATE; a mechanism that is not enabled, with UNSUPPORTED_SASL_MECHANISM, and the connection is closed.
"""

from odradek.errors import ErrorCode
from odradek.serving.cluster import Cluster
from odradek.serving.refused_login import refuse_login
from odradek.serving.request import Request
from odradek.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


async def handle(cluster: Cluster, request: Request, message: SaslHandshakeRequest) -> SaslHandshakeResponse:
    session = request.session
    if session is None or session.login is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    reply = session.handshake(message.mechanism, request.version)
    response = SaslHandshakeResponse(error_code=reply.error, mechanisms=session.login.offered)
    if reply.failure:
        await refuse_login(request, response, reply.failure)
    return response
