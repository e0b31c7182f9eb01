"""The client of a conversation, and which APIs it may call now.

On a listener without authentication every client is `ANONYMOUS` and may call every API. If a client has to
authenticate, its session starts with the few APIs for that, and allows all of them after `authenticated`. A client that
authenticates again keeps its principal, and is not cut off meanwhile (KIP-368).
"""

from collections.abc import Callable
from typing import NamedTuple

from odradek.errors import ProtocolError


class Principal(NamedTuple):
    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")
# SaslHandshake, ApiVersions, SaslAuthenticate
AUTHENTICATION_APIS = frozenset({17, 18, 36})


class Session:
    __slots__ = ("admitted", "principal")

    def __init__(self, admitted: frozenset[int] | None = None) -> None:
        self.principal = ANONYMOUS
        self.admitted = admitted  # api keys; None: all of them

    @property
    def is_open(self) -> bool:
        return self.admitted is None

    def authenticated(self, principal: Principal) -> None:
        """From the next request on every API passes, and requests carry this principal."""
        if self.is_open and self.principal != principal:
            raise ProtocolError(f"{self.principal} cannot become {principal} on the same connection")
        self.principal = principal
        self.admitted = None


NewSession = Callable[[str], Session]


def open_session(listener: str) -> Session:
    """Of a listener without authentication."""
    return Session()
