"""Questions of a test to its brokers, asked by our own client, so that no other has to be installed."""

from dataclasses import replace
from typing import TypeVar

from odradek.client.connection import Connection
from odradek.client.settings import ClientSettings
from odradek.testing.security import EVERYBODY, Login
from odradek.wire.codec import Message

REQUEST_TIMEOUT_S = 30.0

Response = TypeVar("Response", bound=Message)


def ask(
    bootstrap: str,
    request: Message,
    response_type: type[Response],
    timeout_s: float = REQUEST_TIMEOUT_S,
    login: Login = EVERYBODY,
) -> Response:
    """One question to one broker. Raises ConnectionLost, or KafkaError if the broker does not serve it."""
    host, _, port = bootstrap.rpartition(":")
    settings = (
        ClientSettings(((host, int(port)),)) if login is EVERYBODY else login.client_settings(bootstrap)
    )
    settings = replace(settings, client_id="odradek-testing", request_timeout_s=timeout_s)
    connection = Connection(host, int(port), settings)
    try:
        return connection.call(request, response_type)
    finally:
        connection.close()
