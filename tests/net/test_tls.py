"""The transport with TLS, and clients of Python's `ssl` that split, stall, end and refuse in every way."""

import asyncio
import gc
import logging
import os
import random
import shutil
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from odradek.config.listeners import SecurityProtocol
from odradek.host.metrics import Traffic
from odradek.host.real import RealHost
from odradek.net import greeting, line, output, stream, tls
from odradek.net.channel import ChannelClosed
from odradek.net.greeting import GreetingRefused
from odradek.net.line import Line
from odradek.net.security import PLAINTEXT, Endpoint, Security
from odradek.net.server import Server
from odradek.net.sockets import SocketNetwork
from odradek.net.states import Sending
from odradek.net.tls import TlsOutput, TlsTransport
from odradek.net.tls_session import TlsFailed, TlsSession
from odradek.net.transport import Transport
from odradek.storage.disk.files import DiskFiles
from odradek.storage.segments.row import Slice
from odradek.wire.frame import SIZE
from tests.net.certificates import Certificates
from tests.net.echo import BOUNDS, Echo, EchoTalk, framed
from tests.net.tls_client import TlsClient

LARGE = 3_000_000


class Node:
    """An echo behind a listener with TLS."""

    def __init__(self, certificates: Certificates) -> None:
        self.certificates = certificates
        self.context = certificates.server_context()
        self.host = RealHost(asyncio.get_running_loop())
        self.network = SocketNetwork(self.host)
        self.echo = Echo()
        self.server: Server = self.network.serve(self.echo.converse, BOUNDS)
        self.port = self.server.listen(
            "SSL", "127.0.0.1", 0, Security(SecurityProtocol.SSL, tls=lambda: self.context)
        )

    def client(self, cut: int = 1 << 20, context: ssl.SSLContext | None = None) -> TlsClient:
        return TlsClient(self.port, context or self.certificates.client_context(), cut)

    def endpoint(self, context: ssl.SSLContext, host: str = "127.0.0.1") -> Endpoint:
        return Endpoint(host, self.port, Security(SecurityProtocol.SSL, tls=lambda: context))

    async def talk(self, number: int = 0) -> EchoTalk:
        while len(self.echo.talks) <= number:
            await asyncio.sleep(0.001)
        return self.echo.talks[number]

    async def all_closed(self) -> None:
        while self.server.connection_count:
            await asyncio.sleep(0.001)

    def close(self) -> None:
        self.network.close()
        self.server.stop_listening()
        self.server.close_connections()


Scenario = Callable[[Node], Awaitable[None]]
Run = Callable[[Scenario], None]


@pytest.fixture
def run(certificates: Certificates) -> Run:
    def run(scenario: Scenario) -> None:
        async def main() -> None:
            node = Node(certificates)
            try:
                await asyncio.wait_for(scenario(node), 60)
            finally:
                node.close()

        asyncio.run(main())

    return run


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


# --- data ---


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("cut", [1 << 20, 1000, 1])
def test_records_may_be_split_anywhere(run: Run, version: ssl.TLSVersion, cut: int) -> None:
    async def scenario(node: Node) -> None:
        context = node.certificates.client_context()
        context.minimum_version = context.maximum_version = version
        client = await node.client(cut, context).handshake()
        assert client.tls.version() == version.name.replace("_", ".")
        wanted = [b"one", b"", b"three" * 100, b"x" * (20_000 if cut > 1 else 200)]
        await client.send(*wanted)
        assert await client.receive(sum(4 + len(content) for content in wanted)) == b"".join(
            map(framed, wanted)
        )
        assert (await node.talk()).received == wanted
        client.close()
        await node.all_closed()

    run(scenario)


def test_a_frame_may_begin_and_end_in_the_middle_of_a_record(run: Run) -> None:
    """Frames and records have nothing to do with each other; what is left of a record is read without more input."""

    async def scenario(node: Node) -> None:
        client = await node.client().handshake()
        wanted = [bytes([number]) * size for number, size in enumerate((10, 40_000, 3, 100_000, 70_000, 5))]
        stream = b"".join(map(framed, wanted))
        for start in range(0, len(stream), 9_973):
            client.tls.write(stream[start : start + 9_973])
        await client.push()
        assert await client.receive(len(stream)) == stream
        client.close()

    run(scenario)


