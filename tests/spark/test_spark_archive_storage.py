"""One table over an archive in object storage (moto's server), by a Spark that has no jar for it."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, In, LessThanOrEqual, Not

import odradek.spark
from odradek.archive.layout import ArchivedFile
from odradek.archiving.archiver import Archiver, Order
from odradek.client.settings import ClientSettings
from odradek.spark.archive_scan import PUSHDOWN, Condition, condition_of
from tests.pipeline.stores import BUCKET, Store, running_store

ARCHIVE = f"s3://{BUCKET}/archive"
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with running_store() as store:
        yield store


@pytest.fixture(scope="module")
def storage(store: Store) -> dict[str, str]:
    names = {"endpoint": "aws_endpoint_url"}
    access = {names.get(name, f"aws_{name}"): value for name, value in store.access.items()}
    return {**access, "aws_allow_http": "true"}


@pytest.fixture(scope="module")
def topic(broker, topics, storage) -> str:
    """Three files: one of 20 records, and a day later one of 10 for each partition. Another 5 are not archived."""
    from confluent_kafka import Producer

    name = topics.create(partitions=2)
    host, _, port = broker.bootstrap.partition(":")
    producer = Producer({"bootstrap.servers": broker.bootstrap})

    def send(partition: int, count: int, day: int) -> None:
        for number in range(count):
            at = START + timedelta(days=day, seconds=number)
            headers = [("n", b"%d" % number)] if number % 2 else None
            producer.produce(
                name,
                b"%d" % number,
                partition=partition,
                timestamp=int(at.timestamp() * 1000),
                headers=headers,
            )
        assert producer.flush(30) == 0

    order = Order(ClientSettings(((host, int(port)),)), ARCHIVE, (name,), storage=storage)
    for day, partitions in enumerate([{0: 20}, {0: 10, 1: 10}]):
        for partition, count in partitions.items():
            send(partition, count, day)
        Archiver(order, lambda done: None, lambda text: None).run_once()
    send(1, 5, 2)
    return name


def test_history_and_tail_are_one_table_without_a_jar(spark, broker, topic, storage):
    servers = {"kafka.bootstrap.servers": broker.bootstrap}
    table = odradek.spark.table(spark, archive=ARCHIVE, topic=topic, options=servers, storage=storage)
    rows = table.selectExpr("partition", "offset", "CAST(value AS STRING) AS v", "headers", "topic").collect()
    found = sorted((row.partition, row.offset, row.v) for row in rows)
    expected = [(0, offset, str(offset % 20)) for offset in range(30)]
    expected += [(1, offset, str(offset % 10)) for offset in range(15)]
    assert found == expected
    assert {row.topic for row in rows} == {topic}
    assert {row.headers[0].key for row in rows if row.headers} == {"n"}


@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_filters_give_the_same_with_and_without_pushdown(spark, topic, storage, pushdown):
    spark.conf.set(PUSHDOWN, pushdown)
    try:
        table = odradek.spark.table(spark, archive=ARCHIVE, topic=topic, storage=storage)
        assert table.where("timestamp >= timestamp'2026-01-02'").count() == 20
        assert table.where("timestamp < timestamp'2026-01-01 00:00:05'").count() == 5
        assert table.where("partition = 1 AND offset > 7").count() == 2
        assert table.where("offset <= 3 AND value IS NOT NULL").count() == 8
        read = table.where("timestamp >= timestamp'2026-01-02'").rdd.getNumPartitions()
        assert read == (2 if pushdown == "true" else 3)
    finally:
        spark.conf.unset(PUSHDOWN)


def test_what_is_wrong_gets_a_sentence(spark, storage):
    from odradek.archive.failures import ArchiveError, MissingArchive

    with pytest.raises(MissingArchive, match="there is no archive of a topic at"):
        odradek.spark.table(spark, archive=ARCHIVE, topic="absent", storage=storage)
    with pytest.raises(ArchiveError, match="cannot read the archive s3://"):
        odradek.spark.table(
            spark,
            archive="s3://nowhere",
            topic="absent",
            storage=storage | {"aws_endpoint_url": "http://127.0.0.1:9"},
        )


def test_files_are_left_out_by_what_the_table_says_of_them():
    file = ArchivedFile("f", 3, 10, 20, 10, 100, 1_000, 2_000)
    cases = {
        ("partition", "equal", 3): True,
        ("partition", "equal", 4): False,
        ("offset", "greater", 20): False,
        ("offset", "greater_equal", 19): True,
        ("offset", "less", 10): False,
        ("offset", "less_equal", 10): True,
        ("timestamp", "greater", datetime.fromtimestamp(1.9, UTC)): True,
        ("timestamp", "greater", datetime.fromtimestamp(2.1, UTC)): False,
        ("timestamp", "less", datetime.fromtimestamp(0.9, UTC)): False,
    }
    for facts, expected in cases.items():
        assert Condition(*facts).may_meet(file) == expected, facts
    unknown = ArchivedFile("f", 3, 10, 20, 10, 100)
    assert Condition("timestamp", "less", datetime.fromtimestamp(0, UTC)).may_meet(unknown)


def test_what_cannot_help_is_left_to_spark():
    assert condition_of(GreaterThan(("offset",), 5)) == Condition("offset", "greater", 5)
    assert condition_of(EqualTo(("value",), b"x")) is None
    assert condition_of(LessThanOrEqual(("timestamp",), datetime(2026, 1, 1))) is None, "of no zone"
    assert condition_of(In(("offset",), (1, 2))) is None
    assert condition_of(Not(EqualTo(("offset",), 1))) is None
    assert condition_of(EqualTo(("headers", "key"), "x")) is None
