"""One table over an archive and its topic: as a batch, and as a stream, while archiving and merging go on."""

import json
import re
from pathlib import Path

import pytest

import odradek.spark
from odradek.archive.failures import RecordsLost
from odradek.archive.location import Location
from odradek.archive.tables import Table
from odradek.archiving.archiver import Archiver, Order
from odradek.client.settings import ClientSettings
from tests.spark.test_spark_stream import run, stored_offsets


@pytest.fixture
def archiver(broker, tmp_path):
    def make(*topics: str) -> Archiver:
        host, _, port = broker.bootstrap.partition(":")
        order = Order(ClientSettings(((host, int(port)),)), str(tmp_path / "archive"), topics)
        return Archiver(order, lambda done: None, lambda text: None)

    return make


@pytest.fixture
def archive(tmp_path) -> str:
    return str(tmp_path / "archive")


def numbers(first: int, end: int) -> list[bytes]:
    return [b'{"n": %d}' % number for number in range(first, end)]


def halves(index: int) -> int:
    return index % 2


def delete_before(broker, topic: str, offset: int) -> None:
    from odradek.admin.access import Access
    from odradek.admin.places import Place
    from odradek.admin.topics import delete_records

    delete_records(Access(broker.bootstrap, {}), {Place(topic, number): offset for number in (0, 1)})


@pytest.fixture
def topic(broker, topics, archiver) -> str:
    """Records 0 to 39 are archived, of which 0 to 19 are not in the topic any more; 40 to 49 are only there."""
    name = topics.create(partitions=2)
    topics.fill(name, numbers(0, 40), halves)
    archiver(name).run_once()
    delete_before(broker, name, 10)
    topics.fill(name, numbers(40, 50), halves)
    return name


def test_a_batch_has_each_record_once_however_often_it_is_computed(
    spark, broker, topics, archiver, archive, topic
):
    options = {"kafka.bootstrap.servers": broker.bootstrap}
    table = odradek.spark.table(spark, archive=archive, topic=topic, options=options)
    values = table.selectExpr(
        "get_json_object(CAST(value AS STRING), '$.n') AS n", "partition", "offset", "topic"
    )

    def found() -> list[tuple]:
        return sorted((int(row.n), row.partition, row.offset, row.topic) for row in values.collect())

    expected = [(number, number % 2, number // 2, topic) for number in range(50)]
    assert found() == expected
    topics.fill(topic, numbers(50, 52), halves)
    one = archiver(topic)
    for _ in range(10):  # so that files are merged
        topics.fill(topic, numbers(99, 100))
        one.run_once()
    assert found() == expected, "pinned"
    history = odradek.spark.table(spark, archive=archive, topic=topic)
    assert history.count() == 62
    assert table.columns == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
        "headers",
    ]


def test_a_filter_on_time_reaches_the_scan_of_the_files(spark, archive, topic):
    table = odradek.spark.table(spark, archive=archive, topic=topic)
    plan = table.where("timestamp > '2020-01-01'")._jdf.queryExecution().toString()
    assert "PushedFilters: [IsNotNull(timestamp), GreaterThan(timestamp" in plan


def test_a_gap_between_archive_and_topic_is_refused(spark, broker, topics, archive, topic):
    delete_before(broker, topic, 23)
    with pytest.raises(RecordsLost, match=f"offsets 20 to 22 of {topic}-0 are neither in the archive nor"):
        odradek.spark.table(
            spark, archive=archive, topic=topic, options={"kafka.bootstrap.servers": broker.bootstrap}
        )


def out_of(spark, sink: Path) -> list[int]:
    return sorted(json.loads(row.value)["n"] for row in spark.read.parquet(str(sink)).collect())


def test_a_stream_reads_history_first_and_goes_on_with_the_topic(
    spark, streaming, broker, topics, archiver, archive, topic, tmp_path
):
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    options = {"subscribe": topic, "startingOffsets": "earliest", "archive": archive}
    run(streaming(**options, maxOffsetsPerTrigger=30), checkpoint, out)
    assert out_of(spark, out) == list(range(50))
    assert stored_offsets(checkpoint)[-1] == {topic: {"0": 25, "1": 25}}, "as without an archive"
    topics.fill(topic, numbers(50, 60), halves)
    archiver(topic).run_once()
    delete_before(broker, topic, 28)  # they are only in the archive now
    topics.fill(topic, numbers(60, 64), halves)
    run(streaming(**options), checkpoint, out)
    assert out_of(spark, out) == list(range(64))


def test_a_batch_that_is_run_again_after_merging_reads_the_same(
    spark, streaming, topics, archiver, archive, topic, tmp_path
):
    from tests.spark.committed import forget_last_commit

    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    options = {"subscribe": topic, "startingOffsets": "earliest", "archive": archive}
    run(streaming(**options), checkpoint, out)
    forget_last_commit(checkpoint)
    one = archiver(topic)
    for number in range(50, 62):
        topics.fill(topic, numbers(number, number + 1))
        one.run_once()
    assert len(Table.open(Location.of(archive, topic)).pinned().files) < 8
    other = tmp_path / "other"
    run(streaming(**options), checkpoint, other)
    assert out_of(spark, other) == list(range(62)), "the batch of 50 again, and what came after"


def test_typed_values_are_decoded_from_the_archive_too(spark, broker, archive, topic):
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "subscribe": topic,
        "archive": archive,
        "includeHeaders": "true",
    }
    rows = odradek.spark.load_typed(spark.read.format("odradek").options(**options), "json", "n INT")
    assert sorted(row.value.n for row in rows.collect()) == list(range(50))


