"""Pipelines that read and write databases without a jar, PostgreSQL and SQLite: each row once, whatever is killed."""

import contextlib
import json
import re
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.pipeline.check.checking import check
from odradek.pipeline.checkpoint import Checkpoint
from odradek.pipeline.file.definition import Pipeline
from odradek.pipeline.file.errors import PipelineError
from odradek.pipeline.kinds.database import batches, loading
from odradek.pipeline.run.explaining import explain
from odradek.pipeline.run.running import PipelineRun, Supervisor
from tests.pipeline.databases import postgresql_or_skip
from tests.pipeline.lab import Lab, Recorder, conf_arguments, start_command
from tests.spark.committed import forget_last_commit
from tools.postgresql import PASSWORD, PostgreSQL

SHOP = """
[sources.orders]
topic = "{orders}"
schema = "id BIGINT, shop STRING, amount DECIMAL(10,2), at TIMESTAMP"
{limit}
[sinks.out]
from = "{source}"
database = "{url}"
{password}
table = "{table}"
{mode}
{more}
"""
TABLE = "(id BIGINT PRIMARY KEY, shop TEXT, amount {decimal} CHECK (amount >= 0), at {instant})"
LETTERS = '[dead_letters]\npath = "dead"\nlimit = 1\n'


@pytest.fixture(scope="module")
def postgresql() -> Iterator[PostgreSQL]:
    with postgresql_or_skip() as server:
        yield server


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)


class Databases:
    """The same questions to both."""

    def __init__(self, lab: Lab, server: PostgreSQL | None) -> None:
        self.server, self.path = server, lab.directory / "shop.db"
        self.url = server.url if server is not None else "sqlite:///shop.db"
        self.password = 'password = "${SHOP_PASSWORD}"' if server is not None else ""
        self.table = f"orders_{lab.fresh_name()}"
        types = (
            {"decimal": "NUMERIC(10,2)", "instant": "TIMESTAMPTZ"}
            if server
            else {"decimal": "TEXT", "instant": "TIMESTAMP"}
        )
        self.run(f"CREATE TABLE {self.table} {TABLE.format(**types)}")

    def run(self, *statements: str) -> None:
        if self.server is not None:
            return self.server.run(*statements)
        connection = sqlite3.connect(self.path)
        with connection:
            for statement in statements:
                connection.execute(statement)
        return connection.close()

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        if self.server is not None:
            return self.server.rows(query)
        connection = sqlite3.connect(self.path)
        try:
            return connection.execute(query).fetchall()
        finally:
            connection.close()

    def ids(self) -> list[int]:
        return [row[0] for row in self.rows(f"SELECT id FROM {self.table} ORDER BY id")]

    def pipeline(self, lab: Lab, topic: str, **facts: str) -> Pipeline:
        values = {"source": "orders", "limit": "", "mode": "", "more": "", "table": self.table}
        text = SHOP.format(**values | facts, orders=topic, url=self.url, password=self.password)
        return lab.pipeline(text)


def made(request: pytest.FixtureRequest, lab: Lab) -> Databases:
    server = request.getfixturevalue("postgresql") if request.param == "postgresql" else None
    return Databases(lab, server)


@pytest.fixture(params=["postgresql", "sqlite"])
def either(request: pytest.FixtureRequest, lab: Lab, secret: None) -> Databases:
    return made(request, lab)


@pytest.fixture(params=["postgresql", pytest.param("sqlite", marks=pytest.mark.long)])
def database(request: pytest.FixtureRequest, lab: Lab, secret: None) -> Databases:
    """SQLite does the same by the same statements, but for COPY."""
    return made(request, lab)


