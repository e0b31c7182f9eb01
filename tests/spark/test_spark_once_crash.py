"""kill -9 of the driver at every step of a transaction, on real Spark and a real broker: every row once.

The protocol itself is tested at every request without Spark (tests/ledger). Here one query with rand() and a Python
function lives through all steps, each of its lives killed at another one; it runs with 8 tasks, then with 4. While one
life works the next one's JVM is already starting, which is most of what a life costs.
"""

import os
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.spark.committed import committed_values
from tests.spark.test_spark_crash import RUN_TIMEOUT_S, Run

PARTITIONS = 2
ROWS = 10
STEPS = [
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
MOMENTS = [*((step, 1) for step in STEPS), (STEPS[-1], 2)]  # at first of a batch that had been written before
# Where a user's function writes each batch to two topics. 2 is the second sink's, in a batch that begins in this life.
MOMENTS_OF_TWO_SINKS = [
    ("first produce", 1),
    ("EndTxn sent", 1),
    ("after commit", 1),
    ("EndTxn sent", 2),
    ("after read the ledger", 2),
    ("before initialize", 2),
]


class Program(Run):
    """One life of `once_driver`."""

    program = "once_driver.py"

    def begin(self, order: dict) -> "Program":
        assert self.line() == "ready", self.log()[-3000:]
        self.tell(order)
        return self

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def answer(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def log(self) -> str:
        return Path(self._log.name).read_text()


def order_of(broker, target: str, checkpoint: Path, **more) -> dict:
    return {
        "rows": ROWS,
        "sink": {"kafka.bootstrap.servers": broker.bootstrap, "topic": target},
        "checkpoint": str(checkpoint),
        "tasks": 8,
        "moment": "never",
        "nth": 1,
        "action": "ask",
        **more,
    }


def rows_of(checkpoint: Path) -> int:
    """Return the number of rows that the finished batches have."""
    return ROWS * (max(int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")) + 1)


def origins(broker, target: str) -> Counter:
    """Count rows by their origin; of a query with state, how many rows a partition had after a batch."""
    return Counter(
        tuple(int(part) for part in value.split("/")[:2])
        for value in committed_values(broker.bootstrap, target)
    )


def every_origin(rows: int) -> Counter:
    return Counter(
        (partition, offset) for partition in range(PARTITIONS) for offset in range(rows // PARTITIONS)
    )


def every_total(rows: int) -> Counter:
    each = ROWS // PARTITIONS
    return Counter(
        (partition, total)
        for partition in range(PARTITIONS)
        for total in range(each, rows // PARTITIONS + 1, each)
    )


@pytest.fixture
def target(topics) -> str:
    return topics.create(partitions=PARTITIONS)


@pytest.fixture
def small(session_settings) -> dict[str, str]:
    return session_settings | {"spark.driver.memory": "512m", "spark.ui.showConsoleProgress": "false"}


def live(moments: Sequence[tuple[str, int]], order: dict, small: dict, tmp_path: Path) -> None:
    """Be killed at each moment in turn; each life begins a new batch, after the one that it found unfinished."""
    upcoming = Program(tmp_path / "run-0", small)
    try:
        for number, (moment, nth) in enumerate(moments, 1):
            run, upcoming = upcoming, Program(tmp_path / f"run-{number}", small)
            tasks = 8 if number % 2 else 4
            finished = run.go(order | {"moment": moment, "nth": nth, "tasks": tasks})
            assert not finished, f"life {number} did not get to {moment}"
        assert upcoming.go(order)
    finally:
        upcoming.end()


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("victim", "stateful"), [("the JVM", False), ("Python", True)])
def test_killed_at_every_step(java, broker, target, small, tmp_path, victim, stateful):
    """Without its JVM, Python goes on, and may well commit; without Python, the JVM ends. With state, a batch that was
    written before is computed again all the same: later totals depend on it."""
    order = order_of(broker, target, tmp_path / "checkpoint", action=f"lose {victim}", stateful=stateful)
    live(MOMENTS, order, small, tmp_path)
    rows = rows_of(tmp_path / "checkpoint")
    assert rows > ROWS
    assert origins(broker, target) == (every_total(rows) if stateful else every_origin(rows))


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_killed_between_two_sinks_of_a_users_own_function(java, broker, topics, target, small, tmp_path):
    second = topics.create(partitions=1)
    order = order_of(broker, target, tmp_path / "checkpoint", action="lose Python")
    order |= {"second sink": order["sink"] | {"topic": second}}
    live(MOMENTS_OF_TWO_SINKS, order, small, tmp_path)
    for one in (target, second):
        assert origins(broker, one) == every_origin(rows_of(tmp_path / "checkpoint"))


@pytest.mark.long
@pytest.mark.timeout(900)
def test_stopped_beyond_the_timeout_of_its_transaction(java, broker, topics, small, tmp_path):
    """It wakes up, and finds out whether its transaction was aborted or committed."""
    run = Program(tmp_path / "run", small)
    try:
        assert run.line() == "ready", run.log()[-3000:]
        for moment in ("first produce", "before record", "EndTxn sent"):
            target = topics.create(partitions=PARTITIONS)
            order = order_of(broker, target, tmp_path / target, moment=moment, action="stop")
            order["sink"] |= {"kafka.transaction.timeout.ms": "4000"}
            run.tell(order)
            assert run.line() == "stopping"
            committed_values(broker.bootstrap, target)  # returns once its transaction has ended
            os.killpg(run.process.pid, signal.SIGCONT)
            assert run.line() == "finished", moment
            assert origins(broker, target) == every_origin(ROWS)
        run.process.communicate(timeout=RUN_TIMEOUT_S)
    finally:
        run.end()
