"""Tests of what else may happen to a query that writes exactly once: executors and brokers die at every step, and two
drivers have copies of one checkpoint.

`test_spark_once_crash` kills the driver itself; the protocol is tested at every request in tests/ledger. Here one
`once_driver` runs a query for each case: every row once for readers of committed data, or an error that says what to
do.
"""

import itertools
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import closing

import pytest

from odradek.client.cluster import Cluster as Client
from odradek.client.settings import ClientSettings
from odradek.ledger.topic import TRANSACTIONAL_ID, Ledger
from odradek.testing import Cluster, Node, cluster
from tests.spark.test_spark_exactly_once import query_id
from tests.spark.test_spark_once_crash import (
    PARTITIONS,
    ROWS,
    RUN_TIMEOUT_S,
    STEPS,
    Program,
    every_origin,
    order_of,
    origins,
    small,  # noqa: F401, a fixture
)

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
EXECUTORS = 2
LOSSES = [
    *((step, "lose an executor") for step in STEPS),
    *((step, "lose all executors") for step in ("after read the ledger", "first produce")),
]
LOST_ROWS = "Spark lost rows that were computed, and computed them again"


def started(run: Program) -> Program:
    assert run.line() == "ready", run.log()[-3000:]
    return run


def test_executors_die_at_every_step(java, broker, topics, small, tmp_path):  # noqa: F811
    """Executors die with rows that they have computed, and that the driver has yet to fetch or has just sent. Lost
    rows are computed again, with other random numbers; what was sent before is aborted.
    """
    settings = small | {
        "spark.master": f"local-cluster[{EXECUTORS},1,512]",
        "spark.executor.memory": "512m",
        "spark.task.maxFailures": "4",
        "spark.deploy.maxExecutorRetries": "-1",
    }
    run = Program(tmp_path / "run", settings)
    try:
        started(run)
        for number, (moment, action) in enumerate(LOSSES):
            target = topics.create(partitions=PARTITIONS)
            order = order_of(broker, target, tmp_path / target, moment=moment, action=action)
            losses = run.log().count(LOST_ROWS)
            run.tell(order | {"rows stay in executors": EXECUTORS, "tasks": 4 if number % 2 else 8})
            assert run.line() == f"lost {1 if action == 'lose an executor' else EXECUTORS}", run.log()[-3000:]
            assert run.line() == "finished", (moment, action)
            assert origins(broker, target) == every_origin(ROWS), (moment, action)
            if action == "lose all executors":
                assert run.log().count(LOST_ROWS) > losses, moment
        run.process.communicate(timeout=RUN_TIMEOUT_S)
    finally:
        run.end()


def test_two_drivers_on_copies_of_one_checkpoint(java, broker, topics, small, tmp_path):  # noqa: F811
    """The second takes over; the first, which was stopped in the middle of its transaction, says why it ends. So does
    its next run."""
    checkpoint, copy = tmp_path / "checkpoint", tmp_path / "copy"
    target = topics.create(partitions=PARTITIONS)
    order = order_of(broker, target, checkpoint, moment="before record", action="stop")
    first, second = Program(tmp_path / "run-1", small), Program(tmp_path / "run-2", small)
    try:
        first.begin(order)
        assert first.line() == "stopping"
        shutil.copytree(checkpoint, copy)
        assert second.go(order_of(broker, target, copy))
        os.killpg(first.process.pid, signal.SIGCONT)
        assert first.line().startswith("failed: another process has begun to write")
        first.tell(order_of(broker, target, checkpoint))
        said, _ = first.process.communicate(timeout=RUN_TIMEOUT_S)
    finally:
        first.end()
        second.end()
    assert "failed: the checkpoint is at batch 0, but batch 1 was written already" in said
    assert origins(broker, target) == every_origin(2 * ROWS)


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
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


VICTIMS = (coordinator, leader_of_rows, leader_of_the_ledger)


def test_a_broker_dies_at_every_step(java, three, small, tmp_path):  # noqa: F811
    run = Program(tmp_path / "run", small)
    try:
        started(run)
        for number, (moment, find) in enumerate(itertools.product(STEPS, VICTIMS)):
            target, checkpoint = f"target-{number}", tmp_path / f"checkpoint-{number}"
            three.create_topic(target, partitions=PARTITIONS)
            run.tell(order_of(three, target, checkpoint, moment=moment))
            assert run.line() == "asking", run.log()[-3000:]
            victim = find(three, query_id(checkpoint), target)
            victim.crash()
            run.answer()
            assert run.line() == "finished", (moment, find.__name__)
            victim.start()
            three.wait_until_in_sync()
            assert origins(three, target) == every_origin(ROWS), (moment, find.__name__)
        run.process.communicate(timeout=RUN_TIMEOUT_S)
    finally:
        run.end()
