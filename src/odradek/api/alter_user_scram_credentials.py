"""AlterUserScramCredentials (51): sets and removes SCRAM credentials (see the module of this name in
`controller.requests`).

A client on a connection without encryption would send the salted password to everybody who listens, and whoever has it
can log in. Kafka accepts that; so do we, because the same client may as well use PLAIN there.
"""

from odradek.serving.cluster import Cluster
from odradek.serving.request import Request
from odradek.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)


async def handle(
    cluster: Cluster, request: Request, message: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    response: AlterUserScramCredentialsResponse = await cluster.decide(request, message)
    return response
