"""Tests of what leaves a connection: bytes and slices of files in their order, and never a wait for the disk."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.net import output
from odradek.net.output import Outlet, Output, Sent, is_in_memory, read_into_memory
from odradek.net.plaintext import socket_outlet
from odradek.storage.disk.files import DiskFiles
from odradek.storage.segments.row import Slice
from tests.support import no_descriptors_at_all

LARGE = output.COPY_BELOW * 3

NewOutlet = Callable[[socket.socket], Outlet]


def bare_outlet(sock: socket.socket) -> Outlet:
    """One that can neither gather nor send files, as if it had to encrypt."""
    return Outlet(sock.send)


@pytest.fixture(params=[socket_outlet, bare_outlet])
def outlet(request: pytest.FixtureRequest) -> NewOutlet:
    new: NewOutlet = request.param
    return new


@pytest.fixture
def data(tmp_path: Path) -> bytes:
    content = os.urandom(LARGE * 2)
    (tmp_path / "file").write_bytes(content)
    return content


def slice_of(tmp_path: Path, position: int, length: int) -> Slice:
    return Slice(DiskFiles().file(str(tmp_path / "file")), position, length)


def receive(theirs: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        received += theirs.recv(size - len(received))
    return received


def test_bytes_and_slices_leave_in_order(
    outlet: NewOutlet, sockets: tuple[socket.socket, socket.socket], tmp_path: Path, data: bytes
) -> None:
    ours, theirs = sockets
    queue = Output(outlet(ours))
    expected = b""
    for start, length in ((0, 10), (7, LARGE), (3, 0), (100, output.COPY_BELOW), (5, output.COPY_BELOW - 1)):
        queue.add([b"<", bytearray(b"head"), b""])
        expected += b"<head"
        if length:
            queue.add([slice_of(tmp_path, start, length)])
            expected += data[start : start + length]
    assert queue.size == len(expected)
    received = b""
    while queue.size:
        assert queue.send() in (Sent.ALL, Sent.SOCKET_FULL)
        received += receive(theirs, len(expected) - queue.size - len(received))
    assert received == expected


def test_a_full_socket_stops_in_the_middle_and_goes_on_there(
    outlet: NewOutlet, sockets: tuple[socket.socket, socket.socket], tmp_path: Path, data: bytes
) -> None:
    ours, theirs = sockets
    queue = Output(outlet(ours))
    for _ in range(40):
        queue.add([b"head", slice_of(tmp_path, 0, LARGE)])
    assert queue.send() is Sent.SOCKET_FULL
    received = b""
    while queue.size:
        received += theirs.recv(1 << 20)
        queue.send()
    received += receive(theirs, 40 * (4 + LARGE) - len(received))
    assert received == (b"head" + data[:LARGE]) * 40


@pytest.mark.parametrize("length", [10, LARGE])
def test_a_slice_that_is_on_disk_only_is_not_waited_for(
    outlet: NewOutlet,
    sockets: tuple[socket.socket, socket.socket],
    tmp_path: Path,
    data: bytes,
    length: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = sockets
    monkeypatch.setattr(output, "is_in_memory", lambda piece: False)
    monkeypatch.setattr(output, "read_from_memory", lambda piece: None)
    queue = Output(outlet(ours))
    cold = slice_of(tmp_path, 0, length)
    queue.add([b"head", cold, b"tail"])
    assert queue.send() is Sent.NEEDS_DISK
    assert receive(theirs, 4) == b"head"
    assert queue.slice_to_warm() == cold
    queue.warmed()
    assert queue.send() is Sent.ALL
    assert receive(theirs, length + 4) == data[:length] + b"tail"


def test_each_cold_slice_is_warmed_by_itself(
    outlet: NewOutlet,
    sockets: tuple[socket.socket, socket.socket],
    tmp_path: Path,
    data: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(output, "is_in_memory", lambda piece: False)
    monkeypatch.setattr(output, "read_from_memory", lambda piece: None)
    queue = Output(outlet(sockets[0]))
    queue.add([slice_of(tmp_path, 0, LARGE), slice_of(tmp_path, 0, LARGE)])
    assert queue.send() is Sent.NEEDS_DISK
    queue.warmed()
    assert queue.send() is Sent.NEEDS_DISK


def test_a_long_slice_is_probed_and_sent_piece_by_piece(
    outlet: NewOutlet,
    sockets: tuple[socket.socket, socket.socket],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The part in memory leaves at once, and is not probed again when the socket has room again."""
    ours, theirs = sockets
    piece_size = output.MAX_SENDFILE
    content = os.urandom(3 * piece_size)
    (tmp_path / "file").write_bytes(content)
    probed: list[tuple[int, int]] = []

    def only_the_first_two(piece: Slice) -> bool:
        probed.append((piece.position, piece.length))
        return piece.position < 2 * piece_size

    monkeypatch.setattr(output, "is_in_memory", only_the_first_two)
    queue = Output(outlet(ours))
    queue.add([slice_of(tmp_path, 0, len(content))])
    received = b""
    while (sent := queue.send()) is Sent.SOCKET_FULL:
        received += theirs.recv(1 << 20)
    assert sent is Sent.NEEDS_DISK
    assert probed == [(0, piece_size), (piece_size, piece_size), (2 * piece_size, piece_size)]
    assert queue.slice_to_warm()[1:] == probed[-1]
    queue.warmed()
    while queue.send() is Sent.SOCKET_FULL:
        received += theirs.recv(1 << 20)
    assert received + receive(theirs, len(content) - len(received)) == content
    assert len(probed) == 3


