"""The message types of an API. They are imported when they are first needed: importing all of them takes long."""

from functools import cache
from importlib import import_module

from odradek.wire.codec import Message
from odradek.wire.messages.index import SCHEMAS


@cache
def request_type(api_key: int) -> type[Message]:
    return _message_type(api_key, "Request")


@cache
def response_type(api_key: int) -> type[Message]:
    return _message_type(api_key, "Response")


def _message_type(api_key: int, direction: str) -> type[Message]:
    schema = SCHEMAS[api_key]
    module = import_module(f"odradek.wire.messages.{schema.module}")
    found: type[Message] = getattr(module, schema.name + direction)
    return found
