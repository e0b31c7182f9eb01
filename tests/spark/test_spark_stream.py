"""Streaming queries: where they begin, what they read, how they go on."""

import json
import re
from pathlib import Path

import pytest

from odradek.model import TopicPartition
from tests.pipeline.lab import wait_until

VALUES = [b"%d" % number for number in range(1_000)]


def run(frame, checkpoint: Path, sink: Path | None = None, **trigger: object) -> list[dict]:
    """Run a stream until all that is there is read; its progress, batch by batch."""
    writer = frame.selectExpr("CAST(value AS STRING) AS value", "partition", "offset").writeStream
    writer = writer.format("parquet").option("path", str(sink or checkpoint.with_name("out")))
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(
        **(trigger or {"availableNow": True})
    )
    query = writer.start()
    query.awaitTermination()
    return [json.loads(progress.json) for progress in query.recentProgress]


def read_numbers(spark, sink: Path) -> list[int]:
    return sorted(int(row.value) for row in spark.read.parquet(str(sink)).collect())


def stored_offsets(checkpoint: Path) -> list[dict]:
    files = sorted((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    return [json.loads(path.read_text().splitlines()[-1]) for path in files]


def test_available_now_reads_all_in_shares_and_goes_on_where_it_ended(spark, streaming, topics, tmp_path):
    name = topics.create(partitions=2)
    topics.fill(name, VALUES[:300], partition=lambda index: index % 2)
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    options = {"subscribe": name, "startingOffsets": "earliest", "commitGroup": f"{name}-readers"}
    progress = run(streaming(**options, maxOffsetsPerTrigger=200), checkpoint, out)
    assert [one["numInputRows"] for one in progress if one["numInputRows"]] == [200, 100]
    assert progress[-1]["sources"][0]["latestOffset"] == {name: {"0": 150, "1": 150}}
    assert topics.committed(f"{name}-readers", name, 2) == {0: 150, 1: 150}, "lag is 0 after the last batch"
    topics.fill(name, VALUES[300:310])
    run(streaming(**options), checkpoint, out)
    assert read_numbers(spark, out) == list(range(310))
    assert topics.committed(f"{name}-readers", name, 2) == {0: 160, 1: 150}
    assert stored_offsets(checkpoint)[-1] == {name: {"0": 160, "1": 150}}, "as the JVM connector writes it"
    before = len(stored_offsets(checkpoint))
    run(streaming(**options), checkpoint, out)
    assert len(stored_offsets(checkpoint)) == before, "nothing new, no batch"


def test_where_a_stream_begins_is_written_down_before_a_row_is_read(spark, streaming, topics, tmp_path):
    name = topics.create(partitions=1)
    topics.fill(name, VALUES[:10])
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    run(streaming(subscribe=name), checkpoint, out)
    assert stored_offsets(checkpoint) == [{f"(from {name}:0=10)": {}, name: {"0": 10}}]
    topics.fill(name, VALUES[10:15])
    run(streaming(subscribe=name), checkpoint, out)
    assert read_numbers(spark, out) == list(range(10, 15))


@pytest.mark.parametrize("start", ["earliest", '{"%s":{"0":2}}'])
def test_one_batch_reads_from_the_start_to_the_end(spark, streaming, topics, tmp_path, start):
    """Trigger.Once, which Spark has deprecated and people still use."""
    name = topics.create(partitions=1)
    topics.fill(name, VALUES[:10])
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    options = {"subscribe": name, "startingOffsets": start.replace("%s", name), "maxOffsetsPerTrigger": 3}
    run(streaming(**options), checkpoint, out, once=True)
    first = 0 if start == "earliest" else 2
    assert read_numbers(spark, out) == list(range(first, 10))
    (checkpoint / "commits" / "0").unlink()  # as if it had crashed before the end of its batch
    (checkpoint / "commits" / ".0.crc").unlink()
    topics.fill(name, VALUES[10:15])
    again = tmp_path / "again"
    run(streaming(**options), checkpoint, again)
    assert read_numbers(spark, again) == list(range(first, 15))


def test_one_batch_from_latest_begins_there(spark, streaming, topics, tmp_path):
    name = topics.create(partitions=1)
    topics.fill(name, VALUES[:10])
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    run(streaming(subscribe=name), checkpoint, out, once=True)
    topics.fill(name, VALUES[10:15])
    run(streaming(subscribe=name), checkpoint, out, once=True)
    assert read_numbers(spark, out) == list(range(10, 15))


def test_new_partitions_and_topics_begin_at_their_earliest(spark, streaming, topics, tmp_path):
    from confluent_kafka.admin import NewPartitions

    name = topics.create(partitions=1)
    topics.fill(name, VALUES[:10])
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    options = {"subscribePattern": f"{re.escape(name)}(-late)?"}
    run(streaming(**options), checkpoint, out)
    topics.admin.create_partitions([NewPartitions(name, 2)])[name].result(30)
    late = topics.create(partitions=1, name=f"{name}-late")
    topics.fill(name, VALUES[10:20], partition=1)
    topics.fill(late, VALUES[20:30])
    run(streaming(**options), checkpoint, out)
    assert read_numbers(spark, out) == list(range(10, 30))
    last = stored_offsets(checkpoint)[-1]
    assert last == {f"(from {name}:1=0 {late}:0=0)": {}, name: {"0": 10, "1": 10}, late: {"0": 10}}, (
        "where they begin is known before they are read, and no batch is spent on it"
    )


def test_a_pattern_without_topics_waits_and_loses_nothing(spark, streaming, topics, tmp_path):
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    options = {"subscribePattern": "not-yet-there-.*"}
    run(streaming(**options), checkpoint, out)
    name = topics.create(partitions=1, name="not-yet-there-1")
    topics.fill(name, VALUES[:5])
    run(streaming(**options), checkpoint, out)
    assert read_numbers(spark, out) == list(range(5)), "although the query began at 'latest'"


def test_a_topic_deleted_and_made_again_is_a_loss_unless_waived(spark, streaming, topics, tmp_path):
    name = topics.create(partitions=1)
    topics.fill(name, VALUES[:10])
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    options = {"subscribe": name, "startingOffsets": "earliest", "fetchOffset__retryIntervalMs": 10}
    run(streaming(**options), checkpoint, out)
    topics.delete(name)
    topics.create(partitions=1, name=name)
    topics.fill(name, VALUES[10:13])
    with pytest.raises(Exception, match=f"the end of {name}-0 went back from offset 10 to 3"):
        run(streaming(**options), checkpoint, out)
    run(streaming(**options, failOnDataLoss="false"), checkpoint, out)
    topics.fill(name, VALUES[20:25])
    run(streaming(**options), checkpoint, out)
    assert read_numbers(spark, out) == [*range(10), *range(20, 25)]


def test_too_few_rows_wait_for_more(spark, streaming, topics, tmp_path):
    name = topics.create(partitions=1)
    topics.fill(name, VALUES[:5])
    frame = streaming(
        subscribe=name, startingOffsets="earliest", minOffsetsPerTrigger=50, maxTriggerDelay="1h"
    )
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        query.processAllAvailable()
        topics.fill(name, VALUES[5:10])
        query.processAllAvailable()
        read = [progress.sources[0].numInputRows for progress in query.recentProgress]
        assert sum(read) == 5, "the first trigger does not wait, the next one does"
        topics.fill(name, VALUES[10:60])
        query.processAllAvailable()
        assert sum(progress.sources[0].numInputRows for progress in query.recentProgress) == 60
    finally:
        query.stop()


def test_a_group_that_cannot_be_committed_to_does_not_stop_the_query(
    spark, streaming, topics, broker, tmp_path
):
    """A group with members of its own refuses strangers' commits."""
    from confluent_kafka import Consumer

    name = topics.create(partitions=1)
    topics.fill(name, VALUES[:5])
    member = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "occupied"})
    member.subscribe([name])
    try:
        while not member.assignment():
            member.poll(0.1)
        options = {"subscribe": name, "startingOffsets": "earliest", "commitGroup": "occupied"}
        run(streaming(**options), tmp_path / "checkpoint", tmp_path / "out")
    finally:
        member.close()
    assert read_numbers(spark, tmp_path / "out") == list(range(5))


