"""Frames and headers: what surrounds every message.

A frame is a 4-byte size and that many bytes. A request starts with api key, version, correlation id and client id
(header v1), and a tagged section if the version is flexible (v2). A response starts with the correlation id (v0), and a
tagged section if the version is flexible (v1); the response to ApiVersions never has one, because a client reads it
before it knows which versions the server supports.
"""

from struct import Struct, error
from typing import NamedTuple

from odradek.errors import ProtocolError
from odradek.wire.codec import (
    Buffer,
    Message,
    Steps,
    read_uvarint,
    write_in_steps,
    write_message,
)
from odradek.wire.messages.index import SCHEMAS
from odradek.wire.reading import MAX_TAGGED_FIELDS

SIZE = Struct(">i")
REQUEST_START = Struct(">hhih")  # api key, version, correlation id, length of the client id
RESPONSE_START = Struct(">ii")  # size, correlation id
API_VERSIONS = 18
NEVER_FLEXIBLE = 1 << 15
FLEXIBLE_SINCE = {api_key: schema.flexible_since for api_key, schema in SCHEMAS.items()}


class RequestHeader(NamedTuple):
    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: int  # where the message starts in the frame


def read_request_header(frame: Buffer) -> RequestHeader:
    """Read the header in place. An api key that we have no schema for is read as header v1."""
    try:
        api_key, version, correlation_id, length = REQUEST_START.unpack_from(frame)
        position = REQUEST_START.size
        client_id = None
        if length >= 0:
            client_id = str(frame[position : position + length], "utf-8")
            position += length
        if version >= FLEXIBLE_SINCE.get(api_key, NEVER_FLEXIBLE):
            position = position + 1 if frame[position] == 0 else skip_tagged_fields(frame, position)
    except (error, IndexError, ValueError) as reason:
        raise ProtocolError(f"cannot read a request header: {reason}") from None
    if position > len(frame):
        raise ProtocolError("the request header reaches beyond its frame")
    return RequestHeader(api_key, version, correlation_id, client_id, position)


def skip_tagged_fields(frame: Buffer, position: int) -> int:
    count, position = read_uvarint(frame, position)
    if count > MAX_TAGGED_FIELDS:
        raise ValueError("too many tagged fields")
    for _ in range(count):
        _, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        position += size
    return position


def has_tagged_response_header(api_key: int, version: int) -> bool:
    return api_key != API_VERSIONS and version >= FLEXIBLE_SINCE[api_key]


def skip_response_header(frame: Buffer, api_key: int, version: int, position: int = 0) -> int:
    """Return where the message begins; the correlation id is at `position`: at the start, if the frame has no size."""
    position += SIZE.size
    if has_tagged_response_header(api_key, version):
        try:
            position = skip_tagged_fields(frame, position)
        except (IndexError, ValueError) as reason:
            raise ProtocolError(f"cannot read a response header: {reason}") from None
    return position


def encode_response(message: Message, api_key: int, version: int, correlation_id: int) -> bytearray:
    """A whole frame."""
    frame = _begin_response(api_key, version)
    write_message(message, version, frame)
    RESPONSE_START.pack_into(frame, 0, len(frame) - SIZE.size, correlation_id)
    return frame


def encode_response_in_steps(
    message: Message, api_key: int, version: int, correlation_id: int
) -> Steps[bytearray]:
    frame = _begin_response(api_key, version)
    yield from write_in_steps(message, version, frame)
    RESPONSE_START.pack_into(frame, 0, len(frame) - SIZE.size, correlation_id)
    return frame


def _begin_response(api_key: int, version: int) -> bytearray:
    """Room for its start, which is written last."""
    return bytearray(9 if has_tagged_response_header(api_key, version) else 8)


def encode_request(
    message: Message, api_key: int, version: int, correlation_id: int, client_id: str | None
) -> bytearray:
    """A whole frame."""
    frame = bytearray(SIZE.size)
    name = None if client_id is None else client_id.encode()
    frame += REQUEST_START.pack(api_key, version, correlation_id, -1 if name is None else len(name))
    frame += name or b""
    if version >= FLEXIBLE_SINCE[api_key]:
        frame.append(0)
    write_message(message, version, frame)
    SIZE.pack_into(frame, 0, len(frame) - SIZE.size)
    return frame
