"""Every option of Spark's Kafka connector, on it and on ours: the same rows, or a refusal by both."""

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition

T0 = 1_700_000_000_000
FORMATS = ("kafka", "odradek")


@pytest.fixture(scope="module")
def data(topics, kafka):
    """Topics to ask about: one filled evenly, with old times and headers, one cut short, one with aborts."""
    names = {"even": topics.create(partitions=3, retention_ms="-1"), "short": topics.create(partitions=1)}
    names["aborts"] = topics.create(partitions=1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "compression.type": "lz4"})
    for number in range(300):
        headers = [("n", b"%d" % number), ("none", None)] if number % 3 else None
        producer.produce(
            names["even"],
            value=b"v%d" % number,
            key=None if number % 5 == 0 else b"k%d" % number,
            partition=number % 3,
            timestamp=T0 + 1000 * number,
            headers=headers,
        )
        producer.produce(names["short"], value=b"%d" % number)
    assert producer.flush(60) == 0
    deleted = TopicPartition(names["short"], 0, 100)
    topics.admin.delete_records([deleted])[deleted].result(30)
    transactions = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "tx"})
    transactions.init_transactions(30)
    for number in range(6):
        transactions.begin_transaction()
        for row in range(10):
            transactions.produce(names["aborts"], value=b"%d/%d" % (number, row))
        if number % 2:
            transactions.abort_transaction(30)
        else:
            transactions.commit_transaction(30)
    return names


def at(topic: str, *offsets: int) -> str:
    return json.dumps({topic: {str(number): offset for number, offset in enumerate(offsets)}})


