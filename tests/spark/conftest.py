"""One Spark session and one broker for all tests of the source and the sink.

Tests that need Spark are marked `spark`: they run one after the other, because two sessions at a time take
more memory and cores than a small machine has. Where Java is missing they are skipped.
"""

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support import RunningBroker, running_broker

HERE = Path(__file__).parent
STAND_ALONE = {
    "test_spark_offsets.py",
    "test_spark_options.py",
    "test_spark_decoding.py",
    "test_spark_encoding.py",
}
_numbers = itertools.count()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "spark: needs a Spark session, and so Java")


@pytest.hookimpl(tryfirst=True)  # before -m looks at the markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and item.path.name not in STAND_ALONE:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def java() -> None:
    from odradek.spark.environment import missing

    reason = missing()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture(scope="session")
def session_settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "1g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.task.maxFailures": "1",
        "spark.log.level": "ERROR",
        # Short lives: quick compilation pays, thorough compilation does not.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
    }


@pytest.fixture(scope="session")
def spark(java: None, session_settings: dict[str, str]):
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("odradek")
    session = builder.config(map=session_settings).getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


class Topics:
    """What a test does to topics beside Spark, through another client."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(self, partitions: int = 2, name: str | None = None, **config: str) -> str:
        name = name or f"topic-{next(_numbers)}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        wanted = [NewTopic(name, num_partitions=partitions, replication_factor=1, config=settings)]
        for result in self.admin.create_topics(wanted).values():
            result.result(30)
        return name

    def delete(self, name: str) -> None:
        for result in self.admin.delete_topics([name]).values():
            result.result(30)

    def fill(
        self, topic: str, values: list[bytes], partition: int | Callable[[int], int] = 0, **settings: str
    ) -> None:
        """Values to partitions; a value's first bytes are its key."""
        producer = Producer(
            {"bootstrap.servers": self.bootstrap, **{k.replace("_", "."): v for k, v in settings.items()}}
        )
        for index, value in enumerate(values):
            target = partition(index) if callable(partition) else partition
            producer.produce(topic, key=value[:20], value=value, partition=target)
            if index % 10_000 == 0:
                producer.poll(0)
        assert producer.flush(60) == 0

    def read(self, topic: str, partitions: int) -> list:
        """All messages of a topic, as another client reads them."""
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": "reader", "enable.auto.commit": False}
        )
        messages = []
        try:
            assigned = [TopicPartition(topic, number, 0) for number in range(partitions)]
            ends = {p.partition: consumer.get_watermark_offsets(p, timeout=30)[1] for p in assigned}
            consumer.assign(assigned)
            wanted = sum(ends.values())
            while len(messages) < wanted:
                batch = consumer.consume(wanted - len(messages), timeout=30)
                assert batch, f"{len(messages)} of {wanted} messages came"
                messages += [message for message in batch if message.error() is None]
        finally:
            consumer.close()
        return messages

    def committed(self, group: str, topic: str, partitions: int) -> dict[int, int]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        try:
            found = consumer.committed([TopicPartition(topic, n) for n in range(partitions)], timeout=30)
            return {one.partition: one.offset for one in found}
        finally:
            consumer.close()


@pytest.fixture(scope="session")
def topics(broker: RunningBroker) -> Topics:
    return Topics(broker.bootstrap)


@pytest.fixture
def reading(spark, broker: RunningBroker):
    """A batch reader with options; names as in the docs."""

    def read(**options: object):
        reader = spark.read.format("odradek").option("kafka.bootstrap.servers", broker.bootstrap)
        for name, value in options.items():
            reader = reader.option(name.replace("__", "."), value)
        return reader.load()

    return read


@pytest.fixture
def streaming(spark, broker: RunningBroker):
    def read(**options: object):
        reader = spark.readStream.format("odradek").option("kafka.bootstrap.servers", broker.bootstrap)
        for name, value in options.items():
            reader = reader.option(name.replace("__", "."), value)
        return reader.load()

    return read
