"""What commands print: columns, JSON, sentences. Results go to standard output, all else to standard error."""

import json
import os
import select
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import UnsupportedOperation
from typing import Any

from odradek.cli.failures import CommandError

MISSING = "-"
UNITS = ("B", "KB", "MB", "GB", "TB", "PB")


def print_line(text: str) -> None:
    sys.stdout.write(text + "\n")


def note(message: str) -> None:
    """For the person who watches; scripts read standard output."""
    sys.stderr.write(message + "\n")
    sys.stderr.flush()


def warn(message: str) -> None:
    note(f"warning: {message}")


def print_json(value: Any) -> None:
    print_line(json.dumps(value, indent=2, ensure_ascii=False))


def print_json_line(value: Any) -> None:
    print_line(json.dumps(value, ensure_ascii=False))


def print_columns(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Text in columns, as wide as necessary; a missing value is a dash."""
    table = [header, *([MISSING if cell in (None, "") else str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print_line("  ".join(cells).rstrip())


def counted(count: int, noun: str) -> str:
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"


def readable_size(size_bytes: int | None) -> str | None:
    """1536 is 1.5 KB; None stays None."""
    if size_bytes is None:
        return None
    size = float(size_bytes)
    for unit in UNITS:
        if size < 1024 or unit == UNITS[-1]:
            break
        size /= 1024
    return f"{size_bytes} B" if unit == "B" else f"{size:.1f} {unit}"


def joined(items: Iterable[object]) -> str:
    return ",".join(map(str, items))


@contextmanager
def output_told() -> Iterator[None]:
    """A reader that exits early, as `head` does, is not a failure; a full disk is, and is reported in one line."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
    except OSError as error:
        discard_output()
        where = f"{error.filename}: " if error.filename else "cannot continue: "
        raise CommandError(f"{where}{(error.strerror or str(error)).lower()}") from None


def check_reader() -> None:
    """Raise BrokenPipeError if the reader of our output has exited: without a write we notice only this way."""
    try:
        descriptor = sys.stdout.fileno()
    except UnsupportedOperation:  # not a file, but a buffer: the command runs inside another program
        return
    output = select.poll()
    output.register(descriptor, 0)  # errors are reported in any case
    if any(events & select.POLLERR for _, events in output.poll(0)):
        raise BrokenPipeError


def discard_output() -> None:
    """Do not let the interpreter flush the rest of the buffer when it exits."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
