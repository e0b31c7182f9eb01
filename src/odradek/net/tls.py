"""A transport that encrypts: TLS between the socket and the frames.

`net.tls_session` does it, in memory. What the socket has is received into a buffer that all transports share, handed to
the session, and decrypted into the memory in which `net.stream` wants it. A session may have more than was wanted while
the socket has nothing: as long as it does, we go on reading without waiting for the socket. Output is encrypted in
pieces, and no more of it than the socket accepts, but for the rest of one piece, which leaves before anything else.
Files are read, in pieces too; those that are not in the page cache are read ahead by a thread, as ever.

The handshake is where a peer can make us work without having shown who it is. So its steps stand in line (`net.line`),
which has a share of each turn of the event loop; their number and time are bounded by whoever accepts connections
(`net.greeting`). The receiver exists once it is over: it may look at `peer_certificate` then, and refuse the peer by an
OSError; by a ConnectionRefusedError if it has logged that itself.

A connection that ends without a word (TCP's end without a close_notify) is closed, and nothing else: frames have
sizes, so what is missing is noticed. We send close_notify if that is possible at once.
"""

import logging
import socket
from contextlib import suppress

from odradek.host.metrics import Traffic
from odradek.net.greeting import MAX_FRAME_SIZE
from odradek.net.output import Bytes, Outlet, Output, Sent
from odradek.net.plaintext import MORE
from odradek.net.pool import Pool
from odradek.net.states import IDLE, READING, Receiving, ReceivingMove
from odradek.net.strangers import Where, why_no_tls
from odradek.net.stream import Connected, StreamOwner, StreamTransport
from odradek.net.tls_session import TlsFailed, TlsSession
from odradek.net.transport import NOBODY, Converse

MAX_ENCRYPTED = 64 * 1024  # at once: four full records
MAX_ENCRYPTED_IN_A_TURN = 1 << 20  # of one connection
CLOSED = Receiving.CLOSED


class TlsOutput(Output):
    """An output whose `size` includes what was encrypted and not accepted by the socket; that leaves first."""

    def __init__(self, session: TlsSession, sock: socket.socket, traffic: Traffic) -> None:
        super().__init__(Outlet(self._encrypt, self._encrypt_parts), traffic)
        self._session = session
        self._socket = sock
        self._unsent = memoryview(b"")
        self._left = 0  # bytes that may be encrypted in this turn

    @property
    def has_unsent(self) -> bool:
        return len(self._unsent) > 0

    def send(self) -> Sent:
        self._left = MAX_ENCRYPTED_IN_A_TURN
        if self._unsent and not self._send_unsent():
            return Sent.SOCKET_FULL
        sent = super().send()
        return Sent.SOCKET_FULL if self._unsent and sent is Sent.ALL else sent

    def _send_unsent(self) -> bool:
        rest, self._unsent = self._unsent, memoryview(b"")
        self.size -= len(rest)
        self._push(rest)
        return not self._unsent

    def _encrypt(self, data: Bytes) -> int:
        return self._encrypt_parts([data], False)

    def _encrypt_parts(self, parts: list[Bytes], more: bool) -> int:
        if self._unsent or self._left <= 0:
            raise BlockingIOError
        count = 0
        for part in parts:
            room = MAX_ENCRYPTED - count
            self._session.encrypt(part if len(part) <= room else memoryview(part)[:room])
            count += min(len(part), room)
            if count == MAX_ENCRYPTED:
                break
        self._left -= count
        self._push(self._session.take_output(), MORE if more else 0)
        return count

    def push(self) -> None:
        """Send what the session has for the peer by itself: handshakes and alerts. Raises TlsFailed if the peer makes
        it say more and more, and does not read."""
        if not self._session.has_output:
            return
        output = self._session.take_output()
        if not self._unsent:
            self._push(output)
        elif len(self._unsent) < 2 * MAX_ENCRYPTED:
            self._keep(bytes(self._unsent) + output, len(output))
        else:
            raise TlsFailed("it does not read the alerts that it causes")

    def _push(self, encrypted: bytes | memoryview, flags: int = 0) -> None:
        try:
            sent = self._socket.send(encrypted, flags)
        except BlockingIOError:
            sent = 0
        if sent < len(encrypted):
            self._keep(memoryview(encrypted)[sent:], len(encrypted) - sent)

    def _keep(self, rest: bytes | memoryview, added: int) -> None:
        self._unsent = memoryview(rest)
        self.size += added

    def clear(self) -> None:
        super().clear()
        self._unsent = memoryview(b"")


