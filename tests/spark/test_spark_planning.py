"""Tests of what a stream's reader tells Spark, asked as Spark asks it, on a real broker and without Spark."""

import json
import logging

import pytest
from confluent_kafka.admin import NewPartitions
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from odradek.client.deadline import TimedOut
from odradek.client.settings import ClientSettings
from odradek.model import TopicPartition
from odradek.spark import source
from odradek.spark.options import InvalidOption, NoTable
from odradek.spark.planning import DataLoss
from odradek.spark.schema import source_schema
from odradek.spark.source import OdradekDataSource

UNLIMITED = ReadMaxRows(2**63 - 1)


@pytest.fixture
def stream(broker):
    def reader(**options: object):
        given = {"kafka.bootstrap.servers": broker.bootstrap, "startingOffsets": "earliest"}
        given |= {name.replace("__", ".").lower(): str(value) for name, value in options.items()}
        return OdradekDataSource(given).streamReader(source_schema(False))

    return reader


def ranges(reader, start: dict, end: dict) -> list[tuple[str, int, int]]:
    return [
        (str(one.range.partition), one.range.start, one.range.end) for one in reader.partitions(start, end)
    ]


def test_the_first_batch_has_rows_and_its_entry_says_where_it_begins(stream, topics):
    """So a trigger of an hour is not spent on writing down the start."""
    name = topics.create(partitions=2)
    topics.fill(name, [b"%d" % number for number in range(10)])
    end = stream(subscribe=name).latestOffset({}, UNLIMITED)
    assert end == {f"(from {name}:0=0,1=0)": {}, name: {"0": 10, "1": 0}}
    topics.fill(name, [b"later"])
    after_a_crash = stream(subscribe=name, startingOffsets="latest")
    assert ranges(after_a_crash, {}, end) == [(f"{name}-0", 0, 10)]
    assert after_a_crash.latestOffset(end, UNLIMITED) == {name: {"0": 11, "1": 0}}


def test_a_stream_that_begins_at_the_latest_has_no_rows_at_first(stream, topics):
    name = topics.create(partitions=1)
    topics.fill(name, [b"before"])
    reader = stream(subscribe=name, startingOffsets="latest")
    end = reader.latestOffset({}, UNLIMITED)
    assert end == {f"(from {name}:0=1)": {}, name: {"0": 1}}
    assert ranges(reader, {}, end) == []
    assert reader.latestOffset(end, UNLIMITED) == end, "nothing new, no batch"


@pytest.mark.parametrize("limit", [ReadMaxRows(4), ReadAllAvailable()])
def test_the_first_batch_keeps_to_its_limit(stream, topics, limit):
    name = topics.create(partitions=1)
    topics.fill(name, [b"%d" % number for number in range(10)])
    reader = stream(subscribe=name, maxOffsetsPerTrigger=4)
    end = reader.latestOffset({}, limit)
    assert end[name] == {"0": 10 if isinstance(limit, ReadAllAvailable) else 4}


def test_new_partitions_are_read_at_once_from_where_the_entry_says(stream, topics):
    name = topics.create(partitions=1)
    reader = stream(subscribe=name)
    first = reader.latestOffset({}, UNLIMITED)
    topics.admin.create_partitions([NewPartitions(name, 2)])[name].result(30)
    topics.fill(name, [b"a", b"b"], partition=1)
    second = reader.latestOffset(first, UNLIMITED)
    assert second == {f"(from {name}:1=0)": {}, name: {"0": 0, "1": 2}}
    assert ranges(reader, first, second) == [(f"{name}-1", 0, 2)]
    assert ranges(reader, second, second) == [], "as when only another source of the query has rows"
    assert reader.latestOffset(second, UNLIMITED) == second
    topics.fill(name, [b"c"])
    assert reader.latestOffset(second, UNLIMITED) == {name: {"0": 1, "1": 2}}, "said once"


def test_a_start_beyond_the_end_is_the_users_to_correct(stream, topics, caplog):
    name = topics.create(partitions=1)
    topics.fill(name, [b"%d" % number for number in range(10)])
    beyond = {"subscribe": name, "startingOffsets": json.dumps({name: {"0": 50}})}
    beyond["fetchOffset__retryIntervalMs"] = 1
    with pytest.raises(InvalidOption) as error:
        stream(**beyond).latestOffset({}, UNLIMITED)
    assert str(error.value) == (
        f"option 'startingOffsets': {name}-0 cannot start at offset 50, because it ends at 10; "
        "give an offset up to 10, or -1 for latest in a stream"
    )
    with caplog.at_level(logging.WARNING, "odradek.spark"):
        end = stream(**beyond, failOnDataLoss="false").latestOffset({}, UNLIMITED)
    assert end == {f"(from {name}:0=10)": {}, name: {"0": 10}}
    assert "Starting at its end" in caplog.text


@pytest.fixture
def impatient(monkeypatch):
    """Topics are made before they are asked for, so nobody has to wait for one to appear."""
    monkeypatch.setattr("odradek.client.cluster.MISSING_TOPIC_PATIENCE_S", 0.0)


