"""Batch queries: all rows of a topic, or those that the options name."""

import json
import time

import pytest

VALUES = [b"%d" % number for number in range(400)]


@pytest.fixture(scope="module")
def filled(topics):
    """200 rows in each of two partitions."""
    name = topics.create(partitions=2)
    topics.fill(name, VALUES, partition=lambda index: index % 2)
    return name


def numbers(frame) -> list[int]:
    return sorted(int(row.value) for row in frame.select("value").collect())


def test_all_columns(reading, topics):
    name = topics.create(partitions=1)
    before_ms = int(time.time() * 1000)
    topics.fill(name, [b"hello"])
    (row,) = reading(subscribe=name).collect()
    assert (bytes(row.key), bytes(row.value)) == (b"hello", b"hello")
    assert (row.topic, row.partition, row.offset, row.timestampType) == (name, 0, 0, 0)
    assert 0 <= row.timestamp.timestamp() * 1000 - before_ms < 60_000


def test_all_rows_of_all_partitions_and_codecs(reading, topics):
    name = topics.create(partitions=2)
    for number, codec in enumerate(["none", "gzip", "snappy", "lz4", "zstd"]):
        values = [b"%d" % value for value in range(100 * number, 100 * number + 100)]
        topics.fill(name, values, partition=lambda index: index % 2, compression_type=codec)
    assert numbers(reading(subscribe=name)) == list(range(500))


def test_headers(reading, topics, broker):
    from confluent_kafka import Producer

    name = topics.create(partitions=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(name, b"1", headers=[("a", b"x"), ("b", None)])
    producer.produce(name, b"2")
    producer.flush(30)
    rows = reading(subscribe=name, includeHeaders="true").orderBy("offset").collect()
    found = [[(one.key, one.value and bytes(one.value)) for one in row.headers or []] for row in rows]
    assert found == [[("a", b"x"), ("b", None)], []]
    assert rows[1].headers is None


def test_an_empty_topic_is_an_empty_frame(reading, topics):
    assert reading(subscribe=topics.create()).count() == 0


def test_offsets_of_each_partition(reading, filled):
    start, end = {filled: {"0": 10, "1": -2}}, {filled: {"0": 20, "1": 5}}
    frame = reading(subscribe=filled, startingOffsets=json.dumps(start), endingOffsets=json.dumps(end))
    rows = sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())
    assert rows == [(0, offset) for offset in range(10, 20)] + [(1, offset) for offset in range(5)]


def test_timestamps(reading, topics, broker):
    from confluent_kafka import Producer

    name = topics.create(partitions=1, retention_ms="-1")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for second in range(10):
        producer.produce(name, b"%d" % second, timestamp=1_700_000_000_000 + 1000 * second)
    producer.flush(30)
    frame = reading(subscribe=name, startingTimestamp=1_700_000_003_000, endingTimestamp=1_700_000_006_000)
    assert numbers(frame) == [3, 4, 5]
    by_partition = json.dumps({name: {"0": 1_700_000_008_000}})
    assert numbers(reading(subscribe=name, startingOffsetsByTimestamp=by_partition)) == [8, 9]
    late = {"subscribe": name, "startingTimestamp": 1_900_000_000_000}
    with pytest.raises(Exception, match="has no record at or after 1900000000000"):
        reading(**late).count()
    assert reading(**late, startingOffsetsByTimestampStrategy="latest").count() == 0


def test_pattern_and_assign(reading, topics, filled):
    other = topics.create(partitions=2, name=f"{filled}-more")
    topics.fill(other, [b"1000"])
    topics.fill(other, [b"1001"], partition=1)
    assert numbers(reading(subscribePattern=f"{filled}(-more)?")) == [*range(400), 1000, 1001]
    assert numbers(reading(assign=json.dumps({other: [1]}))) == [1001]


@pytest.mark.parametrize(
    ("options", "tasks"), [({}, 2), ({"minPartitions": 6}, 6), ({"maxRecordsPerPartition": 50}, 8)]
)
def test_tasks(reading, filled, options, tasks):
    frame = reading(subscribe=filled, **options)
    assert frame.rdd.getNumPartitions() == tasks
    assert numbers(frame) == list(range(400))


