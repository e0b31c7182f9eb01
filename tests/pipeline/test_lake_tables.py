"""Delta and Iceberg tables as a batch finds and leaves them, without Spark: both behind one interface."""

import shutil
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, LongType, MapType, StringType, StructField, StructType

from odradek.pipeline.file.definition import Upsert
from odradek.pipeline.kinds.lake import delta, iceberg
from odradek.pipeline.kinds.lake.delta import DELETED, DeltaLakeTable, is_newer, refuse
from odradek.pipeline.kinds.lake.files import write_task
from odradek.pipeline.kinds.lake.iceberg import IcebergLakeTable
from odradek.pipeline.kinds.lake.order import Entry, is_written
from odradek.pipeline.kinds.lake.table import Conflict, LakeTable, Unwritable
from tests.pipeline.lakes import FORMATS, NAME, columns, delta_rows, files_of, order, rows_of, table_at

ORDERS = columns(id="long", item="string", day="date")
ROWS = [{"id": number, "item": f"item {number}", "day": date(2026, 1, 1 + number % 2)} for number in range(5)]


@pytest.fixture(params=FORMATS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def table(form: str, tmp_path: Path) -> LakeTable:
    return created(table_at(form, tmp_path))


def created(table: LakeTable, schema: StructType = ORDERS, partition_by: tuple[str, ...] = ()) -> LakeTable:
    assert table.look() is None
    table.create(schema, partition_by)
    assert table.look() is not None
    return table


def ids(rows: list[dict]) -> list[int]:
    return sorted(row["id"] for row in rows)


def test_a_commit_has_the_rows_and_says_which_batch_they_were(form: str, table: LakeTable, tmp_path: Path):
    assert table.entry("q") is None
    table.append(files_of(table, ROWS), order(0))
    assert rows_of(form, tmp_path) == ROWS
    other = table_at(form, tmp_path)
    assert other.look() == table.look()
    assert other.entry("q") == Entry(0, order(0).fingerprint)
    assert is_written(other.entry("q"), order(0)) and not is_written(other.entry("q"), order(1))
    assert other.entry("another query") is None


def test_creating_a_table_again_does_nothing(form: str, table: LakeTable, tmp_path: Path):
    before = table.look()
    table_at(form, tmp_path).create(ORDERS, ())
    assert table.look() == before


def test_a_table_that_is_deleted_or_created_again_is_noticed_by_an_old_handle(
    form: str, table: LakeTable, tmp_path: Path
):
    """Its log is shorter then than the handle's, and must not get a hole."""
    for batch in range(3):
        table.append(files_of(table, ROWS), order(batch))
        before = table.look()
    if isinstance(table, DeltaLakeTable):
        shutil.rmtree(table.place)
    else:
        table_at(form, tmp_path)._connected().drop_table(NAME)
    assert table.look() is None
    created(table_at(form, tmp_path))
    assert table.look() not in (None, before)
    assert table.entry("q") is None


def test_a_second_writer_with_an_old_look_is_refused(form: str, table: LakeTable, tmp_path: Path):
    """Two processes have copies of a checkpoint: both have looked, both write batch 0."""
    other = table_at(form, tmp_path)
    other.look()
    files = files_of(other, ROWS)
    table.append(files_of(table, ROWS), order(0))
    with pytest.raises(Conflict):
        other.append(files, order(0))
    other.look()
    assert other.entry("q") == Entry(0, order(0).fingerprint)
    assert rows_of(form, tmp_path) == ROWS, "once"


def test_rows_that_others_add_meanwhile_stay(form: str, table: LakeTable, tmp_path: Path):
    other = table_at(form, tmp_path)
    other.look()
    files = files_of(other, ROWS[:2])
    table.append(files_of(table, ROWS[2:]), order(7, "someone else"))
    try:
        other.append(files, order(0))
    except Conflict:
        other.look()
        other.append(files, order(0))
    assert ids(rows_of(form, tmp_path)) == [0, 1, 2, 3, 4]
    assert table.look() and table.entry("q") and table.entry("someone else")


def replace_all_rows(form: str, directory: Path) -> None:
    """Somebody else's compaction: one file in the place of all others."""
    table = table_at(form, directory)
    table.look()
    if isinstance(table, DeltaLakeTable):
        table._open.optimize.compact()
    else:
        assert isinstance(table, IcebergLakeTable)
        table._open.overwrite(table._open.scan().to_arrow())


def remove_rows(form: str, directory: Path) -> None:
    table = table_at(form, directory)
    table.look()
    assert isinstance(table, (DeltaLakeTable, IcebergLakeTable))
    table._open.delete("id >= 0")


@pytest.mark.parametrize(("rival", "left"), [(replace_all_rows, [0, 0, 1]), (remove_rows, [1])])
def test_others_compact_or_remove_rows_meanwhile(
    form: str, table: LakeTable, tmp_path: Path, rival: Callable[[str, Path], None], left: list[int]
):
    """Our rows come on top of that, once."""
    for batch in range(2):
        table.append(files_of(table, ROWS[:1]), order(batch))
        table.look()
    files = files_of(table, ROWS[1:2])
    rival(form, tmp_path)
    try:
        table.append(files, order(2))
    except Conflict:
        table.look()
        assert not is_written(table.entry("q"), order(2))
        table.append(files, order(2))
    assert ids(rows_of(form, tmp_path)) == left


def test_a_column_that_others_remove_and_add_again_is_another_one(tmp_path: Path):
    """Files that were written for the old one must not be named: its values would be null in the new one."""
    table = created(table_at("iceberg", tmp_path))
    files, columns_before = files_of(table, ROWS), table.columns()
    from pyiceberg.types import StringType as IcebergString

    rival = table_at("iceberg", tmp_path)
    rival.look()
    assert isinstance(rival, IcebergLakeTable)
    with rival._open.update_schema() as update:
        update.delete_column("item")
    with rival._open.update_schema() as update:
        update.add_column("item", IcebergString())
    with pytest.raises(Conflict):
        table.append(files, order(0))
    table.look()
    assert table.columns()[: len(columns_before)] != columns_before


@pytest.mark.parametrize(("before", "after"), [((), ("id",)), (("item",), ("id",))])
def test_others_partition_the_table_in_another_way(tmp_path: Path, before: tuple, after: tuple):
    """Files have no columns that partition a table, so their values would be null in the new one."""
    from deltalake import write_deltalake

    table = created(table_at("delta", tmp_path), columns(id="long", item="string"), before)
    files, columns_before = files_of(table, [{"id": 1, "item": "a"}]), table.columns()
    theirs = pa.table({"id": [9], "item": ["z"]})
    write_deltalake(table.place, theirs, mode="overwrite", schema_mode="overwrite", partition_by=list(after))
    with pytest.raises(Conflict):
        table.append(files, order(0))
    table.look()
    assert table.columns()[: len(columns_before)] != columns_before, "so the batch is computed again"


@pytest.mark.parametrize(("kind", "value"), [("timestamp", 10 * 253402300800000000), ("date", 4_000_000)])
def test_a_year_that_pyiceberg_does_not_know_is_refused_in_words(tmp_path: Path, kind: str, value: int):
    table = created(table_at("iceberg", tmp_path), columns(at=kind))
    arrow = table.target().schema.field("at").type
    numbers = pa.array([value], pa.int32() if kind == "date" else pa.int64())
    batch = pa.RecordBatch.from_arrays([numbers.cast(arrow)], names=["at"])
    with pytest.raises(Unwritable, match="after 9999, which pyiceberg cannot write: add a requirement"):
        table.append(list(write_task(iter([batch]), table.target())), order(0))


def test_the_end_of_time_as_many_write_it(form: str, tmp_path: Path):
    end = datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)
    table = created(table_at(form, tmp_path), columns(until="timestamp"))
    table.append(files_of(table, [{"until": end}]), order(0))
    assert rows_of(form, tmp_path) == [{"until": end}]


