"""Lake sinks on real Spark and a real broker: what a table has after batches, restarts, edits and accidents."""

import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from odradek.pipeline.check.checking import check
from odradek.pipeline.check.testing import all_tests, run_test
from odradek.pipeline.checkpoint import Checkpoint
from odradek.pipeline.file.errors import PipelineError
from odradek.pipeline.kinds.lake.delta import DeltaLakeTable
from odradek.pipeline.kinds.lake.iceberg import IcebergLakeTable
from odradek.pipeline.kinds.lake.table import LakeTable
from tests.pipeline.lab import Lab
from tests.pipeline.lakes import delta_rows, iceberg_catalog, iceberg_rows
from tests.spark.committed import forget_last_commit

SINKS = {
    "delta": 'path = "lake/orders"\nformat = "delta"',
    "iceberg": 'table = "shop.orders"',
}
COPY = """
[sources.orders]
topic = "{topic}"
schema = "{schema}"
{source}
[sinks.out]
from = "orders"
{sink}
{more}
"""
ORDER = "id BIGINT NOT NULL, item STRING"


def copy_of(lab: Lab, topic: str, sink: str, *, schema: str = ORDER, source: str = "", more: str = "") -> Any:
    return lab.pipeline(COPY.format(topic=topic, schema=schema, source=source, sink=sink, more=more))


def rows_of(lab: Lab, form: str) -> list[dict[str, Any]]:
    if form == "delta":
        return delta_rows(lab.directory / "lake" / "orders")
    return iceberg_rows(iceberg_catalog(lab.directory / "warehouse"), "shop.orders")


def ids(lab: Lab, form: str) -> list[int]:
    return sorted(row["id"] for row in rows_of(lab, form))


def checkpoint_of(lab: Lab) -> Path:
    return lab.directory / "checkpoints" / "pipe" / "sinks" / "out"


def orders(*numbers: int) -> list[dict[str, Any]]:
    return [{"id": number, "item": f"item {number % 3}"} for number in numbers]


@pytest.mark.parametrize("form", SINKS)
def test_rows_are_appended_once_over_restarts_repeats_and_a_reset(spark, lab: Lab, form: str):
    topic = lab.topic(2)
    nested = ORDER + ", tags ARRAY<STRING>, facts MAP<STRING, INT>, place STRUCT<city: STRING, at: TIMESTAMP>"
    pipeline = copy_of(lab, topic, SINKS[form] + '\npartition_by = "item"', schema=nested)
    more = {"tags": ["a"], "facts": {"b": 1}, "place": {"city": "Prague", "at": "2026-01-01T00:00:00Z"}}
    lab.fill(topic, [order | more for order in orders(*range(20))])
    lab.run_well(spark, pipeline)
    row = rows_of(lab, form)[0]
    assert (row["tags"], row["facts"], row["place"]["city"]) == (["a"], [("b", 1)], "Prague")
    assert rows_of_spark(spark, lab, form) == Counter(row["id"] for row in orders(*range(20)))
    lab.fill(topic, orders(20, 21))
    lab.run_well(spark, pipeline)
    forget_last_commit(checkpoint_of(lab))
    lab.fill(topic, orders(22))
    lab.run_well(spark, pipeline)
    assert ids(lab, form) == list(range(23)), "the repeated batch is in the table once"
    Checkpoint(pipeline).remove_query("sink", "out")
    lab.run_well(spark, pipeline)
    assert ids(lab, form) == sorted([*range(23), *range(23)]), (
        "a new checkpoint begins anew, and skips nothing"
    )


def rows_of_spark(spark, lab: Lab, form: str) -> Counter:
    """Spark's own Parquet reader, over the files of the newest version."""
    if form == "delta":
        files = DeltaTable(str(lab.directory / "lake" / "orders")).file_uris()
    else:
        table = IcebergLakeTable("shop.orders", iceberg_catalog(lab.directory / "warehouse"), {})
        assert table.look() is not None
        files = [task.file.file_path for task in table._open.scan().plan_files()]
    return Counter(row.id for row in spark.read.parquet(*files).collect())


ICEBERG_TOO = ["delta", pytest.param("iceberg", marks=pytest.mark.long)]
MOMENTS = ("create", "target", "append")