def test_a_row_of_a_megabyte_and_small_fetches(reading, topics):
    name = topics.create(partitions=1, max_message_bytes="2000000")
    large = b"x" * 1_000_000
    topics.fill(name, [b"small", large, b"small"], message_max_bytes="2000000")
    frame = reading(subscribe=name, kafka__max__partition__fetch__bytes=1000)
    assert [len(row.value) for row in frame.orderBy("offset").collect()] == [5, 1_000_000, 5]


def test_a_limit_ends_readers_early(reading, filled):
    assert len(reading(subscribe=filled).limit(3).collect()) == 3


def test_records_deleted_by_retention_are_a_loss_unless_waived(reading, topics, broker):
    from confluent_kafka import TopicPartition

    name = topics.create(partitions=1)
    topics.fill(name, VALUES[:100])
    topics.admin.delete_records([TopicPartition(name, 0, 40)])[TopicPartition(name, 0, 40)].result(30)
    asked = {"subscribe": name, "startingOffsets": json.dumps({name: {"0": 30}})}
    with pytest.raises(Exception, match=f"offsets 30 to 39 of {name}-0 are gone: it starts at 40 now"):
        reading(**asked).count()
    assert numbers(reading(**asked, failOnDataLoss="false")) == list(range(40, 100))
    assert numbers(reading(subscribe=name)) == list(range(40, 100))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"subscribe": "no-such-topic"},
            "option 'subscribe': topic 'no-such-topic' does not exist; create it",
        ),
        (
            {"subscribe": "t", "startingOfsets": "1"},
            "option 'startingofsets': no such option; did you",
        ),
        (
            {"subscribe": "t", "kafka.group.instance.id": "1", "assign": "{}"},
            "exactly one of them must be given",
        ),
        ({"subscribe": "t", "endingOffsets": "earliest"}, "a batch query cannot end at 'earliest'"),
    ],
)
def test_bad_options_are_named(spark, broker, options, message):
    reader = spark.read.format("odradek").options(**{"kafka.bootstrap.servers": broker.bootstrap, **options})
    with pytest.raises(Exception) as error:
        reader.load().count()
    assert message in str(error.value)


def test_ends_that_are_not_there(reading, topics):
    name = topics.create(partitions=1)
    topics.fill(name, VALUES[:10])
    beyond = json.dumps({name: {"0": 50}})
    with pytest.raises(Exception, match=f"{name}-0 ends at offset 10, so the offsets up to 50"):
        reading(subscribe=name, endingOffsets=beyond).count()
    assert reading(subscribe=name, endingOffsets=beyond, failOnDataLoss="false").count() == 10
    with pytest.raises(Exception, match=f"{name}-0 cannot start at offset 50, because it ends at 10"):
        reading(subscribe=name, startingOffsets=beyond).count()


def test_brokers_that_cannot_be_reached_are_named(spark):
    reader = spark.read.format("odradek").option("kafka.bootstrap.servers", "127.0.0.1:1")
    frame = reader.option("subscribe", "t").load()
    with pytest.raises(Exception) as error:
        frame.count()
    assert "cannot connect to broker 127.0.0.1:1" in str(error.value)
    assert "Check kafka.bootstrap.servers" in str(error.value)


def test_a_schema_of_ones_own_is_refused(spark, broker):
    reader = spark.read.format("odradek").option("kafka.bootstrap.servers", broker.bootstrap)
    with pytest.raises(Exception, match="the columns of this source are fixed"):
        reader.option("subscribe", "t").schema("value string").load().count()


def test_a_table_of_the_catalog_is_refused_and_a_view_is_not(spark, broker, filled):
    options = f"OPTIONS ('kafka.bootstrap.servers' = '{broker.bootstrap}', 'subscribe' = '{filled}')"
    with pytest.raises(
        Exception, match="Spark could not read such a table: Spark does not store the options"
    ):
        spark.sql(f"CREATE TABLE refused USING odradek {options}")
    spark.sql(f"CREATE TABLE with_columns (value BINARY) USING odradek {options}")  # Spark asks nobody
    with pytest.raises(
        Exception, match=r"no options were given\. Spark does not store the options of CREATE TABLE"
    ):
        spark.sql("SELECT * FROM with_columns").collect()
    spark.sql("DROP TABLE with_columns")
    spark.sql(f"CREATE TEMPORARY VIEW viewed USING odradek {options}")
    assert spark.sql("SELECT count(*) FROM viewed").collect()[0][0] == len(VALUES)