def test_a_directory_with_spaces_and_other_characters(form: str, tmp_path: Path):
    """Nothing is written beside it."""
    directory = tmp_path / "my läke 50%"
    directory.mkdir()
    table = created(table_at(form, directory))
    table.append(files_of(table, ROWS), order(0))
    assert rows_of(form, directory) == ROWS
    assert list(tmp_path.iterdir()) == [directory]


def test_a_uri_of_a_file_names_the_directory_that_delta_rs_reads(tmp_path: Path):
    table = created(DeltaLakeTable(f"file://{tmp_path}/my%20lake", {}))
    table.append(files_of(table, ROWS), order(0))
    assert delta_rows(tmp_path / "my lake") == ROWS
    assert table.look() is not None and table.entry("q") is not None


ODD = ["a/b", "a%2Fb", "o'clock", '"q"', "x=y", "ü", " ", "a\nb", "__HIVE_DEFAULT_PARTITION__", "\\", None]


def test_texts_that_partition_are_kept_as_they_are(form: str, tmp_path: Path):
    table = created(table_at(form, tmp_path), columns(part="string", id="long"), ("part",))
    rows = [{"part": part, "id": number} for number, part in enumerate(ODD)]
    table.append(files_of(table, rows), order(0))
    assert sorted(rows_of(form, tmp_path), key=lambda row: row["id"]) == rows


