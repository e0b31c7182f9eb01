"""A query, from its text to its result as Arrow."""

import json
import re
from collections.abc import Iterator
from glob import glob
from typing import Any

import duckdb
import pyarrow as pa

from odradek.sql.columns import BadSchema, first_line
from odradek.sql.reading import TopicReader
from odradek.sql.tables import Settings, Tables

IN_QUOTES = "Names with dots or dashes are written in double quotes"
NAME_TO_QUOTE = re.compile(r"\b[A-Za-z_]\w*[.-]\w")
KINDS = re.compile(r"^[A-Z][A-Za-z ]* Error: ")
CHANGES = {"INSERT", "UPDATE", "DELETE", "DROP", "ALTER"}


class BadQuery(ValueError):
    """A query that cannot be run; the message says why."""


def run(query: str, reader: TopicReader | None, settings: Settings) -> pa.Table:
    """The result of a query over topics, archives and files. Names are those of topics."""
    connection = duckdb.connect(config={"python_enable_replacements": False})
    try:
        connection.execute("SET TimeZone = 'UTC'")
        _add_tables(Tables(connection, reader, settings), settings, *named_in(connection, query))
        result = connection.sql(query)
        return pa.table({}) if result is None else result.to_arrow_table()
    except duckdb.Error as error:
        raise BadQuery(_explained(error)) from None
    finally:
        connection.close()


def named_in(connection: duckdb.DuckDBPyConnection, query: str) -> tuple[set[str], set[str]]:
    """The tables of a query, and the names that it gives to its own parts (WITH), which may hide a topic's."""
    row = connection.execute("SELECT json_serialize_sql(?)", [query]).fetchall()[0]
    tree = json.loads(row[0])
    if tree.get("error"):
        if tree.get("error_type") == "not implemented":  # not a SELECT
            return _other_than_select(connection, query), set()
        raise BadQuery(f"{tree.get('error_message', 'the query cannot be parsed')}{_in_quotes(query)}")
    if not tree.get("statements"):
        raise BadQuery("the query is empty: 'odradek sql --help' has examples")
    tables, parts = set[str](), set[str]()
    for node in _nodes(tree):
        if node.get("type") == "BASE_TABLE":
            tables.add(node["table_name"])
        parts |= {one["key"] for one in node.get("cte_map", {}).get("map", ())}
    return tables, parts


def _other_than_select(connection: duckdb.DuckDBPyConnection, query: str) -> set[str]:
    kinds = {one.type.name for one in connection.extract_statements(query)}
    if kinds & CHANGES:
        raise BadQuery("topics and archives are read by SQL, not changed: 'odradek produce' writes records")
    return set(connection.get_table_names(query))


def _in_quotes(query: str) -> str:
    """Advice, where a name with a dot or a dash may be the reason."""
    return f". {IN_QUOTES}" if NAME_TO_QUOTE.search(query) else ""


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    if isinstance(tree, dict):
        yield tree
    for below in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _nodes(below)


def _add_tables(tables: Tables, settings: Settings, names: set[str], parts: set[str]) -> None:
    found = [name for name in sorted(names) if tables.add(name)]
    if found and settings.archive is not None and not tables.archived:
        raise BadQuery(
            f"there is no archive of {', '.join(found)} at {settings.archive}: correct --archive, or leave it out"
        )
    for name in sorted(names - parts - set(found)):
        if "://" not in name and not glob(name, recursive=True):
            raise BadQuery(
                f"there is no topic, archive or file {name!r}. {IN_QUOTES}; 'odradek topic list' shows the topics"
            )


def _explained(error: duckdb.Error) -> str:
    _, of_ours, sentence = str(error).partition(f"{BadSchema.__name__}: ")  # raised while values were decoded
    if of_ours:
        return sentence.splitlines()[0]
    text = KINDS.sub("", first_line(error)).rstrip("!.")
    if isinstance(error, duckdb.BinderException) and "not found" in text:
        return f"{text}. Columns are those of a topic's first and last values: name others with --schema"
    return f"{text}. {IN_QUOTES}" if isinstance(error, duckdb.CatalogException) else text


__all__ = ["BadQuery", "BadSchema", "run"]
