"""The parts of lake sinks that need neither Spark nor a table: decisions, schemas, storage, files."""

import os
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import ArrayType, DayTimeIntervalType, MapType, NullType, StringType

from odradek.pipeline.file.errors import PipelineError
from odradek.pipeline.file.reading import load
from odradek.pipeline.kinds.lake import files
from odradek.pipeline.kinds.lake.files import StorageError, Target, statistics, text_of, write_task
from odradek.pipeline.kinds.lake.iceberg_files import LakeFileIO
from odradek.pipeline.kinds.lake.order import (
    Entry,
    Order,
    OutOfOrder,
    check_same_table,
    entry_of,
    fingerprint_of,
    is_written,
    mark_of,
)
from odradek.pipeline.kinds.lake.schemas import Misfit, added, check_types, nullable
from odradek.pipeline.kinds.lake.storage import (
    FILE_IO,
    arrow_azure,
    arrow_s3,
    as_delta_opens,
    delta_options,
    file_system,
    iceberg_properties,
    local_or_uri,
    warehouse_uri,
    without_secrets,
)
from odradek.pipeline.kinds.sink import Refused
from odradek.pipeline.run.failures import Kind, classify
from tests.pipeline.lakes import columns

# Whether a batch is written


def test_the_decision():
    order = Order("q", 3, "a")
    assert not is_written(None, order)
    assert not is_written(Entry(2, "x"), order)
    assert is_written(Entry(3, "a"), order)
    assert is_written(Entry(3, None), order), "by Spark's own sink"
    with pytest.raises(OutOfOrder, match="read other records: a copy of this checkpoint"):
        is_written(Entry(3, "b"), order)
    with pytest.raises(OutOfOrder, match=r"the table has batch 4 .* checkpoint is at batch 3: it is older"):
        is_written(Entry(4, "a"), order)


def test_fingerprints_fit_into_a_signed_number_and_tell_offsets_apart():
    found = {fingerprint_of(str(number)) for number in range(100)}
    assert len(found) == 100
    for one in found:
        mark = mark_of(Order("q", 7, one))
        assert mark < 1 << 63
        assert entry_of(7, mark) == Entry(7, one)
        assert entry_of(8, mark) == Entry(8, None), "the mark of an earlier batch"
    assert entry_of(0, None) == Entry(0, None)


def test_a_table_that_is_not_the_one_of_before():
    check_same_table(None, None, "p")
    check_same_table(None, "a", "p")
    check_same_table("a", "a", "p")
    with pytest.raises(OutOfOrder, match="table at p, and there is none any more"):
        check_same_table("a", None, "p")
    with pytest.raises(OutOfOrder, match="it was created again since"):
        check_same_table("a", "b", "p")


# Schemas


def test_only_new_columns_are_added():
    table = columns(id="long", item="string")
    rows = columns(ID="integer!", price="decimal(9,2)!")
    assert [(one.name, one.nullable) for one in added(table, rows)] == [("price", True)]
    assert added(table, table) == []


ONE, TWO = columns(a="integer"), columns(a="integer", b="integer")


@pytest.mark.parametrize(
    ("table", "rows", "problem"),
    [
        ({"id": "integer"}, {"id": "long"}, "the column 'id' is bigint, in the table it is int: cast it"),
        ({"id": "long"}, {"id": "string"}, "is string, in the table it is bigint"),
        ({"p": "decimal(9,2)"}, {"p": "decimal(9,3)"}, "in the table it is decimal"),
        ({"s": ONE}, {"s": TWO}, "in the table it is struct"),
        (
            {"id": "integer", "must": "integer!"},
            {"id": "integer"},
            "'must' is NOT NULL, and the rows have none",
        ),
    ],
)
def test_other_types_do_not_fit(table: dict, rows: dict, problem: str):
    with pytest.raises(Misfit, match=problem):
        added(columns(**table), columns(**rows))


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        ("long", "byte"),
        ("double", "float"),
        ("decimal(12,3)", "decimal(9,2)"),
        (ONE, columns(a="integer!")),
        ("integer!", "integer"),
    ],
)
def test_what_fits(table: str, rows: str):
    assert added(columns(n=table), columns(n=rows)) == []


