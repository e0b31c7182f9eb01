"""One Spark session and one broker for all tests of the source and the sink.

Tests that need Spark are marked `spark`, and run after all others, file by file, because each process has a session,
and so a JVM, of its own. Where Java is missing they are skipped.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.spark.launching import installed_pyspark
from tests.selection import mark_long, mark_spark
from tests.spark.spark_topics import Topics
from tests.support import RunningBroker, running_broker

HERE = Path(__file__).parent
STAND_ALONE = {
    "test_spark_environment.py",
    "test_spark_failures.py",
    "test_spark_lag.py",
    "test_spark_planning.py",
    "test_spark_class_archive.py",
    "test_spark_kernels.py",
    "test_spark_launching.py",
    "test_spark_offsets.py",
    "test_spark_options.py",
    "test_spark_decoding.py",
    "test_spark_encoding.py",
    "test_typed_avro.py",
    "test_typed_numbers.py",
}
LONG = {
    "test_damaged_documents",  # beside test_generated_documents
    "test_spark_pipelines",  # beside test_spark_connect
    "test_topic_to_topic_on_two_workers",  # beside the other streams from topic to topic
    # Beside the same on one machine (test_spark_stream), and one stream and one batch of a cluster.
    "test_a_topic_deleted_and_made_again_while_a_stream_runs",
    "test_a_broker_killed_in_the_middle_of_a_stream",
}


@pytest.hookimpl(tryfirst=True)  # before -m looks at the markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_spark(HERE, items, STAND_ALONE)
    mark_long(HERE, items, LONG)


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
        # Short lives and few rows: compiling thoroughly, by the JVM or by Spark, does not pay.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.adaptive.enabled": "false",
    }


@pytest.fixture(scope="session")
def spark(java: None, session_settings: dict[str, str]):
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("odradek")
    # Spark gives the process of a stream's source ten seconds to start, which is little on a busy machine.
    with installed_pyspark("local[2]"):
        session = builder.config(map=session_settings).getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("broker")) as broker:
        yield broker


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
