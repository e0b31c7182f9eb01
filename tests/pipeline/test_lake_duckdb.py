"""DuckDB reads what was written, by its own extensions, which come as packages: appended, upserted, with partitions."""

from datetime import date
from importlib import resources
from pathlib import Path
from typing import Any

import duckdb
import pytest

from odradek.pipeline.file.definition import Upsert
from tests.pipeline.lakes import FORMATS, columns, files_of, order, table_at
from tests.pipeline.test_lake_tables import KINDS, VALUES, changes

pytest.importorskip("duckdb_extension_delta", reason="DuckDB's extensions are packages for Linux only")

ROWS = [{"id": number, "day": date(2026, 1, 1 + number // 2)} for number in range(4)]
EXTENSIONS = {"delta": ("delta",), "iceberg": ("avro", "iceberg")}
SCANS = {"delta": "delta_scan('{}')", "iceberg": "iceberg_scan('{}')"}


def read(form: str, place: str, columns: str) -> list[tuple[Any, ...]]:
    database = duckdb.connect(config={"autoinstall_known_extensions": "false"})
    for name in EXTENSIONS[form]:
        directory = resources.files(f"duckdb_extension_{name}") / "extensions" / f"v{duckdb.__version__}"
        database.execute(f"LOAD '{directory / f'{name}.duckdb_extension'}'")
    return database.execute(f"SELECT {columns} FROM {SCANS[form].format(place)} ORDER BY 1").fetchall()


def place_of(table: Any) -> str:
    """Return the place that DuckDB opens: a directory, or the newest metadata."""
    table.look()
    return (
        table.place if hasattr(table, "_options") else table._open.metadata_location.removeprefix("file://")
    )


@pytest.mark.parametrize("form", FORMATS)
def test_duckdb_reads_rows_of_partitions_and_added_columns(form: str, tmp_path: Path):
    table = table_at(form, tmp_path)
    table.look()
    table.create(columns(id="long", day="date"), ("day",))
    table.look()
    table.append(files_of(table, ROWS[:2]), order(0))
    table.look()
    table.add_columns(columns(item="string").fields)
    table.look()
    table.append(files_of(table, [one | {"item": "x"} for one in ROWS[2:]]), order(1))
    expected = [(row["id"], row["day"], None if row["id"] < 2 else "x") for row in ROWS]
    assert read(form, place_of(table), "id, day, item") == expected


@pytest.mark.parametrize("form", FORMATS)
def test_duckdb_reads_all_types(form: str, tmp_path: Path):
    table = table_at(form, tmp_path)
    table.look()
    table.create(columns(**KINDS), ())
    table.look()
    table.append(files_of(table, [VALUES]), order(0))
    names = [name for name in VALUES if name not in ("at", "place")]  # DuckDB needs pytz for these
    (row,) = read(form, place_of(table), ", ".join(f'"{name}"' for name in names))
    assert dict(zip(names, row, strict=True)) == {name: VALUES[name] for name in names} | {
        "facts": {"one": 1}
    }


def test_duckdb_reads_an_upsert(tmp_path: Path):
    table = table_at("delta", tmp_path)
    table.look()
    table.create(columns(id="long", item="string", changed="long"), ())
    for batch, rows in enumerate(
        ([(1, "a", 1, False), (2, "b", 1, False)], [(1, "z", 2, True), (2, "c", 2, False)])
    ):
        table.look()
        table.merge(changes(*rows), Upsert(("id",), (), ""), order(batch))
    assert read("delta", place_of(table), "id, item") == [(2, "c")]
