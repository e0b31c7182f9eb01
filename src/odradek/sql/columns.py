"""The columns of a table of a query: the fields of the values, and what every record has.

Each field of a JSON object is an expression over the text of the value, so a query parses only the fields that it
names. A value that is no JSON object has nulls there; one of another type than the column has a null. Fields of Avro
are those of `record`, a value that is decoded as a whole (`avro_values`).

The kernel of `odradek.spark.typed` reads JSON, too, but is not faster here: of a million objects of four fields DuckDB
extracts two for 0.2 to 0.4 s of CPU and all four for 0.4 to 0.8, the kernel called as a function for 1.2 and for 0.7.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb

RECORD = {
    "_key": "coalesce(try(decode(key)), key::VARCHAR)",
    "_value": "text",
    "_partition": '"partition"',
    "_offset": '"offset"',
    "_timestamp": '"timestamp"',
    "_headers": (
        "list_transform(headers, lambda one: "
        "{'key': one.key, 'value': coalesce(try(decode(one.value)), one.value::VARCHAR)})"
    ),
}
TEXT = "coalesce(try(decode(value)), value::VARCHAR)"
MOST_BIGINT = 2**63 - 1
LEAST_SHARE = 0.5  # of the values that are JSON objects, in a topic of JSON


class BadSchema(ValueError):
    """A schema that cannot be used; the message says why."""


def view(raw: str, fields: Mapping[str, str], function: str | None = None) -> str:
    """The query that gives a table its columns. `fields`: an expression for each, over `document`, the text of a value
    that is JSON, or over `record`, what the function makes of it."""
    own = {name: expression for name, expression in RECORD.items() if name not in fields}
    columns = ", ".join(
        f"{expression} AS {identifier(name)}" for name, expression in {**fields, **own}.items()
    )
    decoded = "CASE WHEN json_valid(text) THEN text END AS document"
    if function is not None:
        decoded = f"{identifier(function)}(value) AS record"
    inner = f"SELECT *, {decoded} FROM (SELECT *, {TEXT} AS text FROM {raw})"
    return f"SELECT {columns} FROM ({inner})"


def inferred(connection: duckdb.DuckDBPyConnection, sample: str) -> dict[str, str]:
    """Fields of the JSON objects in a sample; none if most values are something else."""
    text = f"SELECT {TEXT} AS text FROM {sample} WHERE value IS NOT NULL"
    valid = (
        f"SELECT text, json_valid(text) AND json_type(try(text::JSON)) = 'OBJECT' AS is_object FROM ({text})"
    )
    count, objects = connection.sql(
        f"SELECT count(*), count(*) FILTER (is_object) FROM ({valid})"
    ).fetchall()[0]
    if not objects or objects < LEAST_SHARE * count:
        return {}
    found = connection.sql(f"SELECT json_group_structure(text::JSON) FROM ({valid}) WHERE is_object")
    structure = json.loads(found.fetchall()[0][0])
    if not isinstance(structure, dict):  # all of them are empty
        return {}
    fields = {
        name: kind for name, kind in structure.items() if name
    }  # SQL has no name for that of the empty name
    large = _large(connection, valid, [name for name, kind in fields.items() if kind == "UBIGINT"])
    return {name: _by_structure(name, "HUGEINT" if name in large else kind) for name, kind in fields.items()}


def _large(connection: duckdb.DuckDBPyConnection, valid: str, names: Sequence[str]) -> set[str]:
    """Of fields that are whole numbers, those with one that no BIGINT can be."""
    if not names:
        return set()
    most = ", ".join(
        f"max(try_cast(json_extract_string(text, {_pointer(name)}) AS HUGEINT))" for name in names
    )
    few = f"SELECT text FROM ({valid}) WHERE is_object AND regexp_matches(text, '[0-9]{{19}}')"
    (found,) = connection.sql(f"SELECT {most} FROM ({few})").fetchall()
    return {name for name, one in zip(names, found, strict=True) if one is not None and one > MOST_BIGINT}


def given(connection: duckdb.DuckDBPyConnection, ddl: str) -> dict[str, str]:
    """Fields as a user names them: `id BIGINT, kind STRING`."""
    try:
        connection.execute(f"CREATE OR REPLACE TEMP TABLE _schema ({ddl})")
        rows = connection.sql("SELECT column_name, column_type FROM (DESCRIBE _schema)").fetchall()
        connection.execute("DROP TABLE _schema")
    except duckdb.Error as error:
        raise BadSchema(
            f"--schema {ddl!r} is not a list of columns like 'id BIGINT, kind STRING': {first_line(error)}"
        ) from None
    return {name: _by_type(name, kind) for name, kind in rows}


def first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _by_structure(name: str, kind: Any) -> str:
    if isinstance(kind, dict | list):
        return f"from_json(json_extract(document, {_pointer(name)}), {literal(json.dumps(kind))})"
    if kind == "JSON":
        return f"json_extract(document, {_pointer(name)})"
    return _by_type(name, {"UBIGINT": "BIGINT", "NULL": "VARCHAR"}.get(kind, kind))


def _by_type(name: str, kind: str) -> str:
    text = f"json_extract_string(document, {_pointer(name)})"
    if kind == "VARCHAR":
        return text
    if kind.startswith(("STRUCT", "MAP")) or kind.endswith("]"):
        return f"try_cast(json_extract(document, {_pointer(name)}) AS {kind})"
    return f"try_cast({text} AS {kind})"


def _pointer(name: str) -> str:
    return literal("/" + name.replace("~", "~0").replace("/", "~1"))


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