@pytest.mark.parametrize("form", ["delta", pytest.param("iceberg", marks=pytest.mark.long)])
def test_killed_at_every_step(spark, lab: Lab, form: str, monkeypatch):
    """Before and after each; the process that dies leaves what a killed one leaves."""
    topic = lab.topic(1)
    pipeline = copy_of(lab, topic, SINKS[form], source="max_rows_per_batch = 5")
    kind = {"delta": DeltaLakeTable, "iceberg": IcebergLakeTable}[form]
    written = 0
    for moment in MOMENTS:
        for is_after in (False, True):
            lab.fill(topic, orders(*range(written, written + 5)), 1)
            written += 5
            killed_at(monkeypatch, kind, moment, is_after)
            run = lab.run(spark, pipeline, retries=0)
            monkeypatch.undo()
            assert run.problem is not None and f"killed at {moment}" in run.problem
    lab.run_well(spark, pipeline)
    assert ids(lab, form) == list(range(written))


def killed_at(monkeypatch, kind: type[LakeTable], name: str, is_after: bool) -> None:
    step = getattr(kind, name)

    def killed(self, *arguments):
        if is_after:
            step(self, *arguments)
        raise RuntimeError(f"killed at {name}")

    monkeypatch.setattr(kind, name, killed)


UPSERT = """
path = "lake/orders"
format = "delta"
mode = "upsert"
key = "id"
delete_when = "gone"
"""
CHANGE = "id BIGINT, item STRING, gone BOOLEAN"


def test_an_upsert_keeps_the_last_row_of_a_key_and_deletes(spark, lab: Lab):
    topic, dead = lab.topic(1), lab.fresh_name()
    letters = f'[dead_letters]\ntopic = "{dead}"\npartitions = 1\nlimit = 1'
    given = '[[tests]]\ngiven.orders = [{ id = 1, item = "a" }]\nexpect.out = [{ id = 1, item = "a" }]'
    pipeline = copy_of(lab, topic, UPSERT, schema=CHANGE, more=f"{letters}\n{given}")
    ((document, case),) = all_tests(pipeline)
    assert run_test(spark, pipeline, document, case).problems == []
    changes = [(1, "a"), (2, "a"), (1, "b"), (3, "a"), (1, "c"), (None, "no key")]
    lab.fill(topic, [{"id": number, "item": item} for number, item in changes], 1)
    lab.run_well(spark, pipeline)
    assert {row["id"]: row["item"] for row in rows_of(lab, "delta")} == {1: "c", 2: "a", 3: "a"}
    (letter,) = lab.letters(dead)
    assert "the key column 'id' is null, and an upsert needs a key" in letter["reason"]
    assert "__deleted" not in rows_of(lab, "delta")[0]
    lab.fill(topic, [{"id": 1, "gone": True}, {"id": 2, "item": "x"}, {"id": 2, "gone": True}, {"id": 4}], 1)
    lab.run_well(spark, pipeline)
    forget_last_commit(checkpoint_of(lab))
    lab.run_well(spark, pipeline)
    assert {row["id"]: row["item"] for row in rows_of(lab, "delta")} == {3: "a", 4: None}


GROUPS = """
[sources.orders]
topic = "{topic}"
schema = "item STRING, amount BIGINT"
[transforms.totals]
sql = "SELECT item, sum(amount) AS amount FROM orders GROUP BY item"
[sinks.out]
from = "totals"
path = "lake/orders"
format = "delta"
mode = "upsert"
key = "{key}"
bounded_keys = true
"""


def test_groups_are_upserted_and_need_no_order(spark, lab: Lab):
    topic = lab.topic(1)
    pipeline = lab.pipeline(GROUPS.format(topic=topic, key="item"))
    for amounts in ((1, 2), (3, 4)):
        lab.fill(topic, [{"item": f"item {one % 2}", "amount": one} for one in amounts], 1)
        lab.run_well(spark, pipeline)
    assert {row["item"]: row["amount"] for row in rows_of(lab, "delta")} == {"item 0": 6, "item 1": 4}


