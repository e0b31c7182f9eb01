"""A transport that leaves the bytes as they are: what the socket has is what the frames are made of."""

import logging
import os
import socket

from odradek.net.output import Bytes, Outlet, Output
from odradek.net.pool import Pool
from odradek.net.stream import Connected, StreamOwner, StreamTransport
from odradek.net.transport import Converse

MORE = getattr(socket, "MSG_MORE", 0)


class PlaintextTransport(StreamTransport):
    log = logging.getLogger(__name__)

    def __init__(self, pool: Pool, connected: Connected, converse: Converse, owner: StreamOwner) -> None:
        sock = connected.socket
        output = Output(socket_outlet(sock), pool.traffic)
        super().__init__(pool, connected, converse, owner, sock.recv_into, output)
        self._open()


def socket_outlet(sock: socket.socket) -> Outlet:
    """A socket can do everything."""
    descriptor = sock.fileno()

    def gather(parts: list[Bytes], more: bool) -> int:
        return sock.sendmsg(parts, (), MORE if more else 0)

    def send_file(file: int, position: int, count: int) -> int:
        return os.sendfile(descriptor, file, position, count)

    return Outlet(sock.send, gather, send_file)
