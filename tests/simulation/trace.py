"""The events of a simulation: lines to read, and a hash that is the same in every process for the same seed.

A trace costs more than the run itself, so it is off unless somebody wants it; runs are repeatable, so it can always be
made later.
"""

import dataclasses
import hashlib
import logging
from collections.abc import Callable
from typing import Any

from odradek.errors import ErrorCode
from odradek.host.log_lines import NodeIdFilter

MAX_BYTES = 24
MAX_LINE = 400


class Trace:
    """`lines` are for people; `hash` also covers every byte that passed between clients and nodes."""

    def __init__(self, show: Callable[[str], object] | None = None) -> None:
        self.lines: list[str] = []
        self.hash = hashlib.blake2b(digest_size=16)
        self._show = show

    def add(self, seconds: float, who: str, what: str) -> None:
        line = f"{seconds:10.6f}  {who:<10} {what}"
        self.lines.append(line)
        self.hash.update(line.encode())
        if self._show is not None:
            self._show(line)

    def add_bytes(self, data: bytes | bytearray | memoryview) -> None:
        self.hash.update(data)


class LogLines(logging.Handler):
    """Hands what the broker logs to whoever asks for it, as one line with the node's id."""

    def __init__(self, take: Callable[[logging.LogRecord, str], object]) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(levelname)s %(node)s%(name)s: %(message)s"))
        self.addFilter(NodeIdFilter())
        self._take = take

    def emit(self, record: logging.LogRecord) -> None:
        self._take(record, self.format(record))


def brief(message: Any) -> str:
    """A message in one line, without fields that hold their default value."""
    text = _brief(message)
    return text if len(text) <= MAX_LINE else text[:MAX_LINE] + "…"


def _brief(value: Any) -> str:
    if dataclasses.is_dataclass(value):
        fields = [
            f"{field.name}={_brief_field(field.name, content)}"
            for field in dataclasses.fields(value)
            if (content := getattr(value, field.name)) != field.default and content not in (None, [], "")
        ]
        return f"{type(value).__name__}({', '.join(fields)})"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return repr(bytes(value)) if len(value) <= MAX_BYTES else f"<{len(value)} bytes>"
    if isinstance(value, list):
        return f"[{', '.join(map(_brief, value))}]"
    return str(value)


def _brief_field(name: str, value: Any) -> str:
    return ErrorCode(value).name if name == "error_code" else _brief(value)
