"""Columns of tables and Spark's types: what a sink may write into which column, and what a source makes of one.

A value must arrive as it was: a column that would round or cut it in silence is refused. Values that do not fit for
other reasons (a number out of range, a text that is too long) are refused by the database, row by row.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from odradek.pipeline.kinds.database.access import POSTGRESQL, DatabaseRefused
from odradek.pipeline.kinds.plain_types import PLAIN, WHOLE

if TYPE_CHECKING:
    from sqlalchemy import Connection

SPARK_DECIMAL_DIGITS = 38
SCALE_UNSAID = 18  # of a numeric without one


@dataclass(frozen=True)
class TableColumn:
    """`kind` is SQLAlchemy's type. `is_filled`: a row need not name it; `is_computed`: it must not."""

    name: str
    kind: Any
    is_filled: bool
    is_computed: bool = False


@dataclass(frozen=True)
class TableView:
    """A table as it is. `keys` are the columns of its unique indexes, sorted."""

    columns: dict[str, TableColumn]
    keys: list[tuple[str, ...]]


def view_of(connection: "Connection", schema: str | None, table: str) -> TableView | None:
    from sqlalchemy import inspect
    from sqlalchemy.exc import NoSuchTableError

    inspector = inspect(connection)
    try:
        found = inspector.get_columns(table, schema)
    except NoSuchTableError:
        return None
    keys: list[Any] = [inspector.get_pk_constraint(table, schema)["constrained_columns"]]
    keys += [one["column_names"] for one in inspector.get_unique_constraints(table, schema)]
    keys += [one["column_names"] for one in inspector.get_indexes(table, schema) if _is_whole_and_unique(one)]
    columns = {
        one["name"]: TableColumn(one["name"], one["type"], _is_filled(one), bool(one.get("computed")))
        for one in found
    }
    unique = [tuple(sorted(str(name) for name in key)) for key in keys if key]
    if connection.dialect.name != POSTGRESQL and keys[0] and len(keys[0]) == 1:
        columns = _with_rowid(columns, str(keys[0][0]))
    return TableView(columns, unique)


def _is_whole_and_unique(index: Any) -> bool:
    partial = any(
        name.endswith("_where") and value is not None
        for name, value in index.get("dialect_options", {}).items()
    )
    return bool(index["unique"]) and not partial and None not in index["column_names"]


def _is_filled(column: Any) -> bool:
    return bool(
        column["nullable"]
        or column.get("default") is not None
        or column.get("identity")
        or column.get("computed")
    )


def _with_rowid(columns: dict[str, TableColumn], key: str) -> dict[str, TableColumn]:
    """SQLite fills an INTEGER PRIMARY KEY."""
    found = columns[key]
    return columns | {key: TableColumn(found.name, found.kind, True)}


def simple_problem(kind: DataType) -> str:
    """Why a database sink does not write a type; empty if it does."""
    if isinstance(kind, PLAIN):
        return ""
    cure = "write to_json(…) of it" if kind.typeName() in ("array", "map", "struct") else "cast it"
    return f"is {kind.simpleString()}, which a database sink does not write: {cure}, or leave it out"


def misfit(kind: DataType, column: Any, dialect: str) -> str:
    """Why a column of a table does not take a type; empty if it does."""
    from sqlalchemy import types

    if dialect == POSTGRESQL:
        return _postgresql_misfit(kind, column, types)
    if isinstance(kind, DecimalType) and not isinstance(column, types.String):
        return "would lose digits, because SQLite has no decimals: declare the column as TEXT"
    if isinstance(kind, BinaryType) and not isinstance(column, types.LargeBinary):
        return "is not a BLOB"
    if isinstance(kind, LongType) and isinstance(column, types.Float):
        return "would round large numbers: declare it as INTEGER, or cast to DOUBLE"
    return ""