def test_types_that_no_table_has():
    check_types(columns(a=ArrayType(MapType(StringType(), columns(b="decimal(3,1)")))))
    with pytest.raises(
        Misfit, match="'gap' is interval day to second, which lake tables do not have: cast it"
    ):
        check_types(columns(gap=DayTimeIntervalType()))
    with pytest.raises(Misfit, match="'a' is void"):
        check_types(columns(a=columns(b=NullType())))
    with pytest.raises(Misfit, match="'id' and 'ID' differ only by upper and lower case"):
        check_types(columns(id="integer", ID="integer"))


def test_a_new_table_requires_nothing():
    found = nullable(columns(a="integer!", s=columns(b="integer!")))
    assert found == columns(a="integer", s=columns(b="integer"))


# Storage


STORE = {
    "endpoint": "http://127.0.0.1:5000",
    "region": "eu-central-1",
    "access_key_id": "me",
    "secret_access_key": "mine",
}


def test_one_table_of_settings_for_three_libraries():
    assert delta_options(STORE) == {
        "aws_endpoint_url": "http://127.0.0.1:5000",
        "aws_region": "eu-central-1",
        "aws_access_key_id": "me",
        "aws_secret_access_key": "mine",
        "allow_http": "true",
    }
    assert iceberg_properties(STORE) == {
        "s3.endpoint": "http://127.0.0.1:5000",
        "s3.region": "eu-central-1",
        "s3.access-key-id": "me",
        "s3.secret-access-key": "mine",
        "s3.force-virtual-addressing": "false",
        "py-io-impl": FILE_IO,
    }
    assert arrow_s3(STORE) == {
        "endpoint_override": "127.0.0.1:5000",
        "scheme": "http",
        "region": "eu-central-1",
        "access_key": "me",
        "secret_key": "mine",
    }
    azure = {"account_key": "k", "account_name": "shop"}
    assert delta_options(azure) == {"azure_storage_account_key": "k", "azure_storage_account_name": "shop"}
    assert iceberg_properties(azure)["adls.account-key"] == "k"
    assert arrow_azure({"account_key": "k"}, "shop.dfs.core.windows.net") == {
        "account_name": "shop",
        "account_key": "k",
    }


AZURITE = {"endpoint": "http://127.0.0.1:10000", "account_name": "shop", "account_key": "k"}
CHINA = AZURITE | {"endpoint": "https://shop.blob.core.chinacloudapi.cn"}


def test_an_endpoint_of_azure(monkeypatch):
    """An emulator has the account in the path; another cloud has it at the beginning of the host's name."""
    monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", "other")
    assert delta_options(AZURITE) == {
        "azure_storage_use_emulator": "true",
        "azure_storage_account_name": "shop",
        "azure_storage_account_key": "k",
        "allow_http": "true",
    }
    assert os.environ["AZURITE_BLOB_STORAGE_URL"] == "http://127.0.0.1:10000"
    assert delta_options(CHINA)["azure_storage_endpoint"] == "https://shop.blob.core.chinacloudapi.cn"
    assert "allow_http" not in delta_options(CHINA)
    assert arrow_azure(AZURITE, "shop.dfs.core.windows.net") == {
        "account_name": "shop",
        "account_key": "k",
        "blob_storage_authority": "127.0.0.1:10000",
        "blob_storage_scheme": "http",
        "dfs_storage_authority": "127.0.0.1:10000",
        "dfs_storage_scheme": "http",
    }
    china = iceberg_properties(CHINA)
    assert china["adls.blob-storage-authority"] == ".blob.core.chinacloudapi.cn"
    assert china["adls.dfs-storage-authority"] == ".dfs.core.chinacloudapi.cn"
    assert "s3.endpoint" not in china and "s3.force-virtual-addressing" not in china


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("abfss://lake@shop.dfs.core.windows.net/a/b.parquet", "lake/a/b.parquet"),
        ("abfss://lake/a/b.parquet", "lake/a/b.parquet"),
        ("s3://lake/a/b.parquet", "lake/a/b.parquet"),
        ("file:///lake/a/b.parquet", "/lake/a/b.parquet"),
    ],
)
def test_the_path_of_a_file_of_an_iceberg_table(location: str, path: str):
    assert LakeFileIO.parse_location(location)[2] == path


