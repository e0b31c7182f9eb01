"""Messages of every version from one declaration.

A message is an ordinary dataclass with the fields of all its versions, like Kafka's own classes. Each field's
annotation says how it is encoded:

    name: Annotated[str | None, Wire("string", nullable_since=12)] = ""
    topic_id: Annotated[UUID, Wire("uuid", since=10)] = NO_TOPIC_ID

`read_message` and `write_message` compile, when a version is first used, one plain Python function
per struct (fixed-width neighbours packed by one `struct` call). A field that a version does not have keeps
its default when read and is left out when written. Unknown tagged fields are skipped.

Records are not copied: they are a slice of the buffer that was read, a view if the buffer is a memoryview.

Input is never trusted: a length or count may not exceed the bytes that remain, and one message may not have more than
`MAX_ELEMENTS` array elements. Any violation is a `ProtocolError`.

How fields are encoded is in `schema.py`; `reading.py` and `writing.py` compile the functions.

A large message takes long. `read_in_steps` and `write_in_steps` are generators that do the same work, but yield every
few elements, so that the caller can do something else in between.
"""

from __future__ import annotations

import struct
from typing import TypeVar

from odradek.errors import ProtocolError
from odradek.wire.reading import reader_of, stepping_reader_of
from odradek.wire.schema import FOREVER, Buffer, Field, Message, Wire, field_of, wire_struct
from odradek.wire.source import ELEMENTS_PER_STEP, Steps, T, takes_steps
from odradek.wire.varint import read_uvarint, write_uvarint
from odradek.wire.writing import stepping_writer_of, writer_of

__all__ = [
    "ELEMENTS_PER_STEP",
    "FOREVER",
    "MAX_ELEMENTS",
    "Buffer",
    "Field",
    "Message",
    "Steps",
    "Wire",
    "drain",
    "encode",
    "field_of",
    "read_in_steps",
    "read_message",
    "read_uvarint",
    "takes_steps",
    "wire_struct",
    "write_in_steps",
    "write_message",
    "write_uvarint",
]

MAX_ELEMENTS = 2_000_000

M = TypeVar("M", bound=Message)


def read_message(message_type: type[M], version: int, buffer: Buffer, position: int = 0) -> tuple[M, int]:
    """Decode one message; returns it and the position after it."""
    reader = reader_of(message_type, version, version >= message_type.FLEXIBLE_SINCE)
    try:
        return reader(buffer, position, len(buffer), [MAX_ELEMENTS])
    except MALFORMED as error:
        raise _unreadable(message_type, version, error) from None


def read_in_steps(
    message_type: type[M], version: int, buffer: Buffer, position: int, max_elements: int
) -> Steps[tuple[M, int]]:
    flexible = version >= message_type.FLEXIBLE_SINCE
    budget = [max_elements]
    try:
        if not takes_steps(message_type, version):
            found: tuple[M, int] = reader_of(message_type, version, flexible)(
                buffer, position, len(buffer), budget
            )
            return found
        return (
            yield from stepping_reader_of(message_type, version, flexible)(
                buffer, position, len(buffer), budget
            )
        )
    except MALFORMED as error:
        raise _unreadable(message_type, version, error) from None


MALFORMED = (struct.error, IndexError, ValueError)


def _unreadable(message_type: type[Message], version: int, error: Exception) -> ProtocolError:
    return ProtocolError(f"cannot read {message_type.__name__} v{version}: {error}")


def write_message(message: Message, version: int, out: bytearray) -> None:
    """Append the message to `out`."""
    message_type = type(message)
    writer_of(message_type, version, version >= message_type.FLEXIBLE_SINCE)(out, message)


def write_in_steps(message: Message, version: int, out: bytearray) -> Steps[None]:
    message_type = type(message)
    flexible = version >= message_type.FLEXIBLE_SINCE
    if takes_steps(message_type, version):
        yield from stepping_writer_of(message_type, version, flexible)(out, message)
    else:
        writer_of(message_type, version, flexible)(out, message)


def drain(steps: Steps[T]) -> T:
    """All of it at once: for work that is known to be short."""
    try:
        while True:
            next(steps)
    except StopIteration as stop:
        result: T = stop.value
        return result


def encode(message: Message, version: int) -> bytearray:
    out = bytearray()
    write_message(message, version, out)
    return out
