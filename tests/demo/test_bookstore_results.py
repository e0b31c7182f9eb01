"""Returned orders are read from a Delta table, and from files where delta-rs is missing."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyarrow import parquet

from odradek.pipeline.file.definition import DeltaSink, FileSink
from odradek.pipeline.file.reading import load
from tools.bookstore.ledger import Return
from tools.bookstore.results import read_returns, without_delta

EXAMPLE = Path(__file__).parents[2] / "examples" / "bookstore.toml"
BOUGHT = datetime(2026, 1, 5, 18, tzinfo=UTC)
ROW = {
    "order_id": 1,
    "customer": "leni",
    "book": "b01",
    "amount": Decimal("3.99"),
    "reason": "wrong book",
    "bought_at": BOUGHT,
    "returned_at": BOUGHT + timedelta(minutes=7),
}


def test_the_pipeline_without_delta_rs(tmp_path: Path) -> None:
    environ = {"ODRADEK_BOOTSTRAP_SERVER": "localhost:1"}
    assert isinstance(load(EXAMPLE, environ).sinks["returned_orders"].target, DeltaSink)
    (tmp_path / "bookstore.toml").write_text(without_delta(EXAMPLE.read_text()))
    assert isinstance(load(tmp_path / "bookstore.toml", environ).sinks["returned_orders"].target, FileSink)


@pytest.mark.parametrize("form", ["delta", "parquet"])
def test_returns_are_read_back(tmp_path: Path, form: str) -> None:
    rows = pa.Table.from_pylist([ROW])
    if form == "delta":
        write_deltalake(tmp_path, rows)
    else:
        parquet.write_table(rows, tmp_path / "part-0.parquet")
    expected = Return(order_id=1, book="b01", cents=399, reason="wrong book", minutes_kept=7)
    assert read_returns(tmp_path) == [expected]