def test_several_rows_of_a_key_without_an_order_are_refused(spark, lab: Lab):
    topic = lab.topic(1)
    lab.fill(topic, [{"item": "a", "amount": 1}, {"item": "b", "amount": 1}], 1)
    run = lab.run(spark, lab.pipeline(GROUPS.format(topic=topic, key="amount")))
    assert run.problem is not None and "several rows of one key (amount)" in run.problem
    assert "order_by" in run.problem


def test_of_rows_with_the_same_order_the_later_record_counts(spark, lab: Lab):
    """A row that deletes needs no value for a column of the table that is NOT NULL; the table's names are its own."""
    topic, place = lab.topic(1), str(lab.directory / "lake" / "orders")
    fields = [
        pa.field("ID", pa.int64()),
        pa.field("item", pa.string(), nullable=False),
        pa.field("at", pa.int64()),
    ]
    DeltaTable.create(place, pa.schema([*fields, pa.field("gone", pa.bool_())]))
    schema = "id BIGINT, item STRING, at INT, gone BOOLEAN"
    pipeline = copy_of(lab, topic, UPSERT + 'order_by = "at"', schema=schema)
    rows = [{"id": number % 3, "item": f"item {number}", "at": 7} for number in range(60)]
    lab.fill(topic, [*rows, {"id": 9, "item": "x", "at": 1}, {"id": 9, "at": 1, "gone": True}], 1)
    lab.run_well(spark, pipeline)
    found = {row["ID"]: row["item"] for row in rows_of(lab, "delta")}
    assert found == {0: "item 57", 1: "item 58", 2: "item 59"}
    lab.fill(topic, [{"id": 0, "at": 7, "gone": True}, {"id": 1, "item": "late", "at": 6}], 1)
    lab.run_well(spark, pipeline)
    assert {row["ID"]: row["item"] for row in rows_of(lab, "delta")} == {1: "item 58", 2: "item 59"}


@pytest.mark.long
@pytest.mark.parametrize("form", SINKS)
def test_an_edit_that_names_another_table(spark, lab: Lab, form: str):
    """Rows go there from now on; so 'plan' says it. Back at the first one, that must be the one of before."""
    topic = lab.topic(1)
    other = {"delta": ("lake/orders", "lake/others"), "iceberg": ("shop.orders", "shop.others")}[form]
    found = []
    for number, sink in enumerate([SINKS[form], SINKS[form].replace(*other), SINKS[form]]):
        lab.fill(topic, orders(number), 1)
        lab.run_well(spark, copy_of(lab, topic, sink))
        found.append(ids(lab, form))
    assert found == [[0], [0], [0, 2]]


def test_what_check_refuses(spark, lab: Lab, monkeypatch):
    topic = lab.topic(1)
    select = '[transforms.t]\nsql = "SELECT id, item FROM orders"\n'
    text = COPY.format(topic=topic, schema=CHANGE, source="", sink=UPSERT, more=select)
    unordered = lab.pipeline(
        text.replace('from = "orders"', 'from = "t"').replace('delete_when = "gone"', "")
    )
    with pytest.raises(
        PipelineError, match=r"sinks.out.mode: an upsert needs an order, because the last row"
    ):
        check(spark, unordered, offline=True)
    for sink, problem in (
        (UPSERT.replace('key = "id"', 'key = "idd"'), r"sinks.out.key: there is no column 'idd'"),
        (UPSERT.replace('"gone"', '"item"'), r"sinks.out.delete_when: the condition is string"),
        (UPSERT + 'partition_by = ["id", "item", "gone"]', "at least one column must not be among these"),
        (
            SINKS["delta"].replace("lake/orders", "ftp://lake"),
            "'ftp://lake' is not a place that can be written",
        ),
    ):
        with pytest.raises(PipelineError, match=problem):
            check(spark, copy_of(lab, topic, sink, schema=CHANGE), offline=True)
    for name in ("key", "order_by"):
        sink = UPSERT.replace('key = "id"', 'key = "id"\norder_by = "item"').replace(
            f'{name} = "', f'{name} = "tags" # "'
        )
        with pytest.raises(
            PipelineError,
            match=f"sinks.out.{name}: the column 'tags' is array<string>, which cannot be compared",
        ):
            check(spark, copy_of(lab, topic, sink, schema=f"{CHANGE}, tags ARRAY<STRING>"), offline=True)
    monkeypatch.setattr("odradek.pipeline.kinds.lake_sink.find_spec", lambda name: None)
    for form, module in (("delta", "deltalake"), ("iceberg", "pyiceberg")):
        missing = (
            rf"{form.capitalize()} tables need {module}: pip install '.\[{form}\]' in a clone of Odradek"
        )
        with pytest.raises(PipelineError, match=missing):
            check(spark, copy_of(lab, topic, SINKS[form]), offline=True)
    check(spark, copy_of(lab, topic, SINKS["delta"] + '\nconnector = "spark"'), offline=True)


