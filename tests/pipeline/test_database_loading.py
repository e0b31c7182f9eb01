"""Databases without Spark: rows in and out of SQLite and a real PostgreSQL, types, names, refusals, batches."""

import pickle
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from odradek.ledger.protocol import AnotherProcess, LedgerLost, OlderCheckpoint
from odradek.pipeline.kinds.database import batches
from odradek.pipeline.kinds.database.access import (
    DatabaseAway,
    DatabaseRefused,
    Place,
    RowsRefused,
    connected,
)
from odradek.pipeline.kinds.database.batches import Adoption, Entry, Order, Verdict, adoption_of, decide
from odradek.pipeline.kinds.database.columns import misfit, simple_problem, view_of
from odradek.pipeline.kinds.database.loading import Loader, Target
from odradek.pipeline.kinds.database.reading import read, relation_of
from tests.pipeline.databases import postgresql_or_skip
from tests.pipeline.disks import fill_up, make_room, small_disk
from tools.postgresql import PASSWORD, PostgreSQL


@pytest.fixture(scope="module")
def postgresql() -> Iterator[PostgreSQL]:
    with postgresql_or_skip() as server:
        yield server


class Lite:
    """SQLite with the interface of the tests' PostgreSQL."""

    def __init__(self, path: Path) -> None:
        self.path, self.url = path, f"sqlite:///{path}"
        self.run()

    def run(self, *statements: str) -> None:
        connection = sqlite3.connect(self.path)
        with connection:
            for statement in statements:
                connection.execute(statement)
        connection.close()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(self.path)
        try:
            return connection.execute(query).fetchall()
        finally:
            connection.close()


@pytest.fixture
def lite(tmp_path: Path) -> Lite:
    return Lite(tmp_path / "shop.db")