def test_a_first_batch_that_the_jvm_connector_did_not_finish_is_not_skipped(streaming, topics, tmp_path):
    name = topics.create(partitions=1)
    topics.fill(name, VALUES[:5])
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    run(streaming(subscribe=name), checkpoint, out)
    (first,) = (checkpoint / "offsets").glob("[0-9]*")
    text = first.read_text()
    assert f'"(from {name}:0=5)": {{}}, ' in text
    first.write_text(text.replace(f'"(from {name}:0=5)": {{}}, ', ""))
    (checkpoint / "offsets" / ".0.crc").unlink()
    (checkpoint / "commits" / "0").unlink()
    (checkpoint / "commits" / ".0.crc").unlink()
    with pytest.raises(Exception, match="run the query once with format\\('kafka'\\)"):
        run(streaming(subscribe=name), checkpoint, tmp_path / "another")


def test_the_first_rows_come_with_the_first_trigger(spark, streaming, topics, tmp_path):
    """The next trigger is an hour away. A listener tells meanwhile how far the query is behind."""
    from odradek.spark.lag import LagListener

    name = topics.create(partitions=1)
    topics.fill(name, VALUES[:10])
    listener = LagListener()
    spark.streams.addListener(listener)
    frame = streaming(subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger=7)
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
    query = writer.queryName("hourly").trigger(processingTime="1 hour").start()
    try:
        wait_until(lambda: query.recentProgress and listener.lags, lambda: f"{query.exception()}")
        assert [progress.numInputRows for progress in query.recentProgress] == [7]
        assert listener.lags == {"hourly": {TopicPartition(name, 0): 3}}
    finally:
        query.stop()
        wait_until(lambda: not listener.lags, lambda: f"the listener still has {listener.lags}")
        spark.streams.removeListener(listener)


