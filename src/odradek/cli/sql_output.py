"""The result of a query as a table, as JSON, a row a line, or as CSV."""

import sys
from collections.abc import Iterator
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any

from odradek.cli.failures import CommandError
from odradek.cli.output import print_columns, print_json_line

if TYPE_CHECKING:
    import pyarrow as pa


class Form(Enum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def print_result(result: "pa.Table", form: Form) -> None:
    try:
        PRINTED[form](result)
    except (OverflowError, ValueError) as error:  # Kafka has times that no calendar has
        raise CommandError(
            f"a value cannot be printed, {error}: epoch_ms(_timestamp) is the time as a number"
        ) from None


def _print_table(result: "pa.Table") -> None:
    print_columns(result.column_names, [list(map(_shown, row)) for row in _rows(result)])


def _print_json(result: "pa.Table") -> None:
    for row in _rows(result):
        print_json_line(dict(zip(result.column_names, map(_plain, row), strict=True)))


def _print_csv(result: "pa.Table") -> None:
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(result.column_names)
    writer.writerows(list(map(_shown, row)) for row in _rows(result))


def _rows(result: "pa.Table") -> Iterator[tuple[Any, ...]]:
    """Two columns may have one name."""
    for batch in result.to_batches():
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Decimal) and value == value.to_integral_value() and value.as_tuple().exponent == 0:
        return int(value)  # a sum of whole numbers
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _shown(value: Any) -> Any:
    import json

    plain = _plain(value)
    return json.dumps(plain, ensure_ascii=False) if isinstance(plain, dict | list) else plain


PRINTED = {Form.TABLE: _print_table, Form.JSON: _print_json, Form.CSV: _print_csv}
