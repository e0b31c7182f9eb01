"""A node's connections to all others, in both directions. Frames only; their content is not known here.

`net.sockets` is the real one. In `net.simulated` many nodes run in one thread, on virtual time, and connections are
slow, cut and lost as a seed decides.
"""

from typing import TYPE_CHECKING, NamedTuple, Protocol

from odradek.host.metrics import Traffic
from odradek.net.bounds import Bounds
from odradek.net.channel import Channel
from odradek.net.security import PLAINTEXT, Address, Endpoint, Security
from odradek.net.transport import Converse

if TYPE_CHECKING:
    from odradek.net.pages import Pages


class Server(Protocol):
    """The listeners of a node, and the connections they accepted."""

    @property
    def connection_count(self) -> int: ...

    @property
    def traffic(self) -> Traffic: ...

    def listen(self, name: str, host: str, port: int, security: Security = PLAINTEXT) -> int:
        """Bind and accept; returns the port, which the system chooses for 0. Raises OSError."""

    def reconfigure(self, bounds: Bounds) -> None: ...

    def stop_listening(self) -> None:
        """Stop serving new and connected clients."""

    def flush_connections(self) -> None:
        """Send the responses that are ready, as far as the peers accept them at once."""

    def close_connections(self) -> None: ...


class Network(Protocol):
    @property
    def traffic(self) -> Traffic:
        """The traffic of the connections made by `connect`."""

    def serve(self, converse: Converse, bounds: Bounds) -> Server:
        """The listeners for others; a conversation begins on each connection."""

    async def connect(self, endpoint: Endpoint, timeout_seconds: float) -> Channel:
        """Returns a channel that is greeted, for which there is a little more time (`net.greeting`). Raises OSError:
        refused, unreachable, not let in, or TimeoutError."""

    async def serve_pages(self, host: str, port: int, pages: "Pages") -> int:
        """Let others read pages by HTTP; returns the port, which the system chooses for 0. Raises OSError."""

    def close(self) -> None:
        """Close the connections made by `connect`, and end `serve_pages`."""


class Dialer(NamedTuple):
    """Connects to nodes that are all reached in the same way: the brokers, or the controllers."""

    network: Network
    security: Security = PLAINTEXT

    async def connect(self, address: Address, timeout_seconds: float) -> Channel:
        """See `Network.connect`."""
        return await self.network.connect(Endpoint(*address, self.security), timeout_seconds)
