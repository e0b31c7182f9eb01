"""One request in flight: its caller, its version, and where its response goes."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from odradek.model import Caller
from odradek.net.transport import Part
from odradek.serving.quotas import Metered
from odradek.serving.reply import Amend, Reply
from odradek.serving.session import Session
from odradek.serving.turns import Turns
from odradek.wire.codec import Message
from odradek.wire.frame import RequestHeader

Answered = Callable[["Request"], None]
Rest = Coroutine[Any, Any, Message | None]


class Request(Reply):
    """Gets exactly one response (see `reply`)."""

    __slots__ = ("frame_size", "rest", "session", "size")

    def __init__(
        self,
        header: RequestHeader,
        caller: Caller,
        on_answered: Answered,
        turns: Turns,
        session: Session | None = None,
    ) -> None:
        self.api_key, self.version, self.correlation_id, _, _ = header
        self.caller = caller  # at the time of the request; the session may change
        self.on_answered = on_answered
        self.turns = turns
        self.session = session  # None if it came on no connection
        # What it is about or waits for, as log lines show it, if that is known.
        self.subject: object = None
        # Called if the client is gone before there is a response.
        self.on_abandoned: Callable[[], None] | None = None
        self.rest: Rest | None = None
        self.amend: Amend | None = None  # the last change to the response, if there is one
        self.metered: Metered | None = None  # set if a quota applies, with `frame_size`
        self.throttle_ms = 0  # for which a quota asks the client to be silent
        self.parts: Sequence[Part] | None = None  # None until it is answered
        self.refusals: list[tuple[str, int, str | None, bool]] | None = None  # to be logged with the response
        self.size = 0  # of its frame, if that is large
        self.frame_size = 0  # whatever its size; only if it is metered
        self.unfinished: asyncio.Task[None] | None = None  # writes a large response, in several turns

    def then(self, rest: Rest) -> None:
        """The handler returns without a response: this is to be awaited for it, and later requests on the connection
        wait too."""
        self.rest = rest

    def abandon(self) -> None:
        """Its connection is closed."""
        on_abandoned, self.on_abandoned = self.on_abandoned, None
        if on_abandoned is not None:
            on_abandoned()