class TlsTransport(StreamTransport):
    log = logging.getLogger(__name__)
    output: TlsOutput

    def __init__(self, pool: Pool, connected: Connected, converse: Converse, owner: StreamOwner) -> None:
        """Raises TlsFailed if the name of the server is one that no certificate can have."""
        assert connected.security.tls is not None, "there is no context"
        self._is_server = bool(connected.listener)
        hostname = None if self._is_server else connected.address.rpartition(":")[0]
        self._session = TlsSession(connected.security.tls(), hostname)
        output = TlsOutput(self._session, connected.socket, pool.traffic)
        super().__init__(pool, connected, converse, owner, self._decrypt_into, output)
        self._has_heard = False  # a byte of the peer
        self.begin_greeting(MAX_FRAME_SIZE)
        if not self._is_server:
            self._session.handshake()
            self._host.call_soon(self._push)
        self.resume_reading()

    # --- the handshake ---

    def _take_step(self) -> None:
        """Take the next step of the handshake: bytes have arrived."""
        if self.receiving is CLOSED:
            return
        self.last_active = self._now()
        try:
            is_over = self._hear() and self._session.handshake()
        except (BlockingIOError, InterruptedError):
            is_over = False
        except TlsFailed as error:
            self._refuse(error)
            return
        except OSError as error:
            self.close(f"connection lost: {error}", logging.DEBUG)
            return
        self._push()
        if self.receiving is CLOSED:
            return
        if is_over:
            self._end_handshake()
        else:
            self.resume_reading()

    def _hear(self) -> bool:
        """Hand what has arrived to the session; False if it was the end of a peer that never said anything."""
        buffer = self._pool.encrypted_buffer
        count = self._socket.recv_into(buffer)
        if not count:
            self._hear_end()
            return False
        is_first, self._has_heard = not self._has_heard, True
        if is_first and self._is_server:
            where = Where(self.listener, self.security.protocol.name)
            if reason := why_no_tls(bytes(buffer[: min(count, 8)]), where):
                raise TlsFailed(reason)
        self._session.feed(buffer[:count])
        return True

    def _hear_end(self) -> None:
        if self._is_server and not self._has_heard:  # a probe
            self.close("closed by the peer", logging.DEBUG)
            return
        hint = "" if self._is_server else ": check whether its listener has TLS"
        raise TlsFailed(f"it closed the connection during the handshake{hint}")

    def _end_handshake(self) -> None:
        self.peer_certificate = self._session.peer_certificate
        self.is_greeting = False
        self._max_frame_size = self._largest_frame
        try:
            self._open()
        except OSError as error:
            self._refuse(
                error, logging.DEBUG if isinstance(error, ConnectionRefusedError) else logging.WARNING
            )
            return
        if not self.is_greeting and self.receiving is not CLOSED:
            self._owner.greeted(self)

    def _refuse(self, error: OSError, level: int = logging.WARNING) -> None:
        with suppress(OSError):
            self.output.push()  # an alert
        self.close(str(error), level)

    def _push(self) -> None:
        """Send what the session has for the peer; the rest follows automatically."""
        if self.receiving is CLOSED:
            return
        try:
            self.output.push()
        except OSError as error:
            self.close(f"connection lost: {error}", logging.DEBUG)
            return
        if self.output.size and self.sending is IDLE:
            self.flush_now()

    # --- reading ---

    def _move_receiving(self, move: ReceivingMove) -> None:
        super()._move_receiving(move)
        if self.receiving is READING and not self._session.is_drained:
            self._host.call_soon(self._read_on)

    def _on_readable(self) -> None:
        if self.receiver is NOBODY:
            self.pause_reading()
            self._pool.line.add(self._take_step)
            return
        super()._on_readable()
        self._read_on()

    def _read_on(self) -> None:
        """Read as long as the session has something that the receiver wants."""
        while self.receiving is READING and not self._session.is_drained:
            super()._on_readable()

    def _decrypt_into(self, buffer: memoryview) -> int:
        session = self._session
        filled = 0 if session.is_drained else session.read_into(buffer)
        if not filled and not session.is_ended:
            encrypted = self._pool.encrypted_buffer
            count = self._socket.recv_into(encrypted)
            if not count:
                return 0
            session.feed(encrypted[:count])
            filled = session.read_into(buffer)
        if session.has_output:
            self.output.push()
        if not filled and not session.is_ended:
            raise BlockingIOError
        return filled

    # --- the end ---

    def close(self, reason: str, level: int = logging.WARNING) -> None:
        if self.receiving is CLOSED:
            return
        if self.receiver is not NOBODY and not self.output.has_unsent:
            self._session.end()
            with suppress(OSError):
                self.output.push()
        super().close(reason, level)
        self._session.release()
