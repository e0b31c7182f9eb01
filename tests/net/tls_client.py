"""A TLS client that decides byte by byte what leaves it, and when."""

import asyncio
import socket
import ssl

from tests.net.echo import framed


class TlsClient:
    """Python's `ssl` between two buffers; `cut` is how many encrypted bytes are sent at once."""

    def __init__(self, port: int, context: ssl.SSLContext, cut: int = 1 << 20) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="127.0.0.1")
        self.cut = cut
        self._plain = bytearray()
        self.has_heard_the_end = False  # a close_notify, and not only TCP's end

    async def push(self) -> None:
        """Send what is encrypted."""
        encrypted = self._outgoing.read()
        for start in range(0, len(encrypted), self.cut):
            await asyncio.get_running_loop().sock_sendall(self.socket, encrypted[start : start + self.cut])
            if self.cut < len(encrypted):
                await asyncio.sleep(0)

    async def hear(self) -> bool:
        """Receive more; False at the end."""
        data = await asyncio.get_running_loop().sock_recv(self.socket, 1 << 16)
        self._incoming.write(data)
        return bool(data)

    async def handshake(self) -> "TlsClient":
        while True:
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                await self.push()
                if not await self.hear():
                    raise ConnectionError("closed in the handshake") from None
            except ssl.SSLError:
                await self.push()  # an alert
                raise
            else:
                await self.push()
                return self

    async def send(self, *contents: bytes) -> None:
        """Each content is a frame, and a record if it is small."""
        for content in contents:
            self.tls.write(framed(content))
        await self.push()

    async def receive(self, count: int) -> bytes:
        """Exactly so many bytes, or all up to the end."""
        while len(self._plain) < count:
            try:
                data = self.tls.read(1 << 16)
            except ssl.SSLWantReadError:
                if not await self.hear():
                    break
            else:
                if not data:
                    self.has_heard_the_end = True
                    break
                self._plain += data
        received = bytes(self._plain[:count])
        del self._plain[:count]
        return received

    async def echo(self, content: bytes) -> bytes:
        await self.send(content)
        return (await self.receive(4 + len(content)))[4:]

    def close(self) -> None:
        self.socket.close()
