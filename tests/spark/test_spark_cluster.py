"""A standalone cluster of two workers, started here: source and sink on executors that are other processes.

Spark's driver is a process of its own too, because this one may have a local session already. It is the one
worker of a process pool: the functions of the first part run there, and their results come back. So the tests
can change topics and kill brokers while a query runs.
"""

import contextlib
import json
import multiprocessing
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import NewPartitions

from tests.spark.spark_topics import Topics
from tests.support import running_broker

QUICK_START = os.environ.get("SPARK_SUBMIT_OPTS", "")  # by which Java starts faster, if `make` has set it
ENVIRON = {"PYSPARK_PYTHON": sys.executable, "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.cores.max": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": QUICK_START,
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.task.maxFailures": "1",  # a task must survive by itself what happens to a broker
}
VALUES = [b"%d" % number for number in range(2_000)]
WAIT_S = 300  # for Spark on a machine that others use, too

pytestmark = pytest.mark.timeout(900)

# In the driver's process


def connect(master: str) -> None:
    from pyspark.sql import SparkSession

    os.environ.update(ENVIRON)
    SparkSession.builder.master(master).config(map=SETTINGS).getOrCreate()


def session() -> Any:
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession()


def executor_count() -> int:
    return session().sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1


def start_copying(bootstrap: str, source: str, target: str, checkpoint: str, **options: str) -> None:
    """A stream from topic to topic that runs until it is stopped."""
    session().streams.resetTerminated()
    servers = {"kafka.bootstrap.servers": bootstrap}
    reader = session().readStream.format("odradek").options(**servers, **options)
    frame = reader.option("subscribe", source).option("startingOffsets", "earliest").load()
    writer = frame.select("key", "value").writeStream.format("odradek").options(**servers)
    writer.option("topic", target).option("checkpointLocation", checkpoint).queryName("copy").start()


def copy_all_available() -> None:
    running_query().processAllAvailable()


def rows_copied() -> int:
    return sum(progress.numInputRows for progress in running_query().recentProgress)


def running_query() -> Any:
    (query,) = session().streams.active
    return query


def stop_copying() -> None:
    for query in session().streams.active:
        query.stop()


def failure_of_copying() -> str:
    """Waits for the query to fail; what it says."""
    try:
        session().streams.awaitAnyTermination(WAIT_S)
    except Exception as error:
        return str(error)
    return "it did not fail"


def read_numbers(bootstrap: str, **options: str) -> list[int] | str:
    """The values of a batch query, or what it says when it fails."""
    reader = session().read.format("odradek").option("kafka.bootstrap.servers", bootstrap).options(**options)
    try:
        return sorted(int(row.value) for row in reader.load().select("value").collect())
    except Exception as error:
        return str(error)


def read_numbers_slowly(bootstrap: str, topic: str, begun: str, may_go_on: str) -> list[int]:
    """A batch query whose tasks make the file `begun`, and end when there is a file `may_go_on`."""

    def wait(batches):
        Path(begun).touch()
        deadline = time.monotonic() + WAIT_S
        while not Path(may_go_on).exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        yield from batches

    reader = session().read.format("odradek").option("kafka.bootstrap.servers", bootstrap)
    frame = reader.option("subscribe", topic).load().select("value").mapInArrow(wait, "value binary")
    return sorted(int(row.value) for row in frame.collect())


# In this process


class Driver:
    """Runs functions in the driver's process."""

    def __init__(self, pool: ProcessPoolExecutor) -> None:
        self._pool = pool

    def start(self, work: Callable[..., Any], *arguments: str, **options: str) -> Future:
        return self._pool.submit(work, *arguments, **options)

    def run(self, work: Callable[..., Any], *arguments: str, **options: str) -> Any:
        return self.start(work, *arguments, **options).result(WAIT_S)


def wait_until(condition: Callable[[], Any], problem: Callable[[], str]) -> Any:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(problem())


@contextlib.contextmanager
def cluster(directory: Path) -> Iterator[str]:
    """`spark-class` starts what start-master.sh would, which pip's PySpark does not bring."""
    import pyspark

    spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    environ = {**os.environ, **ENVIRON, "SPARK_DAEMON_MEMORY": "256m"}
    environ |= {"SPARK_WORKER_DIR": str(directory / "work"), "SPARK_DAEMON_JAVA_OPTS": QUICK_START}
    processes = []

    def start(name: str, *arguments: str) -> Path:
        log = directory / f"{name}.log"
        command = [spark_class, *arguments]
        with log.open("w") as output:
            processes.append(subprocess.Popen(command, stdout=output, stderr=output, env=environ))
        return log

    def wait_for(log: Path, pattern: str) -> str:
        match = wait_until(
            lambda: re.search(pattern, log.read_text()),
            lambda: f"no {pattern!r} in:\n{log.read_text()[-3000:]}",
        )
        return match[0]

    try:
        master_log = start(
            "master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0",
            "--webui-port", "0",
        )  # fmt: skip
        address = wait_for(master_log, r"spark://127\.0\.0\.1:[1-9]\d*")
        workers = [
            start(
                f"worker-{number}", "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores",
                "1", "--memory", "512m", "--webui-port", "0", address,
            )
            for number in (1, 2)
        ]  # fmt: skip
        for log in workers:
            wait_for(log, "Successfully registered with master")
        yield address
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(30)


