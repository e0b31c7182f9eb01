"""The command where it needs no Spark: what it writes, what it says, how it ends."""

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.pipeline.checkpoint import Checkpoint
from odradek.pipeline.file.reading import load
from odradek.pipeline.kinds.topics import group_of, topics_of
from tests.cli.conftest import run_here  # noqa: F401
from tests.pipeline.lab import Lab
from tests.support import RunningBroker, running_broker

SMALL = """\
[kafka]
"bootstrap.servers" = "{bootstrap}"
[sources.orders]
topic = "orders"
format = "text"
[sinks.out]
from = "orders"
console = true
[sinks.lake]
from = "orders"
path = "lake"
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    directory = tmp_path_factory.mktemp("broker")
    with running_broker(directory) as broker:
        Lab(broker.bootstrap, directory).topic(1, "orders")
        yield broker


@pytest.fixture
def path(tmp_path: Path, broker: RunningBroker) -> Path:
    path = tmp_path / "shop.toml"
    path.write_text(SMALL.format(bootstrap=broker.bootstrap))
    return path


@pytest.fixture
def odradek(run_here):  # noqa: F811
    """`odradek pipeline …` in this process, which imports what pipelines need only once."""
    return lambda *arguments, **settings: run_here("pipeline", *map(str, arguments), **settings)


def test_help_names_every_command(odradek):
    listed = odradek("--help").stdout
    for name in (
        "init", "check", "test", "plan", "explain", "run", "status", "pause", "resume", "reset", "dead-letters",
        "replay-dead-letters",
    ):  # fmt: skip
        assert name in listed


def test_init_writes_an_example_once(odradek, tmp_path):
    path = tmp_path / "new.toml"
    assert odradek("init", path).returncode == 0
    assert load(path, {}).name == "new"
    again = odradek("init", path)
    assert again.returncode == 1 and "already exists" in again.stderr


def test_init_from_a_topic(odradek, tmp_path, broker):
    lab = Lab(broker.bootstrap, tmp_path)
    topic = lab.topic(2, "page.views")
    lab.fill(topic, [{"id": 1, "at": "2026-01-01T00:00:00Z"}, {"id": 2, "who": "x"}])
    path = tmp_path / "views.toml"
    result = odradek("init", path, "--from-topic", topic, "-b", broker.bootstrap)
    assert result.returncode == 0, result.stderr
    source = load(path, {}).sources["page_views"]
    assert {*source.schema.strip().split(",\n")} == {"id BIGINT", "at TIMESTAMP", "who STRING"}
    missing = odradek("init", tmp_path / "x.toml", "--from-topic", "nope", "-b", broker.bootstrap)
    assert missing.returncode == 1 and "no such topic" in missing.stderr


def test_a_file_that_is_wrong_ends_with_its_line_and_status_1(odradek, path):
    path.write_text(path.read_text().replace("format", "fromat"))
    result = odradek("run", path)
    assert result.returncode == 1
    assert f"{path}:5: sources.orders.fromat: there is no such key; did you mean 'format'?" in result.stderr
    found = json.loads(odradek("check", path, "--json").stdout)
    assert not found["ok"] and found["errors"][0]["line"] in (3, 5)


def test_a_name_that_is_no_file(odradek, tmp_path):
    result = odradek("status", "nowhere")
    assert result.returncode == 1 and "no pipeline of that name" in result.stderr


def test_pause_and_resume_and_status(odradek, path):
    assert "never run" in odradek("status", path).stdout
    assert odradek("pause", path).returncode == 0
    assert json.loads(odradek("status", path, "--json").stdout)["state"] == "paused"
    refused = odradek("run", "--once", path)
    assert refused.returncode == 1 and "is paused" in refused.stderr
    assert odradek("resume", path).returncode == 0
    assert "never run" in odradek("status", path).stdout


def ran_before(path: Path, topic: str) -> Checkpoint:
    """Makes a checkpoint as Spark leaves it: one batch finished, another begun."""
    checkpoint = Checkpoint(load(path, {}))
    checkpoint.write_manifest({"version": "1", "sinks": {"out": {}, "lake": {}}})
    for name in ("out", "lake"):
        for log, batches in (("offsets", {0: 2, 1: 5}), ("commits", {0: 0})):
            directory = checkpoint.query("sink", name) / log
            directory.mkdir(parents=True)
            for batch, end in batches.items():
                offsets = json.dumps({topic: {"0": end}})
                (directory / str(batch)).write_text(f"v2\n{{}}\norders:{offsets}")
    (path.parent / "lake" / "_spark_metadata").mkdir(parents=True)
    return checkpoint


def test_status_tells_batches_and_lag_from_checkpoint_and_cluster(odradek, path, broker, tmp_path):
    lab = Lab(broker.bootstrap, tmp_path)
    topic = lab.topic(1)
    lab.fill(topic, [{}] * 7, partitions=1)
    path.write_text(path.read_text().replace('"orders"\nformat', f'"{topic}"\nformat'))
    ran_before(path, topic)
    found = json.loads(odradek("status", path, "--json").stdout)
    assert found["state"] == "stopped"
    out = next(one for one in found["queries"] if one["name"] == "out")
    assert (out["batch"], out["unfinished"], out["lag"]) == (0, True, {topic: 5})
    assert out["group"] == "odradek-pipeline-shop-out"


def test_status_tells_no_lag_of_a_source_that_is_no_topic(odradek, path):
    path.write_text(path.read_text().replace("[sinks.out]", '[sources.ticks]\nformat = "rate"\n[sinks.out]'))
    offsets = ran_before(path, "orders").query("sink", "out") / "offsets"
    for file in offsets.iterdir():
        file.write_text('v2\n{}\nticks:{"n": 3}')
    out, lake = json.loads(odradek("status", path, "--json").stdout)["queries"][::-1]
    assert (out["name"], out["lag"], lake["name"], [*lake["lag"]]) == ("out", {}, "lake", ["orders"])


def test_status_tells_lag_from_the_commit_group_where_the_checkpoint_is_elsewhere(
    odradek, path, broker, tmp_path
):
    lab = Lab(broker.bootstrap, tmp_path)
    topic = lab.topic(1)
    lab.fill(topic, [{}] * 7, partitions=1)
    path.write_text(path.read_text().replace('"orders"\nformat', f'"{topic}"\nformat'))
    pipeline = load(path, {})
    with topics_of(pipeline, pipeline.sources["orders"].origin.kafka) as topics:
        topics.commit(group_of(pipeline, "out"), {topic: {"0": 4}})
        topics.commit(group_of(pipeline, "orders-shared"), {topic: {"0": 5}})  # of sinks that share a query
    found = json.loads(odradek("status", path, "--json").stdout)
    assert found["state"] == "not run on this machine"
    out, shared = found["queries"]
    assert (out["name"], out["batch"], out["lag"], out["lag_from"]) == ("out", None, {topic: 3}, "group")
    assert (shared["name"], shared["lag"]) == ("orders, shared", {topic: 2})
    assert f"{topic} 3" in odradek("status", path).stdout


def test_status_without_a_cluster_says_so(odradek, path):
    nowhere = SMALL.format(bootstrap="localhost:1").replace(
        "[kafka]", '[kafka]\n"default.api.timeout.ms" = "100"'
    )
    path.write_text(nowhere)
    result = odradek("status", path)
    assert result.returncode == 0 and "lag is not known" in result.stderr


def test_reset_forgets_and_leaves_no_file_behind_that_would_lose_rows(odradek, path):
    refused = odradek("reset", path)
    assert refused.returncode == 1 and "has never run" in refused.stderr
    checkpoint = ran_before(path, "orders")
    refused = odradek("reset", path)
    assert refused.returncode == 1 and "add --delete-output" in refused.stderr
    assert odradek("reset", path, "--sink", "nope").returncode == 1
    assert odradek("reset", path, "--sink", "out").returncode == 0, "a sink without files of Spark's"
    assert checkpoint.progress("sink", "out") is None and checkpoint.progress("sink", "lake") is not None
    assert odradek("reset", path, "--delete-output").returncode == 0
    assert not (path.parent / "lake").exists() and checkpoint.manifest() is None


def test_a_running_pipeline_is_neither_reset_nor_run_twice(odradek, path):
    with ran_before(path, "orders").locked():
        for arguments in (("reset", path, "--delete-output"), ("run", path)):
            result = odradek(*arguments)
            assert result.returncode == 1 and "is already running" in result.stderr
    assert (path.parent / "lake").exists()


def test_the_file_that_init_writes_is_toml(odradek, tmp_path):
    odradek("init", tmp_path / "a.toml")
    assert tomllib.loads((tmp_path / "a.toml").read_text())["pipeline"]["name"] == "a"


def without(package: str, *commands: tuple[str, ...], terminal: bool = False) -> list[tuple[int, str]]:
    """Exit status and last line of each command where a package is not installed."""
    code = f"""
