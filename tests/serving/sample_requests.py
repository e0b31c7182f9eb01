"""A request of any API and version, with two items in every list and a different value in every field."""

import typing
from itertools import count
from typing import Any
from uuid import UUID

from odradek.wire.codec import Field, encode, read_message
from odradek.wire.schema import fields_of


def sample(message_type: Any, version: int) -> Any:
    """Read a request as a broker that serves this version does."""
    message = _struct(message_type, count(1))
    return read_message(message_type, version, encode(message, version))[0]


def _struct(struct_type: Any, numbers: typing.Iterator[int]) -> Any:
    return struct_type(**{field.name: _value(field, numbers) for field in fields_of(struct_type)})


def _value(field: Field, numbers: typing.Iterator[int]) -> Any:
    if field.is_array:
        return [_element(field, numbers) for _ in range(2)]
    return _element(field, numbers)


def _element(field: Field, numbers: typing.Iterator[int]) -> Any:
    if field.element_type == "struct":
        return _struct(field.struct_type, numbers)
    number = next(numbers)
    makers: dict[str, Any] = {
        "bool": False,
        "string": f"{field.name}-{number}",
        "bytes": b"%d" % number,
        "records": b"%d" % number,
        "uuid": UUID(int=number),
        "float64": float(number),
    }
    return makers.get(field.element_type, number)
