"""The output queue of a connection: bytes, and slices of files that go from page cache to socket uncopied.

What a connection can do with them its outlet says: one that encrypts can neither gather parts nor send files, so parts
are sent one by one, and files are read in pieces.

`send` writes as much as the outlet accepts. A slice whose pages are not in memory would block the event loop in
the middle of a sendfile, and with it every other connection. So it is sent in pieces, each of which is probed first;
if a page is missing, `send` stops and says so: the connection has a thread read the piece into the page cache,
and makes the kernel start reading what follows, and continues.
"""

import os
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import NamedTuple

from odradek.host.metrics import Traffic
from odradek.net.transport import Part
from odradek.storage.disk.shortage import CannotOpen
from odradek.storage.segments.row import Slice

COPY_BELOW = 32 * 1024  # smaller slices are cheaper to read, and to send with their neighbours
JOIN_BELOW = 1024
MAX_PINNED = 4  # slices of one connection whose files stay open while they wait
MAX_GATHERED = 64
PROBE_INTERVAL = 64 * 1024  # below the kernel's usual read-ahead, so that a gap is rarely missed
MAX_SENDFILE = 1 << 20
MAX_READ = 256 * 1024  # of a file at once, where it cannot be sent as it is
READ_AHEAD = 8 << 20  # a reader of old data will ask for the next bytes soon
ADVISED_AT_ONCE = 512 * 1024  # the kernel cuts longer advice short
CAN_ADVISE = hasattr(os, "posix_fadvise")
CAN_PROBE = hasattr(os, "RWF_NOWAIT")


Bytes = bytes | bytearray | memoryview


class Outlet(NamedTuple):
    """The ways for bytes to leave a connection; one that it does not have is None. All return how many bytes were
    accepted, and raise BlockingIOError if none can be now.
    """

    send: Callable[[Bytes], int]
    gather: Callable[[list[Bytes], bool], int] | None = None  # several at once; True: more will follow
    send_file: Callable[[int, int, int], int] | None = None  # by descriptor, position and length


class Sent(Enum):
    ALL = auto()
    SOCKET_FULL = auto()
    NEEDS_DISK = auto()


class UnpinnedSlice(Slice):
    """A slice whose file may be closed, and is opened again when it is sent. If the file is removed before that, the
    client has to ask again."""

    __slots__ = ()


