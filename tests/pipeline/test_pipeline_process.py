"""Pipelines as processes: kill -9, clean stops, pauses, several at once."""

import json
import os
import signal
import threading
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from odradek.pipeline.checkpoint import Checkpoint
from odradek.pipeline.file.reading import load
from odradek.pipeline.run.isolation import batch_in_flight
from tests.pipeline.lab import Lab, conf_arguments, start_command, wait_until

pytestmark = pytest.mark.timeout(1800)
ORDERS, BROKEN = 80, 40
HERE = Path(__file__).parent


class Process:
    """`odradek pipeline run …`; what it prints is read as it comes."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self.log = directory / "run.log"
        self.process = start_command(
            "run", *arguments, "--master", "local[2]", *conf_arguments(), cwd=directory, log=self.log
        )
        self.events: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.append(json.loads(line))

    def said(self, text: str) -> list[dict[str, Any]]:
        return [event for event in self.events if text in event.get("message", "")]

    def rows(self, query: str) -> int:
        found = [event for event in self.events if event.get("query") == query and event["event"] == "batch"]
        return sum(event["rows_out"] or 0 for event in found)

    def story(self) -> str:
        return f"{self.events[-10:]}\n{self.log.read_text()[-3000:]}"

    def wait(self, wait_s: float = 300) -> int:
        try:
            return self.process.wait(wait_s)
        finally:
            self.kill()

    def kill(self) -> None:
        """SIGKILL for the driver, its JVM and all, at once."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self._reader.join(30)