def orders(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [
        {"id": number, "shop": "a", "amount": f"{number}.50", "at": "2026-01-01T10:00:00Z"}
        for number in range(first, first + count)
    ]


def test_a_batch_that_runs_again_writes_nothing_a_second_time(spark, lab: Lab, either: Databases):
    topic = lab.topic(2)
    lab.fill(topic, orders(5))
    pipeline = either.pipeline(lab, topic)
    lab.run_well(spark, pipeline)
    assert any("exactly once, by a row of odradek_batches" in text for text in lab.events.messages)
    forget_last_commit(Checkpoint(pipeline).query("sink", "out"))
    lab.fill(topic, orders(3, first=5))
    lab.run_well(spark, pipeline)
    assert either.ids() == [*range(8)], "a primary key would refuse a second time"
    ((batch, rows, name),) = either.rows(
        f"SELECT batch, row_count, name FROM odradek_batches WHERE sink = '{query_id(pipeline)}'"
    )
    assert (rows, name) == (3, "pipe.out") and batch == Checkpoint(pipeline).progress("sink", "out").batch
    (amount,) = either.rows(f"SELECT amount FROM {either.table} WHERE id = 7")
    assert str(amount[0]) == "7.50"


def query_id(pipeline: Pipeline) -> str:
    return Checkpoint(pipeline).query_id("sink", "out")


class Interrupted(Exception):
    """Ends a run as if the driver had been killed here."""


STEPS = {
    "before the transaction": (batches, "look"),
    "before the rows": (loading.Loader, "load"),
    "between the rows and the batch": (batches, "note"),
}


LAST = "between the rows and the batch"


@pytest.mark.parametrize(
    "step", [pytest.param(one, marks=[] if one == LAST else pytest.mark.long) for one in STEPS]
)
def test_an_interruption_at_any_step_loses_and_repeats_nothing(
    spark, lab: Lab, database: Databases, monkeypatch, step: str
):
    topic, (owner, name) = lab.topic(1), STEPS[step]
    lab.fill(topic, orders(4), 1)
    pipeline = database.pipeline(lab, topic)
    work, interrupted = getattr(owner, name), []

    def fails_once(*arguments: Any) -> Any:
        if not interrupted:
            interrupted.append(step)
            raise Interrupted(step)
        return work(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, fails_once)
        run = lab.run(spark, pipeline, retries=0)
    assert run.problem is not None and step in run.problem
    assert database.ids() == []
    lab.run_well(spark, pipeline)
    assert database.ids() == [*range(4)]


def test_rows_that_the_database_refuses_become_dead_letters(spark, lab: Lab, database: Databases):
    topic = lab.topic(1)
    bad = [orders(1, first=1)[0] | {"amount": "-1.00"}, orders(1, first=3)[0] | {"id": 0}]
    lab.fill(topic, [*orders(3), *bad, *orders(3, first=3)], 1)
    pipeline = database.pipeline(lab, topic)
    without = lab.run(spark, pipeline)
    assert without.problem is not None and "[dead_letters]" in without.problem, without.problem
    assert database.ids() == []
    with_letters = database.pipeline(lab, topic, more=LETTERS)
    lab.run_well(spark, with_letters)
    assert database.ids() == [*range(6)]
    letters = [json.loads(line) for file in (lab.directory / "dead").rglob("*.json") for line in file.open()]
    assert len(letters) == 2 and {one["stage"] for one in letters} == {"sink"}
    assert any("CHECK" in one["reason"].upper() for one in letters)
    assert {json.loads(one["text"])["id"] for one in letters} == {0, 1}


def test_the_last_row_of_a_key_decides_and_a_null_key_is_set_aside(spark, lab: Lab, database: Databases):
    topic = lab.topic(1)
    first = [
        {"id": 1, "shop": "a"},
        {"id": 2, "shop": "a"},
        {"id": 1, "shop": "b"},
        {"id": None, "shop": "x"},
        {"id": 4, "shop": "closed"},
        {"id": 4, "shop": "opened again"},
        {"id": 5, "shop": "a"},
    ]
    lab.fill(topic, first, 1)
    upsert = 'mode = "upsert"\nkey = "id"\ndelete_when = "shop = \'closed\'"'
    pipeline = database.pipeline(lab, topic, mode=upsert, more=LETTERS)
    lab.run_well(spark, pipeline)
    closed = [{"id": 5, "shop": "b"}, {"id": 5, "shop": "closed"}]
    lab.fill(topic, [{"id": 2, "shop": "c"}, {"id": 3, "shop": "c"}, *closed], 1)
    lab.run_well(spark, pipeline)
    assert database.rows(f"SELECT id, shop FROM {database.table} ORDER BY id") == [
        (1, "b"),
        (2, "c"),
        (3, "c"),
        (4, "opened again"),
    ]
    letters = [json.loads(line) for file in (lab.directory / "dead").rglob("*.json") for line in file.open()]
    assert ["the key is null, and an upsert needs one" in one["reason"] for one in letters] == [True]
    assert json.loads(letters[0]["text"]) == first[3], "the record itself"


@pytest.mark.long
def test_of_rows_with_the_same_order_the_later_record_counts(spark, lab: Lab, database: Databases):
    topic, at = lab.topic(1), "2026-01-01T10:00:00Z"
    rows = [{"id": number % 3, "shop": str(number), "at": at} for number in range(60)]
    lab.fill(topic, [*rows, {"id": 2, "shop": "older", "at": "2025-01-01T10:00:00Z"}], 1)
    lab.run_well(spark, database.pipeline(lab, topic, mode='mode = "upsert"\nkey = "id"\norder_by = "at"'))
    assert database.rows(f"SELECT id, shop FROM {database.table} ORDER BY id") == [
        (0, "57"),
        (1, "58"),
        (2, "59"),
    ]


def test_groups_are_upserted_as_they_grow(spark, lab: Lab, database: Databases):
    topic = lab.topic(1)
    totals = (
        '[transforms.totals]\nsql = "SELECT id % 2 AS id, max(shop) AS shop FROM orders GROUP BY id % 2"\n'
    )
    pipeline = database.pipeline(
        lab, topic, source="totals", mode='mode = "upsert"\nkey = "id"\nbounded_keys = true', more=totals
    )
    for shop in ("a", "b"):
        lab.fill(topic, [{"id": 1, "shop": shop}, {"id": 3, "shop": shop}, {"id": 2, "shop": "x"}], 1)
        lab.run_well(spark, pipeline)
    assert database.rows(f"SELECT id, shop FROM {database.table} ORDER BY id") == [(0, "x"), (1, "b")]


def test_a_reset_checkpoint_has_a_new_id_and_an_older_one_is_refused(spark, lab: Lab, database: Databases):
    topic = lab.topic(1)
    lab.fill(topic, orders(2), 1)
    pipeline = database.pipeline(lab, topic, mode='mode = "upsert"\nkey = "id"')
    lab.run_well(spark, pipeline)
    database.run(f"DELETE FROM {database.table}")
    assert Checkpoint(pipeline).remove_query("sink", "out")
    lab.run_well(spark, pipeline)
    assert database.ids() == [0, 1], "batch 0 of the new checkpoint is no batch 0 of the old one"
    lab.fill(topic, orders(1, first=2), 1)
    lab.run_well(spark, pipeline)
    sink = query_id(pipeline)
    database.run(f"UPDATE odradek_batches SET batch = batch + 5 WHERE sink = '{sink}'")
    lab.fill(topic, orders(1, first=3), 1)
    run = lab.run(spark, pipeline)
    assert run.problem is not None and "an older checkpoint was restored" in run.problem
    at = Checkpoint(pipeline).progress("sink", "out").batch
    database.run(f"UPDATE odradek_batches SET batch = {at}, fingerprint = 'x' WHERE sink = '{sink}'")
    run = lab.run(spark, pipeline)
    assert run.problem is not None and "another process has run a copy of the checkpoint" in run.problem
    database.run(f"DELETE FROM odradek_batches WHERE sink = '{sink}'")
    run = lab.run(spark, pipeline)
    assert run.problem is not None and "odradek_batches has nothing of this sink" in run.problem


JOIN = """
[sources.orders]
topic = "{orders}"
schema = "id BIGINT"
[sources.shops]
database = "{url}"
{password}
{read}
[transforms.named]
sql = "SELECT orders.id, shops.shop, shops.amount FROM orders LEFT JOIN shops ON orders.id = shops.id"
[sinks.out]
from = "named"
topic = "{out}"
"""


def test_a_table_is_the_static_side_of_a_join_read_anew_for_each_batch(
    spark, lab: Lab, database: Databases, capfd
):
    names = {"orders": lab.topic(1), "out": lab.topic(1), "url": database.url, "password": database.password}
    database.run(f"INSERT INTO {database.table} (id, shop, amount) VALUES (1, 'one', 1.25)")
    for read in (
        f'table = "{database.table}"',
        f"query = 'SELECT * FROM \"{database.table}\" WHERE id % 7 > 0'",
    ):
        lab.fill(names["orders"], [{"id": 1}, {"id": 2}], 1)
        pipeline = lab.pipeline(JOIN.format(**names, read=read))
        lab.run_well(spark, pipeline)
        database.run(f"INSERT INTO {database.table} (id, shop) VALUES (2, 'two') ON CONFLICT DO NOTHING")
    assert [(row["id"], row["shop"]) for row in lab.values(names["out"])] == [
        (1, "one"),
        (2, None),
        (1, "one"),
        (2, "two"),
    ]
    assert float(lab.values(names["out"])[0]["amount"]) == 1.25
    explain(spark, pipeline, "extended", print)
    shown = capfd.readouterr()
    logged = Checkpoint(pipeline).log_file
    assert PASSWORD not in shown.out + shown.err + (logged.read_text() if logged.exists() else "")
    assert "MapInArrow" in shown.out


def test_what_cannot_work_is_refused_by_a_check(spark, lab: Lab, either: Databases):
    topic, upsert = lab.topic(1), 'mode = "upsert"\nkey = "id"'

    def problem(**facts: str) -> str:
        with pytest.raises(PipelineError) as caught:
            check(spark, either.pipeline(lab, topic, **facts))
        return str(caught.value)

    assert "there is no table missing" in problem(table="missing")
    assert "no primary key or unique index on (shop)" in problem(mode='mode = "upsert"\nkey = "shop"')
    plain = '[transforms.t]\nsql = "{}"\n'.format
    assert "which of two rows of a key is the last: give order_by" in problem(
        source="t", mode=upsert, more=plain("SELECT id, shop FROM orders")
    )
    assert "has no column 'extra'" in problem(source="t", more=plain("SELECT *, 1 AS extra FROM orders"))
    assert "write to_json" in problem(source="t", more=plain("SELECT id, array(shop) AS shop FROM orders"))
    assert "there is no column 'number'" in problem(mode=upsert + '\norder_by = "number"')
    assert "it must be boolean" in problem(mode=upsert + '\ndelete_when = "id"')
    assert "sinks.out.delete_when" in problem(mode=upsert + '\ndelete_when = "nothing"')
    check(spark, either.pipeline(lab, topic, mode=upsert + '\norder_by = "at"'))


def test_a_missing_package_is_named_with_its_command(spark, lab: Lab, database: Databases, monkeypatch):
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(PipelineError, match=r"SQLAlchemy is not installed: pip install '.\[database\]'"):
        check(spark, database.pipeline(lab, lab.topic(1)), offline=True)


class Repair(Recorder):
    """Starts the server again once the run says that it misses it, and will try again."""

    def __init__(self, server: PostgreSQL) -> None:
        super().__init__()
        self.server, self.is_away = server, False

    def message(self, pipeline: str, text: str, **facts: Any) -> None:
        super().message(pipeline, text, **facts)
        if self.is_away and "trying again" in text:
            self.is_away = False
            self.server.start()


@pytest.mark.parametrize(
    "moment",
    [
        "before the commit",
        *(pytest.param(one, marks=pytest.mark.long) for one in ("before", "in the middle")),
    ],
)
def test_a_postgresql_that_crashes_is_waited_for(
    spark, lab: Lab, postgresql: PostgreSQL, secret, monkeypatch, moment: str
):
    database, topic = Databases(lab, postgresql), lab.topic(1)
    lab.fill(topic, orders(4), 1)
    events = Repair(postgresql)
    run = PipelineRun(spark, database.pipeline(lab, topic), events, once=True, retries=20)
    run.prepare()

    def crash() -> None:
        postgresql.crash()
        events.is_away = True

    note, load = batches.note, loading.Loader.load

    def note_and_crash(*arguments: Any) -> None:
        note(*arguments)
        if moment == "before the commit" and not any("trying again" in text for text in events.messages):
            crash()

    def crash_and_load(*arguments: Any) -> int:
        if moment == "in the middle" and not any("trying again" in text for text in events.messages):
            crash()
        return load(*arguments)

    monkeypatch.setattr(batches, "note", note_and_crash)
    monkeypatch.setattr(loading.Loader, "load", crash_and_load)
    if moment == "before":
        crash()
    Supervisor([run]).run()
    assert run.problem is None, run.problem
    assert not events.is_away and any("trying again" in text for text in events.messages)
    assert database.ids() == [*range(4)]
    assert PASSWORD not in "".join(events.messages)


def test_a_column_that_is_gone_ends_the_run_with_a_sentence(spark, lab: Lab, database: Databases):
    topic = lab.topic(1)
    lab.fill(topic, orders(1), 1)
    pipeline = database.pipeline(lab, topic)
    run = PipelineRun(spark, pipeline, lab.events, once=True, retries=3)
    run.prepare()
    database.run(f"ALTER TABLE {database.table} RENAME COLUMN shop TO store")
    Supervisor([run]).run()
    assert run.problem is not None and "the database refuses" in run.problem and "shop" in run.problem


def test_the_password_is_in_no_command_line_log_plan_or_checkpoint(
    postgresql: PostgreSQL, secret: None, lab: Lab
):
    """The run is a process of its own; the command lines of all processes that it starts are searched."""
    database, topic = Databases(lab, postgresql), lab.topic(1)
    facts = {"url": database.url, "password": database.password, "read": f'table = "{database.table}"'}
    join = JOIN.format(orders=topic, out=lab.topic(1), **facts)
    sink = f'[sinks.table]\nfrom = "named"\ndatabase = "{database.url}"\n{database.password}\n'
    lab.write(f'{join}{sink}table = "{database.table}"\n')
    lab.fill(topic, [{"id": 1}], 1)
    log = lab.directory / "run.log"
    settings = conf_arguments(**{"spark.log.level": "INFO"})
    process = start_command(
        "run", "pipe.toml", "--once", "--master", "local[1]", *settings, cwd=lab.directory, log=log
    )
    seen = set()
    while process.poll() is None:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                seen.add(path.read_bytes())
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
    assert process.stdout is not None
    said = process.stdout.read() + log.read_text()
    assert process.returncode == 0, said
    assert database.ids() == [1]
    kept = [path for path in (lab.directory / "checkpoints").rglob("*") if path.is_file()]
    assert any(path.name == "spark.log" for path in kept)
    everything = [*seen, said.encode(), *(path.read_bytes() for path in kept)]
    assert any(b"SparkSubmit" in one for one in seen)
    assert not any(PASSWORD.encode() in one for one in everything)


def test_the_example_of_the_docs(spark, lab: Lab):
    docs = (Path(__file__).parents[2] / "docs" / "pipelines" / "databases.md").read_text()
    (tables,) = re.findall(r"^```sql\n(.*?)^```", docs, re.DOTALL | re.MULTILINE)
    file = re.findall(r"^```toml\n(.*?)^```", docs, re.DOTALL | re.MULTILINE)[0]
    connection = sqlite3.connect(lab.directory / "shop.db")
    connection.executescript(tables + "INSERT INTO shops VALUES (7, 'seven')")
    topic = lab.topic(1)
    rows = [
        {"id": 1, "shop": 7, "amount": 1.5},
        {"id": 2, "shop": 8, "amount": 2.5},
        {"id": 1, "shop": 7, "amount": 3.5},
    ]
    lab.fill(topic, rows, 1)
    lab.run_well(spark, lab.pipeline(file.replace('topic = "orders"', f'topic = "{topic}"')))
    assert connection.execute("SELECT * FROM orders ORDER BY id").fetchall() == [
        (1, "seven", 3.5),
        (2, None, 2.5),
    ]
    connection.close()
