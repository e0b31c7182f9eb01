"""A transport on a socket: what is watched follows from its states, whatever order things happen in."""

import asyncio
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from odradek.host.real import RealHost
from odradek.net import output, stream
from odradek.net.plaintext import PlaintextTransport
from odradek.net.pool import Pool
from odradek.net.security import PLAINTEXT
from odradek.net.states import Receiving, Sending
from odradek.net.stream import Connected, StreamTransport
from odradek.net.transport import OwnFrame, Transport
from odradek.storage.disk.files import DiskFiles
from odradek.storage.segments.row import Slice

LIMIT = 100_000


class StubHost:
    """Notes who is watched for what."""

    def __init__(self) -> None:
        self.loop = self
        self.readers: dict[int, Callable[[], None]] = {}
        self.writers: dict[int, Callable[[], None]] = {}
        self.soon: list[Callable[[], None]] = []

    def add_reader(self, descriptor: int, callback: Callable[[], None]) -> None:
        assert descriptor not in self.readers
        self.readers[descriptor] = callback

    def remove_reader(self, descriptor: int) -> None:
        del self.readers[descriptor]

    def add_writer(self, descriptor: int, callback: Callable[[], None]) -> None:
        assert descriptor not in self.writers
        self.writers[descriptor] = callback

    def remove_writer(self, descriptor: int) -> None:
        del self.writers[descriptor]

    def monotonic(self) -> float:
        return 0.0

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        pass


class Noting:
    is_busy = False

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.events: list[Any] = []

    def receive(self, frame: memoryview) -> None:
        self.events.append(bytes(frame))

    def receive_own(self, own: OwnFrame) -> None:
        self.events.append(own)

    def finish(self) -> None:
        self.events.append("finish")

    def flushed(self) -> None:
        self.events.append("flushed")

    def reading_ended(self) -> None:
        self.events.append("reading ended")

    def lost(self, reason: str) -> None:
        self.events.append(f"lost: {reason}")


class Wire:
    def __init__(self, ours: socket.socket, theirs: socket.socket, pool: Pool) -> None:
        self.theirs = theirs
        self.descriptor = ours.fileno()
        self.is_closed = False
        connected = Connected(ours, "them:1", "PLAINTEXT", PLAINTEXT)
        self.transport = PlaintextTransport(pool, connected, Noting, self)
        assert isinstance(self.transport.receiver, Noting)
        self.events = self.transport.receiver.events

    def greeted(self, transport: StreamTransport) -> None:
        self.events.append("greeted")

    def closed(self, transport: StreamTransport, reason: str) -> None:
        assert transport is self.transport and not self.is_closed
        self.is_closed = True


@pytest.fixture
def host() -> StubHost:
    return StubHost()


@pytest.fixture
def pool(host: StubHost) -> Pool:
    return Pool(host, 1 << 20, LIMIT)  # type: ignore[arg-type]


@pytest.fixture
def wire(sockets: tuple[socket.socket, socket.socket], pool: Pool) -> Wire:
    return Wire(*sockets, pool)


