"""The decision whether a batch is in the database already, so that its rows are there if and only if the table
`odradek_batches` says so: the row of a batch is written in the transaction of its rows.

A row has the sink (Spark's id of the query: another one after a reset), its newest batch, and a fingerprint of what
that batch read. The checkpoint notes from which batch on which database has a row, before the first one is written:
so a row that is missing later is noticed, and an edit that names another database is none.
"""

import json
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from odradek.ledger.protocol import AnotherProcess, LedgerLost, OlderCheckpoint

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

TABLE = "odradek_batches"


@dataclass(frozen=True)
class Adoption:
    """The checkpoint's note: since which batch the database has a row of this query."""

    first: int
    database: str

    def as_text(self) -> str:
        return json.dumps({"first": self.first, "database": self.database})


def adoption_of(text: str | None) -> Adoption | None:
    if text is None:
        return None
    found = json.loads(text)
    return Adoption(int(found["first"]), str(found["database"]))


@dataclass(frozen=True)
class Entry:
    """The database's entry for a sink."""

    batch: int
    fingerprint: str


@dataclass(frozen=True)
class Order:
    """A batch that is to be written. `database` names the table that it goes to."""

    sink: str
    batch: int
    fingerprint: str
    database: str


class Verdict(Enum):
    SKIP = "it was written before"
    WRITE = "write it"
    ADOPT = "note that the database has a row from this batch on, then write it"


def decide(order: Order, entry: Entry | None, adopted: Adoption | None) -> Verdict:
    """`LedgerLost`, `OlderCheckpoint` or `AnotherProcess` if neither is right."""
    if entry is not None and entry.batch == order.batch:
        if entry.fingerprint == order.fingerprint:
            return Verdict.SKIP
        raise AnotherProcess(
            f"batch {order.batch} of this sink is in the database with other rows: another process has run a copy of "
            f"the checkpoint. Keep the newer checkpoint, or start over with 'odradek pipeline reset'"
        )
    if entry is not None and entry.batch > order.batch:
        raise OlderCheckpoint(
            f"the database has batch {entry.batch} of this sink, and the checkpoint is at batch {order.batch}: an "
            "older "
            f"checkpoint was restored. Restore the newest one, or start over with 'odradek pipeline reset'"
        )
    if adopted is None or adopted.database != order.database:
        return Verdict.ADOPT
    if order.batch == adopted.first or (entry is not None and entry.batch == order.batch - 1):
        return Verdict.WRITE
    known = "nothing" if entry is None else f"batch {entry.batch}"
    raise LedgerLost(
        f"the table {TABLE} has {known} of this sink, and the checkpoint has finished batch "
        f"{order.batch - 1}: the row was "
        f"deleted, or an older backup of the database was restored. Restore the rows, or start over with "
        f"'odradek pipeline reset', which writes all rows again"
    )


# The table


def table_of(schema: str | None) -> "Table":
    from sqlalchemy import BigInteger, Column, DateTime, MetaData, String, Table, func

    return Table(
        TABLE,
        MetaData(),
        Column("sink", String, primary_key=True),
        Column("batch", BigInteger, nullable=False),
        Column("fingerprint", String, nullable=False),
        Column("row_count", BigInteger, nullable=False),
        Column("name", String, nullable=False),
        Column("written_at", DateTime(timezone=True), nullable=False, server_default=func.now()),
        schema=schema,
    )


def ddl_of(table: "Table", dialect: str) -> str:
    """Return the statement that creates the table, in one line."""
    from sqlalchemy.dialects import registry
    from sqlalchemy.schema import CreateTable

    return " ".join(str(CreateTable(table).compile(dialect=registry.load(dialect)())).split())


def look(connection: "Connection", table: "Table", sink: str) -> Entry | None:
    """The sink's row, locked until the end of the transaction."""
    from sqlalchemy import select

    query = select(table.c.batch, table.c.fingerprint).where(table.c.sink == sink)
    if connection.dialect.name == "postgresql":
        query = query.with_for_update()
    found = connection.execute(query).first()
    return None if found is None else Entry(int(found[0]), str(found[1]))


def note(
    connection: "Connection", table: "Table", order: Order, entry: Entry | None, rows: int, name: str
) -> None:
    """Write the row of a batch, in the place of `entry`."""
    from sqlalchemy import func, insert, update
    from sqlalchemy.exc import IntegrityError

    values = {"batch": order.batch, "fingerprint": order.fingerprint, "row_count": rows, "name": name}
    if entry is None:
        try:
            connection.execute(insert(table).values(sink=order.sink, **values))
        except IntegrityError:
            raise _of_two("meanwhile") from None
        return
    same = (table.c.sink == order.sink) & (table.c.batch == entry.batch)
    changed = connection.execute(update(table).where(same).values(written_at=func.now(), **values))
    if changed.rowcount != 1:
        raise _of_two(f"since batch {entry.batch}")


def _of_two(when: str) -> AnotherProcess:
    return AnotherProcess(
        f"another process has written for this sink {when}: two processes run this pipeline. Stop one"
    )
