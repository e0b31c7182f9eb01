"""What leaves a connection: bytes and slices of files in their order, and never a wait for the disk."""

import os
import socket
from pathlib import Path

import pytest

from odradek.net import output
from odradek.net.output import Output, Sent, is_in_memory, read_into_memory
from odradek.storage.disk.files import DiskFiles
from odradek.storage.segments.row import Slice
from tests.support import no_descriptors_at_all

LARGE = output.COPY_BELOW * 3


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
    sockets: tuple[socket.socket, socket.socket], tmp_path: Path, data: bytes
) -> None:
    ours, theirs = sockets
    queue = Output(ours)
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
    sockets: tuple[socket.socket, socket.socket], tmp_path: Path, data: bytes
) -> None:
    ours, theirs = sockets
    queue = Output(ours)
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
    sockets: tuple[socket.socket, socket.socket],
    tmp_path: Path,
    data: bytes,
    length: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, theirs = sockets
    monkeypatch.setattr(output, "is_in_memory", lambda piece: False)
    monkeypatch.setattr(output, "read_from_memory", lambda piece: None)
    queue = Output(ours)
    cold = slice_of(tmp_path, 0, length)
    queue.add([b"head", cold, b"tail"])
    assert queue.send() is Sent.NEEDS_DISK
    assert receive(theirs, 4) == b"head"
    assert queue.slice_to_warm() == cold
    queue.warmed()
    assert queue.send() is Sent.ALL
    assert receive(theirs, length + 4) == data[:length] + b"tail"


def test_each_cold_slice_is_warmed_by_itself(
    sockets: tuple[socket.socket, socket.socket], tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "is_in_memory", lambda piece: False)
    monkeypatch.setattr(output, "read_from_memory", lambda piece: None)
    queue = Output(sockets[0])
    queue.add([slice_of(tmp_path, 0, LARGE), slice_of(tmp_path, 0, LARGE)])
    assert queue.send() is Sent.NEEDS_DISK
    queue.warmed()
    assert queue.send() is Sent.NEEDS_DISK


def test_a_long_slice_is_probed_and_sent_piece_by_piece(
    sockets: tuple[socket.socket, socket.socket], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in memory leaves at once, and is not probed again when the socket has room again."""
    ours, theirs = sockets
    piece_size = output.MAX_SENDFILE
    content = os.urandom(3 * piece_size)
    (tmp_path / "file").write_bytes(content)
    probed: list[tuple[int, int]] = []

    def only_the_first_two(piece: Slice) -> bool:
        probed.append((piece.position, piece.length))
        return piece.position < 2 * piece_size

    monkeypatch.setattr(output, "is_in_memory", only_the_first_two)
    queue = Output(ours)
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
    sockets: tuple[socket.socket, socket.socket], tmp_path: Path, data: bytes
) -> None:
    for before, length in ((b"", 100), (b"head", 100), (b"", LARGE), (b"head", LARGE)):
        queue = Output(sockets[0])
        queue.add([before, slice_of(tmp_path, len(data) - 50, length)])
        with pytest.raises(ConnectionAbortedError):
            while True:
                queue.send()


def test_files_stay_open_while_they_wait_and_no_longer(
    sockets: tuple[socket.socket, socket.socket], tmp_path: Path, data: bytes
) -> None:
    queue = Output(sockets[0])
    file = DiskFiles().file(str(tmp_path / "file"))
    queue.add([Slice(file, 0, LARGE)])
    assert file.pinned
    queue.clear()
    assert not file.pinned
    assert queue.size == 0


def test_small_answers_are_joined_and_survive_a_full_socket(
    sockets: tuple[socket.socket, socket.socket], tmp_path: Path, data: bytes
) -> None:
    """Answers are added while others are on their way, in part or whole."""
    ours, theirs = sockets
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    queue = Output(ours)
    expected, received, kept = b"", b"", bytearray(b"kept")
    for number in range(3000):
        answer = kept if number % 7 == 0 else f"answer {number};".encode()
        queue.add([answer])
        expected += answer
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
    sockets: tuple[socket.socket, socket.socket], tmp_path: Path, data: bytes
) -> None:
    """The others are opened again when their turn comes, and all of it arrives."""
    ours, theirs = sockets
    files = DiskFiles(max_open=2)
    queue = Output(ours)
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
    sockets: tuple[socket.socket, socket.socket], tmp_path: Path, data: bytes
) -> None:
    ours, theirs = sockets
    queue = Output(ours)
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
    sockets: tuple[socket.socket, socket.socket],
    tmp_path: Path,
    data: bytes,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours, _ = sockets
    files = DiskFiles()
    queue = Output(ours)
    monkeypatch.setattr(output, "MAX_PINNED", 0)
    monkeypatch.setattr(output, "is_in_memory", lambda _: False)
    file = files.file(str(tmp_path / "file"))
    queue.add([Slice(file, 0, LARGE)])
    assert not file.pinned
    assert queue.send() is Sent.NEEDS_DISK
    assert file.pinned
    queue.clear()
    assert not file.pinned
