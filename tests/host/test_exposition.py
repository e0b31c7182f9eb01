"""Numbers in Prometheus' text format."""

import urllib.error
import urllib.request

import pytest

from odradek.exposition import Numbers, serve

HELP = {"rows_total": ("counter", "Rows."), "lag": ("gauge", "Rows to go.")}


def test_each_number_is_explained_once_and_labels_are_escaped():
    numbers = Numbers(HELP)
    numbers.add("rows_total", 2, topic="b")
    numbers.add("rows_total", 1, topic='a "quoted"\\\nname')
    numbers.add("rows_total", 3, topic="b")
    assert numbers.text() == (
        "# HELP rows_total Rows.\n# TYPE rows_total counter\n"
        'rows_total{topic="a \\"quoted\\"\\\\\\nname"} 1\nrows_total{topic="b"} 5\n'
    )


def test_large_counters_are_exact():
    numbers = Numbers(HELP)
    numbers.add("rows_total", 123_456_789_012)
    numbers.set("lag", 0.25)
    assert "rows_total 123456789012\n" in numbers.text()
    assert "lag 0.25\n" in numbers.text()


def test_only_the_page_of_metrics_is_served():
    server = serve(lambda: "a 1\n", "127.0.0.1", 0)
    try:
        address = f"http://127.0.0.1:{server.server_port}"
        with urllib.request.urlopen(f"{address}/metrics", timeout=30) as response:
            assert response.read() == b"a 1\n"
            assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{address}/other", timeout=30)
    finally:
        server.shutdown()
        server.server_close()
