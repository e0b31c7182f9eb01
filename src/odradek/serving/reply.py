"""The only exit of a request: the response is amended, its refusals are logged and counted, and it is encoded and sent.

A response is amended in two ways: what the caller may not see is taken out, and what it may not do is added as refused
(`road` says how, if there is any of it); and it says for how long the client is throttled.

Produce and Fetch have codecs of their own (`answer_parts`), to which they give the throttle time. They say what they
refuse where they find it (`Reply.refused`), and it is logged when the response leaves, like all that is found in the
response of another API.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from odradek.apis.items import refuse
from odradek.apis.table import name_of
from odradek.errors import ErrorCode, KafkaError
from odradek.host.log_lines import fields
from odradek.model import Caller
from odradek.net.transport import Part
from odradek.serving.naming import request_fields, sender_of
from odradek.serving.refused import MAX_LOOKED_AT, log_refusal, log_refusals, subject_of
from odradek.serving.turns import Turns
from odradek.wire.codec import Message, Steps, takes_steps
from odradek.wire.frame import encode_response, encode_response_in_steps

if TYPE_CHECKING:
    from odradek.serving.quotas import Metered
    from odradek.serving.request import Request

log = logging.getLogger(__name__)


FAILED = "The broker failed to handle this request: its log says why."
Amend = Callable[[Any], Any]  # from one response to another


class Reply:
    """The way to the one response of a request: a message, ready-made parts of a frame, or nothing (acks=0)."""

    __slots__ = (
        "amend",
        "api_key",
        "caller",
        "correlation_id",
        "metered",
        "on_abandoned",
        "on_answered",
        "parts",
        "refusals",
        "subject",
        "throttle_ms",
        "turns",
        "unfinished",
        "version",
    )

    api_key: int
    version: int
    correlation_id: int
    caller: Caller
    turns: Turns
    subject: object
    on_answered: Callable[[Any], None]
    on_abandoned: Callable[[], None] | None
    parts: Sequence[Part] | None
    refusals: list[tuple[str, int, str | None, bool]] | None
    unfinished: asyncio.Task[None] | None
    amend: Amend | None
    throttle_ms: int
    metered: "Metered | None"

    @property
    def is_answered(self) -> bool:
        return self.parts is not None or self.unfinished is not None

    def refused(self, subject: str, code: int, reason: str | None, *, is_routine: bool = False) -> None:
        """Note that a part of the request is refused, in a response that is not looked through. `subject`: as shown. Of
        many refusals only the first are logged, as for other responses."""
        if self.refusals is None:
            self.refusals = []
        if len(self.refusals) < MAX_LOOKED_AT:
            self.refusals.append((subject, code, reason, is_routine))

    def amended(self, message: Message) -> Message:
        """The response as it leaves."""
        if self.amend is not None:
            message = self.amend(message)
        if hasattr(message, "throttle_time_ms"):
            if self.metered is not None:
                self.metered.answered(self)  # type: ignore[arg-type]
            message.throttle_time_ms = self.throttle_ms
        return message

    def answer(self, message: Message) -> None:
        message = self.amended(message)
        log_refusals(self, message)  # type: ignore[arg-type]
        if takes_steps(type(message), self.version):
            self.answer_in_steps(self._encode(message))
        else:
            assert self.unfinished is None, "a request is answered once"
            frame = encode_response(message, self.api_key, self.version, self.correlation_id)
            self.answer_parts((frame,))

    def answer_when_made(self, making: Steps[Message]) -> None:
        """Respond with a message that is built in as many turns as it takes."""
        self.answer_in_steps(self._make_and_encode(making))

    def _make_and_encode(self, making: Steps[Message]) -> Steps[Sequence[Part]]:
        return (yield from self._encode(self.amended((yield from making))))

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
        """Every response ends here."""
        assert self.parts is None, "a request is answered once"
        self.parts = parts
        if self.refusals is not None:
            for subject, code, reason, is_routine in self.refusals:
                log_refusal(self, subject, code, reason, is_routine=is_routine)  # type: ignore[arg-type]
        # They may refer to this request: a cycle, which would be left to the garbage collector.
        self.subject = self.on_abandoned = self.amend = None
        self.on_answered(self)

    def answer_nothing(self) -> None:
        self.answer_parts(())


def answer_error(request: "Request", message: Message, error: Exception) -> None:
    """Refuse the whole request, with the error's code wherever its response has a place for one."""
    if isinstance(error, KafkaError):
        reason = error
        log_refusal(request, subject_of(request), reason.code, reason.message)
    else:
        reason = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, FAILED)  # what went wrong is not for clients
        log.error(
            "%s from %s failed, its client gets UNKNOWN_SERVER_ERROR: this is a bug",
            name_of(request.api_key, request.version),
            sender_of(request),
            exc_info=error,
            extra=fields(**request_fields(request)),
        )
    if request.is_answered:
        raise error
    request.answer_when_made(refuse(message, request.version, reason))