class Output:
    """A queue of parts. The first few slices are pinned while they wait, so that their files stay open; clients that
    do not read must not use up all descriptors."""

    def __init__(self, outlet: Outlet, traffic: Traffic | None = None) -> None:
        self._send, self._gather, self._send_file = outlet
        self._traffic = traffic or Traffic()
        self._parts: deque[Part] = deque()
        self.size = 0
        self._pinned = 0
        self._joined: bytearray | None = None  # the last part, while it may grow
        self._in_memory_until = 0  # position in the file of the slice at the head

    def add(self, parts: Sequence[Part]) -> None:
        for part in parts:
            if isinstance(part, Slice):
                self._add_slice(part)
            elif part:
                size = len(part)
                self.size += size
                if self._joined is not None and size < JOIN_BELOW:
                    self._joined += part
                else:
                    self._add_bytes(part)

    def _add_slice(self, piece: Slice) -> None:
        self.size += piece.length
        data = read_from_memory(piece) if piece.length < COPY_BELOW else None
        if data is not None:
            self._add_bytes(data)
            return
        self._parts.append(piece if self._try_to_pin(piece) else UnpinnedSlice(*piece))
        self._joined = None

    def _try_to_pin(self, piece: Slice) -> bool:
        if self._pinned >= MAX_PINNED:
            return False
        try:
            piece.file.pin()
        except CannotOpen:
            return False
        self._pinned += 1
        return True

    def _release(self, piece: Slice) -> None:
        if not isinstance(piece, UnpinnedSlice):
            piece.file.unpin()
            self._pinned -= 1

    def _add_bytes(self, part: Bytes) -> None:
        """Small ones go to the socket in one piece."""
        if len(part) >= JOIN_BELOW:
            self._joined = None
        elif self._joined is not None:
            self._joined += part
            return
        else:
            part = self._joined = bytearray(part)
        self._parts.append(part)

    def send(self) -> Sent:
        try:
            while self._parts:
                head = self._parts[0]
                if not isinstance(head, Slice):
                    self._send_bytes()
                elif not self._may_send(head):
                    return Sent.NEEDS_DISK
                elif head.length < COPY_BELOW:
                    self._copy_head(head)
                else:
                    self._send_slice(head)
        except BlockingIOError:
            return Sent.SOCKET_FULL
        return Sent.ALL

    def _may_send(self, head: Slice) -> bool:
        """True if a piece of the slice is in memory."""
        if head.position >= self._in_memory_until:
            piece = next_piece(head)
            if not is_in_memory(piece):
                self._pin_head(head)
                return False
            self._in_memory_until = piece.position + piece.length
        return True

    def _pin_head(self, head: Slice) -> None:
        """A thread is about to read from it."""
        if isinstance(head, UnpinnedSlice):
            head.file.pin()
            self._pinned += 1
            self._parts[0] = Slice(*head)

    def _send_bytes(self) -> None:
        if len(self._parts) == 1:
            self._send_lone_bytes()
            return
        gathered: list[Bytes] = []
        more = False
        for part in self._parts:
            if isinstance(part, Slice):
                more = True
                break
            gathered.append(part)
            if len(gathered) >= MAX_GATHERED:
                break
        self._advance(self._gather(gathered, more) if self._gather else self._send(gathered[0]))

    def _send_lone_bytes(self) -> None:
        part = self._parts[0]
        assert not isinstance(part, Slice)
        sent = self._send(part)
        if sent < len(part):
            self._advance(sent)
            return
        self._traffic.sent_bytes += sent
        self._parts.clear()
        self._joined = None
        self.size -= sent

    def _advance(self, sent: int) -> None:
        """Drop what was sent from the head of the queue."""
        self.size -= sent
        self._traffic.sent_bytes += sent
        self._joined = None
        while sent > 0:
            part = self._parts[0]
            length = part.length if isinstance(part, Slice) else len(part)
            if sent < length:
                self._parts[0] = self._rest(part, sent)
                return
            self._parts.popleft()
            if isinstance(part, Slice):
                self._release(part)
                self._in_memory_until = 0
            sent -= length

    @staticmethod
    def _rest(part: Part, sent: int) -> Part:
        if isinstance(part, Slice):
            return type(part)(part.file, part.position + sent, part.length - sent)
        return memoryview(part)[sent:]

    def _copy_head(self, head: Slice) -> None:
        self._advance(self._send(read_whole(head)))

    def _send_slice(self, head: Slice) -> None:
        count = min(head.length, self._in_memory_until - head.position)
        if self._send_file is None:
            self._read_head(head, min(count, MAX_READ))
            return
        sent = self._send_file(head.file.fileno(), head.position, count)
        if sent == 0:
            raise ConnectionAbortedError("the file is shorter than the announced slice")
        self._advance(sent)

    def _read_head(self, head: Slice, count: int) -> None:
        """Its first bytes become a part of their own: what is not accepted at once need not be read again."""
        data = read_whole(Slice(head.file, head.position, count))
        if count == head.length:
            self._release(head)
            self._in_memory_until = 0
            self._parts[0] = data
        else:
            self._parts[0] = self._rest(head, count)
            self._parts.appendleft(data)

    def slice_to_warm(self) -> Slice:
        head = self._parts[0]
        assert isinstance(head, Slice)
        return next_piece(head)

    def warmed(self) -> None:
        piece = self.slice_to_warm()
        self._in_memory_until = piece.position + piece.length

    def clear(self) -> None:
        for part in self._parts:
            if isinstance(part, Slice):
                self._release(part)
        self._parts.clear()
        self._joined = None
        self.size = 0


def next_piece(head: Slice) -> Slice:
    """The piece to probe and send at once."""
    return head if head.length <= MAX_SENDFILE else Slice(head.file, head.position, MAX_SENDFILE)


def read_whole(piece: Slice) -> bytes:
    """The client was told how many bytes follow: fewer would shift everything after them."""
    data = piece.file.read_at(piece.position, piece.length)
    if len(data) < piece.length:
        raise ConnectionAbortedError("the file is shorter than the announced slice")
    return data


def read_from_memory(piece: Slice) -> bytearray | None:
    """All of a small slice, if no byte of it has to be waited for."""
    try:
        return piece.file.read_now(piece.position, piece.length)
    except OSError:
        return None  # it waits in the queue, where the error will be noticed


def is_in_memory(piece: Slice) -> bool:
    """True if a byte in every 64 KiB, and the last one, can be read without waiting for the disk."""
    if not CAN_PROBE:
        return True
    descriptor, probe = piece.file.fileno(), [bytearray(1)]
    last = piece.position + piece.length - 1
    try:
        for position in range(piece.position, last, PROBE_INTERVAL):
            os.preadv(descriptor, probe, position, os.RWF_NOWAIT)
        os.preadv(descriptor, probe, last, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True  # this file system cannot say: assume that it is cached
    return True


def read_into_memory(descriptor: int, position: int, length: int) -> None:
    """Runs in a thread: makes the kernel read all of it, and more, and waits for that; nothing is copied."""
    end = position + length
    if CAN_ADVISE:
        for start in range(position, end + READ_AHEAD, ADVISED_AT_ONCE):
            os.posix_fadvise(descriptor, start, ADVISED_AT_ONCE, os.POSIX_FADV_WILLNEED)
    for start in (*range(position, end, PROBE_INTERVAL), end - 1):
        os.pread(descriptor, 1, start)
