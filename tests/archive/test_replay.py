"""`odradek replay` on a real broker: a client that dies at each of its requests, and a second one at the same time."""

import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from odradek.archive.location import Location
from odradek.archive.tables import Table
from odradek.archiving import replay as replaying
from odradek.archiving.replay import AnotherReplay, Replay
from odradek.archiving.replay_sources import ArchivedTopic, ParquetFiles
from odradek.client.cluster import LATEST
from odradek.client.deadline import TimedOut
from odradek.client.transactions import TransactionalProducer
from odradek.model import TopicPartition
from tests.ledger.simulated_cluster import Crashed
from tests.ledger.test_ledger_broker import Client
from tests.spark.committed import committed_records

PARTITIONS = 2
ROWS = 7  # of each partition


@pytest.fixture(scope="module")
def archived(broker, tmp_path_factory) -> tuple[str, str]:
    """An archive, and the topic in it."""
    from odradek.archiving.archiver import Archiver
    from tests.archive.test_archive_broker import order
    from tests.spark.spark_topics import Topics

    archive = tmp_path_factory.mktemp("archive")
    topic = Topics(broker.bootstrap).create(partitions=PARTITIONS)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(PARTITIONS * ROWS):
        producer.produce(
            topic,
            b"%d" % number if number % 3 else None,
            key=b"k%d" % number,
            headers=[("n", b"%d" % number), ("none", None)] if number % 2 else None,
            partition=number % PARTITIONS,
            timestamp=int(time.time() * 1000) - 1000 + number,
        )
    assert producer.flush(30) == 0
    Archiver(order(broker, archive, topic), lambda done: None, lambda text: None).run_once()
    return str(archive), topic


@pytest.fixture
def target(topics) -> str:
    return topics.create(partitions=PARTITIONS)


def table(archived) -> ArchivedTopic:
    return ArchivedTopic(Table.open(Location.of(*archived)))


def facts(broker, topic: str) -> list[tuple]:
    """Return what replaying keeps, in the order of each partition. Keys name the records."""
    return [
        (one.key, one.value, one.headers, one.timestamp) for one in committed_records(broker.bootstrap, topic)
    ]


def test_records_keep_everything_but_their_offsets(odradek, broker, archived, target):
    archive, topic = archived
    done = odradek("replay", topic, "--archive", archive, "--to", target)
    assert (done.returncode, done.stdout) == (0, f"{PARTITIONS * ROWS} records replayed into {target}\n"), (
        done.stderr
    )
    assert f"partition 1: up to {ROWS} of {ROWS}" in done.stderr
    assert facts(broker, target) == facts(broker, topic)
    again = odradek("replay", topic, "--archive", archive, "--to", target)
    assert again.stdout == f"0 records replayed into {target}\n"


def requests_of_a_run(broker, archived, target, monkeypatch) -> int:
    client = Client(broker)
    monkeypatch.setattr(replaying, "CHUNK_ROWS", 3)
    Replay(client, table(archived), target).run()
    return len(client.requests)


@pytest.mark.parametrize(
    ("first", "step"), [(1, 12), *(pytest.param(first, 4, marks=pytest.mark.long) for first in range(4))]
)
@pytest.mark.parametrize("after", [False, True])
def test_a_replay_that_dies_at_any_request_goes_on_exactly(
    broker, topics, archived, target, monkeypatch, after, first, step
):
    count = requests_of_a_run(broker, archived, target, monkeypatch)
    wanted = facts(broker, archived[1])
    assert facts(broker, target) == wanted
    for number in range(first, count, step):
        other = topics.create(partitions=PARTITIONS)
        client = Client(broker, number, after=after)
        with pytest.raises(Crashed):
            Replay(client, table(archived), other).run()
        client.close()
        Replay(Client(broker), table(archived), other).run()
        assert facts(broker, other) == wanted, f"died at request {number}"


def test_of_two_replays_the_first_is_fenced(broker, archived, target, monkeypatch):
    monkeypatch.setattr(replaying, "CHUNK_ROWS", 3)

    def overtake(progress) -> None:
        if progress.title == "partition 0" and progress.position < ROWS:
            Replay(Client(broker), table(archived), target).run()

    with pytest.raises(AnotherReplay, match="has doubled nothing"):
        Replay(Client(broker), table(archived), target, overtake).run()
    assert facts(broker, target) == facts(broker, archived[1])