def test_columns_are_added_at_the_end(form: str, table: LakeTable, tmp_path: Path):
    table.append(files_of(table, ROWS[:1]), order(0))
    table.look()
    table.add_columns(columns(price="decimal(10,2)").fields)
    table.look()
    assert table.schema().names == ["id", "item", "day", "price"]
    table.append(files_of(table, [ROWS[1] | {"price": Decimal("2.50")}]), order(1))
    found = {row["id"]: row["price"] for row in rows_of(form, tmp_path)}
    assert found == {0: None, 1: Decimal("2.50")}


def test_partitions(form: str, tmp_path: Path):
    table = created(table_at(form, tmp_path), partition_by=("day", "item"))
    assert table.partition_by() == ("day", "item")
    rows = sorted(
        [*ROWS, {"id": 9, "item": None, "day": None}], key=lambda row: (str(row["day"]), str(row["item"]))
    )
    files = files_of(table, rows)
    assert len(files) == 6 and all(file.rows == 1 for file in files)
    table.append(files, order(0))
    found = {row["id"]: (row["item"], row["day"]) for row in rows_of(form, tmp_path)}
    assert found == {row["id"]: (row["item"], row["day"]) for row in rows}


KINDS = {
    "yes": "boolean",
    "small": "byte",
    "short": "short",
    "whole": "integer",
    "large": "long",
    "ratio": "float",
    "share": "double",
    "text": "string",
    "bytes": "binary",
    "price": "decimal(12,3)",
    "day": "date",
    "at": "timestamp",
    "local": "timestamp_ntz",
    "tags": ArrayType(StringType()),
    "facts": MapType(StringType(), LongType()),
    "place": columns(city="string", at="timestamp"),
}
VALUES = {
    "yes": True,
    "small": 1,
    "short": 2,
    "whole": 3,
    "large": 4,
    "ratio": 0.5,
    "share": 0.25,
    "text": "Grüße",
    "bytes": b"\x00\xff",
    "price": Decimal("1.250"),
    "day": date(2026, 1, 2),
    "at": datetime(2026, 1, 2, 3, 4, 5, 678901, UTC),
    "local": datetime(2026, 1, 2, 3, 4, 5, 678901),
    "tags": ["a", None],
    "facts": [("one", 1)],
    "place": {"city": "Prague", "at": datetime(1913, 7, 3, tzinfo=UTC)},
}