def test_a_stream_that_cannot_begin_says_why(streaming, tmp_path):
    writer = streaming(subscribe="t", startingOffsets="soon").writeStream.format("noop")
    with pytest.raises(Exception) as error:
        writer.option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination()
    assert "InvalidOption: option 'startingOffsets': expected 'earliest', 'latest', or" in str(error.value)
    assert "Traceback" not in str(error.value) and "UnboundLocalError" not in str(error.value)


def test_a_broker_that_is_killed_in_the_middle_comes_back_and_the_query_goes_on(spark, tmp_path):
    """The outage is longer than the API timeout, of which there are as many as `fetchOffset.numRetries` says."""
    from tests.spark.spark_topics import Topics
    from tests.support import running_broker, turn_away

    with running_broker(tmp_path) as broker:
        topics = Topics(broker.bootstrap)
        name = topics.create(partitions=2)
        topics.fill(name, VALUES, partition=lambda index: index % 2)
        reader = spark.readStream.format("odradek").option("kafka.bootstrap.servers", broker.bootstrap)
        reader = reader.option("subscribe", name).option("startingOffsets", "earliest")
        reader = reader.option("kafka.default.api.timeout.ms", 500).option("fetchOffset.numRetries", 240)
        frame = reader.option("maxOffsetsPerTrigger", 250).load()
        writer = frame.selectExpr("CAST(value AS STRING) AS value").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(tmp_path / "c")).option(
            "path", str(tmp_path / "out")
        )
        query = writer.start()
        try:
            wait_until(
                lambda: any(one.numInputRows for one in query.recentProgress), lambda: f"{query.exception()}"
            )
            broker.kill()
            turn_away(broker, 10)
            assert query.isActive, query.exception()
            broker.restart()
            query.processAllAvailable()
            broker.kill()
            assert query.isActive, query.exception()
        finally:
            query.stop()  # does not wait for the broker either
        assert read_numbers(spark, tmp_path / "out") == list(range(1_000))