def test_a_topic_that_was_created_again_gets_everything_again(broker, topics, archived, target):
    Replay(Client(broker), table(archived), target).run()
    topics.delete(target)
    topics.create(partitions=PARTITIONS, name=target)
    assert Replay(Client(broker), table(archived), target).run() == PARTITIONS * ROWS


def test_targets_that_cannot_take_the_records_are_refused(odradek, broker, topics, archived):
    archive, topic = archived
    small = topics.create(partitions=1)

    def problem(*arguments: str) -> str:
        done = odradek("replay", topic, "--archive", archive, *arguments)
        assert done.returncode == 1
        return done.stderr

    assert "'odradek topic create absent --partitions 2" in problem("--to", "absent")
    assert f"'odradek topic alter {small} --partitions 2' adds some" in problem("--to", small)
    assert "these records would be a second time" in problem()
    missing = odradek("replay", "nothing", "--archive", archive)
    assert missing.returncode == 1 and "there is no archive of a topic at" in missing.stderr


def test_a_refused_record_leaves_no_open_transaction(broker, topics, archived):
    refusing = topics.create(partitions=PARTITIONS, max_message_bytes="20")
    with pytest.raises(Exception, match="MESSAGE_TOO_LARGE"):
        Replay(Client(broker), table(archived), refusing).run()
    assert facts(broker, refusing) == []


def test_a_refused_time_says_what_to_raise(odradek, topics, archived):
    archive, topic = archived
    refusing = topics.create(partitions=PARTITIONS, message_timestamp_before_max_ms="1")
    done = odradek("replay", topic, "--archive", archive, "--to", refusing)
    assert done.returncode == 1 and "raise the topic's message.timestamp.before.max.ms" in done.stderr


def test_a_retention_that_would_delete_the_records_at_once_is_warned_of(odradek, topics, archived):
    archive, topic = archived
    target = topics.create(partitions=PARTITIONS, retention_ms="1")
    done = odradek("replay", topic, "--archive", archive, "--to", target, "--quiet")
    assert f"warning: topic {target} deletes records after 1 ms" in done.stderr
    assert f"'odradek config alter topic {target} --set retention.ms=-1' keeps them" in done.stderr


def test_markers_at_the_end_are_replayed_up_to(odradek, broker, topics, archive):
    topic, target = topics.create(partitions=1), topics.create(partitions=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"a")
    producer.commit_transaction(30)
    assert odradek("archive", topic, "--to", str(archive)).returncode == 0
    done = odradek("replay", topic, "--archive", str(archive), "--to", target)
    assert "partition 0: up to 2 of 2" in done.stderr


def test_the_ledger_shows_the_position(odradek, broker, archived, target):
    Replay(Client(broker), table(archived), target).run()
    assert f"{archived[1]} into {target}" in odradek("ledger", "list").stdout


def parquet(path, first: int, end: int, **columns) -> None:
    numbers = range(first, end)
    rows = {"value": [f"v{number}" for number in numbers], "key": [b"k%d" % number for number in numbers]}
    pq.write_table(pa.table(rows | columns), path, row_group_size=2)


def test_files_are_written_once_whatever_dies(odradek, broker, topics, tmp_path, monkeypatch):
    monkeypatch.setattr(replaying, "CHUNK_ROWS", 3)
    target = topics.create(partitions=PARTITIONS)
    for name, first in (("b", 5), ("a", 0), ("c", 10)):
        parquet(tmp_path / f"{name}.parquet", first, first + 5)
    files = [str(tmp_path / "*.parquet")]
    for number in (4, 11, 17, 23):
        client = Client(broker, number)
        with pytest.raises(Crashed):
            Replay(client, ParquetFiles(files), target).run()
        client.close()
    done = odradek("replay", "--files", *files, "--to", target)
    assert done.returncode == 0 and "row: up to 15 of 15" in done.stderr, done.stderr
    assert (
        odradek("replay", "--files", *files, "--to", target).stdout == f"0 records replayed into {target}\n"
    )
    found = facts(broker, target)
    assert sorted(int(value[1:]) for _, value, _, _ in found) == list(range(15))
    assert all(key == b"k" + value[1:] for key, value, _, _ in found)