def processes_of(session: int) -> dict[int, str]:
    """Command lines of what a process started, and its own, by the session that it leads."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            facts = (path / "stat").read_text().rsplit(")", 1)[1].split()
            if int(facts[3]) == session and facts[0] != "Z":
                found[int(path.name)] = (path / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue  # gone meanwhile
    return found


def test_an_interrupt_while_java_starts_leaves_nothing_behind(java, lab: Lab):
    path = lab.write(
        '[sources.lines]\npath = "in"\nformat = "text"\n[sinks.out]\nfrom = "lines"\nconsole = true\n'
    )
    log = lab.directory / "check.log"
    process = start_command("check", str(path), "--offline", cwd=lab.directory, log=log)
    try:
        wait_until(
            lambda: any("SparkSubmit" in one for one in processes_of(process.pid).values()), log.read_text
        )
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(300) == 128 + signal.SIGINT, log.read_text()
        wait_until(lambda: not processes_of(process.pid), lambda: str(processes_of(process.pid)), 60)
    finally:
        for one in processes_of(process.pid):
            os.kill(one, signal.SIGKILL)


def derby(spark: Any, url: str, *statements: str) -> None:
    """Statements on a database, which is left for another process afterwards."""
    manager = spark.sparkContext._jvm.java.sql.DriverManager
    connection = manager.getConnection(f"{url};create=true")
    for statement in statements:
        connection.createStatement().execute(statement)
    connection.close()
    with pytest.raises(Exception, match="shutdown"):
        manager.getConnection(f"{url};shutdown=true")


EVERYTHING = """
[pipeline]
python_path = ["{functions}"]
[sources.orders]
topic = "{source}"
schema = "id BIGINT NOT NULL, at TIMESTAMP"
max_rows_per_batch = 10
watermark = {{ column = "at", delay = "1 day" }}
[sources.lines]
path = "in"
schema = "id BIGINT NOT NULL"
max_files_per_batch = 1
[sources.books]
jdbc = "{url}"
table = "books"
[transforms.titled]
function = "shop_functions:titled"
inputs = ["orders", "books"]
[transforms.placed]
sql = "SELECT id, _partition AS p, _offset AS o FROM orders"
[transforms.hours]
sql = "SELECT window(at, '1 hour').start AS hour, count(*) AS n FROM orders GROUP BY window(at, '1 hour')"
[sinks.copies]
from = "placed"
topic = "{copies}"
[sinks.hours]
from = "hours"
topic = "{hours}"
mode = "update"
key = "hour"
[sinks.lake]
from = "titled"
path = "lake"
[sinks.lines]
from = "lines"
path = "lines"
format = "csv"
[sinks.table]
from = "placed"
jdbc = "{url}"
table = "placed"
[dead_letters]
path = "dead"
"""


def test_kill_9_loses_nothing_and_repeats_only_rows_of_a_database(spark, lab: Lab):
    url = f"jdbc:derby:{lab.directory / 'db'}"
    derby(
        spark,
        url,
        "CREATE TABLE placed (id BIGINT, p INT, o BIGINT)",
        "CREATE TABLE books (book BIGINT, title VARCHAR(20))",
        "INSERT INTO books VALUES (0, 'even'), (1, 'odd')",
    )
    names = {"source": lab.topic(2), "copies": lab.topic(1), "hours": lab.topic(1)}
    rows = [{"id": number, "at": f"2026-01-01T{number % 4:02}:00:00Z"} for number in range(ORDERS)]
    lab.fill(names["source"], [*rows[:BROKEN], b"broken", *rows[BROKEN:]])
    (lab.directory / "in").mkdir()
    for number in range(8):
        (lab.directory / "in" / f"{number}.json").write_text(
            "".join(f'{{"id": {number * 5 + at}}}\n' for at in range(5))
        )
    path = lab.write(EVERYTHING.format(**names, url=url, functions=HERE))
    pipeline = load(path)
    process = Process(lab.directory, str(path))
    try:
        wait_until(
            lambda: all(process.rows(name) >= 10 for name in ("copies", "lake", "table", "lines")),
            process.story,
            900,
        )
    finally:
        process.kill()
    may_repeat = in_flight(pipeline, "table")

    process = Process(lab.directory, str(path), "--once")
    assert process.wait() == 0, process.story()

    places = [(row["p"], row["o"]) for row in lab.values(names["copies"])]
    wanted = {(place % 2, place // 2) for place in range(ORDERS + 1)} - {(BROKEN % 2, BROKEN // 2)}
    assert sorted(places) == sorted(wanted), "a topic has everything once"
    table = wait_until(lambda: rows_in_table(spark, url), lambda: "the database stays locked")
    places = [(row.P, row.O) for row in table]
    assert set(places) == wanted and repeated(places) <= may_repeat, "only the batch in flight is repeated"
    lake = spark.read.parquet(str(lab.directory / "lake")).collect()
    assert sorted((row.p, row.o) for row in lake) == sorted(wanted), "files have everything once"
    assert {(row.id % 2, row.title) for row in lake} == {(0, "even"), (1, "odd")}
    lines = spark.read.schema("id INT").csv(str(lab.directory / "lines")).collect()
    assert sorted(row.id for row in lines) == list(range(8 * 5))
    newest = {record.key(): json.loads(record.value())["n"] for record in lab.records(names["hours"])}
    assert sorted(newest.values()) == [ORDERS // 4] * 4, "state was neither lost nor counted twice"
    letters = [line for file in (lab.directory / "dead").rglob("*.json") for line in file.open()]
    assert len(letters) == 1, "files of dead letters have everything once, too"


def rows_in_table(spark: Any, url: str) -> list:
    """Once the JVM that had the database is gone, which takes a moment; before that, none."""
    try:
        return spark.read.format("jdbc").options(url=url, dbtable="placed").load().collect()
    except Exception as error:
        assert "FAILED_JDBC.CONNECTION" in str(error)
        return []


def in_flight(pipeline, name: str) -> set[tuple[int, int]]:
    ranges = batch_in_flight(pipeline, Checkpoint(pipeline), "sink", name).get("orders", [])
    return {(one.partition, offset) for one in ranges for offset in range(one.start, one.end)}


def repeated(places: list) -> set:
    return {place for place, count in Counter(places).items() if count > 1}


COPY = """
[pipeline]
name = "{name}"
[sources.orders]
topic = "{source}"
format = "text"
[sinks.out]
from = "orders"
topic = "{target}"
"""


def test_two_pipelines_one_dies_one_is_paused_goes_on_and_stops_cleanly(lab: Lab):
    source, target, doomed, lost = lab.topic(1), lab.topic(1), lab.topic(1), lab.topic(1)
    lab.fill(source, [{"id": number} for number in range(5)], 1)
    good = lab.write(COPY.format(name="good", source=source, target=target), "good.toml")
    text = COPY.format(name="bad", source=doomed, target=lost).replace('format = "text"', 'schema = "id INT"')
    bad = lab.write(text, "bad.toml")
    checkpoint = Checkpoint(load(good))
    process = Process(lab.directory, str(good), str(bad), "--metrics-port", "0")
    try:
        wait_until(lambda: process.rows("out") >= 5, process.story, 900)
        lab.fill(doomed, [b"not JSON"], 1)
        wait_until(lambda: process.said("stopped: out: source 'orders': record"), process.story)
        port = process.said("metrics at")[0]["metrics_port"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as response:
            shown = response.read().decode()
        assert 'odradek_pipeline_rows_out_total{pipeline="good",query="out"} 5' in shown
        assert checkpoint.runner() == process.process.pid
        checkpoint.pause()
        wait_until(lambda: process.said("paused"), process.story)
        lab.fill(source, [{"id": number} for number in range(5, 9)], 1)
        checkpoint.resume()
        wait_until(lambda: process.rows("out") >= 9, process.story)
        os.kill(process.process.pid, signal.SIGTERM)
        assert process.wait() == 1, "because one of them had failed"
    finally:
        process.kill()
    assert [row["value"] for row in lab.values(target)] == [json.dumps({"id": number}) for number in range(9)]
    assert checkpoint.runner() is None
    progress = checkpoint.progress("sink", "out")
    assert progress is not None and progress.batch == progress.finished, "stopped between two batches"
    assert process.log.read_text() == "", "no noise of Spark's or Java's"
