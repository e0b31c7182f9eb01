"""Tables of both formats where `[storage]` says, on servers that are not ours: written, by two writers, read back."""

from pathlib import Path

import pytest

from odradek.pipeline.file.definition import Upsert
from odradek.pipeline.kinds.lake.iceberg import IcebergLakeTable, catalog_properties
from odradek.pipeline.kinds.lake.order import Entry
from odradek.pipeline.kinds.lake.table import Conflict, LakeTable
from tests.pipeline.lakes import (
    FORMATS,
    NAME,
    columns,
    delta_rows,
    files_of,
    iceberg_catalog,
    iceberg_rows,
    order,
    table_at,
)
from tests.pipeline.test_lake_tables import ORDERED, changes
from tests.stores.servers import Store

ORDERS = columns(id="long", item="string")
ROWS = [{"id": 1, "item": "a"}, {"id": 2, "item": "b"}]


@pytest.fixture(params=[0, 1], ids=["first name", "second name"])
def place(request: pytest.FixtureRequest, store: Store, tmp_path: Path, monkeypatch) -> str:
    if request.param >= len(store.places):
        pytest.skip("this store's buckets have one name")
    for name, value in store.environ.items():
        monkeypatch.setenv(name, value)
    return f"{store.places[request.param]}/{tmp_path.name}"


def write_twice(table: LakeTable, other: LakeTable) -> None:
    """Two writers of one batch: it is in the table once."""
    assert table.look() is None
    table.create(ORDERS, ("item",))
    assert table.look() == other.look() is not None
    table.append(files_of(table, ROWS), order(0))
    files = files_of(other, ROWS)
    with pytest.raises(Conflict):
        other.append(files, order(0))
    other.look()
    assert other.entry("q") == Entry(0, order(0).fingerprint)
    other.add_columns(columns(price="double").fields)
    other.look()
    assert other.schema().names == ["id", "item", "price"]


def check_format(store: Store, form: str) -> None:
    if form not in store.formats:
        pytest.skip(f"the server does not take what {form}'s library writes")


@pytest.mark.parametrize("form", FORMATS)
def test_a_table_in_a_store(store: Store, place: str, form: str, tmp_path: Path):
    check_format(store, form)

    def opened() -> LakeTable:
        if form == "delta":
            return table_at("delta", place, store.access)
        return IcebergLakeTable(
            NAME, iceberg_catalog(place, store.access, file=tmp_path / "c.db"), store.access
        )

    table = opened()
    write_twice(table, opened())
    if form == "delta":
        found = delta_rows(table.place, table._options)
    else:
        found = iceberg_rows(iceberg_catalog(place, store.access, file=tmp_path / "c.db"))
    assert sorted((row["id"], row["item"], row["price"]) for row in found) == [(1, "a", None), (2, "b", None)]


def test_an_upsert_in_a_store(store: Store, place: str):
    check_format(store, "delta")
    table = table_at("delta", place, store.access)
    table.look()
    table.create(ORDERED, ())
    table.look()
    for batch, item in enumerate("ab"):
        table.merge(changes((1, item, batch, False)), Upsert(("id",), (), ""), order(batch))
        table.look()
    assert [row["item"] for row in delta_rows(table.place, table._options)] == ["b"]


def test_a_rest_catalog(catalog: str):
    """`catalog = { type = "rest", uri = … }`, without a warehouse: the server has one."""
    properties = catalog_properties({"type": "rest", "uri": catalog}, "", {})
    write_twice(IcebergLakeTable(NAME, properties, {}), IcebergLakeTable(NAME, properties, {}))
    found = iceberg_rows(properties)
    assert sorted(row["id"] for row in found) == [1, 2]
