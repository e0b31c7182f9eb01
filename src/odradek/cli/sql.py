"""`odradek sql`: a query over topics and archives."""

import sys
from collections.abc import Iterator
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

from odradek.admin.access import Access
from odradek.cli.access import on_cluster
from odradek.cli.archive import Storage, failures_told, settings_of
from odradek.cli.arguments import key_value, time_ms_of
from odradek.cli.failures import CommandError
from odradek.cli.framework import Argument, BadParameter, Option
from odradek.cli.output import print_columns, print_json_line

if TYPE_CHECKING:
    import pyarrow as pa


class Form(Enum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"


@on_cluster
def sql(
    cluster: Access,
    query: Annotated[str, Argument(metavar="QUERY", help="The query; topics are its tables.")],
    archive: Annotated[
        str | None,
        Option(
            "--archive",
            metavar="PATH",
            help="Read what is archived there, and from the topics only the rest.",
        ),
    ] = None,
    archive_only: Annotated[
        bool, Option("--archive-only", help="Read nothing from topics; needs no cluster.")
    ] = False,
    from_: Annotated[
        str | None, Option("--from", metavar="TIME", help="Only records since then: ISO 8601, or like -1h.")
    ] = None,
    to: Annotated[str | None, Option("--to", metavar="TIME", help="Only records before then.")] = None,
    schema: Annotated[
        list[str] | None,
        Option(
            "--schema",
            metavar="[TOPIC=]COLUMNS",
            help="The fields of JSON values, like 'id BIGINT, kind STRING' (default: found in the values); repeatable.",
        ),
    ] = None,
    form: Annotated[Form, Option("--format", help="How to print the result.")] = Form.TABLE,
    storage: Storage = None,
) -> None:
    """Query topics, and their archives, in DuckDB's SQL.

    The tables are topics; names with dots or dashes are written in double quotes. A topic of JSON objects has their
    fields as columns; every table has _key, _value (as text), _partition, _offset and _timestamp. A value that cannot
    be read as the type of its column is null there.

    Committed records up to now are read; without --from, all of them, into memory. Files can be joined:
    FROM 'customers.csv'.

    odradek sql "SELECT kind, count(*) FROM orders GROUP BY kind" --from -1h

    odradek sql 'SELECT * FROM "shop.orders" ORDER BY _timestamp DESC LIMIT 5' --format json
    """
    if archive_only and archive is None:
        raise BadParameter("--archive-only needs --archive")
    with failures_told():
        from odradek.sql.query import run
        from odradek.sql.reading import TopicReader
        from odradek.sql.tables import Settings

        settings = Settings(
            archive,
            dict(map(key_value, storage or ())),
            None if from_ is None else time_ms_of(from_),
            None if to is None else time_ms_of(to),
            dict(map(_schema, schema or ())),
        )
        reader = None if archive_only else TopicReader(settings_of(cluster))
        result = run(query, reader, settings)
    try:
        PRINTED[form](result)
    except (OverflowError, ValueError) as error:  # Kafka has times that no calendar has
        raise CommandError(
            f"a value cannot be printed, {error}: epoch_ms(_timestamp) is the time as a number"
        ) from None


def _schema(text: str) -> tuple[str, str]:
    """By topic; without one it is for all of them. Types have no equals sign."""
    name, equals, columns = text.partition("=")
    return (name.strip(), columns) if equals else ("", text)


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
