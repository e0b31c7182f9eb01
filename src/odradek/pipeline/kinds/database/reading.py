"""Rows of a table or a query as Arrow batches, read by one Spark worker, and their columns.

Types of PostgreSQL that Spark does not have (uuid, jsonb, arrays, enumerations, …) are read as their text.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StringType, StructField, StructType

from odradek.pipeline.kinds.database.access import (
    POSTGRESQL,
    DatabaseAway,
    DatabaseRefused,
    Place,
    RowsRefused,
    connected,
)
from odradek.pipeline.kinds.database.columns import postgresql_type, sqlite_type
from odradek.pipeline.kinds.database.loading import split_name

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlalchemy import Connection

ROWS = 10_000
VIEW = "odradek_query"


@dataclass(frozen=True)
class Relation:
    """A relation to read: the statement, and the columns of its result."""

    statement: str
    columns: StructType


def relation_of(place: Place, table: str, query: str, declared: StructType | None = None) -> Relation:
    """`declared` are the columns where the author says them."""
    with connected(place) as connection:
        return _relation(connection, table, query, declared)


def _relation(connection: "Connection", table: str, query: str, declared: StructType | None) -> Relation:
    quote = connection.dialect.identifier_preparer.quote_identifier
    if table:
        source = ".".join(quote(part) for part in split_name(table) if part)
    else:
        source = f"({query.strip().rstrip(';')}\n) AS odradek"
    if declared is not None:
        return Relation(f"SELECT {', '.join(map(quote, declared.names))} FROM {source}", declared)
    if connection.dialect.name == POSTGRESQL:
        described = _run(connection, f"SELECT * FROM {source} LIMIT 0").cursor.description
        found = [(column.name, postgresql_type(column)) for column in described]
        texts = [quote(name) if kind else f"CAST({quote(name)} AS text)" for name, kind in found]
        columns = [StructField(name, kind or StringType()) for name, kind in found]
        return Relation(f"SELECT {', '.join(texts)} FROM {source}", StructType(columns))
    _run(connection, f"CREATE TEMPORARY VIEW {VIEW} AS SELECT * FROM {source}")
    described = _run(connection, f"PRAGMA table_info({VIEW})").fetchall()
    columns = [StructField(row[1], sqlite_type(row[1], row[2])) for row in described]
    return Relation(f"SELECT * FROM {source}", StructType(columns))


def _run(connection: "Connection", statement: str) -> Any:
    return connection.exec_driver_sql(statement, execution_options={"no_parameters": True})


def read(place: Place, statement: str, schema: "pa.Schema") -> Iterator["pa.RecordBatch"]:
    """The rows, in batches; a server-side cursor of PostgreSQL's keeps memory small."""
    options = {"no_parameters": True, "stream_results": True, "max_row_buffer": ROWS}
    try:
        with connected(place) as connection:
            result = connection.exec_driver_sql(statement, execution_options=options)
            for rows in result.partitions(ROWS):
                yield as_batch([tuple(row) for row in rows], schema)
    except (DatabaseAway, DatabaseRefused, RowsRefused) as error:
        raise type(error)(*error.args) from None  # an error whose last frame is not ours would be the user's


def as_batch(rows: list[tuple[Any, ...]], schema: "pa.Schema") -> "pa.RecordBatch":
    import pyarrow as pa

    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    if len(columns) != len(schema):
        raise DatabaseRefused(f"the schema has {len(schema)} columns, and the result {len(columns)}")
    return pa.RecordBatch.from_arrays(
        [_column(values, field) for values, field in zip(columns, schema, strict=True)], schema=schema
    )


def _column(values: tuple[Any, ...], field: "pa.Field") -> "pa.Array":
    import pyarrow as pa

    try:
        return pa.array([_value(one, field.type) for one in values], field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, ValueError, OverflowError) as error:
        reason = str(error).splitlines()[0]
        raise DatabaseRefused(f"a value of the column '{field.name}' is not {field.type}: {reason}") from None


def _value(value: Any, kind: "pa.DataType") -> Any:
    """Convert a driver's value to a type that Arrow takes; texts are SQLite's times."""
    import pyarrow as pa

    if value is None:
        return None
    if pa.types.is_boolean(kind) and value in (0, 1):
        return bool(value)
    if pa.types.is_temporal(kind) and isinstance(value, int | float):
        raise ValueError(f"{value} is a number: read it by a query, datetime(…, 'unixepoch')")
    if pa.types.is_timestamp(kind) and isinstance(value, str):
        value = datetime.fromisoformat(value)
    if pa.types.is_timestamp(kind) and kind.tz and isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    if pa.types.is_date(kind) and isinstance(value, str):
        return date.fromisoformat(value)
    if pa.types.is_floating(kind) and isinstance(value, int):
        return float(value)
    if pa.types.is_decimal(kind) and isinstance(value, str | float | int):
        from decimal import Decimal

        return Decimal(str(value))
    return value