def test_what_arrives_with_the_end_of_the_handshake_is_read_at_once(run: Run) -> None:
    async def scenario(node: Node) -> None:
        client = node.client()
        push = client.push

        async def nothing() -> None:
            pass

        while True:
            try:
                client.tls.do_handshake()
            except ssl.SSLWantReadError:
                await push()
                assert await client.hear()
            else:
                break
        client.push = nothing  # type: ignore[method-assign]
        await client.send(b"early")
        await push()  # with the last message of the handshake, in one piece
        assert await client.receive(9) == framed(b"early")
        client.close()

    run(scenario)


def test_a_receiver_that_pauses_in_the_middle_of_a_record_gets_the_rest_when_it_resumes(run: Run) -> None:
    """The socket has nothing more by then: only the session does."""

    async def scenario(node: Node) -> None:
        client = await node.client().handshake()
        assert await client.echo(b"first") == b"first"
        talk = await node.talk()
        receive = talk.receive

        def pause_after(frame: memoryview) -> None:
            receive(frame)
            talk.transport.pause_reading()

        talk.receive = pause_after  # type: ignore[method-assign]
        record = framed(b"x" * 30_000)
        client.tls.write(record[:20_000])
        await client.push()
        await asyncio.sleep(0.01)
        client.tls.write(record[20_000:] + framed(b"left in the session"))
        await client.push()
        while len(talk.received) < 2:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        assert len(talk.received) == 2
        talk.transport.resume_reading()
        while len(talk.received) < 3:
            await asyncio.sleep(0.001)
        assert talk.received[2] == b"left in the session"
        client.close()

    run(scenario)


def test_large_responses_wait_for_clients_that_do_not_read_and_arrive_whole(run: Run) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client().handshake()
        transport = (await node.talk()).transport
        assert isinstance(transport, TlsTransport)
        wanted = [os.urandom(LARGE) for _ in range(5)]
        for content in wanted:
            transport.output.add((framed(content),))
        size = transport.output.size
        transport.flush_soon()
        unsent = 0
        while unsent != transport.output.size or transport.sending is not Sending.BLOCKED:
            unsent = transport.output.size
            await asyncio.sleep(0.01)
        assert 0 < unsent < size
        assert await client.receive(size) == b"".join(map(framed, wanted))
        assert (transport.output.size, transport.sending) == (0, Sending.IDLE)
        client.close()

    run(scenario)


def test_the_rest_of_what_was_encrypted_leaves_though_no_output_follows(run: Run) -> None:
    """The queue is empty by then; only the socket did not accept all of the last piece."""

    async def scenario(node: Node) -> None:
        client = await node.client().handshake()
        transport = (await node.talk()).transport
        assert isinstance(transport, TlsTransport)
        frame, count = framed(os.urandom(60_000)), 0
        while not transport.output.size:
            transport.output.add((frame,))
            transport.flush_now()
            count += 1
        assert transport.output.has_unsent and transport.output.size < 2 * len(frame)
        assert transport.sending is Sending.BLOCKED
        assert await client.receive(count * len(frame)) == frame * count
        assert (transport.output.size, transport.sending) == (0, Sending.IDLE)
        client.close()

    run(scenario)


