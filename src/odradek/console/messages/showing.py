"""Keys and values as text, for people: never as HTML, never more than they can read.

`auto` shows JSON as JSON, other UTF-8 as text, and the rest as hex. Control characters are shown as escapes.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from odradek.console.messages.schemas import NoSchema
from odradek.records.record import Record

VIEWS = ("auto", "json", "text", "hex", "avro")
IN_A_LIST = 1_000  # characters
ALONE = 256 * 1024
HEX_BYTES_IN_A_LINE = 16
JSON_BEGINNINGS = tuple('{["-0123456789tfn')

Decode = Callable[[bytes], object]  # Avro; raises NoSchema


@dataclass(frozen=True)
class Shown:
    text: str | None  # None: there is none, as in a tombstone
    view: str  # json, text, hex or avro
    size_bytes: int
    is_cut: bool = False
    note: str | None = None  # why it is not shown as asked


class Found(NamedTuple):
    partition: int
    record: Record


@dataclass(frozen=True)
class RecordView:
    partition: int
    offset: int
    timestamp: int
    key: Shown
    value: Shown
    headers: list[tuple[str, Shown]]


def show_record(found: Found, view: str, most: int, decode: Decode) -> RecordView:
    record = found.record
    return RecordView(
        found.partition,
        record.offset,
        record.timestamp,
        show(record.key, view if view != "avro" else "auto", most, decode),
        show(record.value, view, most, decode),
        [
            (printable(name.decode(errors="replace")), show(value, "auto", most, decode))
            for name, value in record.headers
        ],
    )


def show(data: bytes | None, view: str, most: int, decode: Decode) -> Shown:
    if data is None:
        return Shown(None, "text", 0)
    if view == "avro":
        try:
            text = printable(_json(decode(data), most))
            return _cut(text, "avro", len(data), most)
        except NoSchema as error:
            shown = show(data, "auto", most, decode)
            return Shown(shown.text, shown.view, shown.size_bytes, shown.is_cut, str(error))
    if view == "hex":
        return _hex(data, most)
    return _text(data, view, most)


def _text(data: bytes, view: str, most: int) -> Shown:
    """UTF-8, or hex where that says more; a character that the cut splits does not count."""
    part = data[: 4 * most]
    try:
        text = part.decode()
    except UnicodeDecodeError as error:
        is_split = len(part) < len(data) and error.start >= len(part) - 4
        if not is_split and view == "auto":
            return _hex(data, most)
        text = part.decode(errors="ignore" if is_split else "replace")
    if view == "auto" and _looks_binary(text[:200]):
        return _hex(data, most)
    if view in ("auto", "json") and len(part) == len(data) and text.lstrip()[:1] in JSON_BEGINNINGS:
        try:
            value = json.loads(text)
            return _cut(printable(_json(value, most)), "json", len(data), most)
        except (ValueError, RecursionError):
            pass
    note = "this is not JSON" if view == "json" else None
    shown = _cut(printable(text), "text", len(data), most, len(part) < len(data))
    return Shown(shown.text, shown.view, shown.size_bytes, shown.is_cut, note)


def _looks_binary(text: str) -> bool:
    return sum(not (each.isprintable() or each in "\n\r\t") for each in text) > len(text) // 8


def _json(value: object, most: int) -> str:
    """On one line in a list, indented where there is room."""
    return json.dumps(value, ensure_ascii=False, indent=2 if most > IN_A_LIST else None, default=str)


def _hex(data: bytes, most: int) -> Shown:
    lines, size = [], HEX_BYTES_IN_A_LINE
    for at in range(0, min(len(data), most // 5), size):
        piece = data[at : at + size]
        text = "".join(chr(each) if 32 <= each < 127 else "." for each in piece)
        lines.append(f"{at:08x}  {piece.hex(' '):<{3 * size}} {text}")
    return Shown("\n".join(lines), "hex", len(data), len(data) > most // 5)


def _cut(text: str, view: str, size_bytes: int, most: int, is_cut: bool = False) -> Shown:
    return Shown(text[:most], view, size_bytes, is_cut or len(text) > most)


def printable(text: str) -> str:
    """Line ends and tabs stay; other control characters, and those that turn text around, become escapes."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() or each in "\n\t" else each.encode("unicode_escape").decode()
        for each in text
    )
