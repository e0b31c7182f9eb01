"""The context of a request to the controller: who sent it, and in which version.

All of it fits into Kafka's Envelope, which carries a request from the broker that received it to the controller: the
request's own header has the API version and the client id, the Envelope has the principal and the client's address.
"""

from typing import NamedTuple

ANONYMOUS = "User:ANONYMOUS"


class RequestContext(NamedTuple):
    api_version: int
    client_id: str = ""
    client_host: str = ""
    principal: str = ANONYMOUS