def test_files_are_read_in_pieces_and_cold_ones_by_a_thread(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(LARGE)
    (tmp_path / "file").write_bytes(content)
    pieces: list[int] = []
    threads: set[int] = set()
    read_whole = output.read_whole

    def noting(piece: Slice) -> bytes:
        pieces.append(piece.length)
        return read_whole(piece)

    def read_into_memory(descriptor: int, position: int, length: int) -> None:
        threads.add(threading.get_ident())

    monkeypatch.setattr(output, "read_whole", noting)
    monkeypatch.setattr(output, "is_in_memory", lambda piece: False)
    monkeypatch.setattr(stream, "read_into_memory", read_into_memory)

    async def scenario(node: Node) -> None:
        client = await node.client().handshake()
        transport = (await node.talk()).transport
        file = DiskFiles().file(str(tmp_path / "file"))
        transport.output.add((SIZE.pack(LARGE + 3), b"abc", Slice(file, 0, LARGE)))
        transport.flush_soon()
        assert await client.receive(LARGE + 7) == framed(b"abc" + content)
        assert max(pieces) == output.MAX_READ and sum(pieces) == LARGE
        assert threads and threading.get_ident() not in threads
        client.close()
        await node.all_closed()
        assert not file.pinned

    run(scenario)


def test_one_large_response_is_encrypted_in_several_turns(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that reads as fast as we encrypt must not have the event loop for itself."""
    monkeypatch.setattr(tls, "MAX_ENCRYPTED_IN_A_TURN", 100_000)

    async def scenario(node: Node) -> None:
        client = await node.client().handshake()
        transport = (await node.talk()).transport
        assert isinstance(transport, TlsTransport)
        transport.output.add((framed(bytes(LARGE)),))
        transport.flush_now()
        assert transport.output.size > LARGE - 300_000
        assert transport.sending is Sending.BLOCKED
        assert await client.receive(LARGE + 4) == framed(bytes(LARGE))
        client.close()

    run(scenario)


def test_small_parts_leave_together(run: Run) -> None:
    """In records of their own, and by one call of the system."""

    async def scenario(node: Node) -> None:
        client = await node.client().handshake()
        transport = (await node.talk()).transport
        parts = [bytes([number]) * output.JOIN_BELOW for number in range(20)]
        transport.output.add(parts)
        transport.flush_soon()
        encrypted = await asyncio.get_running_loop().sock_recv(client.socket, 1 << 16)
        assert len(encrypted) > 20 * output.JOIN_BELOW
        client._incoming.write(encrypted)
        assert await client.receive(20 * output.JOIN_BELOW) == b"".join(parts)
        client.close()

    run(scenario)


# --- ends ---


@pytest.mark.parametrize("how", ["notify", "half-closed", "abrupt", "reset"])
def test_a_client_that_leaves_is_closed_without_a_warning(
    run: Run, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client().handshake()
        assert await client.echo(b"x") == b"x"
        if how == "notify":
            with pytest.raises(ssl.SSLWantReadError):
                client.tls.unwrap()
            await client.push()
        elif how == "half-closed":
            client.socket.shutdown(socket.SHUT_WR)
        elif how == "abrupt":
            client.close()
        else:
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.close()
        await node.all_closed()
        talk = await node.talk()
        assert talk.lost_because is not None
        if how != "reset":
            assert talk.lost_because == "closed by the peer"

    run(scenario)
    assert warnings(caplog) == []


def test_a_client_that_leaves_in_the_middle_of_a_frame_is_noticed(run: Run) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client().handshake()
        client.tls.write(framed(bytes(1000))[:500])
        await client.push()
        client.close()
        await node.all_closed()
        assert (await node.talk()).lost_because == "closed by the peer in the middle of a frame"

    run(scenario)


def test_a_client_hears_that_we_close(run: Run) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client().handshake()
        (await node.talk()).transport.close("test")
        assert await client.receive(1) == b"" and client.has_heard_the_end
        client.close()

    run(scenario)


def test_bytes_that_are_no_record_end_the_connection(run: Run) -> None:
    async def scenario(node: Node) -> None:
        client = await node.client().handshake()
        await asyncio.get_running_loop().sock_sendall(client.socket, b"\x17\x03\x03\x00\x20" + bytes(32))
        await node.all_closed()
        assert "TLS failed: " in str((await node.talk()).lost_because)

    run(scenario)


def test_a_context_that_lets_clients_renegotiate_is_not_used(certificates: Certificates) -> None:
    context = certificates.server_context()
    context.options &= ~ssl.OP_NO_RENEGOTIATION
    with pytest.raises(AssertionError, match="may renegotiate"):
        TlsSession(context, None)


async def s_client(node: Node, version: str) -> asyncio.subprocess.Process:
    """OpenSSL's own client, which can do what Python's cannot, by letters at the beginning of a line."""
    return await asyncio.create_subprocess_exec(
        *("openssl", "s_client", version, "-connect", f"127.0.0.1:{node.port}"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )


with_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl")


class Talkative:
    """A session with an alert for the peer, again and again."""

    has_output = True

    def take_output(self) -> bytes:
        return bytes(1000)


def test_a_peer_that_does_not_read_the_alerts_it_causes_fills_no_memory(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    queue = TlsOutput(Talkative(), sockets[0], Traffic())  # type: ignore[arg-type]
    with pytest.raises(TlsFailed, match="it does not read the alerts that it causes"):
        while True:
            queue.push()
    assert tls.MAX_ENCRYPTED < queue.size < 3 * tls.MAX_ENCRYPTED


@with_openssl
def test_clients_may_change_their_keys(run: Run) -> None:
    async def scenario(node: Node) -> None:
        client = await s_client(node, "-tls1_3")
        talk = await node.talk()
        assert client.stdin is not None and client.stdout is not None
        for _ in range(3):
            client.stdin.write(b"K\n")  # and want us to change ours
            await client.stdout.readuntil(b"KEYUPDATE")
            client.stdin.write(framed(b"hell\n"))
            await client.stdout.readuntil(framed(b"hell\n"))
        assert talk.received == [b"hell\n"] * 3
        client.kill()
        await client.wait()

    run(scenario)


@with_openssl
def test_clients_may_not_renegotiate(run: Run) -> None:
    async def scenario(node: Node) -> None:
        client = await s_client(node, "-tls1_2")
        await node.talk()
        assert client.stdin is not None and client.stdout is not None
        client.stdin.write(b"R\n")
        assert b"no renegotiation" in await client.stdout.read()
        await client.wait()
        await node.all_closed()

    run(scenario)


# --- handshakes that fail ---


def test_certificates_are_verified_by_clients(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(node: Node) -> None:
        context = node.certificates.client_context(authority=node.certificates.strange_authority)
        with pytest.raises(ssl.SSLCertVerificationError):
            await node.client(context=context).handshake()
        await node.all_closed()
        assert node.echo.talks == []

    run(scenario)
    (line,) = warnings(caplog)
    assert "it does not trust the authority that signed our certificate" in line


def test_clients_with_an_old_version_are_refused(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(node: Node) -> None:
        context = node.certificates.client_context()
        context.set_ciphers("DEFAULT:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning):
            context.minimum_version = ssl.TLSVersion.TLSv1_1
            context.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await node.client(context=context).handshake()
        await node.all_closed()

    run(scenario)
    (line,) = warnings(caplog)
    assert "it offers no version of TLS that this end accepts" in line


@pytest.mark.parametrize(
    ("identity", "reason"),
    [
        ("none", "it shows no certificate, but ssl.client.auth requires one"),
        ("stranger", "its certificate is not accepted: unable to get local issuer certificate"),
        ("expired", "its certificate is not accepted: certificate has expired"),
    ],
)
def test_clients_without_a_good_certificate_are_refused(
    run: Run, identity: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(node: Node) -> None:
        node.context = node.certificates.server_context(wants_certificate=True)
        path = None if identity == "none" else getattr(node.certificates, identity)
        client = node.client(context=node.certificates.client_context(path))
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await client.handshake()
            await client.receive(1)  # with TLS 1.3, only now
        await node.all_closed()
        assert node.echo.talks == []

    run(scenario)
    (line,) = warnings(caplog)
    assert line.endswith(reason)


def test_the_certificate_of_a_client_is_known_to_the_receiver(run: Run) -> None:
    async def scenario(node: Node) -> None:
        node.context = node.certificates.server_context(wants_certificate=True)
        seen: list[bytes | None] = []
        converse = node.echo.converse

        def looking(transport: Transport) -> EchoTalk:
            seen.append(transport.peer_certificate)
            return converse(transport)

        node.server._converse = looking
        context = node.certificates.client_context(node.certificates.client)
        client = await node.client(context=context).handshake()
        assert await client.echo(b"x") == b"x"
        pem = node.certificates.client.read_text()
        assert seen == [ssl.PEM_cert_to_DER_cert(pem[: pem.index("-----BEGIN PRIVATE")])]
        client.close()

    run(scenario)


@pytest.mark.parametrize(("error", "lines"), [(GreetingRefused, 1), (ConnectionRefusedError, 0)])
def test_a_receiver_may_refuse_a_peer(
    run: Run, caplog: pytest.LogCaptureFixture, error: type[OSError], lines: int
) -> None:
    """The log has a line about it, unless the receiver has written one itself."""

    async def scenario(node: Node) -> None:
        def refuse(transport: Transport) -> EchoTalk:
            raise error("nobody knows it")

        node.server._converse = refuse
        client = await node.client().handshake()
        assert await client.receive(1) == b""
        await node.all_closed()

    run(scenario)
    assert [("nobody knows it" in line) for line in warnings(caplog)] == [True] * lines


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        (framed(b"\0\x12\0\0\0\0\0\1\0\4test"), "it does not speak TLS, but this listener is SSL: "),
        (b"GET / HTTP/1.1\r\n\r\n", "it speaks HTTP, but this listener is SSL: this port is for Kafka"),
        (b"\x16\x03\x01\x00\x04abcd", "TLS failed: "),
        (b"\x16", "it closed the connection during the handshake"),
    ],
)
def test_who_does_not_speak_tls_is_closed_with_one_line(
    run: Run, start: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(node: Node) -> None:
        loop = asyncio.get_running_loop()
        with socket.create_connection(("127.0.0.1", node.port)) as client:
            client.setblocking(False)
            await loop.sock_sendall(client, start)
            client.shutdown(socket.SHUT_WR)
            while await loop.sock_recv(client, 100):
                pass
        await node.all_closed()

    run(scenario)
    (line,) = warnings(caplog)
    assert reason in line


def test_a_probe_that_connects_and_leaves_is_no_warning(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(node: Node) -> None:
        socket.create_connection(("127.0.0.1", node.port)).close()
        client = await node.client().handshake()  # later than the probe
        client.close()
        await node.all_closed()

    run(scenario)
    assert warnings(caplog) == []


def test_tls_at_a_plaintext_listener(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(node: Node) -> None:
        port = node.server.listen("PLAINTEXT", "127.0.0.1", 0, PLAINTEXT)
        client = TlsClient(port, node.certificates.client_context())
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await client.handshake()
        await node.all_closed()

    run(scenario)
    (line,) = warnings(caplog)
    assert "it speaks TLS, but this listener is PLAINTEXT: let it connect without TLS" in line


# --- bounds ---


def test_a_handshake_that_stalls_or_trickles_is_closed_in_time(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(greeting, "CHECK_SECONDS", 0.02)

    async def scenario(node: Node) -> None:
        loop = asyncio.get_running_loop()
        well = await node.client().handshake()
        assert await well.echo(b"x") == b"x"
        monkeypatch.setattr(greeting, "ACCEPTED_SECONDS", 0.3)
        stalled, trickling = node.client(), node.client()
        with pytest.raises(ssl.SSLWantReadError):
            trickling.tls.do_handshake()
        hello = trickling._outgoing.read()

        async def trickle() -> None:
            for byte in hello[:-1]:
                await loop.sock_sendall(trickling.socket, bytes([byte]))
                await asyncio.sleep(0.01)

        drops = asyncio.create_task(trickle())
        assert await loop.sock_recv(stalled.socket, 1) == b""
        with pytest.raises((ConnectionError, BrokenPipeError)):
            assert await loop.sock_recv(trickling.socket, 1) == b""
            await drops
        assert await well.echo(b"still here") == b"still here"
        assert node.server.connection_count == 1
        for client in (well, stalled, trickling):
            client.close()

    run(scenario)


def test_many_handshakes_at_once_take_turns(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """After one step of a handshake, whatever else the event loop has to do comes first."""
    monkeypatch.setattr(line, "SHARE_SECONDS", 0.0)

    async def scenario(node: Node) -> None:
        turns: list[int] = []
        take_turn = Line._take_turn

        def counting(self: Line) -> None:
            before = len(self._waiting)
            take_turn(self)
            turns.append(before - len(self._waiting))

        monkeypatch.setattr(Line, "_take_turn", counting)
        clients = [node.client() for _ in range(30)]
        await asyncio.gather(*(client.handshake() for client in clients))
        for client in clients:
            assert await client.echo(b"x") == b"x"
            client.close()
        assert set(turns) == {1} and len(turns) >= 60

    run(scenario)


def test_a_closed_connection_leaves_no_session_to_the_garbage_collector(run: Run) -> None:
    async def scenario(node: Node) -> None:
        gc.collect()
        gc.disable()
        try:
            before = sessions()
            for _ in range(3):
                client = await node.client().handshake()
                assert await client.echo(b"x") == b"x"
                client.close()
                del client
            socket.create_connection(("127.0.0.1", node.port)).close()
            await node.all_closed()
            assert sessions() <= before + 3, "those of the clients at most"
        finally:
            gc.enable()

    def sessions() -> int:
        return sum(isinstance(thing, ssl.SSLObject) for thing in gc.get_objects())

    run(scenario)


def test_damaged_handshakes_harm_nobody(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """Bytes changed, left out, added or sent twice, at either message of the client; another client is served."""
    rng = random.Random(1)

    async def scenario(node: Node) -> None:
        loop = asyncio.get_running_loop()
        well = await node.client().handshake()
        for number in range(300):
            client = node.client()
            with suppress(ssl.SSLError, ConnectionError):
                for step in range(2):
                    with suppress(ssl.SSLWantReadError):
                        client.tls.do_handshake()
                    message = bytearray(client._outgoing.read())
                    if is_damaged := rng.random() < 0.7:
                        damage(rng, message)
                    await loop.sock_sendall(client.socket, message)
                    if is_damaged:
                        client.socket.shutdown(socket.SHUT_WR)  # or the other end might wait for the rest
                    if (step == 0 and not await client.hear()) or is_damaged:
                        break
            client.close()
            if number % 30 == 0:
                assert await well.echo(b"x") == b"x"
        well.close()
        await node.all_closed()
        assert sum(map(bool, (talk.received for talk in node.echo.talks))) == 1

    run(scenario)
    assert all("closing 127.0.0.1" in line for line in warnings(caplog))


def damage(rng: random.Random, message: bytearray) -> None:
    at = rng.randrange(len(message))
    kind = rng.randrange(4)
    if kind == 0:
        message[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        del message[at : at + rng.randrange(1, 20)]
    elif kind == 2:
        message[at:at] = rng.randbytes(rng.randrange(1, 20))
    else:
        message += message[at:]


# --- connections that we open ---


def test_nodes_connect_to_each_other(run: Run) -> None:
    async def scenario(node: Node) -> None:
        node.context = node.certificates.server_context(wants_certificate=True)
        context = node.certificates.client_context(node.certificates.server)
        for host in ("127.0.0.1", "localhost"):
            channel = await node.network.connect(node.endpoint(context, host), 10)
            wanted = os.urandom(LARGE)
            assert bytes(await channel.send(framed(wanted))) == wanted
            channel.close()
        await node.all_closed()

    run(scenario)


@pytest.mark.parametrize(
    ("identity", "reason"),
    [
        ("other_host", "its certificate is not accepted: IP address mismatch"),
        ("expired", "its certificate is not accepted: certificate has expired"),
        ("stranger", "its certificate is not accepted: unable to get local issuer certificate"),
    ],
)
def test_a_node_verifies_the_host_that_it_connects_to(
    run: Run, identity: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(node: Node) -> None:
        node.context = node.certificates.server_context(getattr(node.certificates, identity))
        with pytest.raises(GreetingRefused, match=reason):
            await node.network.connect(node.endpoint(node.certificates.client_context()), 10)
        await node.all_closed()
        assert node.echo.received == []

    run(scenario)
    assert any(reason in line for line in warnings(caplog))


def test_a_node_that_is_refused_for_its_certificate_hears_why(run: Run) -> None:
    async def scenario(node: Node) -> None:
        node.context = node.certificates.server_context(wants_certificate=True)
        channel = await node.network.connect(node.endpoint(node.certificates.client_context()), 10)
        with pytest.raises(ChannelClosed, match="it requires a certificate, but this end has none"):
            await channel.send(framed(b"x"))

    run(scenario)


def test_a_node_that_connects_with_tls_to_a_plaintext_listener(run: Run) -> None:
    async def scenario(node: Node) -> None:
        node.port = node.server.listen("PLAINTEXT", "127.0.0.1", 0, PLAINTEXT)
        with pytest.raises(GreetingRefused, match="check whether its listener has TLS"):
            await node.network.connect(node.endpoint(node.certificates.client_context()), 10)

    run(scenario)


def test_a_name_that_no_certificate_can_have(run: Run) -> None:
    async def scenario(node: Node) -> None:
        endpoint = node.endpoint(node.certificates.client_context(), "")
        with pytest.raises(OSError):
            await node.network.connect(endpoint, 10)

    run(scenario)


def test_new_connections_use_the_new_certificate_and_old_ones_go_on(run: Run) -> None:
    async def scenario(node: Node) -> None:
        before = await node.client().handshake()
        node.context = node.certificates.server_context(node.certificates.client)
        after = await node.client().handshake()
        shown = [client.tls.getpeercert(binary_form=True) for client in (before, after)]
        assert shown[0] != shown[1]
        assert await before.echo(b"x") == await after.echo(b"x") == b"x"
        before.close()
        after.close()

    run(scenario)
