"""A database as a pipeline's file names it, connections to it, and what its failures mean.

    DatabaseAway      it does not respond, or may soon do what it refused: a retry may succeed
    DatabaseRefused   no retry can change it: a missing table, a missing right, a column that is gone
    RowsRefused       a row is to blame: a constraint, a value out of range (SQLSTATE classes 22 and 23)

Each message has one line, without the statement, its values, or the password.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.pipeline.file.definition import Database, Pipeline
from odradek.pipeline.file.document import Key

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

CONNECT_TIMEOUT_S = 10
LOCK_TIMEOUT_S = (
    60  # for rows that another transaction has locked: of a driver that died far away, for example
)
ROW_STATES = ("22", "23")
PERMANENT_STATES = ("0A", "21", "28", "3D", "3F", "42", "44")
PERMANENT_WORDS = (
    *("no such table", "no such column", "has no column", "syntax error", "readonly database"),
    # of a connection that PostgreSQL refuses, whose SQLSTATE the driver does not know
    *("password authentication failed", "no password supplied", "does not exist", "pg_hba.conf"),
    *("too large (after year 10K)", "too small (before year 1)"),  # of psycopg: 'infinity', for example
)
HINTS = {
    "cannot affect row a second time": "the table takes several keys of the batch for the same one (a collation, or "
    "fewer digits): write them as the table compares them, lower(…) for example",
    "after year 10K": "Spark has no such time: read it by a query, NULLIF(until, 'infinity')",
    "before year 1)": "Spark has no such time: read it by a query, NULLIF(since, '-infinity')",
}
NO_CONNECTION = "connection failed: "  # psycopg's words
HOW_TO_INSTALL = "pip install '.[database]' in a clone of Odradek"
POSTGRESQL, SQLITE = "postgresql", "sqlite"


class DatabaseAway(Exception):
    """A retry may succeed."""


class DatabaseRefused(Exception):
    """No retry can change it."""


class RowsRefused(Exception):
    """A row is to blame."""


@dataclass(frozen=True)
class Place:
    """A database. Workers get it, so it can be pickled."""

    url: str
    password: str = field(repr=False)

    @property
    def dialect(self) -> str:
        return self.url.partition(":")[0]

    @property
    def name(self) -> str:
        """The name for messages and the checkpoint; without the password."""
        return self.url


def place_of(pipeline: Pipeline, database: Database) -> Place:
    """Files of SQLite are relative to the pipeline's file."""
    begin = f"{SQLITE}:///"
    if database.url.startswith(begin):
        path = database.url.removeprefix(begin)
        return Place(f"{begin}{pipeline.path(path)}", database.password)
    return Place(database.url, database.password)


def check_installed(pipeline: Pipeline, key: Key, database: Database) -> None:
    import importlib.util

    needed = {"sqlalchemy": "SQLAlchemy"}
    if database.url.startswith(POSTGRESQL):
        needed["psycopg"] = "psycopg"
    for module, name in needed.items():
        if importlib.util.find_spec(module) is None:
            raise pipeline.error((*key, "database"), f"{name} is not installed: {HOW_TO_INSTALL}")


# Connections


@contextmanager
def connected(place: Place, *, writes: bool = False) -> Iterator["Connection"]:
    """One connection, with one transaction: committed at the end, rolled back by an error."""
    engine = _engine(place, writes)
    try:
        with translated(place), engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def _engine(place: Place, writes: bool) -> "Engine":
    from sqlalchemy import create_engine, event, make_url
    from sqlalchemy.pool import NullPool

    url = make_url(place.url)
    options: dict[str, Any] = {"poolclass": NullPool, "hide_parameters": True}
    if place.dialect == SQLITE:
        _check_file(place, url.database)
        options["connect_args"] = {"timeout": LOCK_TIMEOUT_S}
        engine = create_engine(url, **options)
        event.listen(engine, "connect", _sqlite_without_own_transactions)
        event.listen(engine, "begin", _sqlite_begins_to_write if writes else _sqlite_begins_to_read)
        return engine
    url = url.set(drivername="postgresql+psycopg")
    if place.password:
        url = url.set(password=place.password)
    given = {"connect_timeout": CONNECT_TIMEOUT_S, "application_name": "odradek"}
    options["connect_args"] = {name: value for name, value in given.items() if name not in url.query}
    engine = create_engine(url, **options)
    event.listen(engine, "begin", _postgresql_begins)
    return engine


def _check_file(place: Place, path: str | None) -> None:
    """SQLite would create a database that is not there: a misspelt name must not become one."""
    if path and not Path(path).exists():
        raise DatabaseAway(f"there is no database {path}; create it first ('sqlite3 {path} < schema.sql')")


def _sqlite_without_own_transactions(connection: sqlite3.Connection, _: Any) -> None:
    connection.isolation_level = None  # Python's module would begin and end transactions as it likes


def _sqlite_begins_to_write(connection: "Connection") -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")  # waits for other writers now, not in the middle


def _sqlite_begins_to_read(connection: "Connection") -> None:
    connection.exec_driver_sql("BEGIN")


def _postgresql_begins(connection: "Connection") -> None:
    connection.exec_driver_sql("SET LOCAL TIME ZONE 'UTC'")
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_S}s'")


# Failures


@contextmanager
def translated(place: Place) -> Iterator[None]:
    """Failures of the database as ours; others pass."""
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError

    try:
        yield
    except DBAPIError as error:
        raise meaning(error.orig or error, place) from None
    except SQLAlchemyError as error:
        raise DatabaseRefused(_line(error, place)) from None
    except Exception as error:
        if not _is_drivers(error):
            raise
        raise meaning(error, place) from None


def _is_drivers(error: BaseException) -> bool:
    return type(error).__module__.split(".")[0] in ("psycopg", "sqlite3")


def meaning(error: BaseException, place: Place) -> Exception:
    """Translate a driver's error."""
    line = _line(error, place)
    why = line.removeprefix(NO_CONNECTION)
    state = getattr(error, "sqlstate", None) or ""
    if state.startswith(ROW_STATES) or isinstance(
        error, sqlite3.IntegrityError | sqlite3.DataError | OverflowError
    ):
        return RowsRefused(line)
    if state.startswith(PERMANENT_STATES) or any(words in line for words in PERMANENT_WORDS):
        hint = next((f". {hint}" for words, hint in HINTS.items() if words in line), "")
        return DatabaseRefused(f"the database refuses: {why}{hint}")
    what = "does not do it now" if why == line else "cannot be reached"
    return DatabaseAway(f"the database {what}: {why}")


def _line(error: BaseException, place: Place) -> str:
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    detail = next((line for line in lines[1:] if line.startswith("DETAIL")), "")
    text = " ".join([*lines[:1], detail]).strip() or type(error).__name__
    return text.replace(place.password, "***") if place.password else text
