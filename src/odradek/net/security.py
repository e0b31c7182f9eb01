"""The protection of connections: every listener has a security, and so has every way to another node.

The protocol decides which transport carries the bytes (`net.transports`). A connection that we open may begin with a
greeting, an exchange of frames before the first request: that is where this node authenticates at another one.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from odradek.config.listeners import SecurityProtocol
from odradek.net.transport import Part

if TYPE_CHECKING:
    from ssl import SSLContext


class Exchange(Protocol):
    """A connection while it is greeted."""

    async def ask(self, *frame: Part) -> memoryview:
        """Send one frame, its size in front; returns the frame of the response. Raises OSError."""


Greet = Callable[[Exchange], Awaitable[None]]  # raises OSError where the peer, or this node, refuses
Address = tuple[str, int]


class Security(NamedTuple):
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    greet: Greet | None = None  # on connections that we open
    tls: "Callable[[], SSLContext] | None" = None  # for the next connection, where the protocol has TLS

    @property
    def is_open(self) -> bool:
        """True if requests may follow at once."""
        return self.greet is None and not self.protocol.uses_tls


PLAINTEXT = Security()


class Endpoint(NamedTuple):
    """An address to connect to, and the security to use."""

    host: str
    port: int
    security: Security = PLAINTEXT

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"
