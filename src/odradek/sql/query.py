"""A query, from its text to its result as Arrow."""

from pathlib import Path

import duckdb
import pyarrow as pa

from odradek.sql.columns import BadSchema, first_line
from odradek.sql.reading import TopicReader
from odradek.sql.tables import Settings, Tables


class BadQuery(ValueError):
    """A query that cannot be run; the message says why."""


def run(query: str, reader: TopicReader | None, settings: Settings) -> pa.Table:
    """The result of a query over topics, archives and files. Names are those of topics."""
    connection = duckdb.connect(config={"python_enable_replacements": False})
    try:
        connection.execute("SET TimeZone = 'UTC'")
        names = connection.get_table_names(query)
        _add_tables(Tables(connection, reader, settings), names)
        return connection.execute(query).to_arrow_table()
    except duckdb.Error as error:
        raise BadQuery(_explained(error)) from None
    finally:
        connection.close()


def _add_tables(tables: Tables, names: set[str]) -> None:
    for name in sorted(names):
        if not tables.add(name) and not Path(name).exists():
            raise BadQuery(
                f"there is no topic, archive or file {name!r}. Names with dots or dashes are written in double quotes; "
                "'odradek topic list' shows the topics"
            )


def _explained(error: duckdb.Error) -> str:
    if isinstance(error, duckdb.BinderException) and "not found" in str(error):
        return f"{first_line(error)}. Columns are found in the first and last values of a topic: name others with --schema"
    return first_line(error)


__all__ = ["BadQuery", "BadSchema", "run"]
