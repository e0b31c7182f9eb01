"""A request to another node, over a link: a message out, a message back."""

from odradek.net.link import Address, Link
from odradek.requests.registry import response_type
from odradek.wire.codec import Message, drain, read_in_steps
from odradek.wire.frame import encode_request, skip_response_header

CORRELATION_ID = 0  # responses come in the order of their requests, so a number tells nothing
MAX_ELEMENTS = 10_000_000  # a node of our own is believed


async def call(
    link: Link, address: Address, message: Message, version: int, client_id: str, timeout_seconds: float
) -> Message:
    """The response. Raises OSError where there is none in time, ProtocolError where it cannot be read."""
    api_key: int = message.API_KEY  # type: ignore[attr-defined]
    frame = encode_request(message, api_key, version, CORRELATION_ID, client_id)
    return read_response(await link.ask(address, frame, timeout_seconds), api_key, version)


def read_response(frame: memoryview, api_key: int, version: int) -> Message:
    position = skip_response_header(frame, api_key, version)
    message, _ = drain(read_in_steps(response_type(api_key), version, frame, position, MAX_ELEMENTS))
    return message
