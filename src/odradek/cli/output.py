"""The output of commands: columns, JSON, sentences. Results go to standard output, all else to standard error."""

import json
import os
import re
import select
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import UnsupportedOperation
from typing import Any, NamedTuple

from odradek.cli.failures import CommandError
from odradek.wording import UNITS

MISSING = "-"
SIZE = re.compile(rf"[\d.]+ ({'|'.join(UNITS)})")
RED, GREEN, YELLOW = "31", "32", "33"
STATE_COLOURS = {
    **dict.fromkeys(("active", "Stable"), GREEN),
    **dict.fromkeys(("Empty", "PreparingRebalance", "CompletingRebalance", "Ongoing"), YELLOW),
    **dict.fromkeys(("fenced", "full", "silent", "Dead"), RED),
}


def print_line(text: str) -> None:
    sys.stdout.write(text + "\n")


def note(message: str) -> None:
    """Write a line to standard error, for the person who watches; scripts read standard output."""
    sys.stderr.write(message + "\n")
    sys.stderr.flush()


def warn(message: str) -> None:
    note(f"warning: {message}")


def print_json(value: Any) -> None:
    print_line(json.dumps(value, indent=2, ensure_ascii=False))


def print_json_line(value: Any) -> None:
    print_line(json.dumps(value, ensure_ascii=False))


def print_event(event: dict[str, Any]) -> None:
    """Print an object on a line, and at once: a pipe would keep it back."""
    print_json_line(event)
    sys.stdout.flush()


class Coloured(NamedTuple):
    """A cell of a table that has a colour on a terminal."""

    value: object
    colour: str | None


def state_cell(text: str) -> Coloured:
    """The state of a broker or a group, in the colour that says how good that is."""
    return Coloured(text, STATE_COLOURS.get(text))


def lag_cell(count: int | None) -> Coloured:
    return Coloured(count, YELLOW if count else None)


def offset_cell(offset: int) -> int | None:
    """An offset; -1 stands for one that nobody knows."""
    return offset if offset >= 0 else None


def is_colourful() -> bool:
    """True at a terminal that has colours, unless the user wants none (https://no-color.org)."""
    wants_none = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return not wants_none and sys.stdout.isatty()


def coloured(text: str, colour: str | None) -> str:
    return f"\x1b[{colour}m{text}\x1b[0m" if colour and is_colourful() else text


def print_columns(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print text in columns, as wide as necessary, numbers and sizes to the right; a missing value is a dash."""
    cells = [[one if isinstance(one, Coloured) else Coloured(one, None) for one in row] for row in rows]
    texts = [[MISSING if cell.value in (None, "") else str(cell.value) for cell in row] for row in cells]
    widths = [max(map(len, column)) for column in zip(header, *texts, strict=True)]
    are_right = [_is_numeric(cell.value for cell in column) for column in zip(*cells, strict=True)]
    adjust = [str.rjust if is_right else str.ljust for is_right in are_right or [False] * len(header)]
    print_line("  ".join(map(_adjusted, adjust, header, widths)).rstrip())
    for row, line in zip(cells, texts, strict=True):
        padded = list(map(_adjusted, adjust, line, widths))
        padded[-1] = padded[-1].rstrip()
        shown = "  ".join(coloured(text, cell.colour) for text, cell in zip(padded, row, strict=True))
        print_line(shown.rstrip())


def _adjusted(adjust: Callable[[str, int], str], text: str, width: int) -> str:
    return adjust(text, width)


def _is_numeric(column: Iterable[object]) -> bool:
    there = [value for value in column if value not in (None, "")]
    return bool(there) and all(
        (isinstance(value, int | float) and not isinstance(value, bool))
        or (isinstance(value, str) and SIZE.fullmatch(value) is not None)
        for value in there
    )


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
