"""The connections of a node to others, over wires that can be cut."""

import asyncio
import socket

from odradek.faults.wires import Gate, Wires
from odradek.host.interface import SocketHost
from odradek.net.channel import Channel
from odradek.net.sockets import SocketNetwork


class CuttableNetwork(SocketNetwork):
    def __init__(self, host: SocketHost, max_sockets: int, wires: Wires) -> None:
        super().__init__(host, max_sockets)
        self._wires = wires

    async def connect(self, host: str, port: int, timeout_seconds: float) -> Channel:
        async with asyncio.timeout(timeout_seconds):
            await self._wires.reachable(f"{host}:{port}")
            return await super().connect(host, port, timeout_seconds)

    def _begin(self, sock: socket.socket, address: str) -> Channel:
        gate = self._talk(sock, address, self._wires.watching(Channel))
        assert isinstance(gate, Gate) and isinstance(gate.receiver, Channel)
        return gate.receiver