@pytest.mark.parametrize("form", SINKS)
def test_columns_are_added_and_other_changes_are_refused(spark, lab: Lab, form: str):
    topic = lab.topic(1)
    lab.fill(topic, [{"id": 1, "item": "a"}], 1)
    lab.run_well(spark, copy_of(lab, topic, SINKS[form]))
    lab.fill(topic, [{"id": 2, "day": "2026-01-02"}], 1)
    lab.run_well(spark, copy_of(lab, topic, SINKS[form], schema="day DATE, id INT"))
    found = sorted(rows_of(lab, form), key=lambda row: row["id"])
    assert found == [{"id": 1, "item": "a", "day": None}, {"id": 2, "item": None, "day": date(2026, 1, 2)}]
    with pytest.raises(PipelineError, match="the column 'id' is string, in the table it is bigint: cast it"):
        check(spark, copy_of(lab, topic, SINKS[form], schema="id STRING"))
    with pytest.raises(
        PipelineError, match="the table has no partitions, and that cannot be changed: leave out"
    ):
        check(spark, copy_of(lab, topic, SINKS[form] + '\npartition_by = "item"'))


def rival_adds(lab: Lab, form: str) -> None:
    """A row, and a column."""
    theirs = pa.table({"id": [100], "item": ["theirs"], "note": ["new"]})
    if form == "delta":
        write_deltalake(str(lab.directory / "lake" / "orders"), theirs, mode="append", schema_mode="merge")
        return
    table = iceberg_table(lab)
    with table.update_schema() as update:
        update.union_by_name(theirs.schema)
    table.append(theirs)


def rival_changes_a_type(lab: Lab, form: str) -> None:
    """The rival changes `item`, which is text in our rows."""
    if form == "delta":
        theirs = pa.table({"id": [100], "item": [7]})
        place = str(lab.directory / "lake" / "orders")
        write_deltalake(place, theirs, mode="overwrite", schema_mode="overwrite")
        return
    table = iceberg_table(lab)
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("item")
    with table.update_schema() as update:
        update.union_by_name(pa.schema({"item": pa.int64()}))


def iceberg_table(lab: Lab) -> Any:
    from pyiceberg.catalog import load_catalog

    return load_catalog("odradek", **iceberg_catalog(lab.directory / "warehouse")).load_table("shop.orders")


def overtaken(monkeypatch, form: str, rival: Callable[[], None]) -> list[str]:
    """Let somebody else change the table between our look and our commit, once."""
    kind = {"delta": DeltaLakeTable, "iceberg": IcebergLakeTable}[form]
    write: Callable[..., None] = kind.append
    done: list[str] = []

    def append_late(self, files, order):
        if not done:
            done.append(form)
            rival()
        write(self, files, order)

    monkeypatch.setattr(kind, "append", append_late)
    return done


@pytest.mark.parametrize("form", ICEBERG_TOO)
def test_another_writer_adds_rows_and_a_column_between_look_and_commit(spark, lab: Lab, monkeypatch, form):
    """Its rows stay, and its column is null in ours."""
    topic = lab.topic(1)
    lab.fill(topic, orders(1), 1)
    pipeline = copy_of(lab, topic, SINKS[form])
    lab.run_well(spark, pipeline)
    done = overtaken(monkeypatch, form, lambda: rival_adds(lab, form))
    lab.fill(topic, orders(2), 1)
    lab.run_well(spark, pipeline)
    assert done
    assert {row["id"]: row["note"] for row in rows_of(lab, form)} == {1: None, 2: None, 100: "new"}


