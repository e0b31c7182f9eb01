r"""Messages as text and back: JSON lines, kcat's format strings, and the ways to write a time.

A JSON line has everything in a message, so that `odradek consume --json | odradek produce --json` loses
nothing. Keys, values and header values are strings where they are UTF-8; other bytes are an object,
`{"base64": "…"}`.

A format string is text with the usual escapes (\n, \t, \x00 …) and these tokens:

    %t topic     %p partition   %o offset      %T timestamp in ms
    %k key       %v or %s value %h headers, as name=value,name=value
    %K length of the key        %S length of the value       %% a percent sign

A key or value that is missing is written as `null`, or as whatever the caller wants; its length is -1, as in kcat, so
that a tombstone can be told from the text "null".
"""

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

Headers = list[tuple[str, bytes | None]]
Formatter = Callable[[Any], bytes]

NULL = b"null"
MOST_MS = 2**63 - 1
MOST_PARTITION = 2**31 - 1
TIME_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
RELATIVE_TIME = re.compile(r"-(\d+)(ms|s|m|h|d)")
TOKEN = re.compile(rb"%(.?)", re.DOTALL)
ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


def parse_time_ms(text: str, now_ms: int) -> int:
    """Milliseconds since 1970 from: milliseconds, ISO 8601 (local time unless it says), -1h, now."""
    if text == "now":
        return now_ms
    if relative := RELATIVE_TIME.fullmatch(text):
        return now_ms - int(relative[1]) * TIME_UNITS_MS[relative[2]]
    if text.isdecimal() and int(text) <= MOST_MS:
        return int(text)
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ValueError(
            f"{text!r} is not a time: give ISO 8601, milliseconds, or a relative time like -1h"
        ) from None


def unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        escape = match[1]
        return chr(int(escape[1:], 16)) if len(escape) == 3 else ESCAPES.get(escape, match[0])

    return ESCAPE.sub(replace, text)


def timestamp_ms(message: Any) -> int | None:
    kind, value = message.timestamp()
    return value if kind else None


def as_bytes(value: int | str | None) -> bytes:
    return b"" if value is None else str(value).encode()


def join_headers(message: Any) -> bytes:
    headers: Headers = message.headers() or []
    return b",".join(name.encode() + b"=" + (NULL if value is None else value) for name, value in headers)


def length(value: bytes | None) -> int:
    return -1 if value is None else len(value)


def tokens(null: bytes) -> Mapping[bytes, Formatter]:
    def or_null(value: bytes | None) -> bytes:
        return null if value is None else value

    return {
        b"t": lambda message: as_bytes(message.topic()),
        b"p": lambda message: as_bytes(message.partition()),
        b"o": lambda message: as_bytes(message.offset()),
        b"T": lambda message: as_bytes(timestamp_ms(message)),
        b"k": lambda message: or_null(message.key()),
        b"v": lambda message: or_null(message.value()),
        b"s": lambda message: or_null(message.value()),
        b"h": join_headers,
        b"K": lambda message: as_bytes(length(message.key())),
        b"S": lambda message: as_bytes(length(message.value())),
        b"%": lambda message: b"%",
    }


def compile_format(template: str, null: bytes = NULL) -> Formatter:
    """A function from a message to its bytes on the output; ValueError for a token that is not one."""
    parts = TOKEN.split(unescape(template).encode("utf-8", "surrogateescape"))
    known = tokens(null)
    literals, used = parts[::2], parts[1::2]
    for token in used:
        if token not in known:
            raise ValueError(f"%{token.decode(errors='replace')} is not a format token")
    writers = [known[token] for token in used]

    def write(message: Any) -> bytes:
        pieces = [literals[0]]
        for writer, literal in zip(writers, literals[1:], strict=True):
            pieces += (writer(message), literal)
        return b"".join(pieces)

    return write


def to_json(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def from_json(value: Any) -> bytes | None:
    """Bytes of a key or value in a JSON line; numbers, lists and other objects are kept as JSON text."""
    match value:
        case None:
            return None
        case str():
            return value.encode()
        case {"base64": str(encoded)} if len(value) == 1:
            return base64.b64decode(encoded, validate=True)
        case _:
            return json.dumps(value, ensure_ascii=False).encode()


def message_as_json(message: Any) -> bytes:
    headers: Headers = message.headers() or []
    timestamp = timestamp_ms(message)
    fields = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp,
        "time": _iso(timestamp),
        "key": to_json(message.key()),
        "value": to_json(message.value()),
        "headers": [[name, to_json(value)] for name, value in headers],
    }
    return json.dumps(fields, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


def _iso(milliseconds: int | None) -> str | None:
    if milliseconds is None:
        return None
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):  # a producer may send any 64-bit number
        return None


@dataclass(frozen=True)
class OutgoingMessage:
    """A message to produce; a field that is None is left to the client (partitioner, clock)."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


def message_from_json(line: bytes) -> OutgoingMessage:
    """The message of a JSON line; ValueError where it is none. Topic and offset are not looked at."""
    fields = json.loads(line)
    if not isinstance(fields, dict) or "value" not in fields:
        raise ValueError('a message is a JSON object with at least "value"')
    headers = fields.get("headers") or []
    pairs = headers.items() if isinstance(headers, dict) else headers
    return OutgoingMessage(
        value=from_json(fields["value"]),
        key=from_json(fields.get("key")),
        headers=tuple((str(name), from_json(value)) for name, value in pairs),
        partition=_whole_number(fields, "partition", MOST_PARTITION),
        timestamp_ms=_whole_number(fields, "timestamp", MOST_MS),
    )


def _whole_number(fields: Mapping[str, Any], name: str, most: int) -> int | None:
    value = fields.get(name)
    if value is not None and (type(value) is not int or not -1 <= value <= most):
        raise ValueError(f'"{name}" is not a whole number from 0 to {most}')
    return None if value == -1 else value