@pytest.fixture(scope="module")
def driver(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driver]:
    spawn = multiprocessing.get_context("spawn")  # a fork would have this process's gateway to Java
    with cluster(tmp_path_factory.mktemp("cluster")) as master:
        pool = ProcessPoolExecutor(1, spawn, initializer=connect, initargs=(master,))
        with pool:
            yield Driver(pool)


@pytest.fixture
def copying(driver: Driver) -> Iterator[Driver]:
    """The driver, without a query that goes on after the test."""
    yield driver
    driver.run(stop_copying)


def numbers_in(topics: Topics, name: str) -> list[int]:
    return sorted(int(message.value()) for message in topics.read(name, 2))


def test_topic_to_topic_on_two_workers(copying, broker, topics, tmp_path):
    source, target = topics.create(partitions=4), topics.create(partitions=2)
    topics.fill(source, VALUES, partition=lambda index: index % 4)
    copying.run(start_copying, broker.bootstrap, source, target, str(tmp_path))
    copying.run(copy_all_available)
    assert copying.run(executor_count) == 2
    assert copying.run(read_numbers, broker.bootstrap, subscribe=target) == list(range(2_000))
    assert numbers_in(topics, target) == list(range(2_000))


def test_partitions_added_while_a_stream_runs(copying, broker, topics, tmp_path):
    source, target = topics.create(partitions=1), topics.create(partitions=2)
    topics.fill(source, VALUES[:10])
    copying.run(start_copying, broker.bootstrap, source, target, str(tmp_path))
    copying.run(copy_all_available)
    topics.admin.create_partitions([NewPartitions(source, 3)])[source].result(30)
    topics.fill(source, VALUES[10:40], partition=lambda index: index % 3)
    copying.run(copy_all_available)
    assert numbers_in(topics, target) == list(range(40))
    assert copying.run(read_numbers, broker.bootstrap, subscribe=source) == list(range(40))


def test_a_topic_deleted_and_made_again_while_a_stream_runs(copying, broker, topics, tmp_path):
    source, target = topics.create(partitions=1), topics.create(partitions=2)
    topics.fill(source, VALUES[:10])
    arguments = (broker.bootstrap, source, target, str(tmp_path))
    copying.run(start_copying, *arguments, **{"fetchOffset.retryIntervalMs": "10"})
    copying.run(copy_all_available)
    topics.delete(source)
    topics.create(partitions=1, name=source)
    message = copying.run(failure_of_copying)
    assert re.search(rf"the end of {source}-0 went back from offset 10 to 0.*failOnDataLoss", message), (
        message
    )

    waived = {"failOnDataLoss": "false", "fetchOffset.retryIntervalMs": "10"}
    copying.run(start_copying, *arguments, **waived)
    copying.run(copy_all_available)
    topics.fill(source, VALUES[10:20])
    copying.run(copy_all_available)
    assert numbers_in(topics, target) == list(range(20)), "what came after the loss"


def test_a_topic_made_again_is_a_loss_for_a_batch_that_names_old_offsets(driver, broker, topics):
    name = topics.create(partitions=1)
    topics.fill(name, VALUES[:10])
    topics.delete(name)
    topics.create(partitions=1, name=name)
    topics.fill(name, VALUES[10:13])
    given = {"subscribe": name, "endingOffsets": json.dumps({name: {"0": 10}})}
    message = driver.run(read_numbers, broker.bootstrap, **given)
    assert re.search(rf"{name}-0 ends at offset 3.*set the option failOnDataLoss to false", str(message))
    assert driver.run(read_numbers, broker.bootstrap, failOnDataLoss="false", **given) == [10, 11, 12]


def test_a_broker_killed_in_the_middle_of_a_stream(copying, tmp_path):
    with running_broker(tmp_path) as broker:
        topics = Topics(broker.bootstrap)
        source, target = topics.create(partitions=2), topics.create(partitions=2)
        topics.fill(source, VALUES, partition=lambda index: index % 2)
        arguments = (broker.bootstrap, source, target, str(tmp_path / "checkpoint"))
        copying.run(start_copying, *arguments, maxOffsetsPerTrigger="400")
        wait_until(lambda: copying.run(rows_copied), lambda: "nothing was copied")
        broker.kill()
        broker.restart()
        copying.run(copy_all_available)
        assert numbers_in(topics, target) == list(range(2_000))
        copying.run(stop_copying)


def test_a_broker_killed_in_the_middle_of_a_batch(driver, tmp_path):
    """Four tasks and two cores: two have begun when the broker goes, and two begin when it has gone."""
    begun, may_go_on = tmp_path / "begun", tmp_path / "may-go-on"
    with running_broker(tmp_path) as broker:
        topics = Topics(broker.bootstrap)
        name = topics.create(partitions=4)
        topics.fill(name, VALUES, partition=lambda index: index % 4)
        reading = driver.start(read_numbers_slowly, broker.bootstrap, name, str(begun), str(may_go_on))
        wait_until(begun.exists, lambda: f"no task began: {reading.exception(0)}")
        broker.kill()
        may_go_on.touch()
        broker.restart()
        assert reading.result(WAIT_S) == list(range(2_000))
