"""The sink: what it writes is what another client reads."""

import json
import time

import pytest

KEYS = [f"key-{number}" for number in range(200)]


def write(frame, broker, **options: object) -> None:
    writer = frame.write.format("odradek").option("kafka.bootstrap.servers", broker.bootstrap)
    for name, value in options.items():
        writer = writer.option(name.replace("__", "."), value)
    writer.mode("append").save()


def test_rows_arrive_with_all_their_columns(spark, broker, topics):
    name = topics.create(partitions=3, retention_ms="-1")
    frame = spark.range(100).selectExpr(
        "CAST(concat('k', id) AS BINARY) AS key",
        "IF(id % 10 = 0, NULL, concat('v', id)) AS value",
        "IF(id % 2 = 0, 2, CAST(NULL AS INT)) AS partition",
        "timestamp_millis(1700000000000 + id) AS timestamp",
        "array(struct('origin' AS key, CAST(CAST(id AS STRING) AS BINARY) AS value)) AS headers",
        "'ignored' AS another",
    )
    write(frame, broker, topic=name)
    messages = topics.read(name, 3)
    assert sorted(int(message.key()[1:]) for message in messages) == list(range(100))
    for message in messages:
        number = int(message.key()[1:])
        assert message.value() == (None if number % 10 == 0 else b"v%d" % number)
        assert message.timestamp() == (1, 1_700_000_000_000 + number)
        assert message.headers() == [("origin", b"%d" % number)]
        assert number % 2 or message.partition() == 2


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_keys_go_where_the_java_client_puts_them(spark, broker, topics, codec):
    """librdkafka's murmur2_random partitioner is Java's."""
    from confluent_kafka import Producer

    name = topics.create(partitions=7)
    frame = spark.createDataFrame([(key, key) for key in KEYS], "key string, value string")
    write(frame.coalesce(1), broker, topic=name, kafka__compression__type=codec)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
    for key in KEYS:
        producer.produce(name, key=key, value=b"java")
    assert producer.flush(30) == 0
    found = {}
    for message in topics.read(name, 7):
        found.setdefault(message.key(), set()).add(message.partition())
    assert len(found) == 200
    assert all(len(partitions) == 1 for partitions in found.values())


def test_the_topic_may_come_from_a_column_and_is_made_if_brokers_make_topics(spark, broker, topics):
    one, two = topics.create(partitions=1), topics.create(partitions=1)
    rows = [(one, "a"), (two, "b"), (one, "c"), ("made-by-writing", "d")]
    frame = spark.createDataFrame(rows, "topic string, value string").coalesce(1)
    write(frame, broker)
    assert [message.value() for message in topics.read(one, 1)] == [b"a", b"c"]
    assert [message.value() for message in topics.read(two, 1)] == [b"b"]
    assert [message.value() for message in topics.read("made-by-writing", 1)] == [b"d"]


def test_a_column_timestamp_may_be_left_out(spark, broker, topics):
    """Spark's own sink leaves it out; then its type does not matter either."""
    name = topics.create(partitions=1)
    before_ms = int(time.time() * 1000)
    frame = spark.sql("SELECT 'a' AS value, '2001-01-01' AS timestamp")
    write(frame, broker, topic=name, includeTimestamp="false")
    (message,) = topics.read(name, 1)
    assert message.timestamp()[1] >= before_ms


def test_empty_tasks_and_frames_are_ordinary(spark, broker, topics):
    name = topics.create(partitions=1)
    frame = spark.createDataFrame([("a",)], "value string").repartition(4)
    write(frame, broker, topic=name)
    write(frame.where("false"), broker, topic=name)
    assert len(topics.read(name, 1)) == 1


def test_a_large_row(spark, broker, topics):
    name = topics.create(partitions=1)
    write(spark.sql("SELECT repeat('x', 1000000) AS value"), broker, topic=name)
    (message,) = topics.read(name, 1)
    assert len(message.value()) == 1_000_000
    with pytest.raises(
        Exception, match=f"cannot write to {name}-0: MESSAGE_TOO_LARGE; raise the topic's max"
    ):
        write(spark.sql("SELECT repeat('x', 3000000) AS value"), broker, topic=name)


