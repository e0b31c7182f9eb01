"""What else may happen to a query that writes exactly once: executors and brokers die, two drivers have copies of one
checkpoint, a user's own function writes to two topics.

`test_spark_once_crash` kills the driver itself; the protocol is tested at every request in tests/ledger. Here the
programs are those of `once_driver`, on real Spark: every row once for readers of committed data, or an error that says
what to do.
"""

import os
import shutil
import signal
from contextlib import closing
from pathlib import Path

import pytest

from odradek.client.cluster import Cluster as Client
from odradek.client.settings import ClientSettings
from odradek.ledger.topic import TRANSACTIONAL_ID, Ledger
from odradek.testing import Cluster, Node, cluster
from tests.spark.spark_topics import Topics
from tests.spark.test_spark_exactly_once import query_id
from tests.spark.test_spark_once_crash import (
    PARTITIONS,
    ROWS,
    OnceRun,
    every_origin,
    fill,
    order_of,
    origins,
)

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
WAIT_S = 300


@pytest.fixture
def names(topics) -> tuple[str, str]:
    source, target = topics.create(partitions=PARTITIONS), topics.create(partitions=PARTITIONS)
    fill(topics, source, 0)
    return source, target


@pytest.fixture
def small(session_settings) -> dict[str, str]:
    return session_settings | {"spark.driver.memory": "512m"}


class Program(OnceRun):
    """One life of the program, in steps."""

    def begin(self, order: dict) -> "Program":
        assert self.line() == "ready"
        self.tell(order)
        return self

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def log(self) -> str:
        return Path(self._log.name).read_text()

    def rest(self) -> str:
        output, _ = self.process.communicate("\n", timeout=WAIT_S)
        return output


@pytest.mark.parametrize(
    ("moment", "action", "lost"),
    [
        ("after read the ledger", "lose all executors", 2),
        ("first produce", "lose all executors", 2),
        ("first produce", "lose an executor", 1),
        ("before record", "lose an executor", 1),
    ],
)
def test_executors_die(java, broker, names, small, tmp_path, moment, action, lost):
    """With rows that they have computed and the driver has yet to fetch, or has just sent. These are computed again,
    with other random numbers; what was sent before is aborted."""
    settings = small | {
        "spark.master": "local-cluster[2,1,512]",
        "spark.executor.memory": "512m",
        "spark.task.maxFailures": "4",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    }
    order = order_of(broker, *names, tmp_path / "checkpoint", moment=moment, action=action)
    run = Program(tmp_path / "run", settings)
    try:
        run.begin(order | {"rows stay in executors": True})
        assert run.line() == f"lost {lost}"
        assert "finished" in run.rest()
    finally:
        run.end()
    assert origins(broker, names[1]) == every_origin(ROWS)
    if action == "lose all executors":
        assert "Spark lost rows that were computed, and computed them again" in run.log()


@pytest.mark.parametrize(
    ("moment", "nth"),
    [
        ("first produce", 1),
        ("EndTxn sent", 1),
        ("after commit", 1),
        ("after read the ledger", 2),
        ("EndTxn sent", 2),
    ],
)
def test_two_sinks_of_a_users_own_function_and_a_killed_driver(
    java, broker, topics, names, small, tmp_path, moment, nth
):
    second = topics.create(partitions=1)
    order = order_of(broker, *names, tmp_path / "checkpoint", moment=moment, nth=nth)
    order |= {"second sink": order["sink"] | {"topic": second}}
    first, again = Program(tmp_path / "run-1", small), None
    try:
        assert not first.go(order)
        fill(topics, names[0], ROWS)
        again = Program(tmp_path / "run-2", small)
        assert again.go(order | {"moment": "never"})
    finally:
        first.end()
        if again is not None:
            again.end()
    for target in (names[1], second):
        assert origins(broker, target) == every_origin(2 * ROWS)


def test_two_drivers_on_copies_of_one_checkpoint(java, broker, topics, names, small, tmp_path):
    """The second takes over; the first, which was stopped in the middle of its transaction, ends and says why."""
    order = order_of(broker, *names, tmp_path / "checkpoint", moment="before record", action="stop")
    copy = tmp_path / "copy"
    first, second = Program(tmp_path / "run-1", small), Program(tmp_path / "run-2", small)
    try:
        first.begin(order)
        assert first.line() == "stopping"
        shutil.copytree(tmp_path / "checkpoint", copy)
        fill(topics, names[0], ROWS)
        assert second.go(order | {"moment": "never", "checkpoint": str(copy)})
        os.killpg(first.process.pid, signal.SIGCONT)
        said = first.rest()
    finally:
        first.end()
        second.end()
    assert "failed: another process has begun to write" in said
    assert origins(broker, names[1]) == every_origin(2 * ROWS)
    third = Program(tmp_path / "run-3", small)
    try:
        said = third.begin(order | {"moment": "never"}).rest()
    finally:
        third.end()
    assert "failed: the checkpoint is at batch 0, but batch 1 was written already" in said
    assert origins(broker, names[1]) == every_origin(2 * ROWS)


@pytest.mark.parametrize("moment", ["EndTxn sent", "after commit", "before Spark's commit"])
def test_a_killed_driver_of_a_query_with_state(java, broker, topics, names, small, tmp_path, moment):
    """The batch was written: it runs again for its state, and writes nothing."""
    order = order_of(broker, *names, tmp_path / "checkpoint", moment=moment, stateful=True)
    first, again = Program(tmp_path / "run-1", small), Program(tmp_path / "run-2", small)
    try:
        assert not first.go(order)
        fill(topics, names[0], ROWS)
        assert again.go(order | {"moment": "never", "tasks": 4})
    finally:
        first.end()
        again.end()
    assert origins(broker, names[1]) == every_origin(2 * ROWS)


@pytest.fixture(scope="module")
def three():
    with cluster(3) as three:
        yield three


def coordinator(three: Cluster, sink: str, _: str) -> Node:
    return three.transaction_coordinator(TRANSACTIONAL_ID + sink)


def leader_of_rows(three: Cluster, _: str, target: str) -> Node:
    return three.leader(target, 0)


def leader_of_the_ledger(three: Cluster, sink: str, _: str) -> Node:
    addresses = (one.rpartition(":") for one in three.bootstrap.split(","))
    with closing(Client(ClientSettings(tuple((host, int(port)) for host, _, port in addresses)))) as client:
        partition = Ledger(client).partition_of(sink)
    return three.leader(partition.topic, partition.partition)


@pytest.mark.parametrize("find", [coordinator, leader_of_rows, leader_of_the_ledger])
def test_a_broker_dies_in_the_middle_of_a_transaction(java, three, small, tmp_path, find):
    topics = Topics(three.bootstrap)
    source, target = (f"{name}-{find.__name__}" for name in ("source", "target"))
    for name in (source, target):
        three.create_topic(name, partitions=PARTITIONS)
    fill(topics, source, 0)
    order = order_of(three, source, target, tmp_path / "checkpoint", moment="before record", action="ask")
    run = Program(tmp_path / "run", small)
    victim = None
    try:
        run.begin(order)
        assert run.line() == "asking"
        victim = find(three, query_id(tmp_path / "checkpoint"), target)
        victim.crash()
        assert "finished" in run.rest()
    finally:
        run.end()
        if victim is not None:
            victim.start()
            three.wait_until_in_sync()
    assert origins(three, target) == every_origin(ROWS)
