"""The quota of an address, from AlterClientQuotas to the socket."""

import asyncio
import socket
from pathlib import Path

from odradek.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityDataInRequest,
    EntryDataInRequest,
    OpData,
)
from tests.broker.in_process import InProcess

SETTINGS = {"listeners": "PLAINTEXT://127.0.0.1:0", "quota.window.num": "2"}


async def alter(node: InProcess, op: OpData) -> None:
    entry = EntryDataInRequest([EntityDataInRequest("ip", "127.0.0.1")], [op])
    response = await node.ask(AlterClientQuotasRequest([entry]), 1)
    assert [entry.error_code for entry in response.entries] == [0]


def connect(port: int) -> socket.socket:
    """Connect without a turn of the event loop, in which time could pass: the node accepts all connections at once."""
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setblocking(False)
    return sock


def test_a_connection_too_many_is_closed_until_the_quota_is_removed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with InProcess(str(tmp_path), settings=SETTINGS) as node:
            port = node.broker.listeners[0].port
            await alter(node, OpData("connection_creation_rate", 2.0))
            sockets = [connect(port) for _ in range(3)]
            async with asyncio.timeout(30):
                assert await asyncio.get_running_loop().sock_recv(sockets[2], 1) == b""
            await alter(node, OpData("connection_creation_rate", remove=True))
            sockets += [connect(port) for _ in range(5)]
            async with asyncio.timeout(30):
                while node.broker._server.connection_count < 7:
                    await asyncio.sleep(0.01)
            for one in sockets:
                one.close()

    asyncio.run(scenario())
