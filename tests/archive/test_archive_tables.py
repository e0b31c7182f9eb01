"""Tables and files of an archive without a cluster: storage that refuses, files that are gone, tables of others."""

import errno
import shutil
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

from odradek.archive import rows
from odradek.archive.failures import AnotherArchiver, ArchiveError, MissingArchive, TableGone
from odradek.archive.layout import Range
from odradek.archive.location import Location
from odradek.archive.rows import SCHEMA, merge, read_files, write_file
from odradek.archive.tables import Table

TOPIC_ID = uuid4()


def batch(first: int, end: int, partition: int = 0) -> pa.RecordBatch:
    count = end - first
    columns = {
        "key": [b"k"] * count,
        "value": [b"v%d" % number for number in range(first, end)],
        "headers": [None] * count,
        "timestamp": pa.array([1_700_000_000_123_000 + number for number in range(first, end)], pa.int64()),
        "timestampType": [0] * count,
        "offset": range(first, end),
        "partition": [partition] * count,
    }
    arrays = [pa.array(columns[field.name]).cast(field.type) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


@pytest.fixture
def table(tmp_path) -> Table:
    return Table.create(Location.of(str(tmp_path), "orders"), "orders", TOPIC_ID)


def add(table: Table, first: int, end: int) -> None:
    table.snapshot()
    file = write_file(table.location, Range(0, first, end), [batch(first, end)])
    table.commit(TOPIC_ID, [file], {0: end})


def offsets(table: Table, range_: Range) -> list[int]:
    found = table.snapshot().files_of(*range_)
    batches = read_files(table.location, [one.path for one in found], range_)
    return [offset for one in batches for offset in one.column("offset").to_pylist()]


def test_ranges_are_read_in_order_across_files(table):
    for first in range(0, 50, 10):
        add(table, first, first + 10)
    assert offsets(table, Range(0, 7, 33)) == list(range(7, 33))
    assert offsets(table, Range(0, 50, 60)) == []


def test_row_groups_outside_a_range_are_not_read(table, monkeypatch):
    monkeypatch.setattr(rows, "MOST_GROUP_ROWS", 10)
    batches = [batch(first, first + 10) for first in range(0, 100, 10)]
    file = write_file(table.location, Range(0, 0, 100), batches)
    table.commit(TOPIC_ID, [file], {0: 100})
    read = []
    original = rows.pq.ParquetFile.iter_batches
    monkeypatch.setattr(
        rows.pq.ParquetFile,
        "iter_batches",
        lambda self, row_groups: read.extend(row_groups) or original(self, row_groups=row_groups),
    )
    assert offsets(table, Range(0, 25, 41)) == list(range(25, 41))
    assert read == [2, 3, 4]


def test_a_commit_whose_response_was_lost_counts(table, monkeypatch):
    table.snapshot()
    file = write_file(table.location, Range(0, 0, 10), [batch(0, 10)])
    write = table._table.create_write_transaction

    def lose_the_response(*arguments, **options):
        write(*arguments, **options)
        raise OSError("connection reset")

    monkeypatch.setattr(table._table, "create_write_transaction", lose_the_response)
    table.commit(TOPIC_ID, [file], {0: 10})
    assert offsets(table, Range(0, 0, 99)) == list(range(10))


def test_a_commit_of_ends_alone_whose_response_was_lost_counts(table, monkeypatch):
    """As of a range that has only markers of transactions."""
    add(table, 0, 5)
    write = table._table.create_write_transaction

    def lose_the_response(*arguments, **options):
        write(*arguments, **options)
        raise OSError("connection reset")

    monkeypatch.setattr(table._table, "create_write_transaction", lose_the_response)
    table.commit(TOPIC_ID, [], {0: 10})
    assert table.snapshot().ends == {0: 10}


def test_the_leader_epoch_is_kept_beside_the_end(table):
    add(table, 0, 5)
    assert table.snapshot().epochs == {}
    table.commit(TOPIC_ID, [], {0: 7, 1: 0}, {0: 3})
    assert (table.snapshot().ends, table.snapshot().epochs) == ({0: 7, 1: 0}, {0: 3})
    table.commit(TOPIC_ID, [], {0: 9})
    assert Table.open(table.location).snapshot().epochs == {0: 3}


def test_times_of_long_ago_have_statistics(table):
    """A year has four digits, also the first of all."""
    old = batch(0, 2)
    time_us = -62_135_596_800_000_000 + 1000
    times = pa.array([time_us, time_us + 1], pa.int64()).cast(SCHEMA.field("timestamp").type)
    old = old.set_column(SCHEMA.names.index("timestamp"), SCHEMA.field("timestamp"), times)
    file = write_file(table.location, Range(0, 0, 2), [old])
    table.commit(TOPIC_ID, [file], {0: 2})
    (found,) = Table.open(table.location).snapshot().files
    assert (found.min_timestamp_ms, found.max_timestamp_ms) == (time_us // 1000, time_us // 1000 + 1)


def test_a_commit_that_failed_is_told_from_one_that_came_second(table, monkeypatch):
    table.snapshot()
    other = Table.open(table.location)
    add(other, 0, 5)
    file = write_file(table.location, Range(0, 0, 10), [batch(0, 10)])
    with pytest.raises(AnotherArchiver, match="was first: this one has added nothing"):
        table.commit(TOPIC_ID, [file], {0: 10})

    def fail(*arguments, **options):
        raise OSError("connection reset")

    monkeypatch.setattr(table._table, "create_write_transaction", fail)
    with pytest.raises(ArchiveError, match=r"connection reset. Nothing of it counts as archived"):
        table.commit(TOPIC_ID, [file], {0: 10})


def test_a_table_that_was_deleted_is_noticed_before_the_next_commit(table):
    add(table, 0, 5)
    shutil.rmtree(table.location.local)
    with pytest.raises(TableGone, match="was deleted while it was in use"):
        add(table, 5, 10)
    again = Table.create(table.location, "orders", TOPIC_ID)
    with pytest.raises(TableGone, match="was deleted and created again while it was in use"):
        add(table, 5, 10)
    add(again, 0, 5)
    assert offsets(Table.open(table.location), Range(0, 0, 99)) == list(range(5))


def test_a_merged_file_has_the_rows_of_its_parts_in_order(table):
    for first in range(0, 30, 10):
        add(table, first, first + 10)
    before = table.snapshot()
    merged = merge(table.location, before.files_of(0), Range(0, 0, 30))
    table.replace(before.files_of(0), merged)
    after = table.snapshot()
    assert [one.range for one in after.files] == [Range(0, 0, 30)]
    assert (dict(after.ends), offsets(table, Range(0, 0, 99))) == ({0: 30}, list(range(30)))
    assert after.files[0].min_timestamp_ms == 1_700_000_000_123


def test_a_file_that_was_vacuumed_while_it_was_to_be_read_is_named(table):
    add(table, 0, 10)
    (file,) = table.snapshot().files
    (table.location.local / file.path).unlink()
    with pytest.raises(ArchiveError, match="deleted by a vacuum while it was to be read"):
        list(read_files(table.location, [file.path], file.range))


def test_a_damaged_log_is_told_in_one_line(table):
    add(table, 0, 10)
    (table.location.local / "_delta_log" / f"{1:020}.json").write_text("damaged")
    with pytest.raises(ArchiveError, match=r"^cannot read the archive .*/orders: ") as raised:
        Table.open(table.location)
    assert "\n" not in str(raised.value) and "<unknown>" not in str(raised.value)


def test_a_damaged_file_is_named(table):
    add(table, 0, 10)
    (file,) = table.snapshot().files
    (table.location.local / file.path).write_bytes(b"damaged")
    with pytest.raises(ArchiveError, match=f"cannot read .*{file.path}: .*restore it from a backup"):
        list(read_files(table.location, [file.path], file.range))


def test_a_vacuum_spares_what_was_replaced_or_written_lately(table):
    for first in range(0, 20, 10):
        add(table, first, first + 10)
    before = table.snapshot().files_of(0)
    table.replace(before, merge(table.location, before, Range(0, 0, 20)))
    orphan = write_file(table.location, Range(0, 20, 30), [batch(20, 30)])
    assert table.vacuum() == 0
    assert all((table.location.local / one.path).exists() for one in (*before, orphan))


def test_a_full_disk_gets_a_sentence_and_leaves_nothing_behind(table, monkeypatch):
    class Full(rows.pq.ParquetWriter):
        def write_table(self, *arguments, **options):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(rows.pq, "ParquetWriter", Full)
    with pytest.raises(ArchiveError, match="Make room there, and run it again: it goes on where it stopped"):
        write_file(table.location, Range(0, 0, 10), [batch(0, 10)])
    assert list(Path(table.location.local).glob("*.parquet")) == []


def test_a_directory_that_may_not_be_written_gets_a_sentence(table, monkeypatch):
    def refuse(self, path):
        raise PermissionError(errno.EACCES, "Permission denied")

    class Refusing:
        open_output_stream = refuse

    monkeypatch.setattr(Location, "filesystem", lambda self: Refusing())
    with pytest.raises(ArchiveError, match="Let this user write there"):
        write_file(table.location, Range(0, 0, 10), [batch(0, 10)])


def test_a_table_that_another_tool_has_rewritten_is_refused(table):
    for first in range(0, 20, 10):
        add(table, first, first + 10)
    from deltalake import DeltaTable

    DeltaTable(table.location.uri).optimize.compact()
    with pytest.raises(ArchiveError, match="another tool has rewritten the table"):
        table.snapshot()


def test_tables_that_are_no_archives_are_refused(tmp_path):
    with pytest.raises(MissingArchive, match="there is no archive of a topic at"):
        Table.open(Location.of(str(tmp_path), "absent"))
    from deltalake import write_deltalake

    write_deltalake(str(tmp_path / "other"), pa.table({"a": [1]}))
    with pytest.raises(ArchiveError, match="is not an archive of a topic"):
        Table.open(Location.of(str(tmp_path), "other")).snapshot()


def test_times_that_no_calendar_has_are_archived_without_statistics(table):
    """Microseconds taken for milliseconds are seen in real topics."""
    rows_ = batch(0, 3).set_column(
        3, SCHEMA.field("timestamp"), pa.array([10**18] * 3).cast(pa.timestamp("us", "UTC"))
    )
    file = write_file(table.location, Range(0, 0, 3), [rows_])
    table.commit(TOPIC_ID, [file], {0: 3})
    (found,) = table.snapshot().files
    assert (found.min_timestamp_ms, found.max_timestamp_ms, found.rows) == (None, None, 3)
    assert offsets(table, Range(0, 0, 9)) == [0, 1, 2]


def test_a_version_is_pinned(table):
    add(table, 0, 10)
    pinned = Table.open(table.location)
    add(table, 10, 20)
    assert (dict(pinned.pinned().ends), len(pinned.pinned().files)) == ({0: 10}, 1)
    assert dict(pinned.snapshot().ends) == {0: 20}


def test_storage_behind_a_url_is_reached_through_delta_rs(table, monkeypatch):
    """The files are the same, but there is no local directory, as on object storage."""
    location = Location(f"file://{table.location.local}")
    monkeypatch.setattr(Location, "local", property(lambda self: None))
    remote = Table.open(location)
    add(remote, 0, 10)
    add(remote, 10, 20)
    assert offsets(remote, Range(0, 5, 15)) == list(range(5, 15))
    before = remote.snapshot().files_of(0)
    remote.replace(before, merge(location, before, Range(0, 0, 20)))
    assert offsets(remote, Range(0, 0, 20)) == list(range(20))


WITHOUT_SPARK = """
import sys
sys.modules["pyspark"] = None
import odradek.archiving.archiver, odradek.archiving.replay_sources, odradek.sql.query
import odradek.spark.typed.avro_arrow, odradek.spark.typed.decoders
from odradek.archiving.replay import _encoder
from odradek.archiving.topics import record_decoder
from odradek.model import TopicPartition
record_decoder(TopicPartition("t", 0))
_encoder("t", 1)
"""


def test_nothing_of_it_needs_spark():
    subprocess.run([sys.executable, "-c", WITHOUT_SPARK], check=True, timeout=200)


def test_a_missing_package_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(ArchiveError, match=r"pip install '\.\[archive\]'"):
        Table.open(Location.of(str(tmp_path), "orders"))
