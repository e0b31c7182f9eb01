"""The examples of docs/ARCHIVE.md, as they stand there."""

import os
import re
import subprocess
import sys
from pathlib import Path

from odradek.pipeline.file.reading import load

TEXT = (Path(__file__).parents[2] / "docs" / "ARCHIVE.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def test_the_commands(broker, tmp_path):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, "ODRADEK_BOOTSTRAP_SERVER": broker.bootstrap, "COLUMNS": "200"}
    command = [
        "bash",
        "-euo",
        "pipefail",
        "-c",
        block("sh").replace("orders", "docs-orders").replace("FROM docs-orders", 'FROM \\"docs-orders\\"'),
    ]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "2 records archived" in lines
    assert [line.split() for line in lines if line.startswith(("book", "map"))] == [
        ["book", "2"],
        ["map", "1"],
    ]
    assert "2 records replayed into docs-orders-again" in lines


def test_the_source_of_a_pipeline(tmp_path):
    file = tmp_path / "shop.toml"
    file.write_text('[kafka]\n"bootstrap.servers" = "localhost:1"\n' + block("toml"))
    with file.open("a") as more:
        more.write('[sinks.out]\nfrom = "orders"\nconsole = true\n')
    assert load(file, {}).sources["orders"].origin.archive == "/data/archive"
