"""The examples of docs/ARCHIVE.md, REPLAY.md and SQL.md, as they stand there."""

import csv
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.archiving.metrics import HELP
from odradek.pipeline.file.reading import load

DOCS = Path(__file__).parents[2] / "docs"


def block(page: str, language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


@pytest.fixture
def printed(odradek, tmp_path, monkeypatch) -> Callable[[str], list[str]]:
    """What the first commands of a page print, in this process, with names that no other test uses."""

    def run(page: str) -> list[str]:
        monkeypatch.chdir(tmp_path)
        name, lines = f"docs-{page.removesuffix('.md').lower()}", []
        for line in block(page, "sh").splitlines():
            words = shlex.split(
                line.replace("FROM orders", f'FROM \\"{name}\\"').replace(" orders", f" {name}")
            )
            data = words[1].encode().decode("unicode_escape") if words[0] == "printf" else ""
            done = odradek(*words[words.index("odradek") + 1 :], stdin=data)
            assert done.returncode == 0, done.stderr
            lines += done.stdout.splitlines()
        return lines

    return run


def test_archiving(printed):
    lines = printed("ARCHIVE.md")
    assert "2 records archived" in lines
    assert [one.split() for one in lines if one.startswith(("book", "map"))] == [["book", "2"], ["map", "1"]]
    assert "2 records replayed into docs-archive-again" in lines


def test_replaying(printed):
    lines = printed("REPLAY.md")
    assert lines[-2:] == [f"{count} records replayed into docs-replay-again" for count in (2, 0)]


def test_queries(printed):
    lines = printed("SQL.md")
    assert [one.split() for one in lines if one.startswith(("book", "map"))] == [
        ["book", "1", "9.5"],
        ["map", "1", "4.0"],
    ]
    assert [json.loads(one)["id"] for one in lines if one.startswith("{")] == [1, 2]
    header = "id,kind,price,_key,_value,_partition,_offset,_timestamp"
    rows = list(csv.DictReader(lines[lines.index(header) :]))
    assert sorted((one["id"], one["kind"], one["price"], one["_key"]) for one in rows) == [
        ("1", "book", "9.5", ""),
        ("2", "map", "4.0", ""),
    ]


def test_metrics_are_listed():
    names = re.findall(r"odradek_archive_\w+", (DOCS / "METRICS.md").read_text())
    assert set(names) == set(HELP)


def test_the_source_of_a_pipeline(tmp_path):
    file = tmp_path / "shop.toml"
    file.write_text('[kafka]\n"bootstrap.servers" = "localhost:1"\n' + block("ARCHIVE.md", "toml"))
    with file.open("a") as more:
        more.write('[sinks.out]\nfrom = "orders"\nconsole = true\n')
    assert load(file, {}).sources["orders"].origin.archive == "/data/archive"