@pytest.mark.parametrize("form", ICEBERG_TOO)
def test_another_writer_changes_a_type_between_look_and_commit(spark, lab: Lab, monkeypatch, form):
    """The run stops, and the batch is in no table."""
    topic = lab.topic(1)
    lab.fill(topic, orders(1), 1)
    pipeline = copy_of(lab, topic, SINKS[form])
    lab.run_well(spark, pipeline)
    done = overtaken(monkeypatch, form, lambda: rival_changes_a_type(lab, form))
    lab.fill(topic, orders(2), 1)
    run = lab.run(spark, pipeline)
    assert done and run.problem is not None
    assert "the column 'item' is string, in the table it is bigint: cast it" in run.problem
    assert 2 not in ids(lab, form)


@pytest.mark.parametrize("form", ICEBERG_TOO)
def test_a_table_that_is_gone_or_another_stops_the_run(spark, lab: Lab, form: str):
    topic = lab.topic(1)
    lab.fill(topic, orders(1), 1)
    pipeline = copy_of(lab, topic, SINKS[form])
    lab.run_well(spark, pipeline)
    shutil.rmtree(lab.directory / {"delta": "lake", "iceberg": "warehouse"}[form])
    lab.fill(topic, orders(2), 1)
    run = lab.run(spark, pipeline)
    assert run.problem is not None and "there is none any more: its earlier rows are gone" in run.problem
    assert "reset the sink" in run.problem


@pytest.mark.parametrize("form", ICEBERG_TOO)
def test_two_runs_with_copies_of_a_checkpoint(spark, lab: Lab, form: str):
    """The copy repeats a batch that the other wrote, and is refused once it reads other records under its number."""
    topic = lab.topic(1)
    lab.fill(topic, orders(1), 1)
    pipeline = copy_of(lab, topic, SINKS[form])
    lab.run_well(spark, pipeline)
    state = lab.directory / "checkpoints"
    shutil.copytree(state, lab.directory / "copy")
    lab.fill(topic, orders(2), 1)
    lab.run_well(spark, pipeline)
    shutil.rmtree(state)
    (lab.directory / "copy").rename(state)
    lab.fill(topic, orders(3), 1)
    run = lab.run(spark, pipeline)
    assert run.problem is not None and "read other records: a copy of this checkpoint was used" in run.problem
    assert ids(lab, form) == [1, 2]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB, where one may be mounted."""
    directory = tmp_path / "disk"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(directory)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("no file system may be mounted here")
    yield directory
    subprocess.run(["umount", "--lazy", str(directory)], check=True)


@pytest.mark.parametrize("form", ICEBERG_TOO)
@pytest.mark.parametrize("full", ["for tasks", "for the commit"])
def test_a_full_disk(spark, lab: Lab, small_disk: Path, monkeypatch, full: str, form: str):
    """It is full until the run has said so; `for the commit`: only once the tasks are done."""
    topic = lab.topic(1)
    lab.fill(topic, orders(*range(10)), 1)
    sink, more = SINKS[form].replace("lake/orders", f"{small_disk}/orders"), ""
    if form == "iceberg":  # its catalog is on this disk, too
        more = f'[storage]\nwarehouse = "{small_disk}"'
    kind = {"delta": DeltaLakeTable, "iceberg": IcebergLakeTable}[form]
    append: Callable[..., None] = kind.append
    ballast, tell = small_disk / "ballast", lab.events.message

    def fill_up() -> None:
        with suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 12))

    def hear(name: str, text: str, **facts: object) -> None:
        tell(name, text, **facts)
        if "trying again" in text:
            ballast.unlink()

    def append_late(self, files, order):
        if "trying again" not in "".join(lab.events.messages):
            fill_up()
        append(self, files, order)

    monkeypatch.setattr(lab.events, "message", hear)
    if full == "for tasks":
        fill_up()
    else:
        monkeypatch.setattr(kind, "append", append_late)
    lab.run_well(spark, copy_of(lab, topic, sink, more=more))
    (told,) = [message for message in lab.events.messages if "trying again" in message]
    assert "a disk is full; free some space there" in told
    found = (
        delta_rows(small_disk / "orders") if form == "delta" else iceberg_rows(iceberg_catalog(small_disk))
    )
    assert sorted(row["id"] for row in found) == list(range(10))
