"""The connections that are open, by the client's address: a fault may have to cut one."""

import logging
from collections.abc import Callable
from weakref import WeakValueDictionary

from odradek.net.transport import Converse, Receiver, Transport
from odradek.serving.request import Request


class Connections:
    def __init__(self) -> None:
        self._open: WeakValueDictionary[tuple[str, str], Transport] = WeakValueDictionary()

    def watching(self, converse: Converse) -> Converse:
        """Conversations as before, each of which can be cut."""

        def begin(transport: Transport) -> Receiver:
            self._open[transport.listener, transport.address] = transport
            return converse(transport)

        return begin

    def closer(self, request: Request, reason: str) -> Callable[[], None]:
        """A function that cuts the connection of a request, but no later one from the same address."""
        transport = self._open.get((request.caller.listener, request.caller.address))

        def close() -> None:
            if transport is not None:
                transport.close(reason, logging.INFO)

        return close
