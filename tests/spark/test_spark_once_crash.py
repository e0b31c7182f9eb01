"""kill -9 of the driver at every step of a transaction, on real Spark and a real broker: every row once.

The protocol itself is tested at every request without Spark (tests/ledger). Here one query with rand() and a Python
function lives through all steps, each of its lives killed at another one; it runs with 8 tasks, then with 4. A second
one, with state, is stopped beyond the timeout of its transaction.
"""

import os
import signal
from collections import Counter

import pytest

from tests.spark.committed import committed_values
from tests.spark.test_spark_crash import Run

PARTITIONS = 2
ROWS = 10
MOMENTS = [
    "before initialize",
    "after initialize",
    "after read the ledger",
    "before adopt",
    "after adopt",
    "first produce",
    "before record",
    "after record",
    "EndTxn sent",
    "after commit",
    "before Spark's commit",
]


class OnceRun(Run):
    program = "once_driver.py"


def order_of(broker, source: str, target: str, checkpoint, **more) -> dict:
    return {
        "source": {
            "kafka.bootstrap.servers": broker.bootstrap,
            "subscribe": source,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(ROWS),
        },
        "sink": {"kafka.bootstrap.servers": broker.bootstrap, "topic": target},
        "checkpoint": str(checkpoint),
        "tasks": 8,
        "nth": 1,
        **more,
    }


def fill(topics, source: str, first: int) -> None:
    values = [b"%d" % number for number in range(first, first + ROWS)]
    topics.fill(source, values, partition=lambda index: index % PARTITIONS)


def origins(broker, target: str) -> Counter:
    return Counter(tuple(value.split("/")[:2]) for value in committed_values(broker.bootstrap, target))


def every_origin(rows: int) -> Counter:
    return Counter(
        (str(partition), str(offset))
        for partition in range(PARTITIONS)
        for offset in range(rows // PARTITIONS)
    )


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_killed_at_every_step(java, broker, topics, session_settings, tmp_path):
    source, target = topics.create(partitions=PARTITIONS), topics.create(partitions=PARTITIONS)
    order = order_of(broker, source, target, tmp_path / "checkpoint")
    settings = session_settings | {"spark.driver.memory": "512m"}
    fill(topics, source, 0)
    written = ROWS
    upcoming = OnceRun(tmp_path / "run-0", settings)
    try:
        for number, moment in enumerate(MOMENTS, 1):
            run, upcoming = upcoming, OnceRun(tmp_path / f"run-{number}", settings)
            tasks = 8 if number % 2 else 4
            assert not run.go(order | {"moment": moment, "tasks": tasks}), f"it did not get to {moment}"
            fill(topics, source, written)
            written += ROWS
        assert upcoming.go(order | {"moment": "never"})
    finally:
        upcoming.end()
    assert origins(broker, target) == every_origin(written)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("moment", ["first produce", "before record", "EndTxn sent"])
def test_stopped_beyond_the_timeout_of_its_transaction(
    java, broker, topics, session_settings, tmp_path, moment
):
    """It wakes up, and finds out whether its transaction was aborted or committed."""
    source, target = topics.create(partitions=PARTITIONS), topics.create(partitions=PARTITIONS)
    order = order_of(
        broker, source, target, tmp_path / "checkpoint", moment=moment, action="stop", stateful=True
    )
    order["sink"] |= {"kafka.transaction.timeout.ms": "2000"}
    fill(topics, source, 0)
    run = OnceRun(tmp_path / "run", session_settings | {"spark.driver.memory": "512m"})
    try:
        assert run.process.stdout.readline() == "ready\n"
        run.tell(order)
        assert run.process.stdout.readline() == "stopping\n"
        committed_values(broker.bootstrap, target)  # returns once its transaction has ended
        os.killpg(run.process.pid, signal.SIGCONT)
        output, _ = run.process.communicate(timeout=300)
        assert "finished" in output
    finally:
        run.end()
    assert origins(broker, target) == every_origin(ROWS)
