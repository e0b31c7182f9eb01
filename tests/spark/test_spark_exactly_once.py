"""`write_exactly_once` and `write_once` on real Spark and a real broker.

What happens at each request is tested without Spark (tests/ledger); here is what only Spark can show: its query id and
offsets, plans that are not deterministic, state, blocks that are lost, and batches that run again.
"""

import itertools
import shutil
import uuid
from pathlib import Path
from types import SimpleNamespace

import pytest

from odradek.client.cluster import Cluster
from odradek.client.settings import ClientSettings
from odradek.ledger.protocol import LedgerLost, OlderCheckpoint
from odradek.ledger.topic import NAME, Ledger
from odradek.ledger.writer import RowsChanged
from odradek.spark import blobs, exactly_once, write_exactly_once, write_once
from odradek.spark.blobs import Way
from odradek.spark.exactly_once import way_of_this_machine
from odradek.spark.failures import sentence_of
from odradek.spark.options import InvalidOption
from odradek.spark.query_checkpoint import DEFAULT_ROOT
from tests.spark.committed import committed_records, committed_values, forget_last_commit

_numbers = itertools.count()


@pytest.fixture
def options(broker, topics):
    return {"kafka.bootstrap.servers": broker.bootstrap, "topic": topics.create(partitions=2)}


def ledger(broker) -> Ledger:
    host, _, port = broker.bootstrap.partition(":")
    return Ledger(Cluster(ClientSettings(bootstrap=((host, int(port)),))))


def values(broker, options) -> list[str]:
    return committed_values(broker.bootstrap, options["topic"])


def run(frame, options, checkpoint: Path, mode: str = "append") -> None:
    writer = write_exactly_once(frame.writeStream.outputMode(mode), options)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()


def test_a_batch_that_runs_again_writes_nothing_and_the_next_one_does(
    broker, topics, streaming, options, tmp_path
):
    source = topics.create(partitions=3)
    frame = streaming(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="4")
    checkpoint = tmp_path / "checkpoint"
    topics.fill(source, [b"%02d" % number for number in range(10)], partition=lambda index: index % 3)
    run(frame.selectExpr("key", "value"), options, checkpoint)
    last = forget_last_commit(checkpoint)
    wanted = [f"{number:02d}" for number in range(10)]
    assert values(broker, options) == wanted
    topics.fill(source, [b"10", b"11"])
    run(frame.selectExpr("key", "concat(value, cast(rand() as string)) value"), options, checkpoint)
    found = values(broker, options)
    assert [value[:2] for value in found] == [*wanted, "10", "11"]
    assert found[:10] == wanted  # rows of the batch that ran again are those of its first run
    (entry,) = [one for one in ledger(broker).entries().values() if one.topics == (options["topic"],)]
    assert entry.batch == last + 1 and entry.rows == 2
    assert entry.phases.keys() == {"compute", "send"}


def test_a_query_without_a_checkpoint_is_refused(broker, topics, streaming, options):
    """Spark would give it a temporary one, and write all rows again at the next start."""
    source = topics.create(partitions=1)
    topics.fill(source, [b"0"])
    frame = streaming(subscribe=source, startingOffsets="earliest").selectExpr("value")
    query = write_exactly_once(frame.writeStream, options).trigger(availableNow=True).start()
    with pytest.raises(Exception, match=InvalidOption.__name__) as failure:
        query.awaitTermination()
    assert "option 'checkpointLocation': must be set for the query" in (sentence_of(failure.value) or "")
    assert values(broker, options) == []


def test_a_default_place_for_checkpoints_is_enough_only_for_a_query_with_a_name(
    spark, broker, topics, streaming, options, tmp_path
):
    """Without a name Spark gives it a new place there at each start."""
    source, name = topics.create(partitions=1), f"query-{uuid.uuid4()}"
    frame = streaming(subscribe=source, startingOffsets="earliest").selectExpr("value")

    def start(named: bool) -> None:
        writer = write_exactly_once(frame.writeStream, options).trigger(availableNow=True)
        (writer.queryName(name) if named else writer).start().awaitTermination()

    spark.conf.set(DEFAULT_ROOT, str(tmp_path))
    try:
        topics.fill(source, [b"0"])
        with pytest.raises(Exception, match=InvalidOption.__name__) as failure:
            start(named=False)
        assert "option 'checkpointLocation': must be set" in (sentence_of(failure.value) or "")
        start(named=True)
        topics.fill(source, [b"1"])
        start(named=True)
    finally:
        spark.conf.unset(DEFAULT_ROOT)
    assert values(broker, options) == ["0", "1"]


