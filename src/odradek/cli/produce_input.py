"""The input of `odradek produce`: lines of files and standard input, and how each becomes a message."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

from odradek.admin.message_text import OutgoingMessage, message_from_json
from odradek.cli.failures import CommandError

STANDARD_INPUT = "-"

Parser = Callable[[bytes], OutgoingMessage]


class Line(NamedTuple):
    source: str
    number: int
    data: bytes  # without its line end


def parser_of(
    template: OutgoingMessage, json_lines: bool, separator: bytes | None, tombstones: bool
) -> Parser:
    """Return the function that turns a line into a message. The line itself overrides the template."""

    def from_json_line(line: bytes) -> OutgoingMessage:
        found = message_from_json(line)
        return OutgoingMessage(
            value=found.value,
            key=template.key if found.key is None else found.key,
            headers=found.headers or template.headers,
            partition=template.partition if found.partition is None else found.partition,
            timestamp_ms=template.timestamp_ms if found.timestamp_ms is None else found.timestamp_ms,
        )

    def from_keyed_line(line: bytes) -> OutgoingMessage:
        assert separator is not None
        key, found, value = line.partition(separator)
        if not found:
            raise ValueError(f"no key separator {separator.decode()!r} in the line")
        return replace(template, key=key, value=value)

    def from_line(line: bytes) -> OutgoingMessage:
        return replace(template, value=line)

    def from_key(line: bytes) -> OutgoingMessage:
        return replace(template, key=line, value=None)

    if tombstones:
        return from_key
    if json_lines:
        return from_json_line
    return from_line if separator is None else from_keyed_line


def messages(parse: Parser, lines: Iterable[Line], count: int | None) -> Iterator[OutgoingMessage]:
    """A message for each line, at most `count`; CommandError names a line that is not one."""
    for line in islice(lines, count):
        try:
            yield parse(line.data)
        except ValueError as error:
            raise CommandError(f"{line.source}, line {line.number}: {error}") from None


def input_lines(names: Sequence[str], stack: ExitStack) -> Iterator[Line]:
    """The lines of all inputs. Each file is opened before the first line is read, so that a bad name sends nothing."""
    opened = [_open(name, stack) for name in names or (STANDARD_INPUT,)]
    return (line for source, stream in opened for line in _numbered(source, stream))


def _open(name: str, stack: ExitStack) -> tuple[str, BinaryIO]:
    if name == STANDARD_INPUT:
        if sys.stdin is None:
            raise CommandError("standard input is closed")
        return "standard input", sys.stdin.buffer
    try:
        return name, stack.enter_context(Path(name).open("rb"))
    except OSError as error:
        raise CommandError(f"{name}: {(error.strerror or str(error)).lower()}") from None


def _numbered(source: str, stream: BinaryIO) -> Iterator[Line]:
    try:
        for number, line in enumerate(stream, start=1):
            yield Line(source, number, line.removesuffix(b"\n"))
    except OSError as error:
        raise CommandError(f"{source}: {(error.strerror or str(error)).lower()}") from None
