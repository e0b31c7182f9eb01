"""Requests to other brokers, and to this one: a message out, a message back.

What brokers ask of each other about transactions (verification, markers) goes through here, to oneself too: then the
same handler works, without a socket between, so that one node runs the code that three run. The message is handed on as
it is, and a response that is there when the handler returns is returned at once: no bytes, and no turn of the event
loop.

There is one link for each broker and API: a request that waits there for a commit holds up no other kind.
"""

import asyncio
from collections.abc import Awaitable, Callable

from odradek.apis.table import BROKER
from odradek.host.interface import Host
from odradek.model import node_caller
from odradek.net.link import Link
from odradek.net.network import Dialer
from odradek.services.cluster.calls import address_of, call
from odradek.serving.services import Services
from odradek.wire.codec import Message


class Peers:
    def __init__(
        self,
        node_id: int,
        listener: str,
        host: Host,
        dialer: Dialer,
        get_services: Callable[[], Services],
    ) -> None:
        """`listener`: by which brokers reach each other."""
        self._node_id = node_id
        self._listener = listener
        self._host = host
        self._dialer = dialer
        self._get_services = get_services
        self._links: dict[tuple[int, int], Link] = {}
        self._name = f"broker-{node_id}"
        self._caller = node_caller(node_id, listener)

    def ask(
        self, broker_id: int, message: Message, version: int, timeout_seconds: float
    ) -> Message | Awaitable[Message]:
        """The response, if it is there at once; else something to await. Both raise OSError where there is none in
        time, ProtocolError where it cannot be read."""
        if broker_id == self._node_id:
            return self._ask_here(message, version, timeout_seconds)
        return self._ask_there(broker_id, message, version, timeout_seconds)

    async def _ask_there(
        self, broker_id: int, message: Message, version: int, timeout_seconds: float
    ) -> Message:
        api_key: int = message.API_KEY  # type: ignore[attr-defined]
        link = self._links.get((broker_id, api_key))
        if link is None:
            link = self._links[broker_id, api_key] = Link(self._host, self._dialer)
        address = address_of(self._get_services().cluster.image, broker_id, self._listener)
        return await call(link, address, message, version, self._name, timeout_seconds)

    def _ask_here(
        self, message: Message, version: int, timeout_seconds: float
    ) -> Message | Awaitable[Message]:
        asked = self._get_services().road(BROKER).ask(message, version, self._caller)
        if asked.effect is None and asked.response is not None:
            return asked.response
        return _within(asked.answered(), timeout_seconds)

    def close(self) -> None:
        for link in self._links.values():
            link.close()


async def _within(response: Awaitable[Message], timeout_seconds: float) -> Message:
    async with asyncio.timeout(timeout_seconds):
        return await response