import contextlib, io, sys
from odradek.cli.main import main
sys.modules[{package!r}] = None
sys.stdout.isatty = lambda: {terminal}
for arguments in {commands!r}:
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        status = main(["pipeline", *arguments])
    print(status, errors.getvalue().strip())
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    lines = [line.partition(" ") for line in result.stdout.splitlines()]
    return [(int(status), message) for status, _, message in lines]


def test_what_needs_spark_says_so_where_it_is_not_installed(path):
    names = ("check", "test", "plan", "explain", "run", "status", "dead-letters", "replay-dead-letters")
    found = without("pyspark", *((name, str(path)) for name in names), ("run", str(path), "--dry-run"))
    assert found == [(1, "error: PySpark is not installed: pip install '.[spark]' in a clone of Odradek")] * 9


def test_only_the_table_at_a_terminal_needs_rich(odradek, path):
    odradek("pause", path)
    arguments = ("run", str(path), "--once")
    ((status, message),) = without("rich", arguments)
    assert status == 1 and "is paused" in message
    found = without("rich", arguments, terminal=True)
    assert found == [(1, "error: rich is not installed: pip install '.[spark]' in a clone of Odradek")]
    ((status, message),) = without("rich", (*arguments, "--json"), terminal=True)
    assert status == 1 and "is paused" in message