def test_order_of_a_key_headers_and_times_are_kept(spark, broker, options):
    frame = spark.range(4000).selectExpr(
        "cast(id % 7 as string) as key",
        "cast(id as string) as value",
        "timestamp_seconds(id) as timestamp",
        "array(struct('h' as key, cast('x' as binary) as value)) as headers",
        "id as ignored",
    )
    settings = options | {"kafka.batch.size": "2000", "kafka.compression.type": "gzip"}
    assert write_once(frame.coalesce(1), settings, id=f"ordered-{uuid.uuid4()}")
    records = committed_records(broker.bootstrap, options["topic"])
    assert len(records) == 4000
    assert all(record.headers == ((b"h", b"x"),) or record.headers == [(b"h", b"x")] for record in records)
    assert {record.timestamp // 1000 for record in records} == set(range(4000))
    for key in range(7):
        mine = [int(record.value) for record in records if record.key == b"%d" % key]
        assert mine == sorted(mine)


def test_a_batch_is_written_once_under_its_id(spark, broker, options):
    """And computed once."""
    name, computed = f"work-{uuid.uuid4()}", spark.sparkContext.accumulator(0)

    def count(batches):
        computed.add(1)
        yield from batches

    frame = (
        spark.range(5).coalesce(1).selectExpr("cast(id as string) as value").mapInArrow(count, "value string")
    )
    assert write_once(frame, options, id=name)
    assert not write_once(frame, options, id=name)
    assert computed.value == 1
    assert values(broker, options) == ["0", "1", "2", "3", "4"]
    assert ledger(broker).entries()[f"once/{name}"].rows == 5


def test_rows_choose_their_topics_and_all_of_them_are_one_transaction(spark, broker, topics, options):
    names = [topics.create(partitions=1) for _ in range(3)]
    frame = spark.range(30).selectExpr(
        f"element_at(array('{names[0]}', '{names[1]}', '{names[2]}'), cast(id % 3 as int) + 1) as topic",
        "cast(id as string) as value",
    )
    settings = {name: value for name, value in options.items() if name != "topic"}
    assert write_once(frame, settings, id=f"many-{uuid.uuid4()}")
    assert [len(committed_values(broker.bootstrap, name)) for name in names] == [10, 10, 10]


def test_a_stateful_query_in_update_mode_whose_batch_runs_again(broker, topics, streaming, options, tmp_path):
    source, checkpoint = topics.create(partitions=2), tmp_path / "checkpoint"
    frame = streaming(subscribe=source, startingOffsets="earliest").groupBy("key").count()
    frame = frame.selectExpr("key", "concat(cast(key as string), '=', count) as value")
    topics.fill(source, [b"a", b"b", b"a"])
    run(frame, options, checkpoint, "update")
    forget_last_commit(checkpoint)
    topics.fill(source, [b"a", b"c"])
    run(frame, options, checkpoint, "update")
    assert values(broker, options) == ["a=2", "a=3", "b=1", "c=1"]


WAYS = {
    "in Spark's storage": (Way(3000, keeps=True), 1),
    "nowhere, and then in Spark's storage": (Way(3000), 2),
    "in files": (None, 1),
    "inline": (Way(1_000_000), 1),
}


@pytest.mark.parametrize(("way", "looks"), WAYS.values(), ids=WAYS)
def test_rows_that_do_not_fit_into_the_results_of_tasks(spark, broker, options, monkeypatch, way, looks):
    monkeypatch.setattr(blobs, "CHUNK_BYTES", 4000)
    monkeypatch.setattr(blobs, "ROUND_BYTES", 5000)
    monkeypatch.setattr(exactly_once, "SMALL_BYTES", 3000)
    used: list[Way] = []

    def chosen(session):
        used.append(way or way_of_this_machine(session))
        return used[-1]

    monkeypatch.setattr(exactly_once, "way_of_this_machine", chosen)
    computed = spark.sparkContext.accumulator(0)

    def count(batches):
        computed.add(1)
        yield from batches

    frame = spark.range(2000).repartition(5).selectExpr("cast(id as string) as value")
    frame = frame.mapInArrow(count, "value string")
    assert write_once(frame, options | {"kafka.batch.size": "1000"}, id=f"large-{uuid.uuid4()}")
    assert values(broker, options) == sorted(str(number) for number in range(2000))
    assert computed.value == 5 * looks
    assert used[0].directory is None or not Path(used[0].directory).exists()


def test_files_are_for_tasks_on_the_drivers_machine(spark):
    for master, is_here in {
        "local": True,
        "local[2]": True,
        "local[*, 3]": True,
        "local-cluster[2,1,1024]": False,
        "spark://host:7077": False,
        "yarn": False,
    }.items():
        context = SimpleNamespace(master=master, _temp_dir=spark.sparkContext._temp_dir)
        way = way_of_this_machine(SimpleNamespace(sparkContext=context))
        assert (way is not None) == is_here, master


def test_the_next_batch_is_kept_by_spark_only_if_it_might_not_fit(options):
    sink = exactly_once.OnceSink(exactly_once.parse_sink_options(options).properties, "learning")
    assert sink._way.keeps
    for sizes, keeps in [([5, 0, 7], False), ([5, blobs.INLINE_BYTES // 8], True), ([0] * 200, False)]:
        sink._learn_from([SimpleNamespace(task_bytes=dict(enumerate(sizes)))])
        assert sink._way.keeps == keeps
    assert sink._way.inline_bytes == blobs.INLINE_BYTES // 200


def test_rows_that_spark_computed_again_are_noticed(spark, broker, options):
    parsed = exactly_once.parse_sink_options(options | {"kafka.batch.size": "1000"})
    frame = spark.range(2000).selectExpr("cast(id as string) as value", "rand() as other")
    encoded = blobs.EncodedFrame(frame, parsed, {options["topic"]: 2}, Way(0, keeps=True))
    encoded.compute()
    encoded._kept.unpersist(blocking=True)  # as if the executor had died
    encoded._kept.persist()
    with pytest.raises(RowsChanged, match="computed them again"):
        list(encoded.records())
    encoded.ready()  # all of them, anew
    assert sum(one.row_count for one in encoded.records()) == encoded.count == 2000
    encoded.release()


def test_a_batch_of_which_spark_lost_rows_is_written_by_its_next_transaction(
    spark, broker, options, monkeypatch
):
    """All its rows are from one computation: each names it."""
    monkeypatch.setattr(exactly_once, "way_of_this_machine", lambda _: Way(0, keeps=True))
    read, lost = blobs.EncodedFrame._chunk_from_spark, []

    def losing(self, wanted):
        if not lost:
            lost.append(True)
            self._kept.unpersist(blocking=True)
            self._kept.persist()
        return read(self, wanted)

    monkeypatch.setattr(blobs.EncodedFrame, "_chunk_from_spark", losing)
    frame = spark.range(200).coalesce(1).selectExpr("concat(id, '/', rand()) as value")
    assert write_once(frame, options | {"kafka.batch.size": "500"}, id=f"lost-{uuid.uuid4()}")
    assert lost
    assert sorted(int(value.split("/")[0]) for value in values(broker, options)) == list(range(200))


def test_two_sinks_of_a_users_own_function_that_fails_between_them(
    broker, topics, streaming, options, tmp_path
):
    source, name = topics.create(partitions=2), uuid.uuid4()
    other = options | {"topic": topics.create(partitions=1)}
    frame = streaming(subscribe=source, startingOffsets="earliest").selectExpr(
        "concat(value, '/', rand()) as value"
    )
    topics.fill(source, [b"a", b"b", b"c"])
    failures = ["between the sinks"]

    def write(batch, number):
        batch.persist()
        write_once(batch, options, id=f"{name} first {number}")
        if failures:
            raise ValueError(failures.pop())
        write_once(batch, other, id=f"{name} second {number}")

    def start():
        writer = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path))
        writer.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(Exception, match="between the sinks"):
        start()
    topics.fill(source, [b"d"])
    start()
    for found in (values(broker, options), values(broker, other)):
        assert [value[0] for value in found] == ["a", "b", "c", "d"]


def test_a_topic_that_is_created_again_between_batches(broker, topics, streaming, options, tmp_path):
    source, checkpoint = topics.create(partitions=1), tmp_path / "checkpoint"
    frame = streaming(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="1")
    topics.fill(source, [b"0", b"1"])
    written = []

    class Recreating(exactly_once.StreamSink):
        def __call__(self, batch, number):
            super().__call__(batch, number)
            written.append(number)
            if number == 0:
                topics.admin.delete_topics([options["topic"]])[options["topic"]].result(30)
                topics.create(partitions=2, name=options["topic"])

    writer = frame.selectExpr("value").writeStream.foreachBatch(Recreating(options))
    writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()
    assert written == [0, 1]
    assert values(broker, options) == ["1"]


def test_a_ledger_that_was_deleted_stops_the_query_until_an_operator_decides(
    broker, topics, streaming, options, tmp_path
):
    source, checkpoint = topics.create(partitions=1), tmp_path / "checkpoint"
    frame = streaming(subscribe=source, startingOffsets="earliest").selectExpr("value")
    topics.fill(source, [b"0"])
    run(frame, options, checkpoint)
    topics.admin.delete_topics([NAME])[NAME].result(30)
    topics.fill(source, [b"1"])
    with pytest.raises(Exception, match=LedgerLost.__name__) as failure:
        run(frame, options, checkpoint)
    assert f"odradek ledger reset {query_id(checkpoint)} --to 0" in (sentence_of(failure.value) or "")
    ledger(broker).reset(query_id(checkpoint), 0)
    run(frame, options, checkpoint)
    assert values(broker, options) == ["0", "1"]


def test_an_older_checkpoint_and_a_lost_ledger_stop_the_query(broker, topics, streaming, options, tmp_path):
    source, checkpoint, older = topics.create(partitions=1), tmp_path / "checkpoint", tmp_path / "older"
    frame = streaming(subscribe=source, startingOffsets="earliest").selectExpr("value")
    topics.fill(source, [b"0"])
    run(frame, options, checkpoint)
    shutil.copytree(checkpoint, older)
    for value in (b"1", b"2"):
        topics.fill(source, [value])
        run(frame, options, checkpoint)
    topics.fill(source, [b"3"])
    with pytest.raises(Exception, match=OlderCheckpoint.__name__) as failure:
        run(frame, options, older)
    assert "an older copy of the checkpoint was restored" in (sentence_of(failure.value) or "")
    ledger(broker).reset(query_id(checkpoint), None)
    with pytest.raises(Exception, match=LedgerLost.__name__) as failure:
        run(frame, options, checkpoint)
    assert f"odradek ledger reset {query_id(checkpoint)} --to 2" in (sentence_of(failure.value) or "")
    assert values(broker, options) == ["0", "1", "2"]
    ledger(broker).reset(query_id(checkpoint), 2)
    run(frame, options, checkpoint)
    assert values(broker, options) == ["0", "1", "2", "3"]


def query_id(checkpoint: Path) -> str:
    import json

    return json.loads((checkpoint / "metadata").read_text())["id"]


def test_a_query_that_wrote_at_least_once_is_adopted(broker, topics, streaming, options, tmp_path):
    source, checkpoint = topics.create(partitions=1), tmp_path / "checkpoint"
    frame = streaming(subscribe=source, startingOffsets="earliest").selectExpr("value")
    topics.fill(source, [b"0"])
    writer = frame.writeStream.format("odradek").options(**options)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    topics.fill(source, [b"1"])
    run(frame, options, checkpoint)
    assert values(broker, options) == ["0", "1"]
    assert (checkpoint / "odradek-ledger.json").exists()


def test_the_format_refuses_to_be_exactly_once_and_says_what_does(spark, options):
    frame = spark.range(1).selectExpr("cast(id as string) as value")
    with pytest.raises(Exception, match="write_exactly_once") as failure:
        frame.write.format("odradek").options(**options, exactlyOnceId="x").mode("append").save()
    assert InvalidOption.__name__ in str(failure.value)


def test_what_identifies_a_stream_or_a_batch_is_checked_before_anything_runs():
    options = {"kafka.bootstrap.servers": "localhost:1", "topic": "t"}
    writer = SimpleNamespace(foreachBatch=lambda sink: sink)
    with pytest.raises(InvalidOption, match="'exactlyOnceId': leave it out: a stream is known by its check"):
        write_exactly_once(writer, options | {"exactlyOnceId": "x"})
    with pytest.raises(InvalidOption, match="a batch by the id of write_once"):
        write_once(None, options | {"exactlyonceid": "x"}, id="x")
    for nameless in ("", " ", 5):
        with pytest.raises(InvalidOption, match="'id': must be a text that names the batch"):
            write_once(None, options, id=nameless)


def test_the_ledger_is_compacted(broker, topics, spark, options):
    from confluent_kafka.admin import ConfigResource

    write_once(spark.range(1).selectExpr("'x' as value"), options, id=f"compacted-{uuid.uuid4()}")
    (described,) = topics.admin.describe_configs([ConfigResource("topic", NAME)]).values()
    assert described.result(30)["cleanup.policy"].value == "compact"