def test_google_s_account_is_named_where_all_libraries_look(monkeypatch):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "other.json")
    assert delta_options({"service_account": "key.json"}) == {"google_service_account": "key.json"}
    iceberg_properties({"service_account": "key.json"})
    assert os.environ["GOOGLE_APPLICATION_CREDENTIALS"] == "key.json"


def test_places(tmp_path: Path):
    assert file_system(str(tmp_path), {})[1] == str(tmp_path)
    assert file_system(f"file://{tmp_path}", {})[1] == str(tmp_path)
    assert file_system("s3://bucket/lake/orders", STORE)[1] == "bucket/lake/orders"
    assert file_system("abfss://c@shop.dfs.core.windows.net/lake", {"account_key": "a2V5"})[1] == "c/lake"


def test_places_with_spaces_and_other_characters(tmp_path: Path):
    """Whoever writes the log and whoever writes files must mean the same directory."""
    assert local_or_uri(f"file://{tmp_path}/my%20lake") == f"{tmp_path}/my lake"
    assert local_or_uri("file:/my%20lake") == "/my lake"
    assert local_or_uri("/my%20lake") == "/my%20lake"
    assert as_delta_opens("s3://bucket/my%20lake/a b") == "s3://bucket/my lake/a b"
    assert as_delta_opens("/100%25") == "/100%25"
    assert warehouse_uri("/my läke #1") == "file:///my läke %231"
    assert warehouse_uri("s3://bucket/my lake") == "s3://bucket/my lake"


def test_azure_s_tokens_with_and_without_a_question_mark():
    for token in ("sv=1&sig=s", "?sv=1&sig=s"):
        access = {"account_name": "shop", "sas_token": token}
        assert arrow_azure(access, "")["sas_token"] == "?sv=1&sig=s"
        assert iceberg_properties(access)["adls.sas-token"] == "?sv=1&sig=s"


class Away:
    """A file system that says where it has been."""

    def open_output_stream(self, path: str) -> None:
        raise OSError("PUT 'https://shop/c/?sv=1&sig=s' failed")


def test_secrets_are_cut_out_of_what_libraries_say(monkeypatch):
    access = {"sas_token": "?sv=1&sig=s", "secret_access_key": "k/y", "region": "eu"}
    said = "GET 'https://shop/c/?sv=1&sig=s' failed in eu: k/y"
    assert without_secrets(said, access) == "GET 'https://shop/c/?***' failed in eu: ***"
    monkeypatch.setattr(files, "file_system", lambda place, given: (Away(), place))
    with pytest.raises(StorageError, match=r"cannot write part-.*: PUT 'https://shop/c/\?\*\*\*' failed"):
        list(write_task(iter([batch(range(2))]), Target("s3://lake", access, SCHEMA, (), False)))


# The file


FILE = """
[sources.orders]
topic = "orders"
format = "text"
[sinks.out]
from = "orders"
{sink}
{more}
"""


