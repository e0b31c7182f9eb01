"""Lake tables of tests: made without Spark, and read by their own readers."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import DataType, StructField, StructType

from odradek.pipeline.kinds.lake.delta import DeltaLakeTable
from odradek.pipeline.kinds.lake.files import DataFile, write_task
from odradek.pipeline.kinds.lake.iceberg import IcebergLakeTable, catalog_properties
from odradek.pipeline.kinds.lake.order import Order
from odradek.pipeline.kinds.lake.storage import Access
from odradek.pipeline.kinds.lake.table import LakeTable

NAME = "shop.orders"
FORMATS = ("delta", "iceberg")


def columns(**kinds: str | DataType) -> StructType:
    """Build columns from the names that types have in JSON; with `!` a column is NOT NULL. (Spark reads DDL in Java
    only.)
    """
    return StructType([_column(name, kind) for name, kind in kinds.items()])


def _column(name: str, kind: str | DataType) -> StructField:
    if isinstance(kind, DataType):
        return StructField(name, kind)
    facts = {"name": name, "type": kind.rstrip("!"), "nullable": not kind.endswith("!"), "metadata": {}}
    return StructField.fromJson(facts)


def table_at(form: str, directory: Path | str, access: Access | None = None) -> LakeTable:
    """A handle of its own, as another process has it."""
    if form == "delta":
        return DeltaLakeTable(f"{directory}/{NAME}", access or {})
    return IcebergLakeTable(NAME, iceberg_catalog(directory, access), access or {})


def iceberg_catalog(
    directory: Path | str, access: Access | None = None, file: Path | None = None
) -> dict[str, str]:
    file = file or Path(directory) / "catalog.db"
    file.parent.mkdir(parents=True, exist_ok=True)
    return catalog_properties({"type": "sql", "uri": f"sqlite:///{file}"}, str(directory), access or {})


def files_of(table: LakeTable, rows: Iterable[dict[str, Any]]) -> list[DataFile]:
    """Files of tables as tasks write them."""
    target = table.target()
    batch = pa.RecordBatch.from_pylist(list(rows), schema=target.schema)
    return list(write_task(iter([batch]), target))


def order(batch: int, query: str = "q", fingerprint: str = "00000000a") -> Order:
    return Order(query, batch, fingerprint)


def delta_rows(place: Path | str, options: dict[str, str] | None = None) -> list[dict[str, Any]]:
    """Read the rows by delta-rs."""
    from deltalake import DeltaTable

    return pa.table(DeltaTable(str(place), storage_options=options).scan().read_all()).to_pylist()


def iceberg_rows(properties: dict[str, str], name: str = NAME) -> list[dict[str, Any]]:
    """Read the rows by pyiceberg."""
    from pyiceberg.catalog import load_catalog

    return load_catalog("odradek", **properties).load_table(name).scan().to_arrow().to_pylist()


def rows_of(form: str, directory: Path | str, access: Access | None = None) -> list[dict[str, Any]]:
    table = table_at(form, directory, access)
    assert table.look() is not None
    if isinstance(table, DeltaLakeTable):
        return delta_rows(table.place, table._options)
    return iceberg_rows(iceberg_catalog(directory, access))