@pytest.mark.parametrize(
    ("query", "options", "message"),
    [
        ("SELECT 1 AS value", {"topic": "t"}, "column 'value' is int, it must be binary or string: cast it"),
        ("SELECT 'a' AS key", {"topic": "t"}, "there must be a column 'value'; the columns are key"),
        ("SELECT 'a' AS value", {}, "set the option 'topic', or add a column 'topic'"),
        (
            "SELECT 'a' AS value, 1L AS partition",
            {"topic": "t"},
            "column 'partition' is bigint, it must be int",
        ),
        (
            "SELECT 'a' AS value",
            {"topik": "t"},
            "option 'topik': no such option; did you mean 'topic'?",
        ),
        (
            "SELECT 'a' AS value",
            {"kafka.transactional.id": "x", "topic": "t"},
            "to write exactly once use odradek.spark.write_exactly_once",
        ),
        (
            "SELECT struct(1 AS a) AS value",
            {"topic": "t"},
            "column 'value' is struct<a:int>, it must be binary or string: make it text, for example with "
            "to_json(value) AS value",
        ),
        (
            "SELECT 'a' AS value, '2001-01-01' AS timestamp",
            {"topic": "t"},
            "column 'timestamp' is string, it must be timestamp or double: make it one, for example with "
            "to_timestamp(timestamp) (a double is seconds since 1970), or set the option includeTimestamp to false",
        ),
    ],
)
def test_what_cannot_be_written_is_named(spark, broker, query, options, message):
    writer = spark.sql(query).write.format("odradek").option("kafka.bootstrap.servers", broker.bootstrap)
    with pytest.raises(Exception) as error:
        writer.options(**options).mode("append").save()
    assert message in str(error.value)


def test_a_stream_from_topic_to_topic(spark, broker, topics, streaming, tmp_path):
    source, target = topics.create(partitions=2), topics.create(partitions=3)
    topics.fill(source, [b"%d" % number for number in range(100)], partition=lambda index: index % 2)
    frame = streaming(subscribe=source, startingOffsets="earliest")
    writer = frame.selectExpr("key", "concat('seen ', CAST(value AS STRING)) AS value").writeStream
    writer = (
        writer.format("odradek").option("kafka.bootstrap.servers", broker.bootstrap).option("topic", target)
    )
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    query.awaitTermination()
    values = sorted(int(message.value().split()[1]) for message in topics.read(target, 3))
    assert values == list(range(100))


def test_update_mode_itself_names_that_call(spark, broker, streaming, tmp_path):
    from odradek.spark.failures import sentence_of

    frame = streaming(subscribePattern="none-such").groupBy("value").count().select("value")
    writer = frame.writeStream.format("odradek").option("kafka.bootstrap.servers", broker.bootstrap)
    writer = writer.option("topic", "t").option("checkpointLocation", str(tmp_path / "c"))
    with pytest.raises(Exception) as error:
        writer.outputMode("update").start().awaitTermination()
    assert "use odradek.spark.write_updates(writer, options)" in (sentence_of(error.value) or "")


def test_update_mode_goes_through_one_call(spark, broker, topics, streaming, tmp_path):
    from odradek.spark import write_updates

    source, target = topics.create(partitions=1), topics.create(partitions=1)
    topics.fill(source, [b"a", b"b", b"a"])
    counts = streaming(subscribe=source, startingOffsets="earliest").groupBy("value").count()
    frame = counts.selectExpr("value AS key", "CAST(count AS STRING) AS value")
    writer = write_updates(frame.writeStream, {"kafka.bootstrap.servers": broker.bootstrap, "topic": target})
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    query.awaitTermination()
    found = {message.key(): message.value() for message in topics.read(target, 1)}
    assert found == {b"a": b"2", b"b": b"1"}


def test_a_task_knows_what_it_writes_for(spark, topics, streaming, tmp_path):
    """The task asks for query, batch and partition, which transactions will need."""
    from odradek.spark.writing import task_identity

    source = topics.create(partitions=1)
    topics.fill(source, [b"a"])
    frame = streaming(subscribe=source, startingOffsets="earliest")

    def identities(batches):
        import pyarrow as pa

        for batch in batches:
            text = json.dumps(task_identity().__dict__)
            yield pa.RecordBatch.from_pydict({"task": [text] * batch.num_rows})

    frame = frame.mapInArrow(identities, "task string")
    writer = frame.writeStream.format("memory").queryName("identities")
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    query.awaitTermination()
    (row,) = spark.sql("SELECT * FROM identities").collect()
    task = json.loads(row.task)
    assert (task["query_id"], task["batch_id"], task["partition_id"]) == (query.id, 0, 0)
