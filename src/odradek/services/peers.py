"""Requests to other brokers, and to this one: a message out, a message back.

What brokers ask of each other about transactions (verification, markers) goes through here, to oneself too: then the
same handler works, without a socket between, so that one node runs the code that three run. The message is handed on as
it is, and a response that is there when the handler returns is returned at once: no bytes, and no turn of the event
loop.

There is one link for each broker and API: a request that waits there for a commit holds up no other kind.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from odradek.host.interface import Host
from odradek.net.link import Link
from odradek.net.network import Network
from odradek.requests.dispatch import Dispatcher
from odradek.requests.request import Request
from odradek.requests.services import Services
from odradek.requests.session import Session
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
        self._name = f"broker-{node_id}"
        self._session = Session()
        self._own: Dispatcher | None = None

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
            link = self._links[broker_id, api_key] = Link(self._host, self._network)
        address = address_of(self._get_services().image, broker_id, self._listener)
        return await call(link, address, message, version, self._name, timeout_seconds)

    def _ask_here(
        self, message: Message, version: int, timeout_seconds: float
    ) -> Message | Awaitable[Message]:
        if self._own is None:
            self._own = Dispatcher(self._get_services())
        api_key: int = message.API_KEY  # type: ignore[attr-defined]
        header = RequestHeader(api_key, version, 0, self._name, 0)
        request = OwnRequest(header, self._name, self._listener, _nothing, self._own.turns, self._session)
        effect = self._own.handle(request, message)
        if effect is None and request.response is not None:
            return request.response
        return _wait_for(request, effect, timeout_seconds)

    def close(self) -> None:
        for link in self._links.values():
            link.close()


class OwnRequest(Request):
    """A request of this node to itself: its response stays a message."""

    __slots__ = ("response", "when_answered")

    response: Message | None  # None until it is answered
    when_answered: asyncio.Future[None] | None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.response = self.when_answered = None

    def answer(self, message: Message) -> None:
        self.response = message
        self.answer_parts(())
        if self.when_answered is not None and not self.when_answered.done():
            self.when_answered.set_result(None)

    def answer_when_made(self, making: Steps[Message]) -> None:
        self.unfinished = asyncio.get_running_loop().create_task(self._make(making))

    async def _make(self, making: Steps[Message]) -> None:
        self.answer(await self.turns.finish(making))


async def _wait_for(request: OwnRequest, effect: Awaitable[None] | None, timeout_seconds: float) -> Message:
    async with asyncio.timeout(timeout_seconds):
        if effect is not None:
            await effect
        if request.response is None:
            request.when_answered = asyncio.get_running_loop().create_future()
            await request.when_answered
    assert request.response is not None
    return request.response


def _nothing(request: Request) -> None:
    pass
