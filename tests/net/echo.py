"""A node that responds to every frame with the same frame, and notes what it got."""

from odradek.net.bounds import Bounds
from odradek.net.states import IDLE
from odradek.net.transport import FrameReceiver, OwnFrame, Transport
from odradek.wire.frame import SIZE

BOUNDS = Bounds(100 << 20, 100 << 20, 100, 100, 600, -1, -1)


def framed(content: bytes) -> bytes:
    return SIZE.pack(len(content)) + content


class Echo:
    """Begins an `EchoTalk` on every connection."""

    def __init__(self) -> None:
        self.talks: list[EchoTalk] = []
        self.is_silent = False
        self.received: list[bytes] = []  # by all

    def converse(self, transport: Transport) -> "EchoTalk":
        self.talks.append(EchoTalk(self, transport))
        return self.talks[-1]


class EchoTalk(FrameReceiver):
    is_busy = False

    def __init__(self, echo: Echo, transport: Transport) -> None:
        self._echo = echo
        self.transport = transport
        self.received: list[bytes] = []
        self.lost_because: str | None = None

    def say(self, content: bytes) -> None:
        self.transport.output.add((framed(content),))
        if self.transport.sending is IDLE:
            self.transport.flush_soon()

    def receive(self, frame: memoryview) -> None:
        self.received.append(bytes(frame))
        self._echo.received.append(bytes(frame))
        if not self._echo.is_silent:
            self.say(bytes(frame))

    def receive_own(self, own: OwnFrame) -> None:
        self.receive(own.frame)
        self.transport.give_back(own, is_reusable=True)

    def lost(self, reason: str) -> None:
        assert self.lost_because is None
        self.lost_because = reason