@pytest.mark.parametrize(
    ("sink", "problem"),
    [
        ('table = "orders"', "'orders' is not a name in a catalog, such as shop.orders"),
        ('path = "lake"\nformat = "iceberg"', 'found by its catalog: give its name, table = "shop.orders"'),
        ('table = "shop.orders"\nformat = "delta"', "a Delta table is found by its place: give its path"),
        ('path = "lake"\nformat = "delta"\noptions = { a = 1 }', 'set connector = "spark"'),
        ('path = "lake"\nformat = "delta"\nmode = "upsert"', "name its columns, key ="),
        ('path = "lake"\nformat = "delta"\nkey = "id"', 'this is for mode = "upsert"'),
        ('table = "shop.orders"\nmode = "upsert"', "'upsert' is not one of append"),
    ],
)
def test_what_a_file_may_not_say(write, sink: str, problem: str):
    with pytest.raises(PipelineError, match=problem.replace("[", r"\[").replace(".", r"\.")):
        load(write(FILE.format(sink=sink, more="")), {})


def test_storage_in_the_file(write):
    more = """
[storage]
endpoint = "http://localhost:1"
access_key_id = "${ID}"
secret_access_key = "${SECRET}"
warehouse = "s3://lake/warehouse"
catalog = { type = "rest", uri = "http://localhost:2" }
"""
    text = FILE.format(sink='table = "shop.orders"', more=more)
    storage = load(write(text), {"ID": "me", "SECRET": "mine"}).storage
    assert storage.access == {
        "endpoint": "http://localhost:1",
        "access_key_id": "me",
        "secret_access_key": "mine",
    }
    assert storage.catalog == {"type": "rest", "uri": "http://localhost:2"}
    assert "mine" not in repr(storage)
    with pytest.raises(PipelineError, match="a secret does not belong in this file"):
        load(write(text.replace("${SECRET}", "mine")), {"ID": "me"})
    with pytest.raises(PipelineError, match="give both access_key_id and secret_access_key"):
        load(write(text.replace('secret_access_key = "${SECRET}"\n', "")), {"ID": "me"})
    with pytest.raises(PipelineError, match="did you mean 'endpoint'"):
        load(write(text.replace("endpoint", "endpoin")), {"ID": "me", "SECRET": "mine"})


# What a failure means


def test_failures_of_tables():
    assert classify(Refused("the table is gone")).kind is Kind.PERMANENT
    full = classify(OSError(28, "No space left on device"))
    assert full.kind is Kind.OTHER and full.reason.startswith("a disk is full; free some space there")
    away = "Generic S3 error: Error performing PUT: Server returned non-2xx status code: 503"
    assert classify(OSError(away)).kind is Kind.OTHER


# Files


SCHEMA = pa.schema([("id", pa.int64()), ("shop", pa.string())])


def batch(ids: range, shop: str | None = "a") -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"id": number, "shop": shop} for number in ids], schema=SCHEMA)


def target(directory: Path, *partition_by: str, keeps: bool = False) -> Target:
    return Target(str(directory), {}, SCHEMA, partition_by, keeps)


def test_a_task_writes_one_file_of_few_row_groups(tmp_path: Path):
    batches = [batch(range(start, start + 10)) for start in range(0, 1000, 10)]
    (file,) = write_task(iter(batches), target(tmp_path))
    assert (file.rows, file.partition) == (1000, {})
    found = pq.ParquetFile(tmp_path / file.path)
    assert found.metadata.num_row_groups == 1
    assert (tmp_path / file.path).stat().st_size == file.bytes
    assert found.read().column("id").to_pylist() == list(range(1000))


def test_a_task_without_rows_writes_nothing(tmp_path: Path):
    assert list(write_task(iter([]), target(tmp_path))) == []
    assert list(write_task(iter([batch(range(0))]), target(tmp_path, "shop"))) == []
    assert list(tmp_path.iterdir()) == []


def test_a_file_for_each_partition(tmp_path: Path):
    batches = [batch(range(3), None), batch(range(3, 5)), batch(range(5, 9)), batch(range(9, 10), "b")]
    found = list(write_task(iter(batches), target(tmp_path, "shop")))
    assert [(file.rows, file.partition["shop"]) for file in found] == [(3, None), (6, "a"), (1, "b")]
    assert pq.read_table(tmp_path / found[1].path).column_names == ["id"]
    kept = list(write_task(iter(batches), target(tmp_path, "shop", keeps=True)))
    assert pq.read_table(tmp_path / kept[1].path).column_names == ["id", "shop"]


