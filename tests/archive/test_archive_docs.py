"""The examples of docs/ARCHIVE.md, as they stand there."""

import re
import shlex
from pathlib import Path

from odradek.pipeline.file.reading import load

TEXT = (Path(__file__).parents[2] / "docs" / "ARCHIVE.md").read_text()


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def test_the_commands(odradek, tmp_path, monkeypatch):
    """In this process, with names that no other test uses."""
    monkeypatch.chdir(tmp_path)
    printed = []
    for line in block("sh").splitlines():
        words = shlex.split(
            line.replace("FROM orders", 'FROM \\"docs-orders\\"').replace(" orders", " docs-orders")
        )
        data = words[1].encode().decode("unicode_escape") if words[0] == "printf" else ""
        done = odradek(*words[words.index("odradek") + 1 :], stdin=data)
        assert done.returncode == 0, done.stderr
        printed += done.stdout.splitlines()
    assert "2 records archived" in printed
    assert [one.split() for one in printed if one.startswith(("book", "map"))] == [
        ["book", "2"],
        ["map", "1"],
    ]
    assert "2 records replayed into docs-orders-again" in printed


def test_the_source_of_a_pipeline(tmp_path):
    file = tmp_path / "shop.toml"
    file.write_text('[kafka]\n"bootstrap.servers" = "localhost:1"\n' + block("toml"))
    with file.open("a") as more:
        more.write('[sinks.out]\nfrom = "orders"\nconsole = true\n')
    assert load(file, {}).sources["orders"].origin.archive == "/data/archive"
