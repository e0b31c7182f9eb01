"""Requests to other brokers, and to this one: a message out, a message back.

What brokers ask of each other about transactions (verification, markers) goes through here, to oneself too: then the
same handler works, without a socket between, so that one node runs the code that three run.

There is one link for each broker and API: a request that waits there for a commit holds up no other kind.
"""

import asyncio
from collections.abc import Callable

from odradek.host.interface import Host
from odradek.net.link import Link
from odradek.net.network import Network
from odradek.requests.dispatch import Dispatcher
from odradek.requests.request import Request
from odradek.requests.services import Services
from odradek.services.calls import address_of, call
from odradek.wire.codec import Message, Steps
from odradek.wire.frame import RequestHeader


class Peers:
    def __init__(
        self,
        node_id: int,
        listener: str,
        host: Host,
        network: Network,
        get_services: Callable[[], Services],
    ) -> None:
        """`listener`: by which brokers reach each other."""
        self._node_id = node_id
        self._listener = listener
        self._host = host
        self._network = network
        self._get_services = get_services
        self._links: dict[tuple[int, int], Link] = {}
        self._own: Dispatcher | None = None

    async def ask(self, broker_id: int, message: Message, version: int, timeout_seconds: float) -> Message:
        """The response. Raises OSError where there is none in time, ProtocolError where it cannot be read."""
        if broker_id == self._node_id:
            async with asyncio.timeout(timeout_seconds):
                return await self._ask_here(message, version)
        api_key: int = message.API_KEY  # type: ignore[attr-defined]
        link = self._links.get((broker_id, api_key))
        if link is None:
            link = self._links[broker_id, api_key] = Link(self._host, self._network)
        address = address_of(self._get_services().image, broker_id, self._listener)
        return await call(link, address, message, version, f"broker-{self._node_id}", timeout_seconds)

    async def _ask_here(self, message: Message, version: int) -> Message:
        if self._own is None:
            self._own = Dispatcher(self._get_services())
        request = OwnRequest(message, version, self._node_id, self._listener, self._own)
        effect = self._own.handle(request, message)
        if effect is not None:
            await effect
        return await request.response

    def close(self) -> None:
        for link in self._links.values():
            link.close()


class OwnRequest(Request):
    """A request of this node to itself: its response stays a message."""

    __slots__ = ("response",)

    def __init__(
        self, message: Message, version: int, node_id: int, listener: str, dispatcher: Dispatcher
    ) -> None:
        api_key: int = message.API_KEY  # type: ignore[attr-defined]
        header = RequestHeader(api_key, version, 0, f"broker-{node_id}", 0)
        super().__init__(header, f"broker-{node_id}", listener, _nothing, dispatcher.turns)
        self.response: asyncio.Future[Message] = asyncio.get_running_loop().create_future()

    def answer(self, message: Message) -> None:
        self.answer_parts(())
        if not self.response.done():
            self.response.set_result(message)

    def answer_when_made(self, making: Steps[Message]) -> None:
        self.unfinished = asyncio.get_running_loop().create_task(self._make(making))

    async def _make(self, making: Steps[Message]) -> None:
        self.answer(await self.turns.finish(making))


def _nothing(request: Request) -> None:
    pass