def test_the_page_cache_is_asked(tmp_path: Path, data: bytes) -> None:
    piece = slice_of(tmp_path, 0, len(data))
    descriptor = piece.file.fileno()
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    if is_in_memory(piece):
        pytest.skip("this file system keeps its pages, or cannot say")
    read_into_memory(descriptor, piece.position, piece.length)
    assert is_in_memory(piece)


def test_a_file_cut_short_breaks_the_connection_rather_than_the_stream(
    outlet: NewOutlet, sockets: tuple[socket.socket, socket.socket], tmp_path: Path, data: bytes
) -> None:
    for before, length in ((b"", 100), (b"head", 100), (b"", LARGE), (b"head", LARGE)):
        queue = Output(outlet(sockets[0]))
        queue.add([before, slice_of(tmp_path, len(data) - 50, length)])
        with pytest.raises(ConnectionAbortedError):
            while True:
                queue.send()


def test_files_stay_open_while_they_wait_and_no_longer(
    outlet: NewOutlet, sockets: tuple[socket.socket, socket.socket], tmp_path: Path, data: bytes
) -> None:
    queue = Output(outlet(sockets[0]))
    file = DiskFiles().file(str(tmp_path / "file"))
    queue.add([Slice(file, 0, LARGE)])
    assert file.pinned
    queue.clear()
    assert not file.pinned
    assert queue.size == 0


def test_small_responses_are_joined_and_survive_a_full_socket(
    outlet: NewOutlet, sockets: tuple[socket.socket, socket.socket], tmp_path: Path, data: bytes
) -> None:
    """Responses are added while others are on their way, in part or whole."""
    ours, theirs = sockets
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    queue = Output(outlet(ours))
    expected, received, kept = b"", b"", bytearray(b"kept")
    for number in range(3000):
        response = kept if number % 7 == 0 else f"response {number};".encode()
        queue.add([response])
        expected += response
        if number % 500 == 499:
            queue.add([slice_of(tmp_path, number, 1000), b"x" * output.JOIN_BELOW])
            expected += data[number : number + 1000] + b"x" * output.JOIN_BELOW
        if number % 50 == 0:
            queue.send()
            received += receive(theirs, min(1000, len(expected) - queue.size - len(received)))
    while queue.size or len(received) < len(expected):
        queue.send()
        received += theirs.recv(1 << 16)
    assert received == expected
    assert kept == b"kept"


