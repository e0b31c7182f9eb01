"""The quick start of docs/PIPELINES.md and the lake tables of docs/pipelines, as they stand there."""

import os
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from odradek.pipeline.file.reading import load
from tests.cli.conftest import run_here  # noqa: F401
from tests.pipeline.lab import Lab

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "PIPELINES.md").read_text()
LAKE = ("delta-append", "delta-upsert", "iceberg-append", "lake-tables")


@pytest.mark.timeout(600)
def test_the_quick_start(java, lab: Lab):
    script = re.search(r"^```sh\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    assert script is not None
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "ODRADEK_BOOTSTRAP_SERVER": lab.bootstrap, "COLUMNS": "200"}
    command = ["bash", "-euo", "pipefail", "-c", script[1]]
    result = subprocess.run(
        command, cwd=lab.directory, env=environ, capture_output=True, text=True, timeout=580
    )
    assert result.returncode == 0, result.stderr[-3000:] + result.stdout[-3000:]
    assert "1 passed" in result.stdout
    assert '"revenue":6.5,"orders":2' in result.stdout
    assert "an amount is positive" in result.stdout and "the value is not JSON" in result.stdout
    assert "shop: stopped" in result.stdout
    noise = [line for line in result.stderr.splitlines() if not line.startswith(("produced", "consumed"))]
    assert noise == [], "no noise of Spark's or Java's"


def test_explain_prints_the_plan_of_every_query(spark, lab: Lab, run_here, monkeypatch):  # noqa: F811
    """The command in this process, which has a Spark already."""
    monkeypatch.setattr("odradek.cli.pipeline.spark_for", lambda *_: nullcontext(spark))
    lab.topic(1, "explained")
    (lab.directory / "plans.toml").write_text(
        f'[kafka]\n"bootstrap.servers" = "{lab.bootstrap}"\n'
        '[sources.orders]\ntopic = "explained"\nformat = "text"\n'
        "[transforms.loud]\nsql = \"select upper(value) as value from orders where value <> 'quiet'\"\n"
        '[sinks.out]\nfrom = "loud"\nconsole = true\n'
        '[dead_letters]\npath = "dead"\n'
    )
    result = run_here("pipeline", "explain", str(lab.directory / "plans.toml"), "--mode", "simple")
    assert result.returncode == 0, result.stderr[-3000:]
    assert "-- out" in result.stdout and "-- rejects of orders" in result.stdout
    assert result.stdout.count("== Physical Plan ==") == 2
    assert "upper(" in result.stdout and "quiet" in result.stdout


def test_the_example_file_is_good(tmp_path):
    (block,) = [
        one
        for one in re.findall(r"^```toml\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
        if "[pipeline]" in one
    ]
    path = tmp_path / "shop.toml"
    path.write_text(block)
    assert load(path, {}).name == "shop"


ORDERS = """
[sources.orders]
topic = "{topic}"
schema = "id BIGINT NOT NULL, item STRING, amount DOUBLE, at TIMESTAMP NOT NULL"
"""


def blocks(language: str) -> list[str]:
    """Return the code blocks of the pages on lake tables, in order."""
    text = "".join((DOCS / "pipelines" / f"{name}.md").read_text() for name in LAKE)
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_lake_tables(spark, lab: Lab, monkeypatch, capsys):
    """All sinks of those pages in one pipeline, read by its programs. Its object store is elsewhere."""
    sinks = [block for block in blocks("toml") if block.startswith("[sinks.")]
    (storage,) = (block for block in blocks("toml") if block.startswith("[storage]"))
    topic = lab.topic(1)
    text = ORDERS.format(topic=topic) + "".join(sinks)
    known = {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "mine"}
    assert load(lab.write(text + storage), known).storage.warehouse == "s3://shop-lake/warehouse"
    order = {"item": "spool", "at": "2026-01-01T10:00:05Z"}
    amounts = [(1, 4.0), (2, 2.5), (1, 3.0), (2, -1.0)]
    lab.fill(topic, [order | {"id": number, "amount": amount} for number, amount in amounts], 1)
    lab.run_well(spark, lab.pipeline(text))
    monkeypatch.chdir(lab.directory)
    for program in blocks("python"):
        exec(program, {})
    shown = capsys.readouterr().out
    assert "spool" in shown and "4" in shown
    from tests.pipeline.lakes import delta_rows

    assert [(row["id"], row["amount"]) for row in delta_rows("lake/newest-orders")] == [(1, 3.0)]
