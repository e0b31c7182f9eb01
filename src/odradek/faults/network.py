"""The connections of a node to others, over wires that can be cut."""

import socket

from odradek.faults.wires import Wires
from odradek.host.interface import SocketHost
from odradek.net.sockets import SocketNetwork
from odradek.net.transport import Converse


class CuttableNetwork(SocketNetwork):
    def __init__(self, host: SocketHost, max_sockets: int, wires: Wires) -> None:
        super().__init__(host, max_sockets)
        self._wires = wires

    async def _reach(self, host: str, port: int) -> socket.socket:
        await self._wires.reachable(f"{host}:{port}")
        return await super()._reach(host, port)

    def _watched(self, converse: Converse) -> Converse:
        return self._wires.watching(converse)