def test_options_are_checked(spark, streaming, reading, topics, archive, topic, tmp_path):
    def problem(**options) -> str:
        with pytest.raises(Exception) as error:
            reading(**options).collect()
        return str(error.value)

    other = topics.create(partitions=1)
    assert "there is no archive of a topic at" in problem(subscribe=other, archive=archive)
    assert "filter by the column 'timestamp'" in problem(
        subscribe=topic, archive=archive, startingTimestamp="5"
    )
    assert "set the option 'archive', too" in problem(subscribe=topic, archive__region="x")
    everything = reading(subscribePattern=f"{topic}|{other}", archive=archive)
    assert everything.count() == 50, "a topic that matches a pattern need not be archived"


def test_offsets_before_the_beginning_of_the_archive_are_lost(reading, topics, broker, archiver, archive):
    name = topics.create(partitions=2)
    topics.fill(name, numbers(0, 20), halves)
    delete_before(broker, name, 4)
    archiver(name).run_once()
    starts = {"startingOffsets": json.dumps({name: {"0": 2, "1": 5}})}
    with pytest.raises(Exception, match=f"offsets 2 to 3 of {name}-0 are gone: its archive begins at 4"):
        reading(subscribe=name, archive=archive, **starts).collect()
    assert reading(subscribe=name, archive=archive, failOnDataLoss="false", **starts).count() == 11
    assert reading(subscribe=name, archive=archive).count() == 12


def test_a_topic_that_was_created_again_is_refused(reading, topics, archive, topic):
    topics.delete(topic)
    topics.create(partitions=2, name=topic)
    with pytest.raises(Exception, match="was deleted and created again since it was archived"):
        reading(subscribe=topic, archive=archive).collect()


def test_the_example_of_the_docs(spark, broker, archive, topic, monkeypatch, capsys):
    monkeypatch.setattr(odradek.spark, "session", lambda: spark)
    text = (Path(__file__).parents[2] / "docs" / "ARCHIVE.md").read_text()
    (example,) = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    example = example.replace("localhost:9092", broker.bootstrap).replace('"archive"', repr(archive), 1)
    example = example.replace('"archive", "archive"', f'"archive", {archive!r}').replace(
        '"orders"', repr(topic)
    )
    names: dict = {}
    exec(example, names)
    assert "|        1|   25|" in capsys.readouterr().out
    assert names["stream"].isStreaming


def test_a_gap_is_refused_by_the_source_too(reading, topics, broker, archiver, archive):
    name = topics.create(partitions=2)
    topics.fill(name, numbers(0, 20), halves)
    archiver(name).run_once()
    topics.fill(name, numbers(20, 40), halves)
    delete_before(broker, name, 13)
    with pytest.raises(Exception, match=rf"offsets 10 to 12 of {name}-[01] are gone: it starts at 13 now"):
        reading(subscribe=name, archive=archive).collect()
    assert reading(subscribe=name, archive=archive, failOnDataLoss="false").count() == 34
