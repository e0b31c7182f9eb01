"""A pipeline into PostgreSQL, and to a function, as a process: the driver, its JVM and the database are killed on the
way, again and again."""

import json
import os
import signal
from collections.abc import Iterator

import pytest

from tests.pipeline.databases import postgresql_or_skip
from tests.pipeline.lab import Lab, wait_until
from tests.pipeline.test_pipeline_process import Process, processes_of
from tools.postgresql import PASSWORD, PostgreSQL

pytestmark = pytest.mark.timeout(1800)
ORDERS, KILLS = 300, 3
COPY = """
[sources.orders]
topic = "{orders}"
schema = "id BIGINT"
max_rows_per_batch = 4
[sinks.plain]
from = "orders"
database = "{url}"
password = "${{SHOP_PASSWORD}}"
table = "plain"
[transforms.placed]
sql = "SELECT id % 50 AS id, id AS newest, _timestamp, _partition, _offset FROM orders"
[sinks.newest]
from = "placed"
database = "{url}"
password = "${{SHOP_PASSWORD}}"
table = "newest"
mode = "upsert"
key = "id"
[sinks.hook]
from = "orders"
function = "hook:note"
"""
HOOK = """
import json, os

def note(rows, batch):
    line = json.dumps([str(batch), rows.column("id").to_pylist()]) + "\\n"
    file = os.open(os.path.join(os.path.dirname(__file__), "calls"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())
    os.close(file)
"""


@pytest.fixture(scope="module")
def postgresql() -> Iterator[PostgreSQL]:
    with postgresql_or_skip() as server:
        yield server


def test_kill_9_of_the_driver_its_jvm_and_the_database_repeats_nothing(
    java, lab: Lab, postgresql: PostgreSQL, monkeypatch
):
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    postgresql.run(
        "CREATE TABLE plain (id BIGINT)", "CREATE TABLE newest (id BIGINT PRIMARY KEY, newest BIGINT)"
    )
    topic = lab.topic(1)
    lab.fill(topic, [{"id": number} for number in range(ORDERS)], 1)
    path = lab.write(COPY.format(orders=topic, url=postgresql.url))
    (lab.directory / "hook.py").write_text(HOOK)

    def written() -> int:
        return postgresql.rows("SELECT count(*) FROM plain")[0][0]

    for round_number in range(KILLS):
        process = Process(lab.directory, str(path))
        before = written()
        try:
            wait_until(lambda at=before: written() > at, process.story)
            if round_number == 1:  # only Java
                for one, command in processes_of(process.process.pid).items():
                    if "SparkSubmit" in command:
                        os.kill(one, signal.SIGKILL)
                assert process.wait() == 1
            if round_number == 2:
                postgresql.crash()
                wait_until(lambda running=process: running.said("trying again"), process.story)
                postgresql.start()
                at = written()
                wait_until(lambda at=at: written() > at, process.story)
        finally:
            process.kill()
    process = Process(lab.directory, str(path), "--once")
    assert process.wait(900) == 0, process.story()  # what is left is many small batches
    assert postgresql.rows("SELECT id FROM plain ORDER BY id") == [(number,) for number in range(ORDERS)]
    newest = [(number, ORDERS - 50 + number) for number in range(50)]
    assert postgresql.rows("SELECT * FROM newest ORDER BY id") == newest
    calls = [json.loads(line) for line in (lab.directory / "calls").read_text().splitlines()]
    assert all(calls.count([batch, ids]) == sum(one == batch for one, _ in calls) for batch, ids in calls), (
        "a batch that a function gets again has the same id and the same rows"
    )
    once = dict(calls)
    assert sorted(number for ids in once.values() for number in ids) == [*range(ORDERS)]
