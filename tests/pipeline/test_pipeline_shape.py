"""Which sinks share a query, over the life of a checkpoint. Nothing here needs Spark or a broker."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.pipeline.check.sharing import Candidates, Shape, described, leave, shape, shape_lines
from odradek.pipeline.check.weaving import Graph
from odradek.pipeline.checkpoint import Checkpoint
from odradek.pipeline.file.definition import Pipeline
from odradek.pipeline.file.reading import load
from tests.support import run_command

STAGES = Graph({"good": ["orders"]}, ["good"])
FILE = """
[sources.orders]
topic = "orders"
schema = "id BIGINT"
[transforms.good]
sql = "SELECT * FROM orders"
require = { "it has an id" = "id > 0" }
"""
LETTERS = '[dead_letters]\ntopic = "dead"\n'


def sink(name: str, more: str = "", stage: str = "good") -> str:
    return f'[sinks.{name}]\nfrom = "{stage}"\ntopic = "{name}"\n{more}\n'


def candidates_of(pipeline: Pipeline) -> Candidates:
    sinks = {one.name: "orders" for one in pipeline.sinks.values() if not one.own_query}
    return Candidates(sinks, {"orders": "orders", "good": "orders"})


class Life:
    """A pipeline's file as it changes, and its checkpoint."""

    def __init__(self, write: Callable[..., Path]) -> None:
        self._write = write

    def load(self, *parts: str) -> Pipeline:
        return load(self._write(FILE + "".join(parts)), {})

    def run(self, *parts: str) -> Shape:
        """Do what a run does before its queries start, with the batch that each of these then commits."""
        pipeline = self.load(*parts)
        checkpoint = Checkpoint(pipeline)
        found = shape(pipeline, STAGES, candidates_of(pipeline), checkpoint)
        leave(pipeline, STAGES, found, checkpoint)
        sinks: dict[str, dict[str, str]] = {name: {} for name in pipeline.sinks}
        checkpoint.write_manifest({"version": "1", "sinks": sinks, "groups": described(found)})
        self._commit(checkpoint, found)
        return found

    def _commit(self, checkpoint: Checkpoint, found: Shape) -> None:
        queries = [("group", one.name) for one in found.groups] + [("sink", one) for one in found.sinks]
        for kind, name in [*queries, *(("rejects", one) for one in found.rejects)]:
            progress = checkpoint.progress(kind, name)
            batch = 0 if progress is None else progress.batch + 1
            for log in ("offsets", "commits"):
                path = checkpoint.query(kind, name) / log / str(batch)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f'v2\n{{}}\norders:{{"orders": {{"0": {batch}}}}}')


@pytest.fixture
def life(write: Callable[..., Path]) -> Life:
    return Life(write)


def groups(found: Shape) -> list[tuple[str, ...]]:
    return [(*one.sinks, *(f"rejects of {name}" for name in one.rejects)) for one in found.groups]


def test_topics_of_a_cluster_and_the_dead_letters_of_what_they_read_share_a_query(life):
    found = life.run(sink("a"), sink("b", stage="orders"), LETTERS)
    assert groups(found) == [("a", "b", "rejects of orders", "rejects of good")]
    assert found.sinks == found.rejects == []
    assert shape_lines(life.load(sink("a"), sink("b"), LETTERS), found) == [
        "a, b, rejects of orders, rejects of good share a query, which reads orders once"
    ]


def test_one_sink_alone_shares_nothing(life):
    found = life.run(sink("a"))
    assert groups(found) == [] and found.sinks == ["a"]


def test_another_cluster_is_another_fate(life):
    elsewhere = 'kafka = { "bootstrap.servers" = "elsewhere:9092" }'
    found = life.run(sink("a"), sink("b", elsewhere), sink("c"), sink("d", elsewhere), LETTERS)
    assert groups(found) == [("a", "c", "rejects of orders", "rejects of good"), ("b", "d")]
    assert [one.name for one in found.groups] == ["orders", "orders-2"]


def test_dead_letters_that_go_elsewhere_do_not_hold_up_the_sinks(life):
    found = life.run(sink("a"), sink("b"), '[dead_letters]\npath = "dead"\n')
    assert groups(found) == [("a", "b")] and found.rejects == ["orders", "good"]


def test_dead_letters_for_another_cluster_do_not_hold_up_the_sinks(life):
    found = life.run(sink("a"), sink("b"), LETTERS + 'kafka = { "bootstrap.servers" = "elsewhere:9092" }\n')
    assert groups(found) == [("a", "b"), ("rejects of orders", "rejects of good")]


