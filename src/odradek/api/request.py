"""One request in flight: who asked, in which version, and where its answer goes."""

from collections.abc import Callable, Sequence

from odradek.storage.log import Slice
from odradek.wire.codec import Message
from odradek.wire.frame import RequestHeader, encode_response

Part = bytes | bytearray | memoryview | Slice
Answered = Callable[["Request"], None]


class Request:
    """Answered exactly once: with a message, with ready-made parts of a frame, or with nothing (acks=0)."""

    __slots__ = (
        "api_key",
        "client_address",
        "client_id",
        "correlation_id",
        "listener",
        "on_abandoned",
        "on_answered",
        "parts",
        "version",
    )

    def __init__(
        self, header: RequestHeader, client_address: str, listener: str, on_answered: Answered
    ) -> None:
        self.api_key = header.api_key
        self.version = header.version
        self.correlation_id = header.correlation_id
        self.client_id = header.client_id
        self.client_address = client_address
        self.listener = listener
        self.on_answered = on_answered
        # What to do when nobody waits for the answer any more.
        self.on_abandoned: Callable[[], None] | None = None
        self.parts: Sequence[Part] | None = None  # None until it is answered

    @property
    def is_answered(self) -> bool:
        return self.parts is not None

    def answer(self, message: Message) -> None:
        self.answer_parts((encode_response(message, self.api_key, self.version, self.correlation_id),))

    def answer_parts(self, parts: Sequence[Part]) -> None:
        assert self.parts is None, "a request is answered once"
        self.parts = parts
        self.on_answered(self)

    def answer_nothing(self) -> None:
        self.answer_parts(())

    def abandon(self) -> None:
        """The connection it came on is closed."""
        if self.parts is None and self.on_abandoned is not None:
            self.on_abandoned()
