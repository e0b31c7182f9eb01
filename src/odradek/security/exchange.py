"""One SASL exchange, from the server's side: messages of the client in, challenges or a proven user out.

A mechanism is an object with one method. It never says to the client whether a user exists: `Refused` has the reason
for our log, and what the client is told is the same for all reasons, except for a mistake of the client itself.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol


class Proven(NamedTuple):
    """The client is who it says it is."""

    user: str
    last: bytes = b""  # the mechanism's last message, sent with the success
    expires_at_ms: int | None = None  # when the credential expires, as a time of day; None: it does not


class Refused(Exception):
    """The login fails. The message is for our log."""

    def __init__(self, reason: str, told: str = "") -> None:
        """`told` is what the client may know; empty: no more than that it failed."""
        super().__init__(reason)
        self.told = told


class Exchange(Protocol):
    def step(self, message: bytes) -> Proven | bytes:
        """Take the client's next message. Returns the next challenge, or who has been proven. Raises Refused."""


NewExchange = Callable[[], Exchange]

OTHER_AUTHORIZATION_ID = (
    "Authentication failed: Client requested an authorization id that is different from username"
)


def check_authorization_id(authorization_id: str, user: str) -> None:
    """Nobody acts for another user (CVE-2017-12610)."""
    if authorization_id and authorization_id != user:
        raise Refused("it asked to act as another user", OTHER_AUTHORIZATION_ID)