# Options of batch queries; {even}, {short} and {aborts} stand for topics.
BATCH = {
    "all": {"subscribe": "{even}"},
    "two topics": {"subscribe": "{even}, {short}"},
    "pattern": {"subscribePattern": "{even}|{aborts}"},
    "pattern in Java": {"subscribePattern": r"(?<name>\Q{even}\E)|\p{Alpha}++-[\p{Digit}_]\pL\z"},
    "pattern that is none": {"subscribePattern": "("},
    "pattern of nothing": {"subscribePattern": "nothing-.*"},
    "assign": {"assign": '{"{even}":[0,2]}'},
    "assign more than there is": {"assign": '{"{even}":[0,9]}'},
    "headers": {"subscribe": "{even}", "includeHeaders": "true"},
    "offsets": {"subscribe": "{even}", "startingOffsets": "even:5,-2,99", "endingOffsets": "even:10,-1,100"},
    "empty range": {"subscribe": "{even}", "startingOffsets": "even:5,5,5", "endingOffsets": "even:5,5,5"},
    "timestamp": {"subscribe": "{even}", "startingTimestamp": str(T0 + 100_500)},
    "timestamps": {
        "subscribe": "{even}",
        "startingOffsetsByTimestamp": f"even:{T0 + 30_000},{T0},{T0 + 60_000}",
        "endingOffsetsByTimestamp": f"even:{T0 + 200_000},{T0 + 500_000},{T0 + 90_000}",
    },
    "from time to time": {
        "subscribe": "{even}",
        "startingTimestamp": str(T0 + 1),
        "endingTimestamp": str(T0 + 50_000),
    },
    "timestamp after the end": {"subscribe": "{even}", "startingTimestamp": str(T0 + 10**9)},
    "timestamp after the end, latest": {
        "subscribe": "{even}",
        "startingTimestamp": str(T0 + 10**9),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "time goes before offsets": {
        "subscribe": "{even}",
        "startingTimestamp": str(T0 + 250_000),
        "startingOffsets": "even:0,0,0",
    },
    "min partitions": {"subscribe": "{even}", "minPartitions": "7"},
    "records per partition": {"subscribe": "{even}", "maxRecordsPerPartition": "30"},
    "read committed": {"subscribe": "{aborts}", "kafka.isolation.level": "read_committed"},
    "read uncommitted": {"subscribe": "{aborts}"},
    "what retention left": {"subscribe": "{short}"},
    "what retention took": {
        "subscribe": "{short}",
        "startingOffsets": "short:50",
        "kafkaConsumer.pollTimeoutMs": "3000",
    },
    "what retention took, waived": {
        "subscribe": "{short}",
        "startingOffsets": "short:50",
        "failOnDataLoss": "false",
        "kafkaConsumer.pollTimeoutMs": "3000",
    },
    "small fetches": {"subscribe": "{even}", "kafka.max.partition.fetch.bytes": "200"},
    "group id prefix": {"subscribe": "{even}", "groupIdPrefix": "mine"},
    "a group id": {"subscribe": "{even}", "kafka.group.id": "mine"},
    "retries": {"subscribe": "{even}", "fetchOffset.numRetries": "2", "fetchOffset.retryIntervalMs": "10"},
    "stream options in a batch": {
        "subscribe": "{even}",
        "maxOffsetsPerTrigger": "5",
        "minOffsetsPerTrigger": "2",
        "maxTriggerDelay": "1s",
    },
    # refused
    "no subscription": {},
    "two subscriptions": {"subscribe": "{even}", "assign": '{"{even}":[0]}'},
    "no such topic": {"subscribe": "no-such-topic"},
    "assign what is not json": {"assign": "{even}"},
    "batch from latest": {"subscribe": "{even}", "startingOffsets": "latest"},
    "batch from latest in a partition": {"subscribe": "{even}", "startingOffsets": "even:-1,0,0"},
    "batch to earliest": {"subscribe": "{even}", "endingOffsets": "earliest"},
    "some partitions only": {"subscribe": "{even}", "startingOffsets": "even:1"},
    "backwards": {"subscribe": "{even}", "startingOffsets": "even:9,9,9", "endingOffsets": "even:1,1,1"},
    "no number": {"subscribe": "{even}", "startingTimestamp": "yesterday"},
    "no partitions at least": {"subscribe": "{even}", "minPartitions": "0"},
    "no records at most": {"subscribe": "{even}", "maxRecordsPerPartition": "0"},
    "min above max": {"subscribe": "{even}", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "3"},
    "auto offset reset": {"subscribe": "{even}", "kafka.auto.offset.reset": "earliest"},
    "deserializer": {"subscribe": "{even}", "kafka.value.deserializer": "x"},
    "auto commit": {"subscribe": "{even}", "kafka.enable.auto.commit": "true"},
    "interceptors": {"subscribe": "{even}", "kafka.interceptor.classes": "x"},
}

# Options of streaming queries, run until everything is read.
STREAM = {
    "earliest": {"subscribe": "{even}", "startingOffsets": "earliest"},
    "latest": {"subscribe": "{even}"},
    "offsets": {"subscribe": "{even}", "startingOffsets": "even:50,-2,-1"},
    "timestamp": {"subscribe": "{even}", "startingTimestamp": str(T0 + 100_000)},
    "at most": {"subscribe": "{even}", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "100"},
    "pattern": {"subscribePattern": "{even}|{short}", "startingOffsets": "earliest"},
    "assign": {"assign": '{"{even}":[1]}', "startingOffsets": "earliest"},
    "headers": {"subscribe": "{even}", "startingOffsets": "earliest", "includeHeaders": "true"},
    "read committed": {
        "subscribe": "{aborts}",
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
    },
    # refused
    "with an end": {"subscribe": "{even}", "endingOffsets": "latest"},
    "with an end in time": {"subscribe": "{even}", "endingOffsetsByTimestamp": "even:1,1,1"},
    "no such topic": {"subscribe": "no-such-topic", "fetchOffset.numRetries": "1"},
}


def filled_in(options: dict[str, str], names: dict[str, str]) -> dict[str, str]:
    def fill(value: str) -> str:
        for short, name in names.items():
            if value.startswith(f"{short}:"):
                return at(name, *map(int, value.removeprefix(f"{short}:").split(",")))
            value = value.replace("{" + short + "}", name)
        return value

    return {name: fill(value) for name, value in options.items()}


def rows_of(frame) -> list[tuple]:
    rows = [
        (row.topic, row.partition, row.offset, row.timestamp, row.timestampType, row.key, row.value)
        + ((row.headers,) if "headers" in frame.columns else ())
        for row in frame.collect()
    ]
    return sorted(rows, key=lambda row: row[:3])


def outcome(read) -> list[tuple] | str:
    try:
        return read()
    except Exception as error:
        assert str(error).strip(), "an error says something"
        return "refused"


@pytest.mark.parametrize("case", BATCH)
def test_batch(spark, kafka, data, case):
    def read_with(name: str):
        options = {"kafka.bootstrap.servers": kafka.bootstrap} | filled_in(BATCH[case], data)
        frame = spark.read.format(name).options(**options).load()
        return frame.rdd.getNumPartitions() if "partitions" in case else None, rows_of(frame)

    theirs, ours = (outcome(lambda name=name: read_with(name)) for name in FORMATS)
    assert ours == theirs


@pytest.mark.parametrize("case", STREAM)
def test_stream(spark, kafka, data, case, tmp_path: Path):
    def read_with(name: str):
        options = {"kafka.bootstrap.servers": kafka.bootstrap} | filled_in(STREAM[case], data)
        frame = spark.readStream.format(name).options(**options).load()
        out, checkpoint = str(tmp_path / name), str(tmp_path / f"{name}-checkpoint")
        writer = frame.writeStream.format("parquet").option("path", out)
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        return rows_of(spark.read.schema(frame.schema).parquet(out))

    theirs, ours = (outcome(lambda name=name: read_with(name)) for name in FORMATS)
    assert ours == theirs


def test_keys_go_where_the_jvm_sink_puts_them(spark, kafka, topics):
    name = topics.create(partitions=7)
    frame = spark.range(500).selectExpr("concat('key-', id) AS key", "'x' AS value")
    for sink in FORMATS:
        writer = frame.write.format(sink).option("kafka.bootstrap.servers", kafka.bootstrap)
        writer.option("topic", name).mode("append").save()
    found: dict[bytes, list[int]] = {}
    for message in topics.read(name, 7):
        found.setdefault(message.key(), []).append(message.partition())
    assert len(found) == 500
    assert all(len(partitions) == 2 and len(set(partitions)) == 1 for partitions in found.values())


@pytest.mark.parametrize("order", [("kafka", "odradek", "kafka"), ("odradek", "kafka", "odradek")])
@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_checkpoint_begun_by_one_is_finished_by_the_other(spark, kafka, topics, tmp_path, order, start):
    name = topics.create(partitions=2)
    written = 0
    out = str(tmp_path / "out")
    for connector in ("first", *order) if start == "latest" else order:
        if connector != "first":
            values = [b"%d" % number for number in range(written, written + 20)]
            topics.fill(name, values, partition=lambda index: index % 2)
            written += 20
        reader = spark.readStream.format(order[0] if connector == "first" else connector)
        reader = reader.option("kafka.bootstrap.servers", kafka.bootstrap).option("subscribe", name)
        frame = reader.option("startingOffsets", start).option("maxOffsetsPerTrigger", 8).load()
        writer = frame.selectExpr("CAST(value AS STRING) AS value").writeStream.format("parquet")
        writer = writer.option("path", out).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
    assert sorted(int(row.value) for row in spark.read.parquet(out).collect()) == list(range(written))