def test_a_client_that_does_not_read_keeps_few_files_open(
    outlet: NewOutlet, sockets: tuple[socket.socket, socket.socket], tmp_path: Path, data: bytes
) -> None:
    """The others are opened again when their turn comes, and all of it arrives."""
    ours, theirs = sockets
    files = DiskFiles(max_open=2)
    queue = Output(outlet(ours))
    count = output.MAX_PINNED * 3
    for _ in range(count):
        queue.add([Slice(files.file(str(tmp_path / "file")), 0, LARGE)])
    assert len(files.open_files) <= output.MAX_PINNED + 2
    received = b""
    while queue.size:
        queue.send()
        received += receive(theirs, count * LARGE - queue.size - len(received))
    assert received == data[:LARGE] * count
    assert not any(file.pinned for file in files.open_files)


def test_a_slice_whose_file_cannot_be_opened_now_waits_for_its_turn(
    outlet: NewOutlet, sockets: tuple[socket.socket, socket.socket], tmp_path: Path, data: bytes
) -> None:
    ours, theirs = sockets
    queue = Output(outlet(ours))
    with no_descriptors_at_all():
        queue.add([slice_of(tmp_path, 0, LARGE)])
    received = b""
    while queue.size:
        queue.send()
        received += receive(theirs, LARGE - queue.size - len(received))
    assert received == data[:LARGE]
    queue.add([slice_of(tmp_path, 0, LARGE)])
    queue.clear()


def test_what_a_thread_is_going_to_read_is_pinned(
    outlet: NewOutlet,
    sockets: tuple[socket.socket, socket.socket],
    tmp_path: Path,
    data: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, _ = sockets
    files = DiskFiles()
    queue = Output(outlet(ours))
    monkeypatch.setattr(output, "MAX_PINNED", 0)
    monkeypatch.setattr(output, "is_in_memory", lambda _: False)
    file = files.file(str(tmp_path / "file"))
    queue.add([Slice(file, 0, LARGE)])
    assert not file.pinned
    assert queue.send() is Sent.NEEDS_DISK
    assert file.pinned
    queue.clear()
    assert not file.pinned


def test_where_files_cannot_be_sent_they_are_read_in_pieces_and_once(
    sockets: tuple[socket.socket, socket.socket], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only one piece of a slice is in memory, and a full socket does not make us read it again."""
    ours, theirs = sockets
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    content = os.urandom(3 * output.MAX_READ)
    (tmp_path / "file").write_bytes(content)
    read: list[int] = []
    read_whole = output.read_whole

    def noting(piece: Slice) -> bytes:
        read.append(piece.length)
        return read_whole(piece)

    monkeypatch.setattr(output, "read_whole", noting)
    queue = Output(bare_outlet(ours))
    queue.add([slice_of(tmp_path, 0, len(content))])
    received = b""
    while queue.size:
        queue.send()
        received += receive(theirs, len(content) - queue.size - len(received))
    assert received == content
    assert read == [output.MAX_READ] * 3


def test_an_outlet_that_can_gather_does(
    sockets: tuple[socket.socket, socket.socket], tmp_path: Path, data: bytes
) -> None:
    ours, theirs = sockets
    whole = socket_outlet(ours)
    gathered: list[tuple[int, bool]] = []

    def gather(parts: list[output.Bytes], more: bool) -> int:
        gathered.append((len(parts), more))
        assert whole.gather is not None
        return whole.gather(parts, more)

    queue = Output(whole._replace(gather=gather))
    large = bytes(output.JOIN_BELOW)
    queue.add([large, b"small", large, slice_of(tmp_path, 0, LARGE), large, large])
    assert queue.send() is Sent.ALL
    assert gathered == [(3, True), (2, False)]
    size = 4 * len(large) + len(b"small") + LARGE
    assert receive(theirs, size) == large + b"small" + large + data[:LARGE] + large * 2
