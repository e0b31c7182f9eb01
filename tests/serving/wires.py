"""A transport that is only a note of what its receiver asked for: conversations are tested over it without sockets."""

import logging
from collections.abc import Sequence

from odradek.net.states import SENDING_MOVES, Sending, SendingMove, next_state
from odradek.net.transport import Converse, OwnFrame, Part
from odradek.wire.frame import SIZE, encode_request
from odradek.wire.messages.api_versions import ApiVersionsRequest


def numbered_frame(number: int, api_key: int = 18, size: int = 0) -> memoryview:
    """A request whose correlation id is its number, without its size. It has at least `size` bytes."""
    frame = encode_request(ApiVersionsRequest(), 18, 0, number, "test")[SIZE.size :]
    frame[:2] = api_key.to_bytes(2, "big")
    return memoryview(frame + bytes(max(0, size - len(frame))))


class NotedOutput:
    def __init__(self) -> None:
        self.size = 0
        self.parts: list[Part] = []

    def add(self, parts: Sequence[Part]) -> None:
        self.parts += parts
        self.size += sum(len(part) for part in parts)


class NotedTransport:
    """Sends when it is told to flush, as long as `has_room`."""

    peer_certificate: bytes | None = None

    def __init__(self, converse: Converse, listener: str = "PLAINTEXT", port: int = 1) -> None:
        self.address, self.listener = f"127.0.0.1:{port}", listener
        self.output = NotedOutput()
        self.sending = Sending.IDLE
        self.is_reading = True
        self.closed = ""
        self.has_room = True
        self.sent: list[bytes] = []
        self.given_back: list[tuple[OwnFrame, bool]] = []
        self.flushes_due = 0
        self.max_frame_size: int | None = None  # while it is greeting
        self.receiver = converse(self)

    # --- what a wire does ---

    def arrive(self, *frames: memoryview) -> None:
        """In one read; the memory is used again afterwards."""
        buffers = [bytearray(frame) for frame in frames]
        self._move(SendingMove.GATHER)
        for buffer in buffers:
            if not self.closed:
                self.receiver.receive(memoryview(buffer))
        self.receiver.finish()
        for buffer in buffers:
            buffer[:] = b"\xff" * len(buffer)
        self.flush()

    def arrive_own(self, frame: memoryview, claimed: int) -> OwnFrame:
        own = OwnFrame(memoryview(bytearray(frame)), claimed)
        self._move(SendingMove.GATHER)
        self.receiver.receive_own(own)
        self.receiver.finish()
        self.flush()
        return own

    def unblock(self) -> None:
        self.has_room = True
        self.flush()

    # --- what a receiver asks for ---

    def _move(self, move: SendingMove) -> None:
        self.sending = next_state(SENDING_MOVES, self.sending, move)

    def gather(self) -> None:
        self._move(SendingMove.GATHER)

    def flush_soon(self) -> None:
        self._move(SendingMove.GATHER)
        self.flushes_due += 1

    def flush_now(self) -> None:
        self.gather()
        self.flush()

    def flush(self) -> None:
        was = self.sending
        if was not in (Sending.GATHERING, Sending.BLOCKED):
            return
        if self.has_room:
            self.sent += map(bytes, self.output.parts)
            self.output.parts.clear()
            self.output.size = 0
            self._move(SendingMove.EMPTY)
        else:
            self._move(SendingMove.BLOCK)
        if was is Sending.BLOCKED or not self.has_room or not self.is_reading:
            self.receiver.flushed()

    def pause_reading(self) -> None:
        assert not self.closed
        self.is_reading = False

    def resume_reading(self) -> None:
        assert not self.closed
        self.is_reading = True

    def give_back(self, own: OwnFrame, is_reusable: bool) -> None:
        self.given_back.append((own, is_reusable))

    def begin_greeting(self, max_frame_size: int) -> None:
        self.max_frame_size = max_frame_size

    def end_greeting(self) -> None:
        self.max_frame_size = None

    def close(self, reason: str, level: int = logging.WARNING) -> None:
        if not self.closed:
            self.closed = reason
            self._move(SendingMove.CLOSE)
            self.receiver.lost(reason)