def test_a_topic_that_was_deleted_under_a_checkpoint_is_a_loss_and_not_to_be_created(
    stream, topics, impatient
):
    kept, deleted = topics.create(partitions=1), topics.create(partitions=2)
    topics.fill(kept, [b"a", b"b"])
    start = {kept: {"0": 1}, deleted: {"0": 7, "1": 0}}
    topics.delete(deleted)
    both = {"subscribe": f"{kept},{deleted}"}
    with pytest.raises(DataLoss) as error:
        stream(**both).latestOffset(start, UNLIMITED)
    assert str(error.value) == (
        f"topic '{deleted}' no longer exists; this query has read its partitions 0 to offset 7, 1 to offset 0. If it "
        "was deleted on purpose, remove it from the option 'subscribe', or start over with another "
        "checkpointLocation. To continue without them, set the option failOnDataLoss to false"
    )
    reader = stream(**both, failOnDataLoss="false")
    end = reader.latestOffset(start, UNLIMITED)
    assert end == {kept: {"0": 2}}
    assert ranges(reader, start, end) == [(f"{kept}-0", 1, 2)]
    assert reader.latestOffset(end, UNLIMITED) == end, "and the next batch does not know it any more"
    with pytest.raises(InvalidOption, match=f"topic '{deleted}' does not exist; create it"):
        stream(**both).latestOffset({}, UNLIMITED)


def test_a_fresh_query_fails_soon_and_one_with_a_checkpoint_waits(monkeypatch):
    """Counted in tries of a client that does not sleep: 5 s for the one, 40 s for the other."""
    limits: list[float] = []

    def give_up(purpose, limit_s, *_):
        limits.append(limit_s())
        raise TimedOut(purpose)

    monkeypatch.setattr("odradek.client.cluster.Deadline", give_up)
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "outagetimeout": "40s"}
    reader = OdradekDataSource(given).streamReader(source_schema(False))
    calls = [
        lambda: reader.latestOffset({}, UNLIMITED),
        lambda: reader.latestOffset({"t": {"0": 1}}, UNLIMITED),
        lambda: reader.partitions({"t": {"0": 1}}, {"t": {"0": 2}, "u": {"0": 2}}),
    ]
    for call in calls:
        with pytest.raises(TimedOut):
            call()
    assert limits == [ClientSettings(()).first_contact_timeout_s, 40, 40]


def test_a_query_that_has_reached_its_brokers_waits_before_its_first_batch_too(stream, topics):
    reader = stream(subscribe=topics.create(partitions=1))
    assert not reader._was_reached
    reader.latestOffset({}, UNLIMITED)
    assert reader._was_reached


def test_a_stream_with_a_wrong_option_says_so_when_it_is_asked_for_something():
    """Not before: Spark would report an error of its own in place of ours."""
    reader = OdradekDataSource({"kafka.bootstrap.servers": "x:1"}).streamReader(source_schema(False))
    for call in (
        reader.initialOffset,
        lambda: reader.latestOffset({}, UNLIMITED),
        lambda: reader.partitions({}, {}),
    ):
        with pytest.raises(InvalidOption, match="exactly one of them must be given"):
            call()


def test_a_table_of_the_catalog_is_refused():
    with pytest.raises(NoTable, match="use CREATE TEMPORARY VIEW … USING odradek"):
        OdradekDataSource({"provider": "odradek", "owner": "me", "subscribe": "t"}).schema()


def test_every_ignored_setting_is_named_once(monkeypatch, caplog):
    from pyspark.sql.types import StringType, StructField, StructType

    monkeypatch.setattr(source, "_named", set())
    given = {"kafka.bootstrap.servers": "x:1", "topic": "t", "kafka.acks": "1", "kafka.linger.ms": "5"}
    schema = StructType([StructField("value", StringType())])
    with caplog.at_level(logging.WARNING, "odradek.spark"):
        OdradekDataSource(given).writer(schema, False)
        OdradekDataSource(given | {"kafka.max.request.size": "9"}).streamWriter(schema, False)
        OdradekDataSource(
            {"kafka.bootstrap.servers": "x:1", "subscribe": "t", "kafka.group.id": "g"}
        ).streamReader(source_schema(False)).initialOffset()
    assert caplog.messages == [
        "option 'kafka.acks' is ignored: the sink always writes with acks=all",
        "option 'kafka.linger.ms' is ignored: Spark delivers rows in batches, so there is nothing to wait for",
        "option 'kafka.max.request.size' is ignored: the topic's max.message.bytes decides",
        "option 'kafka.group.id' is ignored: reading uses no group; set commitGroup to commit offsets to one",
    ]
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_a_task_whose_topic_is_gone_says_so(broker, impatient):
    from odradek.spark.offsets import OffsetRange
    from odradek.spark.options import parse_source_options
    from odradek.spark.reading import RangePartition, read_rows

    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "gone"}
    task = RangePartition(OffsetRange(TopicPartition("gone", 0), 5, 9))
    with pytest.raises(DataLoss, match="offsets 5 to 8 of gone-0 cannot be read: the topic no longer exists"):
        list(read_rows(task, parse_source_options(given, streaming=True), source_schema(False)))
    waived = parse_source_options(given | {"failOnDataLoss": "false"}, streaming=True)
    assert list(read_rows(task, waived, source_schema(False))) == []