LETTERS = """\
[pipeline]
name = "shop"
[sources.orders]
topic = "{topic}"
format = "text"
[sources.lines]
path = "in"
format = "text"
[sinks.out]
from = "orders"
console = true
[dead_letters]
topic = "{dead}"
"""


def letter(offset: int | None = None, **facts: str) -> list[tuple[str, bytes]]:
    place = (
        {"offset": str(offset), "partition": "0", "timestamp": "1767225600000"} if offset is not None else {}
    )
    known = {
        "pipeline": "shop",
        "content": "record",
        "reason": "it is bad",
        "stage": "decode",
        "name": "orders",
    }
    return [
        ("mine", b"1"),
        *((f"odradek.{name}", text.encode()) for name, text in (known | place | facts).items()),
    ]


def test_dead_letters_are_shown_and_replayed_without_spark(odradek, tmp_path, broker):
    lab = Lab(broker.bootstrap, tmp_path)
    topic, dead = lab.topic(1), lab.topic(1)
    (tmp_path / "in").mkdir()
    lab.fill(dead, [b"bad"], 1, key=b"k", headers=letter(7, topic=topic))
    lab.fill(dead, [b"\xff"], 1, headers=letter(8, topic=topic))
    lab.fill(dead, [b"line"], 1, headers=letter(name="lines", file="file:///in/a.txt"))
    lab.fill(dead, [b"{}"], 1, headers=letter(9, topic=topic, content="row"))
    lab.fill(dead, [b"other"], 1, headers=letter(9, topic=topic, pipeline="another"))
    path = lab.write(LETTERS.format(topic=topic, dead=dead), "shop.toml")
    no_java = {"PATH": "/nowhere", "JAVA_HOME": "/nowhere"}

    shown = [
        json.loads(line)
        for line in odradek("dead-letters", path, "--json", environ=no_java).stdout.splitlines()
    ]
    assert [one["value"] for one in shown] == ["line", "{}", "/w==", "bad"]
    assert (shown[3]["topic"], shown[3]["partition"], shown[3]["offset"]) == (topic, 0, 7)

    result = odradek("replay-dead-letters", path, "--json", environ=no_java)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == {
        "sent": {topic: 2, str(tmp_path / "in"): 1},
        "kept": 1,
        "reasons": {"it is bad": 4},
    }
    first, second = lab.records(topic)
    assert (first.key(), first.value(), first.timestamp()[1]) == (b"k", b"bad", 1767225600000)
    assert first.headers() == [("mine", b"1"), ("odradek.replayed", f"{dead}/0/0".encode())]
    assert second.value() == b"\xff"
    (file,) = (tmp_path / "in").iterdir()
    assert file.read_bytes() == b"line\n" and file.suffix == ".text"
    assert "nothing to replay" in odradek("replay-dead-letters", path, environ=no_java).stdout, "only once"
