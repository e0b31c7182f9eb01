"""One request in flight: its client, its version, and where its response goes."""

import asyncio
from collections.abc import Callable, Sequence

from odradek.net.transport import Part
from odradek.requests.refused import log_refusals
from odradek.requests.session import Session
from odradek.requests.turns import Turns
from odradek.wire.codec import Message, Steps, takes_steps
from odradek.wire.frame import RequestHeader, encode_response, encode_response_in_steps

Answered = Callable[["Request"], None]


class Request:
    """Gets exactly one response: a message, ready-made parts of a frame, or nothing (acks=0)."""

    __slots__ = (
        "api_key",
        "client_address",
        "client_id",
        "correlation_id",
        "listener",
        "on_abandoned",
        "on_answered",
        "parts",
        "principal",
        "session",
        "size",
        "subject",
        "turns",
        "unfinished",
        "version",
    )

    def __init__(
        self,
        header: RequestHeader,
        client_address: str,
        listener: str,
        on_answered: Answered,
        turns: Turns,
        session: Session | None = None,
    ) -> None:
        self.api_key, self.version, self.correlation_id, self.client_id, _ = header
        self.client_address = client_address
        self.listener = listener
        self.on_answered = on_answered
        self.turns = turns
        self.session = session = session or Session()
        self.principal = session.principal  # at the time of the request; the session may change
        # What it is about or waits for, as log lines show it, if that is known.
        self.subject: object = None
        # Called if the client is gone before there is an answer.
        self.on_abandoned: Callable[[], None] | None = None
        self.parts: Sequence[Part] | None = None  # None until it is answered
        self.size = 0  # of its frame, if that is large
        self.unfinished: asyncio.Task[None] | None = None  # writes a large answer, in several turns

    @property
    def is_answered(self) -> bool:
        return self.parts is not None or self.unfinished is not None

    def answer(self, message: Message) -> None:
        log_refusals(self, message)
        if takes_steps(type(message), self.version):
            self.answer_in_steps(self._encode(message))
        else:
            assert self.unfinished is None, "a request is answered once"
            frame = encode_response(message, self.api_key, self.version, self.correlation_id)
            self.answer_parts((frame,))

    def answer_when_made(self, making: Steps[Message]) -> None:
        """With a message that is built in as many turns as it takes."""
        self.answer_in_steps(self._make_and_encode(making))

    def _make_and_encode(self, making: Steps[Message]) -> Steps[Sequence[Part]]:
        return (yield from self._encode((yield from making)))

    def _encode(self, message: Message) -> Steps[Sequence[Part]]:
        frame = yield from encode_response_in_steps(message, self.api_key, self.version, self.correlation_id)
        return (frame,)

    def answer_in_steps(self, encoding: Steps[Sequence[Part]]) -> None:
        """A small response is written at once, a large one in as many turns as it takes."""
        assert self.parts is None and self.unfinished is None, "a request is answered once"
        done = self.turns.advance(encoding)
        if done is not None:
            self.answer_parts(done.result)
        else:
            self.on_abandoned = None
            self.unfinished = asyncio.get_running_loop().create_task(self._finish(encoding))

    async def _finish(self, encoding: Steps[Sequence[Part]]) -> None:
        self.answer_parts(await self.turns.finish(encoding))

    def answer_parts(self, parts: Sequence[Part]) -> None:
        assert self.parts is None, "a request is answered once"
        self.parts = parts
        # They may refer to this request: a cycle, which would be left to the garbage collector.
        self.subject = self.on_abandoned = None
        self.on_answered(self)

    def answer_nothing(self) -> None:
        self.answer_parts(())

    def abandon(self) -> None:
        """Its connection is closed."""
        on_abandoned, self.on_abandoned = self.on_abandoned, None
        if on_abandoned is not None:
            on_abandoned()