def test_checkpoints_keep_their_shape(life):
    assert life.run(sink("a")).sinks == ["a"]
    later = life.run(sink("a"), sink("b"), sink("c"))
    assert (later.sinks, groups(later)) == (["a"], [("b", "c")])
    again = life.run(sink("c"), sink("a"), sink("d"), sink("b"))
    assert (again.sinks, groups(again)) == (["a", "d"], [("b", "c")]), "d starts where its source says"


def test_what_leaves_a_group_continues_where_the_group_was(life):
    life.run(sink("a"), sink("b"), LETTERS)
    life.run(sink("a"), sink("b"), LETTERS)
    found = life.run(sink("a", "own_query = true"), sink("b"), LETTERS)
    assert (found.sinks, groups(found)) == (["a"], [("b", "rejects of orders", "rejects of good")])
    checkpoint = Checkpoint(life.load(sink("a"), sink("b"), LETTERS))
    separated = checkpoint.query("sink", "a")
    assert sorted(path.name for path in (separated / "offsets").iterdir()) == ["0", "1", "2"]
    assert len(json.loads((separated / "metadata").read_text())["id"]) == 36
    assert life.run(sink("a"), sink("b"), LETTERS).sinks == ["a"], "and does not come back"


def test_dead_letters_of_a_source_share_a_query_even_if_no_sink_does(life):
    alone = sink("a", "own_query = true")
    assert groups(life.run(alone, LETTERS)) == [("rejects of orders", "rejects of good")]
    assert groups(life.run(alone, LETTERS)) == [("rejects of orders", "rejects of good")]


def test_a_group_without_sinks_continues_with_its_dead_letters(life):
    life.run(sink("a"), LETTERS)
    found = life.run(sink("a", "own_query = true"), LETTERS)
    assert (found.sinks, found.rejects) == (["a"], [])
    assert groups(found) == [("rejects of orders", "rejects of good")]


def test_what_an_edit_takes_from_a_group_continues_where_the_group_was(life):
    """Dead letters move to another cluster: their own queries start with the group's offsets."""
    life.run(sink("a"), sink("b"), LETTERS)
    elsewhere = LETTERS + 'kafka = { "bootstrap.servers" = "elsewhere:9092" }\n'
    found = life.run(sink("a"), sink("b"), elsewhere)
    assert (groups(found), found.rejects) == ([("a", "b")], ["orders", "good"])
    checkpoint = Checkpoint(life.load(sink("a"), sink("b"), elsewhere))
    assert checkpoint.progress("rejects", "good").batch == 1, "after the group's batch 0"


def test_rejects_are_written_by_one_query(life):
    life.run(sink("a"), LETTERS)
    found = life.run(sink("a"), sink("b"), sink("c"), LETTERS)
    assert groups(found) == [("a", "rejects of orders", "rejects of good")]
    assert (found.sinks, found.rejects) == (["b", "c"], [])


def test_a_member_is_not_reset_alone(life):
    life.run(sink("a"), sink("b"), LETTERS)
    path = life.load(sink("a"), sink("b"), LETTERS).document.path
    refused = run_command("pipeline", "reset", str(path), "--sink", "a")
    assert refused.returncode == 1
    assert "a shares a query with b, rejects of orders, rejects of good" in refused.stderr
    assert "own_query = true in [sinks.a]" in refused.stderr

    pipeline = life.load(sink("a", "own_query = true"), sink("b"), LETTERS)
    unmet = {"stage": "good", "requirement": "r", "action": "drop", "rows": 2}
    for name in ("a", "b"):
        Checkpoint(pipeline).add_unmet("sink", name, 7, [unmet])
    assert run_command("pipeline", "reset", str(path), "--sink", "a").returncode == 0
    assert (Checkpoint(pipeline).unmet("sink", "a"), Checkpoint(pipeline).unmet("sink", "b")) == ([], [unmet])
    found = life.run(sink("a", "own_query = true"), sink("b"), LETTERS)
    checkpoint = Checkpoint(life.load(sink("a"), sink("b"), LETTERS))
    assert found.sinks == ["a"] and checkpoint.progress("sink", "a").batch == 0, (
        "from the start of its source"
    )

    assert run_command("pipeline", "reset", str(path)).returncode == 0
    checkpoint.add_unmet("sink", "b", 0, [unmet])
    assert checkpoint.unmet("sink", "b") == [unmet], "counted from the first batch on, and from nothing"
    assert groups(life.run(sink("a"), sink("b"))) == [("a", "b")]
