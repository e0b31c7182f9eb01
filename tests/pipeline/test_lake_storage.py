"""Lake tables in an object store, which is moto's server: written, read back, by two writers, and while it is away."""

import os
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path

import pytest

from odradek.pipeline.file.definition import Upsert
from odradek.pipeline.kinds.lake.table import Conflict
from odradek.pipeline.run.progress import BatchProgress
from tests.pipeline.lab import Lab
from tests.pipeline.lakes import (
    FORMATS,
    columns,
    delta_rows,
    files_of,
    iceberg_catalog,
    iceberg_rows,
    order,
    table_at,
)
from tests.pipeline.stores import BUCKET, FOR_EVER, Store, running_store
from tests.pipeline.test_lake_tables import ORDERED, changes

PLACE = f"s3://{BUCKET}"
ORDERS = columns(id="long", item="string")
ROWS = [{"id": 1, "item": "a"}, {"id": 2, "item": "b"}]


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with running_store() as store:
        yield store


@pytest.fixture
def place(tmp_path: Path) -> str:
    return f"{PLACE}/{tmp_path.name}"


@pytest.fixture(params=FORMATS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_table_in_an_object_store(store: Store, place: str, form: str, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def opened():
        if form == "delta":
            return table_at("delta", place, store.access)
        from odradek.pipeline.kinds.lake.iceberg import IcebergLakeTable

        catalog = iceberg_catalog(place, store.access, file=tmp_path / "catalog.db")
        return IcebergLakeTable("shop.orders", catalog, store.access)

    table, other = opened(), opened()
    assert table.look() is None
    table.create(ORDERS, ())
    assert table.look() == other.look() is not None
    table.append(files_of(table, ROWS), order(0))
    files = files_of(other, ROWS)
    with pytest.raises(Conflict):
        other.append(files, order(0))
    other.look()
    assert other.entry("q") == table_entry(order(0))
    if form == "delta":
        assert delta_rows(table.place, table._options) == ROWS
    else:
        catalog = iceberg_catalog(place, store.access, file=tmp_path / "catalog.db")
        assert iceberg_rows(catalog) == ROWS


def table_entry(known):
    from odradek.pipeline.kinds.lake.order import Entry

    return Entry(known.batch, known.fingerprint)


def test_an_upsert_in_an_object_store_that_refuses_some_requests(store: Store, place: str):
    """The libraries try again by themselves."""
    table = table_at("delta", place, store.access)
    assert table.look() is None
    table.create(ORDERED, ())
    table.look()
    store.refuse("", 3)
    table.merge(changes((1, "a", 1, False), (2, "b", 1, False)), Upsert(("id",), (), ""), order(0))
    assert store.left() == 0
    assert len(delta_rows(table.place, table._options)) == 2


PIPELINE = """
[storage]
endpoint = "{address}"
region = "us-east-1"
access_key_id = "${{STORE_KEY}}"
secret_access_key = "${{STORE_KEY}}"
warehouse = "{place}"
[sources.orders]
topic = "{topic}"
schema = "id BIGINT, item STRING"
max_rows_per_batch = 1
[sinks.out]
from = "orders"
{sink}
"""


TRIES = 2


@pytest.mark.parametrize(
    ("form", "away"),
    [
        ("delta", "everything"),
        pytest.param("delta", "files", marks=pytest.mark.long),
        pytest.param("iceberg", "everything", marks=pytest.mark.long),
        pytest.param("iceberg", "files", marks=pytest.mark.long),
    ],
    indirect=["form"],
)
def test_a_run_waits_while_the_store_is_away(
    spark, lab: Lab, store: Store, place: str, form: str, away: str, monkeypatch
):
    """After the first batch it answers 503 to everything, or to every new file of rows, until the run has said that it
    tries again, and again."""
    monkeypatch.setenv("STORE_KEY", "testing")
    sink = f'path = "{place}/orders"\nformat = "delta"' if form == "delta" else 'table = "shop.orders"'
    topic = lab.topic(1)
    lab.fill(topic, ROWS, 1)
    pipeline = lab.pipeline(PIPELINE.format(address=store.address, place=place, topic=topic, sink=sink))
    told: list[str] = []
    tell, show = lab.events.message, lab.events.batch

    def hear(name: str, text: str, **facts: object) -> None:
        tell(name, text, **facts)
        if "trying again" in text:
            told.append(text)
        if len(told) == TRIES:
            assert store.come_back() > 0

    def see(progress: BatchProgress) -> None:
        show(progress)
        if not told and away == "everything":
            store.go_away()
        elif not told:
            store.refuse("part-", FOR_EVER)

    monkeypatch.setattr(lab.events, "message", hear)
    monkeypatch.setattr(lab.events, "batch", see)
    lab.run_well(spark, pipeline)
    assert len(told) == TRIES
    if away == "files":
        assert all("cannot write part-" in one for one in told)
    if form == "delta":
        options = table_at("delta", place, store.access)._options
        found = delta_rows(f"{place}/orders", options)
    else:
        catalog = iceberg_catalog(place, store.access, file=lab.directory / "warehouse" / "catalog.db")
        found = iceberg_rows(catalog)
    assert sorted(found, key=itemgetter("id")) == ROWS
    assert "AWS_ACCESS_KEY_ID" not in os.environ
