"""Python that is being written: a function that reads or writes one struct in one version."""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator
from functools import cache, lru_cache
from typing import Any, TypeVar
from uuid import UUID

from odradek.wire.schema import FIXED_FORMATS, Buffer, Field, body_and_tagged
from odradek.wire.varint import read_uvarint, write_uvarint

ELEMENTS_PER_STEP = 64
REMEMBERED_IDS = 4096

T = TypeVar("T")
Steps = Generator[None, None, T]  # work that stops every few elements
Reader = Callable[[Buffer, int, int, list[int]], tuple[Any, int]]
Writer = Callable[[bytearray, Any], None]
SteppingReader = Callable[[Buffer, int, int, list[int]], Steps[tuple[Any, int]]]
SteppingWriter = Callable[[bytearray, Any], Steps[None]]


@lru_cache(REMEMBERED_IDS)
def uuid_of(content: bytes) -> UUID:
    """To make one takes longer than to read all else about a partition, and the same few come again and again."""
    return UUID(bytes=content)


class Source:
    """A function being written: lines of Python and the names they refer to."""

    def __init__(self, header: str, in_steps: bool = False) -> None:
        self.in_steps = in_steps  # a generator, which yields every few elements
        self.lines = [header]
        self.names: dict[str, Any] = {
            "uvarint": read_uvarint,
            "write_uvarint": write_uvarint,
            "uuid_of": uuid_of,
        }
        self.indent = 1

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def name(self, value: Any) -> str:
        name = f"n{len(self.names)}"
        self.names[name] = value
        return name

    def step(self, every_element: bool) -> None:
        """At the end of a loop over elements, which `i` counts."""
        if self.in_steps:
            self.line("yield" if every_element else f"if i % {ELEMENTS_PER_STEP} == 0: yield")

    def compile(self, filename: str) -> Any:
        exec(compile("\n".join(self.lines), f"<{filename}>", "exec"), self.names)
        return self.names["function"]


def runs_of(fields: list[Field]) -> list[list[Field]]:
    """Split into runs: neighbours of fixed width together, every other field alone."""
    runs: list[list[Field]] = []
    for field in fields:
        fixed = field.wire.type in FIXED_FORMATS
        if fixed and runs and runs[-1][-1].wire.type in FIXED_FORMATS:
            runs[-1].append(field)
        else:
            runs.append([field])
    return runs


def packer_for(run: list[Field]) -> struct.Struct:
    return struct.Struct(">" + "".join(FIXED_FORMATS[field.wire.type] for field in run))


@cache
def takes_steps(struct_type: Any, version: int) -> bool:
    """True if it has arrays that are read and written element by element. (Tagged ones are small.)"""
    body, _ = body_and_tagged(struct_type, version)
    return any(
        (field.is_array and field.element_type not in FIXED_FORMATS)
        or (field.element_type == "struct" and takes_steps(field.struct_type, version))
        for field in body
    )