def test_all_types(form: str, tmp_path: Path):
    schema = columns(**KINDS)
    table = created(table_at(form, tmp_path), schema)
    nothing = dict.fromkeys(VALUES)
    table.append(files_of(table, [VALUES, nothing]), order(0))
    assert sorted(rows_of(form, tmp_path), key=lambda row: row["yes"] is None) == [VALUES, nothing]
    found = {one.name: one.dataType.simpleString() for one in table.schema().fields}
    narrow = {} if form == "delta" else {"small": "int", "short": "int"}
    assert found == {one.name: one.dataType.simpleString() for one in schema.fields} | narrow


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many small files are many."""
    for module in (delta, iceberg):
        monkeypatch.setattr(module, "SMALL_FILES", 6)
    return 6


def test_files_are_read_in_parts_that_fit_into_memory(monkeypatch):
    sizes = [30, 30, 30, 70, 10, 60]
    tasks = [SimpleNamespace(file=SimpleNamespace(file_size_in_bytes=size)) for size in sizes]
    monkeypatch.setattr(iceberg, "READ_BYTES", 64)
    parts = [[task.file.file_size_in_bytes for task in part] for part in iceberg.parts_of(tasks)]
    assert parts == [[30, 30], [30], [70], [10], [60]] and list(iceberg.parts_of([])) == []


@pytest.mark.parametrize("read_bytes", [1, 64 << 20])
def test_small_files_become_larger_ones(form: str, few: int, tmp_path: Path, monkeypatch, read_bytes: int):
    monkeypatch.setattr(iceberg, "READ_BYTES", read_bytes)
    table = created(table_at(form, tmp_path), partition_by=("day",))
    by_day = sorted(ROWS, key=lambda row: str(row["day"]))
    for batch in range(few // 2):
        table.append(files_of(table, by_day), order(batch))
        table.look()
    before = ids(rows_of(form, tmp_path))
    assert table.compact() == few
    table.look()
    assert ids(rows_of(form, tmp_path)) == before
    assert is_written(table.entry("q"), order(few // 2 - 1)), "the table still knows its batches"
    assert table.compact() == 0
    table.append(files_of(table, by_day), order(99))
    assert len(rows_of(form, tmp_path)) == len(before) + len(ROWS)


def test_a_compaction_gives_way_to_another_writer(form: str, few: int, tmp_path: Path, monkeypatch):
    """It has looked at the table when somebody adds rows."""
    table = created(table_at(form, tmp_path))
    for batch in range(few):
        table.append(files_of(table, ROWS[:1]), order(batch))
        table.look()
    rival = table_at(form, tmp_path)

    def be_late(*arguments):
        found = planned(*arguments)
        rival.look()
        rival.append(files_of(rival, ROWS[1:2]), order(0, "rival"))
        return found

    owner, name = (delta, "_small") if form == "delta" else (type(table), "look")
    planned = getattr(owner, name)
    if form == "delta":
        monkeypatch.setattr(delta, "_small", be_late)
    else:
        monkeypatch.setattr(table, "look", lambda: be_late(table))
    if form == "delta":
        assert table.compact() == few  # delta-rs knows that new files do not matter to old ones
    else:
        with pytest.raises(Conflict):
            table.compact()
    monkeypatch.undo()
    assert len(rows_of(form, tmp_path)) == few + 1


# Upserts, on Delta


ORDERED = columns(id="long", item="string", changed="long")


def changes(*rows: tuple) -> pa.Table:
    names = ("id", "item", "changed", DELETED)
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])


def items(directory: Path) -> dict[int, str]:
    return {row["id"]: row["item"] for row in delta_rows(table_at("delta", directory).place)}


def test_an_upsert_replaces_inserts_and_deletes_in_one_commit(tmp_path: Path):
    table = created(table_at("delta", tmp_path), ORDERED)
    upsert = Upsert(("id",), (), "gone")
    table.merge(changes((1, "a", 1, False), (2, "b", 1, False), (3, "c", 1, True)), upsert, order(0))
    assert items(tmp_path) == {1: "a", 2: "b"}
    table.look()
    table.merge(changes((1, "A", 0, False), (2, "B", 0, True), (4, "d", 0, False)), upsert, order(1))
    assert items(tmp_path) == {1: "A", 4: "d"}
    table.look()
    assert table.entry("q") == Entry(1, order(1).fingerprint)


def test_with_order_by_an_older_row_changes_nothing(tmp_path: Path):
    table = created(table_at("delta", tmp_path), ORDERED)
    upsert = Upsert(("id",), ("changed", "item"), "gone")
    table.merge(changes((1, "a", 5, False), (2, "b", 5, False), (3, "c", None, False)), upsert, order(0))
    table.look()
    table.merge(changes((1, "z", 4, False), (2, "z", 4, True), (3, "z", 1, False)), upsert, order(1))
    assert items(tmp_path) == {1: "a", 2: "b", 3: "z"}
    table.look()
    table.merge(changes((1, "b", 5, False), (2, "c", 5, True)), upsert, order(2))
    assert items(tmp_path) == {1: "b", 3: "z"}


def test_an_upsert_with_an_old_look_is_refused(tmp_path: Path):
    table = created(table_at("delta", tmp_path), ORDERED)
    other = table_at("delta", tmp_path)
    other.look()
    upsert = Upsert(("id",), (), "")
    table.merge(changes((1, "a", 1, False)), upsert, order(0))
    with pytest.raises(Conflict):
        other.merge(changes((1, "a", 1, False)), upsert, order(0))


def test_column_names_are_taken_as_they_are(tmp_path: Path):
    table = created(table_at("delta", tmp_path), columns(**{"Order Id": "long", "select": "string"}))
    rows = pa.table({"Order Id": [1, 2], "select": ["a", "b"], DELETED: [False, False]})
    table.merge(rows, Upsert(("Order Id",), ("select",), ""), order(0))
    table.look()
    table.merge(rows.slice(0, 1), Upsert(("Order Id",), ("select",), ""), order(1))
    assert len(delta_rows(table.place)) == 2


def test_names_in_another_case_and_with_any_character(tmp_path: Path):
    """A table of others writes ID, the file says id."""
    table = created(table_at("delta", tmp_path), columns(**{"ID": "long", 'a"`b': "long"}))
    rows = pa.table({"ID": [1], 'a"`b': [2], DELETED: [False]})
    for batch in range(2):
        table.merge(rows, Upsert(("id",), ('A"`b',), ""), order(batch))
        table.look()
    assert delta_rows(table.place) == [{"ID": 1, 'a"`b': 2}]


def test_keys_that_partition_the_table(tmp_path: Path):
    table = created(table_at("delta", tmp_path), columns(part="string", count="long"), ("part",))
    parts = ["", *[one for one in ODD if one is not None]]
    for batch in range(2):
        rows = pa.table({"part": parts, "count": [batch] * len(parts), DELETED: [False] * len(parts)})
        table.merge(rows, Upsert(("part",), (), ""), order(batch))
        table.look()
    found = {row["part"]: row["count"] for row in delta_rows(table.place)}
    assert found == dict.fromkeys(parts, 1) and len(delta_rows(table.place)) == len(parts)


def test_what_is_newer():
    assert is_newer(()) == []
    (one,) = is_newer(("a", "b"))
    assert one == (
        "(t.`a` IS NULL OR s.`a` > t.`a` OR (s.`a` = t.`a` AND "
        "(t.`b` IS NULL OR s.`b` > t.`b` OR (s.`b` = t.`b` AND true))))"
    )


# Tables of others


def test_a_batch_that_sparks_own_connector_has_written_is_taken_for_written(tmp_path: Path):
    """It writes no fingerprint, and leaves that of our earlier batch."""
    from deltalake import CommitProperties, Transaction

    table = created(table_at("delta", tmp_path))
    assert isinstance(table, DeltaLakeTable)
    table.append(files_of(table, ROWS[:1]), order(3))
    table.look()
    theirs = CommitProperties(app_transactions=[Transaction("q", 4)])
    table._open.create_write_transaction([], "append", table._open.schema(), commit_properties=theirs)
    table.look()
    assert table.entry("q") == Entry(4, None)
    assert is_written(table.entry("q"), order(4, fingerprint="00000000b"))


@pytest.mark.parametrize(
    ("configuration", "metadata", "problem"),
    [
        ({"delta.columnMapping.mode": "name"}, {}, "maps its columns"),
        ({"delta.setTransactionRetentionDuration": "interval 1 day"}, {}, "forgets transactions"),
        ({"delta.constraints.positive": "id > 0"}, {}, "has constraints"),
        ({}, {"delta.generationExpression": "id + 1"}, "computes or checks its column 'id'"),
    ],
)
def test_tables_with_rules_that_we_do_not_follow_are_refused(
    configuration: dict, metadata: dict, problem: str
):
    with pytest.raises(Unwritable, match=problem):
        refuse(configuration, StructType([StructField("id", LongType(), True, metadata)]))


def test_an_iceberg_table_with_computed_partitions_is_refused(tmp_path: Path):
    table = created(table_at("iceberg", tmp_path))
    with table._open.update_spec() as spec:
        spec.add_field("id", "bucket[4]", "id_bucket")
    table.look()
    with pytest.raises(Unwritable, match="partitioned by id_bucket, which is computed"):
        table.partition_by()


def test_files_have_statistics_that_readers_use(tmp_path: Path):
    table = created(table_at("delta", tmp_path))
    assert isinstance(table, DeltaLakeTable)
    (file,) = files_of(table, ROWS)
    assert file.stats == {
        "numRecords": 5,
        "minValues": {"id": 0, "item": "item 0", "day": "2026-01-01"},
        "maxValues": {"id": 4, "item": "item 4", "day": "2026-01-02"},
        "nullCount": {"id": 0, "item": 0, "day": 0},
    }