def _postgresql_misfit(kind: DataType, column: Any, types: Any) -> str:
    is_float = isinstance(column, types.Float)
    is_exact = isinstance(column, types.Numeric) and not is_float
    is_text = isinstance(column, types.String) and not isinstance(column, types.Enum)
    if isinstance(kind, BinaryType):
        return "" if isinstance(column, types.LargeBinary) else "is not bytea"
    if isinstance(column, types.LargeBinary):
        return "is bytea: cast to BINARY"
    if isinstance(kind, StringType) or is_text:
        return ""  # PostgreSQL reads what the text says, or refuses the row
    if isinstance(kind, BooleanType):
        return "" if isinstance(column, types.Boolean) else "is not boolean"
    if isinstance(kind, WHOLE):
        if is_float:
            return _whole_misfit(kind, column)
        return "" if isinstance(column, types.Integer) or is_exact else "is not a number"
    if isinstance(kind, FloatType | DoubleType):
        return _float_misfit(kind, column, is_float, is_exact)
    if isinstance(kind, DecimalType):
        return _decimal_misfit(kind, column, is_exact)
    return _time_misfit(kind, column, types)


def _whole_misfit(kind: DataType, column: Any) -> str:
    """Of a column that is a binary fraction, which has 24 or 53 bits."""
    if type(column).__name__ == "REAL":
        small = isinstance(kind, ByteType | ShortType)
        return "" if small else "would round large numbers: cast to FLOAT, or change the column"
    return (
        "would round large numbers: cast to DOUBLE, or change the column"
        if isinstance(kind, LongType)
        else ""
    )


def _float_misfit(kind: DataType, column: Any, is_float: bool, is_exact: bool) -> str:
    if not is_float:
        return (
            "" if is_exact and column.scale is None else "would round fractions: cast, or change the column"
        )
    if isinstance(kind, DoubleType) and type(column).__name__ == "REAL":
        return "is single precision: cast to FLOAT, or change the column"
    return ""


def _decimal_misfit(kind: DecimalType, column: Any, is_exact: bool) -> str:
    if not is_exact:
        return "is not numeric: cast, or change the column"
    scale = column.scale or 0
    if column.precision is not None and scale < kind.scale:
        return f"would be rounded to {scale} digits: cast to DECIMAL({column.precision},{scale})"
    return ""


def _time_misfit(kind: DataType, column: Any, types: Any) -> str:
    if isinstance(kind, DateType):
        return "" if isinstance(column, types.Date | types.DateTime) else "is not a date"
    if not isinstance(column, types.DateTime):
        return "is not a timestamp"
    if isinstance(kind, TimestampNTZType) and column.timezone:
        return "has a time zone, and the value has none: cast to TIMESTAMP"
    return ""


# What a source reads

POSTGRESQL_TYPES: dict[int, DataType] = {  # by the OID of PostgreSQL's own types, which never change
    16: BooleanType(),
    17: BinaryType(),
    20: LongType(),
    21: ShortType(),
    23: IntegerType(),
    25: StringType(),
    700: FloatType(),
    701: DoubleType(),
    1042: StringType(),
    1043: StringType(),
    1082: DateType(),
    1114: TimestampNTZType(),
    1184: TimestampType(),
}
NUMERIC_OID = 1700


def postgresql_type(column: Any) -> DataType | None:
    """Spark's type of a column of a result; None for one that is read as text."""
    if column.type_code != NUMERIC_OID:
        return POSTGRESQL_TYPES.get(column.type_code)
    if column.precision is None:
        return DecimalType(SPARK_DECIMAL_DIGITS, SCALE_UNSAID)
    if column.precision > SPARK_DECIMAL_DIGITS or not 0 <= column.scale <= column.precision:
        raise DatabaseRefused(
            f"the column '{column.name}' is numeric({column.precision},{column.scale}), and Spark's decimals have "
            "38 digits: cast it by a query"
        )
    return DecimalType(column.precision, column.scale)


SQLITE_TYPES: tuple[
    tuple[tuple[str, ...], DataType], ...
] = (  # by words of the declared type, the first that fits
    (("BOOL",), BooleanType()),
    (("TIMESTAMP", "DATETIME"), TimestampType()),
    (("DATE",), DateType()),
    (("INT",), LongType()),
    (("CHAR", "CLOB", "TEXT", "JSON"), StringType()),
    (("BLOB", "BINARY"), BinaryType()),
    (("REAL", "FLOA", "DOUB", "NUM", "DEC"), DoubleType()),
)


def sqlite_type(name: str, declared: str) -> DataType:
    """Spark's type by what the column is declared as: SQLite's values have types of their own."""
    text = declared.upper()
    for words, kind in SQLITE_TYPES:
        if any(word in text for word in words):
            return kind
    raise DatabaseRefused(
        f"the column '{name}' has no declared type ({declared or 'it is an expression'}): read a table, or give the "
        "source a schema that says the types"
    )
