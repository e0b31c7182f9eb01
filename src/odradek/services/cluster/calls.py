"""A request to another node over a link, and its response."""

from odradek.apis.messages import response_type
from odradek.metadata.image import MetadataImage
from odradek.net.link import Link
from odradek.net.security import Address
from odradek.wire.codec import Message, drain, read_in_steps
from odradek.wire.frame import encode_request, skip_response_header

CORRELATION_ID = 0  # the same for all: responses arrive in the order of their requests
MAX_ELEMENTS = 10_000_000  # nodes of the same cluster are trusted


def address_of(image: MetadataImage, broker_id: int, listener: str) -> Address:
    """Return the address where a broker listens for the others. Raises OSError if the metadata does not say."""
    broker = image.brokers.get(broker_id)
    endpoint = broker.endpoint(listener) if broker is not None else None
    if endpoint is None:
        raise OSError(f"broker {broker_id} has no listener {listener}")
    return endpoint.host, endpoint.port


async def call(
    link: Link, address: Address, message: Message, version: int, client_id: str, timeout_seconds: float
) -> Message:
    """Returns the response. Raises OSError if none arrives in time, ProtocolError if it is malformed."""
    api_key: int = message.API_KEY  # type: ignore[attr-defined]
    frame = encode_request(message, api_key, version, CORRELATION_ID, client_id)
    return read_response(await link.ask(address, frame, timeout_seconds), api_key, version)


def read_response(frame: memoryview, api_key: int, version: int) -> Message:
    position = skip_response_header(frame, api_key, version)
    message, _ = drain(read_in_steps(response_type(api_key), version, frame, position, MAX_ELEMENTS))
    return message