def framed(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


def test_frames_are_cut_out_wherever_the_reads_fall(wire: Wire, host: StubHost) -> None:
    for byte in framed(b"one"):
        wire.theirs.sendall(bytes([byte]))
        host.readers[wire.descriptor]()
    wire.theirs.sendall(framed(b"two") + framed(b"") + framed(b"three")[:6])
    host.readers[wire.descriptor]()
    wire.theirs.sendall(framed(b"three")[6:])
    host.readers[wire.descriptor]()
    assert [event for event in wire.events if event != "finish"] == [
        OwnFrame(memoryview(b"one"), 0),
        b"two",
        b"",
        OwnFrame(memoryview(b"three"), 0),
    ]


@pytest.mark.parametrize("size", [-1, (1 << 20) + 1])
def test_a_size_that_is_not_allowed_ends_the_connection(wire: Wire, host: StubHost, size: int) -> None:
    wire.theirs.sendall(framed(b"ok") + struct.pack(">i", size))
    host.readers[wire.descriptor]()
    assert wire.events[0] == b"ok"
    assert wire.events[1].startswith(f"lost: it announced a frame of {size} bytes")
    assert wire.events[2:] == ["finish"], "what was received is finished all the same"
    assert wire.is_closed
    assert wire.theirs.recv(1) == b""


def test_the_socket_is_watched_for_input_exactly_while_reading(wire: Wire, host: StubHost) -> None:
    transport = wire.transport
    for move in (
        transport.pause_reading,
        transport.pause_reading,
        transport.resume_reading,
        transport.resume_reading,
        transport.stop_reading,
        transport.resume_reading,
        transport.pause_reading,
    ):
        move()
        assert (wire.descriptor in host.readers) == (transport.receiving is Receiving.READING)
    assert transport.receiving is Receiving.ENDED
    transport.close("test")
    transport.close("again")
    assert (host.readers, wire.events) == ({}, ["reading ended", "lost: test"])


def test_a_frame_without_memory_waits_though_its_receiver_pauses_meanwhile(
    wire: Wire, host: StubHost, pool: Pool
) -> None:
    transport = wire.transport
    pool.memory.begin(first := Waiting())
    pool.memory.take(LIMIT)
    wire.theirs.sendall(framed(bytes(50_000))[:30_000])
    host.readers[wire.descriptor]()
    wire.theirs.sendall(framed(bytes(50_000))[30_000:])
    host.readers[wire.descriptor]()
    assert transport.receiving is Receiving.STARVED
    transport.resume_reading()
    assert transport.receiving is Receiving.STARVED
    assert not transport.is_late(float("inf")), "it is we who do not read"
    transport.pause_reading()
    transport.resume_reading()
    host.readers[wire.descriptor]()
    assert transport.receiving is Receiving.STARVED
    transport.pause_reading()
    pool.memory.end(first)
    pool.memory.release(LIMIT)
    assert transport.receiving is Receiving.PAUSED
    transport.resume_reading()
    host.readers[wire.descriptor]()
    own = wire.events[-2]
    assert (len(own.frame), own.claimed) == (50_000, 50_000)
    transport.give_back(own, is_reusable=True)
    assert pool.memory.in_use == 0
    assert len(pool.frame(40_000)) == 40_000


class Waiting:
    def memory_is_free(self) -> None:
        pass


def test_the_socket_is_watched_for_output_exactly_while_it_is_full(wire: Wire, host: StubHost) -> None:
    transport = wire.transport
    transport.output.add((bytes(5 << 20),))
    transport.flush_soon()
    assert (transport.sending, len(host.soon)) == (Sending.GATHERING, 1)
    host.soon[0]()
    assert (transport.sending, wire.events) == (Sending.BLOCKED, ["flushed"])
    received = 0
    while wire.descriptor in host.writers:
        received += len(wire.theirs.recv(1 << 20))
        host.writers[wire.descriptor]()
        assert (wire.descriptor in host.writers) == (transport.sending is Sending.BLOCKED)
    assert transport.sending is Sending.IDLE
    assert set(wire.events) == {"flushed"}
    while received < 5 << 20:
        received += len(wire.theirs.recv(1 << 20))


def test_what_is_added_while_frames_are_handled_leaves_at_once(wire: Wire, host: StubHost) -> None:
    transport = wire.transport
    receiver = transport.receiver
    receiver.finish = lambda: transport.output.add((framed(b"response"),))  # type: ignore[method-assign]
    wire.theirs.sendall(framed(b"request"))
    host.readers[wire.descriptor]()
    assert wire.theirs.recv(100) == framed(b"response")
    assert (transport.sending, host.soon) == (Sending.IDLE, [])


def test_a_file_stays_open_for_the_thread_that_reads_it_after_the_connection_is_closed(
    sockets: tuple[socket.socket, socket.socket], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on, is_asked = threading.Event(), threading.Event()

    def slow_read(descriptor: int, position: int, length: int) -> None:
        is_asked.set()
        assert may_go_on.wait(30)

    monkeypatch.setattr(output, "is_in_memory", lambda piece: False)
    monkeypatch.setattr(stream, "read_into_memory", slow_read)
    (tmp_path / "file").write_bytes(bytes(output.COPY_BELOW * 2))
    file = DiskFiles().file(str(tmp_path / "file"))

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        wire = Wire(*sockets, Pool(RealHost(loop), 1 << 20, LIMIT))
        wire.transport.output.add((Slice(file, 0, output.COPY_BELOW * 2),))
        wire.transport.flush_soon()
        await loop.run_in_executor(None, is_asked.wait, 30)
        assert wire.transport.sending is Sending.WARMING
        wire.transport.close("test")
        assert (wire.transport.sending, file.pinned > 0) == (Sending.ABANDONED, True)
        may_go_on.set()
        while wire.transport.sending is Sending.ABANDONED:
            await asyncio.sleep(0.001)
        assert (wire.transport.sending, file.pinned > 0) == (Sending.CLOSED, False)

    asyncio.run(asyncio.wait_for(scenario(), 60))
