"""What goes to the controller with a request: who sent it, and in which version.

All of it fits into Kafka's Envelope, which carries a request from the broker that received it to the controller: the
request's own header has the API version and the client id, the Envelope the principal and the client's address.
"""

from dataclasses import dataclass

ANONYMOUS = "User:ANONYMOUS"


@dataclass(frozen=True, slots=True)
class RequestContext:
    api_version: int
    client_id: str = ""
    client_host: str = ""
    principal: str = ANONYMOUS
