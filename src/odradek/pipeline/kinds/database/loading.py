"""Rows into a table, as Arrow batches: appended, or as upserts by way of a temporary table.

PostgreSQL parses CSV itself (COPY), so a column of any type takes the text of its values: uuid, jsonb, an enumeration.
pyarrow writes the CSV in C++. Every value is quoted and a null is not, which tells an empty string from a null.
"""

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from odradek.pipeline.kinds.database.access import DatabaseRefused, Place, RowsRefused, translated

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlalchemy import Connection

STAGE = "odradek_rows"


@dataclass(frozen=True)
class Target:
    """A table, and the columns that are written. With `key` rows replace those of their key; a row whose column
    `deleted` is true deletes the row of its key."""

    schema: str | None
    table: str
    columns: tuple[str, ...]
    key: tuple[str, ...] = ()
    keys_are_unique: bool = True  # within a batch
    deleted: str | None = None  # not a column of the table

    @property
    def name(self) -> str:
        return f"{self.schema}.{self.table}" if self.schema else self.table


def split_name(name: str) -> tuple[str | None, str]:
    """`schema.table` or `table`."""
    schema, dot, table = name.rpartition(".")
    return (schema if dot else None), table


class Loader:
    """Writes into one target, within one transaction."""

    def __init__(self, connection: "Connection", place: Place, target: Target) -> None:
        self._connection, self._place, self._target = connection, place, target
        self._quote = connection.dialect.identifier_preparer.quote_identifier
        self._is_postgresql = connection.dialect.name == "postgresql"
        self._has_stage = False

    def load(self, rows: Iterable["pa.RecordBatch"]) -> int:
        """Returns the number of rows."""
        if not self._target.key:
            return self._insert(self._table, self._target.columns, rows)
        self._prepare_stage()
        count = self._insert(self._stage, self._staged, rows)
        if not self._target.keys_are_unique:
            self._check_keys()
        if self._target.deleted is not None:
            self._execute(self._delete)
        self._execute(self._upsert)
        return count

    def load_by_halves(self, rows: "pa.RecordBatch") -> dict[int, str]:
        """Rows that the database refuses, by their number, with its reason; the others are written."""
        found: dict[int, str] = {}

        def attempt(first: int, count: int) -> None:
            try:
                self._load_within_savepoint(rows.slice(first, count))
            except RowsRefused as error:
                if count == 1:
                    found[first] = str(error)
                    return
                attempt(first, count // 2)
                attempt(first + count // 2, count - count // 2)

        if self._target.key:
            self._prepare_stage()  # before the first savepoint: what is created behind one goes with it
        if rows.num_rows:
            attempt(0, rows.num_rows)
        return found

    def _load_within_savepoint(self, rows: "pa.RecordBatch") -> None:
        with translated(self._place), self._connection.begin_nested():
            self.load([rows])

    # Statements

    def _execute(self, statement: str) -> Any:
        return self._connection.exec_driver_sql(statement, execution_options={"no_parameters": True})

    @property
    def _table(self) -> str:
        parts = (self._target.schema, self._target.table)
        return ".".join(self._quote(part) for part in parts if part)

    @property
    def _stage(self) -> str:
        return self._quote(STAGE)

    def _list(self, names: Iterable[str]) -> str:
        return ", ".join(self._quote(name) for name in names)

    def _prepare_stage(self) -> None:
        if self._has_stage:
            self._execute(f"DELETE FROM {self._stage}")
            return
        end = "ON COMMIT DROP " if self._is_postgresql else ""
        columns, deleted = self._list(self._target.columns), self._target.deleted
        marked = f", 1 = 0 AS {self._quote(deleted)}" if deleted is not None else ""
        self._execute(
            f"CREATE TEMPORARY TABLE {self._stage} {end}AS SELECT {columns}{marked} FROM {self._table} WHERE 1 = 0"
        )
        self._has_stage = True

    def _check_keys(self) -> None:
        key = self._list(self._target.key)
        query = f"SELECT {key} FROM {self._stage} GROUP BY {key} HAVING count(*) > 1 LIMIT 1"
        if (found := self._execute(query).first()) is not None:
            raise DatabaseRefused(
                f"a batch has several rows of the key {', '.join(map(str, found))}, and nothing says which is the "
                "last: "
                "give order_by, or group by the key"
            )

    @property
    def _staged(self) -> tuple[str, ...]:
        """The columns of the stage."""
        deleted = self._target.deleted
        return self._target.columns + (() if deleted is None else (deleted,))

    @property
    def _delete(self) -> str:
        assert self._target.deleted is not None
        key, deleted = self._list(self._target.key), self._quote(self._target.deleted)
        return f"DELETE FROM {self._table} WHERE ({key}) IN (SELECT {key} FROM {self._stage} WHERE {deleted})"

    @property
    def _upsert(self) -> str:
        columns, key = self._list(self._target.columns), self._list(self._target.key)
        others = [name for name in self._target.columns if name not in self._target.key]
        changes = ", ".join(f"{self._quote(name)} = excluded.{self._quote(name)}" for name in others)
        action = f"DO UPDATE SET {changes}" if others else "DO NOTHING"
        stays = "1 = 1" if self._target.deleted is None else f"NOT {self._quote(self._target.deleted)}"
        return (
            f"INSERT INTO {self._table} ({columns}) SELECT {columns} FROM {self._stage} WHERE {stays} "
            f"ORDER BY {key} ON CONFLICT ({key}) {action}"
        )

    def _insert(self, table: str, names: tuple[str, ...], rows: Iterable["pa.RecordBatch"]) -> int:
        columns = self._list(names)
        selected = (batch.select(list(names)) for batch in rows)
        if self._is_postgresql:
            return self._copy(f"COPY {table} ({columns}) FROM STDIN (FORMAT csv)", selected)
        marks = ", ".join("?" for _ in names)
        statement = f"INSERT INTO {table} ({columns}) VALUES ({marks})"
        count = 0
        for batch in selected:
            values = sqlite_values(batch)
            if values:
                self._connection.exec_driver_sql(statement, values)
                count += len(values)
        return count

    def _copy(self, statement: str, rows: Iterable["pa.RecordBatch"]) -> int:
        count = 0
        driver: Any = self._connection.connection.driver_connection
        with driver.cursor() as cursor, cursor.copy(statement) as copy:
            for batch in rows:
                copy.write(as_csv(batch))
                count += batch.num_rows
        return count


# Values


def as_csv(rows: "pa.RecordBatch") -> bytes:
    import pyarrow as pa
    from pyarrow import csv

    columns = [_text(rows.column(number)) for number in range(rows.num_columns)]
    table = pa.RecordBatch.from_arrays(columns, names=[f"c{number}" for number in range(rows.num_columns)])
    out = io.BytesIO()
    csv.write_csv(table, out, csv.WriteOptions(include_header=False, quoting_style="all_valid"))
    return out.getvalue()


def _text(column: "pa.Array") -> "pa.Array":
    """Values that pyarrow does not write as PostgreSQL reads them."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.array(
            [None if one is None else f"\\x{one.hex()}" for one in column.to_pylist()], pa.string()
        )
    if pa.types.is_decimal(kind):
        return column.cast(pa.string())
    if pa.types.is_null(kind):
        return column.cast(pa.string())
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return column.cast(
            pa.timestamp(kind.unit, "UTC")
        )  # a column without a time zone takes what is written
    return column


def sqlite_values(rows: "pa.RecordBatch") -> list[tuple[Any, ...]]:
    columns = [list(_sqlite_column(rows.column(number))) for number in range(rows.num_columns)]
    return list(zip(*columns, strict=True))


def _sqlite_column(column: "pa.Array") -> Iterator[Any]:
    """SQLite has no times and no decimals: they are texts, an instant with its zone."""
    for value in column.to_pylist():
        match value:
            case datetime():
                aware = value.astimezone(UTC) if value.tzinfo else value
                yield aware.isoformat(" ", "microseconds")
            case date():
                yield value.isoformat()
            case Decimal():
                yield format(value, "f")
            case _:
                yield value
