"""The end of a failed login: the client waits a little, gets its response, and is disconnected.

The delay makes guessing slow, without work for the broker, and is the same for all reasons.
"""

import asyncio

from odradek.errors import AuthenticationFailed
from odradek.serving.request import Request
from odradek.serving.session import Sasl
from odradek.wire.codec import Message


async def delay(sasl: Sasl) -> None:
    await asyncio.sleep(sasl.failure_delay_ms / 1000)


async def refuse_login(request: Request, response: Message, reason: str) -> None:
    """Never returns: the connection is closed behind the response."""
    assert request.session is not None and request.session.sasl is not None
    await delay(request.session.sasl)
    request.answer(response)
    raise AuthenticationFailed(reason)
