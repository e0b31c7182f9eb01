"""The memory that the transports of one side of a node share, for the frames that arrive.

Requests of clients and responses of other nodes use different pools, so that neither waits
for the other.
"""

from functools import cached_property

from odradek.host.interface import SocketHost, Timer
from odradek.host.metrics import Traffic
from odradek.net.line import Line
from odradek.net.memory import RequestMemory, new_frame
from odradek.net.transport import SMALL_FRAME

RECEIVE_BUFFER_SIZE = 256 * 1024
ENCRYPTED_BUFFER_SIZE = 64 * 1024  # a session keeps as much of it as is not wanted yet
MAX_SPARE_FRAME = 2 << 20
LATE_CHECK_SECONDS = 0.5


class Pool:
    def __init__(self, host: SocketHost, max_frame_size: int, max_memory: int) -> None:
        self.host = host
        self.max_frame_size = max_frame_size
        self.traffic = Traffic()
        self.memory = RequestMemory(max_memory)
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_SIZE))
        self.line = Line(host)  # of handshakes
        self._spare = memoryview(b"")  # of a frame that was handled, for the next one
        self._late_check: Timer | None = None

    @cached_property
    def encrypted_buffer(self) -> memoryview:
        """Return the buffer where transports with TLS receive."""
        return memoryview(bytearray(ENCRYPTED_BUFFER_SIZE))

    def frame(self, size: int) -> memoryview:
        """Fresh memory would have to be cleared first, and is in no cache: a spare frame is used again."""
        if size <= SMALL_FRAME:
            return memoryview(bytearray(size))
        spare, self._spare = self._spare, memoryview(b"")
        return spare[:size] if len(spare) >= size else new_frame(size)

    def recycle(self, frame: memoryview) -> None:
        if len(frame) <= MAX_SPARE_FRAME:
            self._spare = frame

    # --- frames that do not arrive ---

    def starved(self) -> None:
        """A transport waits for memory: check whether those that have some are using it."""
        if self._late_check is None:
            self._late_check = self.host.call_later(LATE_CHECK_SECONDS, self.close_late)

    def close_late(self) -> None:
        """Transports whose frame has stalled, oldest first, give up their memory for those that wait."""
        self._late_check = None
        now = self.host.monotonic()
        for claimant in list(self.memory.arriving):
            if self.memory.is_exhausted and claimant.is_late(now):
                claimant.close("its request does not arrive, and other clients wait for the memory")
        if self.memory.is_waited_for:
            self.starved()