def test_files_have_a_limit(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(files, "ROW_GROUP_BYTES", 100)
    monkeypatch.setattr(files, "FILE_BYTES", 1)
    found = list(write_task(iter([batch(range(20)), batch(range(20))]), target(tmp_path)))
    assert [file.rows for file in found] == [20, 20]


def test_a_file_that_cannot_be_written_is_no_fault_of_a_row(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(StorageError, match=r"cannot write part-.*parquet"):
        list(write_task(iter([batch(range(2))]), target(tmp_path / "file")))


def test_values_of_partitions():
    assert text_of(True) == "true"
    assert text_of(7) == "7"
    assert text_of("") is None
    assert text_of(date(2026, 1, 2)) == "2026-01-02"
    assert text_of(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)) == "2026-01-02 03:04:05.000000"
    elsewhere = datetime(2026, 1, 2, 4, 4, 5, tzinfo=timezone(timedelta(hours=1)))
    assert text_of(elsewhere) == "2026-01-02 03:04:05.000000"
    assert text_of(elsewhere.replace(tzinfo=None)) == "2026-01-02 04:04:05.000000"


def test_statistics_are_exact_or_left_out(tmp_path: Path):
    schema = pa.schema(
        [
            ("at", pa.timestamp("us", "UTC")),
            ("ratio", pa.float64()),
            ("long", pa.string()),
            ("none", pa.int32()),
        ]
    )
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
    row = {"at": moment, "ratio": 0.5, "long": "x" * 200, "none": None}
    pq.write_table(pa.Table.from_pylist([row], schema=schema), tmp_path / "f.parquet")
    found = statistics(pq.read_metadata(tmp_path / "f.parquet"), schema)
    assert found == {
        "numRecords": 1,
        "minValues": {"at": "2026-01-02T03:04:05.678Z"},
        "maxValues": {"at": "2026-01-02T03:04:05.679Z"},
        "nullCount": {"at": 0, "ratio": 0, "long": 0, "none": 1},
    }


END_OF_TIME = 253402300799999999  # 9999-12-31 23:59:59.999999, which many take for "still valid"


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.timestamp("us", "UTC"), END_OF_TIME),
        (pa.timestamp("us"), END_OF_TIME),
        (pa.timestamp("us", "UTC"), 10 * END_OF_TIME),  # Spark's years go further than Python's
        (pa.timestamp("us", "UTC"), -10 * END_OF_TIME),
        (pa.date32(), 4_000_000),
    ],
)
def test_times_at_the_end_of_time_have_no_statistics(tmp_path: Path, kind: pa.DataType, value: int):
    plain = pa.int32() if kind == pa.date32() else pa.int64()
    schema = pa.schema([("at", kind), ("id", pa.int64())])
    rows = pa.RecordBatch.from_arrays([pa.array([value], plain).cast(kind), pa.array([1])], schema=schema)
    (file,) = write_task(iter([rows]), Target(str(tmp_path), {}, schema, (), False))
    assert file.stats == {
        "numRecords": 1,
        "minValues": {"id": 1},
        "maxValues": {"id": 1},
        "nullCount": {"at": 0, "id": 0},
    }


def test_a_field_of_a_struct_is_not_taken_for_a_column(tmp_path: Path):
    """Both have the path a.b in Parquet; with statistics of the other one readers would leave the file out."""
    rows = pa.RecordBatch.from_pylist([{"a": {"b": 100}, "a.b": 1}])
    (file,) = write_task(iter([rows]), Target(str(tmp_path), {}, rows.schema, (), False))
    assert file.stats["minValues"] == {} and file.stats["nullCount"] == {}