@pytest.fixture(params=["postgresql", "sqlite"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "sqlite":
        return Lite(tmp_path / "shop.db")
    server = request.getfixturevalue("postgresql")
    server.run("DROP SCHEMA public CASCADE", "CREATE SCHEMA public")
    return server


def place(database: Any) -> Place:
    return Place(database.url, "" if isinstance(database, Lite) else PASSWORD)


def load(database: Any, target: Target, *rows: pa.RecordBatch) -> int:
    where = place(database)
    with connected(where, writes=True) as connection:
        return Loader(connection, where, target).load(rows)


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


NAMES = batch(id=pa.array([1, 2, 3]), name=["one", None, ""])


def test_rows_are_appended_and_an_empty_text_is_no_null(database):
    database.run("CREATE TABLE names (id BIGINT, name TEXT)")
    assert load(database, Target(None, "names", ("id", "name")), NAMES, NAMES.slice(0, 1)) == 4
    assert sorted(database.rows("SELECT * FROM names"), key=str) == [
        (1, "one"),
        (1, "one"),
        (2, None),
        (3, ""),
    ]


TRAPS = ["", "\\.", "\\N", "a,b", 'say "so"', "two\nlines", "\r", "ü", "NULL", " x "]


def test_texts_arrive_as_they_are(database):
    database.run("CREATE TABLE texts (text TEXT)")
    load(database, Target(None, "texts", ("text",)), batch(text=[*TRAPS, None]))
    assert [row[0] for row in database.rows("SELECT text FROM texts")] == [*TRAPS, None]


def test_names_are_quoted(database):
    """A name is no SQL, whatever is in it."""
    table, column = 'or"ders; DROP TABLE x', 'na"me); --'
    quoted = [name.replace('"', '""') for name in (table, column)]
    database.run('CREATE TABLE "{}" (id BIGINT PRIMARY KEY, "{}" TEXT)'.format(*quoted))
    rows = pa.RecordBatch.from_arrays([pa.array([1]), pa.array(["a"])], names=["id", column])
    load(database, Target(None, table, ("id", column)), rows)
    load(database, Target(None, table, ("id", column), key=("id",)), rows)
    relation = relation_of(place(database), table, "")
    schema = to_arrow_schema(relation.columns, timezone="UTC")
    assert [one.to_pylist() for one in read(place(database), relation.statement, schema)] == [
        [{"id": 1, column: "a"}]
    ]


def test_upserts_replace_rows_of_their_keys(database):
    database.run(
        "CREATE TABLE stock (shop TEXT, book BIGINT, amount BIGINT, note TEXT DEFAULT 'new', UNIQUE (book, shop))",
        "INSERT INTO stock VALUES ('a', 1, 10, 'old'), ('a', 2, 20, 'old')",
    )
    target = Target(None, "stock", ("shop", "book", "amount"), key=("shop", "book"))
    load(database, target, batch(shop=["a", "b"], book=[2, 1], amount=[21, 1]))
    assert sorted(database.rows("SELECT * FROM stock")) == [
        ("a", 1, 10, "old"), ("a", 2, 21, "old"), ("b", 1, 1, "new"),
    ]  # fmt: skip
    load(database, Target(None, "stock", ("shop", "book"), key=("shop", "book")), batch(shop=["a"], book=[1]))
    assert len(database.rows("SELECT * FROM stock")) == 3, "a row that is only a key changes nothing"


def test_marked_rows_delete_those_of_their_keys(database):
    database.run(
        "CREATE TABLE stock (shop TEXT, book BIGINT, amount BIGINT NOT NULL, UNIQUE (book, shop))",
        "INSERT INTO stock VALUES ('a', 1, 10), ('a', 2, 20), ('b', 1, 30)",
    )
    columns = ("shop", "book", "amount")
    target = Target(None, "stock", columns, key=("shop", "book"), deleted="gone")
    marks = {
        "shop": ["a", "c", "b"],
        "book": [1, 9, 1],
        "amount": [None, None, 31],
        "gone": [True, True, False],
    }
    load(database, target, batch(**marks))
    assert sorted(database.rows("SELECT * FROM stock")) == [("a", 2, 20), ("b", 1, 31)]
    with connected(place(database), writes=True) as connection:
        loader = Loader(connection, place(database), target)
        refused = loader.load_by_halves(batch(**marks | {"gone": [True, False, True]}))
    assert [*refused] == [1], "only a row that stays needs an amount"
    assert database.rows("SELECT * FROM stock") == [("a", 2, 20)]


def test_two_rows_of_a_key_without_an_order_are_refused(database):
    database.run("CREATE TABLE stock (book BIGINT PRIMARY KEY, amount BIGINT)")
    target = Target(None, "stock", ("book", "amount"), key=("book",), keys_are_unique=False)
    with pytest.raises(DatabaseRefused, match=r"several rows of the key 1.*give order_by"):
        load(database, target, batch(book=[1, 1], amount=[1, 2]))
    assert database.rows("SELECT * FROM stock") == []


def test_rows_that_are_refused_are_found_and_the_others_stay(database):
    database.run("CREATE TABLE stock (book BIGINT PRIMARY KEY, amount BIGINT CHECK (amount > 0))")
    rows = batch(book=[*range(20)], amount=[0 if number in (3, 17) else 1 for number in range(20)])
    for key in ((), ("book",)):
        target = Target(None, "stock", ("book", "amount"), key=key)
        with pytest.raises(RowsRefused, match="amount"):
            load(database, target, rows)
        where = place(database)
        with connected(where, writes=True) as connection:
            loader = Loader(connection, where, target)
            refused = loader.load_by_halves(rows)
        assert sorted(refused) == [3, 17] and "\n" not in refused[3]
        assert len(database.rows("SELECT * FROM stock")) == 18
        database.run("DELETE FROM stock")


INSTANT = datetime(2026, 3, 29, 1, 30, 0, 123456, UTC)
TYPES = {
    "flag": ("BOOLEAN", "boolean", pa.bool_(), True),
    "tiny": ("TINYINT", "smallint", pa.int8(), -5),
    "whole": ("BIGINT", "bigint", pa.int64(), -(2**63)),
    "fraction": ("DOUBLE", "double precision", pa.float64(), 0.1),
    "single": ("FLOAT", "real", pa.float32(), 0.5),
    "money": ("DECIMAL(38,10)", "numeric(38,10)", pa.decimal128(38, 10), Decimal("12345678901234567890.0123456789")),
    "bytes": ("BINARY", "bytea", pa.binary(), b"\x00\xff\\x"),
    "day": ("DATE", "date", pa.date32(), date(1, 1, 1)),
    "instant": ("TIMESTAMP", "timestamptz", pa.timestamp("us", "UTC"), INSTANT),
    "wall": ("TIMESTAMP_NTZ", "timestamp", pa.timestamp("us"), INSTANT.replace(tzinfo=None)),
}  # fmt: skip


def test_every_type_arrives_in_postgresql_and_comes_back(postgresql):
    postgresql.run(
        "DROP TABLE IF EXISTS kinds",
        f"CREATE TABLE kinds ({', '.join(f'{n} {one[1]}' for n, one in TYPES.items())})",
    )
    arrays = [pa.array([value, None], kind) for _, _, kind, value in TYPES.values()]
    load(
        postgresql, Target(None, "kinds", tuple(TYPES)), pa.RecordBatch.from_arrays(arrays, names=list(TYPES))
    )
    assert postgresql.rows("SELECT * FROM kinds")[0] == tuple(one[3] for one in TYPES.values())
    relation = relation_of(place(postgresql), "kinds", "")
    kinds = [one.dataType.simpleString().upper() for one in relation.columns.fields]
    assert kinds == [one[0].replace("TINYINT", "SMALLINT") for one in TYPES.values()]
    (rows,) = read(place(postgresql), relation.statement, to_arrow_schema(relation.columns, timezone="UTC"))
    assert rows.to_pylist() == [{n: one[3] for n, one in TYPES.items()}, dict.fromkeys(TYPES)]


def test_types_that_spark_lacks_are_read_as_text_and_written_from_it(postgresql):
    postgresql.run("DROP TABLE IF EXISTS odd", "CREATE TABLE odd (id uuid, about jsonb, tags text[])")
    values = {"id": "00000000-0000-0000-0000-000000000001", "about": '{"a": 1}', "tags": "{a,b}"}
    load(
        postgresql, Target(None, "odd", tuple(values)), batch(**{name: [one] for name, one in values.items()})
    )
    relation = relation_of(place(postgresql), "", "SELECT *, 100 % 7 AS rest FROM odd;")
    schema = to_arrow_schema(relation.columns, timezone="UTC")
    (rows,) = read(place(postgresql), relation.statement, schema)
    assert rows.to_pylist() == [values | {"rest": 2}]


def test_sqlite_keeps_times_as_texts_and_needs_text_for_decimals(lite):
    lite.run(
        "CREATE TABLE kinds (instant TIMESTAMP, wall DATETIME, day DATE, money TEXT, flag BOOLEAN, bytes BLOB)"
    )
    rows = batch(
        instant=pa.array([INSTANT], pa.timestamp("us", "UTC")),
        wall=pa.array([INSTANT.replace(tzinfo=None)], pa.timestamp("us")),
        day=pa.array([date(2026, 1, 2)], pa.date32()),
        money=pa.array([Decimal("0.10")], pa.decimal128(10, 2)),
        flag=[True],
        bytes=[b"\0"],
    )
    load(lite, Target(None, "kinds", tuple(rows.schema.names)), rows)
    assert lite.rows("SELECT * FROM kinds") == [
        ("2026-03-29 01:30:00.123456+00:00", "2026-03-29 01:30:00.123456", "2026-01-02", "0.10", 1, b"\0")
    ]
    relation = relation_of(place(lite), "kinds", "")
    schema = to_arrow_schema(relation.columns, timezone="UTC")
    (found,) = read(place(lite), relation.statement, schema)
    assert found.to_pylist()[0] == {
        "instant": INSTANT, "wall": INSTANT, "day": date(2026, 1, 2), "money": "0.10", "flag": True, "bytes": b"\0",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("column", "kind", "problem"),
    [
        ("numeric(10,2)", DecimalType(12, 4), "would be rounded to 2 digits: cast to DECIMAL"),
        ("numeric(10,2)", DecimalType(10, 2), ""),
        ("numeric", DecimalType(38, 18), ""),
        ("bigint", DecimalType(10, 2), "is not numeric"),
        ("bigint", DoubleType(), "would round fractions"),
        ("real", DoubleType(), "is single precision"),
        ("integer", LongType(), ""),
        ("timestamptz", TimestampNTZType(), "has a time zone, and the value has none"),
        ("timestamp", TimestampType(), ""),
        ("bytea", StringType(), "is bytea"),
        ("text", BinaryType(), "is not bytea"),
        ("boolean", IntegerType(), "is not a number"),
        ("uuid", StringType(), ""),
        ("date", IntegerType(), "is not a number"),
        ("date", TimestampType(), "is not a timestamp"),
        ("double precision", LongType(), "would round large numbers: cast to DOUBLE"),
        ("double precision", IntegerType(), ""),
        ("real", IntegerType(), "would round large numbers: cast to FLOAT"),
        ("real", ShortType(), ""),
    ],
)
def test_columns_that_do_not_take_a_type_say_why(postgresql, column, kind, problem):
    postgresql.run("DROP TABLE IF EXISTS one", f"CREATE TABLE one (c {column})")
    with connected(place(postgresql)) as connection:
        view = view_of(connection, None, "one")
    assert view is not None
    found = misfit(kind, view.columns["c"].kind, "postgresql")
    assert found.startswith(problem) if problem else not found, found


def test_a_time_in_any_zone_is_written_as_utc(postgresql):
    """A column without a time zone takes what is written."""
    postgresql.run("DROP TABLE IF EXISTS times", "CREATE TABLE times (wall timestamp, instant timestamptz)")
    moments = pa.array([INSTANT], pa.timestamp("us", "Asia/Tokyo"))
    load(postgresql, Target(None, "times", ("wall", "instant")), batch(wall=moments, instant=moments))
    assert postgresql.rows("SELECT * FROM times") == [(INSTANT.replace(tzinfo=None), INSTANT)]


def test_times_that_spark_does_not_have_are_refused_with_what_to_do(postgresql):
    """Many write 'infinity' for "still valid"; no retry would help."""
    postgresql.run(
        "DROP TABLE IF EXISTS prices",
        "CREATE TABLE prices (since timestamp, until timestamptz, day date)",
        "INSERT INTO prices VALUES ('-infinity', 'infinity', 'infinity')",
    )
    for column, problem in (
        ("since", "before year 1"),
        ("until", "after year 10K"),
        ("day", "after year 10K"),
    ):
        relation = relation_of(place(postgresql), "", f"SELECT {column} FROM prices")
        schema = to_arrow_schema(relation.columns, timezone="UTC")
        with pytest.raises(DatabaseRefused, match=rf"{problem}.*read it by a query, NULLIF"):
            list(read(place(postgresql), relation.statement, schema))


def test_numbers_are_not_taken_for_times(lite):
    lite.run("CREATE TABLE events (at TIMESTAMP, day DATE)", "INSERT INTO events VALUES (1767225600, 20454)")
    for column in ("at", "day"):
        relation = relation_of(place(lite), "", f"SELECT {column} FROM events")
        with pytest.raises(
            DatabaseRefused, match=rf"'{column}' is not .*: .* is a number: read it by a query"
        ):
            list(read(place(lite), relation.statement, to_arrow_schema(relation.columns, timezone="UTC")))


def test_keys_that_only_the_table_takes_for_the_same_are_refused(postgresql):
    postgresql.run("DROP TABLE IF EXISTS days", "CREATE TABLE days (at timestamp(0) PRIMARY KEY, note TEXT)")
    moments = [INSTANT.replace(tzinfo=None, microsecond=one) for one in (1, 2)]
    rows = batch(at=pa.array(moments, pa.timestamp("us")), note=["a", "b"])
    with pytest.raises(
        DatabaseRefused, match=r"second time.*the table takes several keys .* for the same one"
    ):
        load(postgresql, Target(None, "days", ("at", "note"), key=("at",)), rows)


def test_arrays_maps_and_structs_are_refused_with_a_sentence():
    for kind in (ArrayType(LongType()), MapType(StringType(), LongType()), StructType()):
        assert "write to_json(…) of it" in simple_problem(kind)
    assert "cast it" in simple_problem(DayTimeIntervalType())


def test_what_a_table_needs_and_which_keys_it_has(database):
    database.run(
        "CREATE TABLE stock (id INTEGER PRIMARY KEY, shop TEXT NOT NULL, book BIGINT NOT NULL DEFAULT 1, note TEXT, "
        "UNIQUE (shop, book))",
        "CREATE UNIQUE INDEX notes ON stock (note)",
        "CREATE UNIQUE INDEX partial ON stock (book) WHERE note IS NULL",
        "CREATE INDEX books ON stock (book)",
        "ALTER TABLE stock ADD COLUMN twice BIGINT GENERATED ALWAYS AS (book * 2) "
        + ("VIRTUAL" if isinstance(database, Lite) else "STORED"),
    )
    with connected(place(database)) as connection:
        view = view_of(connection, None, "stock")
        assert view_of(connection, None, "no_such_table") is None
    assert view is not None
    assert {*view.keys} == {("id",), ("book", "shop"), ("note",)}
    needed = {name for name, column in view.columns.items() if not column.is_filled}
    assert needed == ({"shop"} if isinstance(database, Lite) else {"id", "shop"})
    assert [name for name, column in view.columns.items() if column.is_computed] == ["twice"]


# Batches


ORDER = Order("query", 7, "f", "sqlite:///shop.db stock")
NOTED = Adoption(0, ORDER.database)


@pytest.mark.parametrize(
    ("entry", "adopted", "verdict"),
    [
        (None, None, Verdict.ADOPT),
        (None, Adoption(0, "elsewhere"), Verdict.ADOPT),
        (Entry(3, "x"), Adoption(0, "elsewhere"), Verdict.ADOPT),
        (None, Adoption(7, ORDER.database), Verdict.WRITE),
        (Entry(3, "x"), Adoption(7, ORDER.database), Verdict.WRITE),
        (Entry(6, "x"), NOTED, Verdict.WRITE),
        (Entry(7, "f"), NOTED, Verdict.SKIP),
        (Entry(7, "other"), NOTED, AnotherProcess),
        (Entry(8, "f"), NOTED, OlderCheckpoint),
        (Entry(5, "x"), NOTED, LedgerLost),
        (None, NOTED, LedgerLost),
    ],
)
def test_whether_a_batch_is_written(entry, adopted, verdict):
    if isinstance(verdict, Verdict):
        assert decide(ORDER, entry, adopted) is verdict
    else:
        with pytest.raises(verdict):
            decide(ORDER, entry, adopted)


def test_the_note_survives_its_text():
    assert adoption_of(NOTED.as_text()) == NOTED and adoption_of(None) is None


def test_the_table_of_batches_can_be_created_by_hand(database):
    table = batches.table_of(None)
    database.run(batches.ddl_of(table, place(database).dialect))
    with connected(place(database), writes=True) as connection:
        batches.note(connection, table, ORDER, None, 5, "shop.stock")
        assert batches.look(connection, table, "query") == Entry(7, "f")


def test_the_row_of_a_sink_changes_from_batch_to_batch_and_never_behind_its_back(database):
    table, where = batches.table_of(None), place(database)
    with connected(where, writes=True) as connection:
        table.create(connection)
    for entry, order in ((None, ORDER), (Entry(7, "f"), Order("query", 8, "g", ORDER.database))):
        with connected(where, writes=True) as connection:
            assert batches.look(connection, table, "query") == entry
            batches.note(connection, table, order, entry, 5, "shop.stock")
    for seen in (None, Entry(7, "f")):
        with pytest.raises(AnotherProcess, match="Stop one"), connected(where, writes=True) as connection:
            batches.note(connection, table, ORDER, seen, 5, "shop.stock")
    assert database.rows("SELECT sink, batch, fingerprint, row_count, name FROM odradek_batches") == [
        ("query", 8, "g", 5, "shop.stock")
    ]


# Access


@contextmanager
def on_a_small_disk(database: Any, tmp_path: Path) -> Iterator[tuple[Any, Path]]:
    """The database with a table `texts` that is on a small disk."""
    if isinstance(database, Lite):
        with small_disk(tmp_path / "disk") as disk:
            lite = Lite(disk / "shop.db")
            lite.run("CREATE TABLE texts (text TEXT)")
            yield lite, disk
        return
    with small_disk(database.directory / "disk") as disk:
        shutil.chown(disk, database.directory.owner())
        try:
            database.run(
                f"CREATE TABLESPACE small LOCATION '{disk}'",
                "CREATE TABLE texts (text TEXT) TABLESPACE small",
            )
            yield database, disk
        finally:
            database.run("DROP TABLE texts", "DROP TABLESPACE small")


def test_a_full_disk_is_no_rows_fault_and_is_waited_for(database, tmp_path):
    rows = batch(text=["x" * 1000] * 1000)
    target = Target(None, "texts", ("text",))
    with on_a_small_disk(database, tmp_path) as (full, disk):
        load(full, target, rows.slice(0, 10))
        fill_up(disk)
        with pytest.raises(
            DatabaseAway, match=r"does not do it now: .*(disk is full|No space left on device)"
        ):
            load(full, target, rows)
        assert full.rows("SELECT count(*) FROM texts") == [(10,)]
        make_room(disk)
        load(full, target, rows)
        assert full.rows("SELECT count(*) FROM texts") == [(1010,)]


def test_a_row_that_another_writer_has_locked_is_waited_for(database, monkeypatch):
    database.run(
        "CREATE TABLE stock (book BIGINT PRIMARY KEY, amount BIGINT)", "INSERT INTO stock VALUES (1, 1)"
    )
    monkeypatch.setattr("odradek.pipeline.kinds.database.access.LOCK_TIMEOUT_S", 0.01)
    target = Target(None, "stock", ("book", "amount"), key=("book",))
    rows = batch(book=[1], amount=[2])
    with connected(place(database), writes=True) as other:
        other.exec_driver_sql("UPDATE stock SET amount = 3 WHERE book = 1")
        with pytest.raises(DatabaseAway, match="lock"):
            load(database, target, rows)
    load(database, target, rows)
    assert database.rows("SELECT amount FROM stock") == [(2,)]


def test_no_message_has_the_password_and_each_says_what_kind_it_is(postgresql):
    wrong = Place(postgresql.url, "not-" + PASSWORD)
    refuses = "the database refuses: .*password authentication failed"
    with pytest.raises(DatabaseRefused, match=refuses) as caught, connected(wrong):
        pass
    assert PASSWORD not in str(caught.value)
    missing = Place(postgresql.url.replace("/postgres", "/no_such_database"), PASSWORD)
    with pytest.raises(DatabaseRefused, match=r"no_such_database.* does not exist"), connected(missing):
        pass
    with pytest.raises(DatabaseRefused, match="does not exist"), connected(place(postgresql)) as connection:
        connection.exec_driver_sql("SELECT * FROM no_such_table")
    with pytest.raises(RowsRefused), connected(place(postgresql)) as connection:
        connection.exec_driver_sql("SELECT 1/0")
    nowhere = Place("postgresql://shop@127.0.0.1:1/postgres", PASSWORD)
    with pytest.raises(DatabaseAway, match=r"cannot be reached: .*Connection refused"), connected(nowhere):
        pass
    assert PASSWORD not in repr(place(postgresql)) and pickle.loads(pickle.dumps(nowhere)) == nowhere


def test_sqlite_says_so_when_its_file_is_not_there_or_busy(lite, tmp_path, monkeypatch):
    with pytest.raises(DatabaseAway, match=r"there is no database .*missing\.db"):
        relation_of(Place(f"sqlite:///{tmp_path}/missing.db", ""), "stock", "")
    assert not (tmp_path / "missing.db").exists()
    monkeypatch.setattr("odradek.pipeline.kinds.database.access.LOCK_TIMEOUT_S", 0)
    with connected(place(lite), writes=True), pytest.raises(DatabaseAway, match="locked"):  # noqa: SIM117
        with connected(place(lite), writes=True):
            pass
    lite.run("CREATE TABLE kinds (a INTEGER)", "INSERT INTO kinds VALUES ('text')")
    relation = relation_of(place(lite), "kinds", "")
    with pytest.raises(DatabaseRefused, match="a value of the column 'a' is not int64"):
        list(read(place(lite), relation.statement, pa.schema({"a": pa.int64()})))
    with pytest.raises(DatabaseRefused, match=r"'b' has no declared type .*schema"):
        relation_of(place(lite), "", "SELECT a + 1 AS b FROM kinds")
    declared = StructType([StructField("b", LongType())])
    assert relation_of(place(lite), "", "SELECT a + 1 AS b FROM kinds", declared).columns == declared
