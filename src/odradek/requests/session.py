"""Who speaks in a conversation, and which APIs they may call now.

On a listener without authentication everybody is `ANONYMOUS` and may call every API. Where a client has to say who it
is, its session begins with the few APIs that this takes, and opens to all of them with `authenticated`. A client that
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
    """Of a listener that asks nobody who they are."""
    return Session()
