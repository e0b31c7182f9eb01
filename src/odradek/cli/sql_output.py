"""The result of a query as a table, as JSON, a row a line, or as CSV."""

import re
import sys
from collections.abc import Iterator
from decimal import Decimal
from enum import Enum
from itertools import count
from math import isfinite
from typing import TYPE_CHECKING, Any

from odradek.cli.failures import CommandError
from odradek.cli.output import print_columns, print_json_line

if TYPE_CHECKING:
    import pyarrow as pa


CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Form(Enum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def print_result(result: "pa.Table", form: Form) -> None:
    """A statement that writes a file has no columns."""
    if not result.column_names:
        return
    try:
        PRINTED[form](result)
    except (OverflowError, ValueError) as error:  # Kafka has times that no calendar has
        raise CommandError(
            f"a value cannot be printed, {error}: epoch_ms(_timestamp) is the time as a number"
        ) from None


def _print_table(result: "pa.Table") -> None:
    print_columns(result.column_names, [[_on_a_line(_shown(one)) for one in row] for row in _rows(result)])


def _print_json(result: "pa.Table") -> None:
    names = _different(result.column_names)
    for row in _rows(result):
        print_json_line(dict(zip(names, map(_plain, row), strict=True)))


def _different(names: list[str]) -> list[str]:
    """An object has each name once: later columns of the same name are numbered, as DuckDB numbers them."""
    found: list[str] = []
    for name in names:
        numbered = (f"{name}_{number}" for number in count(1))
        found.append(
            name if name not in found else next(one for one in numbered if one not in {*found, *names})
        )
    return found


def _print_csv(result: "pa.Table") -> None:
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(result.column_names)
    writer.writerows(list(map(_shown, row)) for row in _rows(result))


def _rows(result: "pa.Table") -> Iterator[tuple[Any, ...]]:
    """Two columns may have one name."""
    for batch in result.to_batches():
        yield from zip(*(column.to_pylist(maps_as_pydicts="strict") for column in batch.columns), strict=True)


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float) and not isfinite(value):
        return None  # JSON has no such numbers
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "nanoseconds"):
        return _interval(value)
    if isinstance(value, Decimal) and value == value.to_integral_value() and value.as_tuple().exponent == 0:
        return int(value)  # a sum of whole numbers
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _interval(value: Any) -> str:
    """As DuckDB writes it."""
    years, months = divmod(abs(value.months), 12)
    sign = "-" if value.months < 0 else ""
    parts = [(f"{sign}{years}", "year"), (f"{sign}{months}", "month"), (str(value.days), "day")]
    told = [
        f"{text} {unit}{'' if text.strip('-') == '1' else 's'}" for text, unit in parts if text.strip("-0")
    ]
    seconds, nanoseconds = divmod(abs(value.nanoseconds), 1_000_000_000)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    fraction = f".{nanoseconds:09}".rstrip("0") if nanoseconds else ""
    if value.nanoseconds or not told:
        told.append(f"{'-' if value.nanoseconds < 0 else ''}{clock}{fraction}")
    return " ".join(told)


def _shown(value: Any) -> Any:
    import json

    if isinstance(value, float):
        return value
    plain = _plain(value)
    return json.dumps(plain, ensure_ascii=False) if isinstance(plain, dict | list) else plain


def _on_a_line(value: Any) -> Any:
    """A cell of a table has one line."""
    return CONTROL.sub(lambda found: repr(found[0])[1:-1], value) if isinstance(value, str) else value


PRINTED = {Form.TABLE: _print_table, Form.JSON: _print_json, Form.CSV: _print_csv}