def test_files_may_say_the_partition_and_the_time(broker, topics, tmp_path):
    target = topics.create(partitions=PARTITIONS)
    times = pa.array([1_790_000_000_000 + number for number in range(4)]).cast(pa.timestamp("ms", "UTC"))
    parquet(tmp_path / "a.parquet", 0, 4, partition=[1, 0, 1, 0], timestamp=times)
    Replay(Client(broker), ParquetFiles([str(tmp_path / "a.parquet")]), target).run()
    assert [(value, time_ms - 1_790_000_000_000) for _, value, _, time_ms in facts(broker, target)] == [
        (b"v1", 1),
        (b"v3", 3),
        (b"v0", 0),
        (b"v2", 2),
    ]


def test_files_may_have_different_columns(broker, topics, tmp_path):
    target = topics.create(partitions=1)
    time_ms = 1_790_000_000_000
    for name, columns in (
        ("a", {"value": ["plain"]}),
        ("b", {"value": ["keyed"], "key": ["k"], "timestamp": pa.array([time_ms]).cast(pa.timestamp("ms"))}),
        ("c", {"timestamp": pa.array([time_ms * 10**6]).cast(pa.timestamp("ns", "UTC")), "value": [None]}),
        ("d/e", {"value": ["nested"]}),
    ):
        path = tmp_path / f"{name}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table(columns), path)
    Replay(Client(broker), ParquetFiles([str(tmp_path / "**/*.parquet")]), target).run()
    found = facts(broker, target)
    assert [(key, value) for key, value, _, _ in found] == [
        (None, b"plain"),
        (b"k", b"keyed"),
        (None, None),
        (None, b"nested"),
    ]
    assert [one[3] for one in found[1:3]] == [time_ms, time_ms]


def test_a_file_that_has_changed_is_written_though_its_size_is_the_same(broker, topics, tmp_path):
    target, path = topics.create(partitions=1), tmp_path / "a.parquet"
    for value in ("one", "two", "two"):
        pq.write_table(pa.table({"value": [value]}), path)
        Replay(Client(broker), ParquetFiles([str(path)]), target).run()
    assert [value for _, value, _, _ in facts(broker, target)] == [b"one", b"two"]


def test_a_cluster_that_is_away_is_waited_for_once(broker, archived, target, monkeypatch):
    initialized = []
    initialize = TransactionalProducer.initialize

    def away(self):
        raise TimedOut("could not commit")

    monkeypatch.setattr(
        TransactionalProducer, "initialize", lambda self: initialized.append(1) or initialize(self)
    )
    monkeypatch.setattr(TransactionalProducer, "commit", away)
    with pytest.raises(TimedOut, match="could not commit"):
        Replay(Client(broker), table(archived), target).run()
    assert len(initialized) == 1


def test_ctrl_c_leaves_no_open_transaction(broker, archived, target, monkeypatch):
    write = Replay._write

    def interrupted(self, producer, *given):
        producer.commit = raise_interrupt
        write(self, producer, *given)

    def raise_interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr(Replay, "_write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Replay(Client(broker), table(archived), target).run()
    place = TopicPartition(target, 0)
    client = Client(broker)
    assert client.list_offsets({place: LATEST})[place] > 0, "the records were there"
    assert client.list_offsets({place: LATEST}, read_committed=True) == client.list_offsets({place: LATEST})


def test_files_that_cannot_be_replayed_are_refused(odradek, topics, tmp_path):
    target = topics.create(partitions=1)
    (tmp_path / "text.parquet").write_text("text")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    pq.write_table(pa.table({"value": [[1]]}), tmp_path / "list.parquet")
    twice = pa.table([pa.array(["x"])] * 2, names=["value", "value"])
    pq.write_table(twice, tmp_path / "twice.parquet")

    def problem(*arguments: str) -> str:
        done = odradek("replay", *arguments)
        assert done.returncode != 0 and "Traceback" not in done.stderr
        return done.stderr

    assert "no file matches" in problem("--files", str(tmp_path / "absent*"), "--to", target)
    assert "is not a Parquet file" in problem("--files", str(tmp_path / "text*"), "--to", target)
    assert "has no column 'value'" in problem("--files", str(tmp_path / "other*"), "--to", target)
    assert "it must be binary" in problem("--files", str(tmp_path / "list*"), "--to", target)
    assert "has 2 columns 'value'" in problem("--files", str(tmp_path / "twice*"), "--to", target)
    assert "name the one to write to with --to" in problem("--files", "x")
    assert "give --archive and a topic, or --files" in problem("orders")
    assert "which topic of the archive?" in problem("--archive", "x")
