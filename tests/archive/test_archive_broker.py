"""`odradek archive` on a real broker."""

import json
import os
import signal
import socket
import subprocess
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer

from odradek.archive.failures import AnotherArchiver, Final
from odradek.archive.layout import Range
from odradek.archive.location import Location
from odradek.archive.tables import Table
from odradek.archiving.archiver import Archiver, Order
from odradek.cli.archive import failures_told
from odradek.cli.failures import CommandError
from odradek.client.cluster import NOBODY_REACHED
from odradek.client.connection import ConnectionLost
from odradek.client.deadline import TimedOut
from odradek.client.settings import ClientSettings
from tests.archive.conftest import archived_offsets, archived_rows
from tests.pipeline.lab import wait_until
from tests.spark.committed import committed_records
from tests.spark.spark_topics import Topics
from tests.support import await_end, odradek_command, running_broker


def order(broker, archive: Path, *topics: str, **options) -> Order:
    host, _, port = broker.bootstrap.partition(":")
    return Order(ClientSettings(((host, int(port)),)), str(archive), topics, **options)


def archiver(broker, archive, *topics, **options) -> Archiver:
    return Archiver(order(broker, archive, *topics, **options), lambda done: None, lambda text: None)


def test_a_topic_is_archived_and_later_what_is_new(odradek, topics, archive):
    topic = topics.create(partitions=2)
    topics.fill(topic, [b"%d" % number for number in range(1000)], lambda index: index % 2)
    done = odradek("archive", topic, "--to", str(archive))
    assert (done.returncode, done.stdout) == (0, "1000 records archived\n"), done.stderr
    assert f"{topic}: 1000 records archived" in done.stderr and "up to date" in done.stderr
    topics.fill(topic, [b"more"])
    assert odradek("archive", topic, "--to", str(archive), "--once", "-q").stdout == "1 record archived\n"
    assert odradek("archive", topic, "--to", str(archive), "-q").stdout == "0 records archived\n"
    assert archived_offsets(archive, topic) == {0: list(range(501)), 1: list(range(500))}


def test_rows_have_everything_that_records_have(odradek, broker, topics, archive):
    topic = topics.create(partitions=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(
        topic, key=b"k", value=b"v", headers=[("a", b"1"), ("b", None)], timestamp=1_700_000_000_123
    )
    producer.produce(topic, value=None, timestamp=1_700_000_000_124)
    assert producer.flush(30) == 0
    assert odradek("archive", topic, "--to", str(archive)).returncode == 0
    first, second = archived_rows(archive, topic)[0]
    assert first == {
        "key": b"k",
        "value": b"v",
        "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
        "timestamp": datetime.fromtimestamp(1_700_000_000.123, UTC),
        "timestampType": 0,
        "offset": 0,
        "partition": 0,
    }
    assert (second["key"], second["value"], second["headers"]) == (None, None, None)


def test_the_table_says_where_the_tail_begins(odradek, topics, archive):
    topic = topics.create(partitions=2)
    topics.fill(topic, [b"a", b"b", b"c"])
    odradek("archive", topic, "--to", str(archive))
    snapshot = Table.open(Location.of(str(archive), topic)).snapshot()
    assert dict(snapshot.ends) == {0: 3, 1: 0}
    (file,) = snapshot.files
    assert (file.range, file.rows) == (Range(0, 0, 3), 3)
    assert file.min_timestamp_ms <= file.max_timestamp_ms


def test_aborted_records_are_left_out_and_open_transactions_are_waited_for(odradek, broker, topics, archive):
    topic = topics.create(partitions=1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for value, end in ((b"aborted", producer.abort_transaction), (b"committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value=value)
        producer.flush(30)
        end(30)
    producer.begin_transaction()
    producer.produce(topic, value=b"open")
    producer.flush(30)
    odradek("archive", topic, "--to", str(archive))
    assert [row["value"] for row in archived_rows(archive, topic)[0]] == [b"committed"]
    producer.commit_transaction(30)
    odradek("archive", topic, "--to", str(archive))
    assert [row["value"] for row in archived_rows(archive, topic)[0]] == [b"committed", b"open"]


def test_a_compacted_topic_is_archived_as_it_is_read(odradek, broker, topics, archive):
    config = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0", "segment_bytes": "1048576"}
    topic = topics.create(partitions=1, **config)
    values = [b"%-20d %d" % (number % 3, number) + b"x" * 100_000 for number in range(30)]
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:  # a batch each, so that there are several segments
        producer.produce(topic, value, key=value[:20])
        assert producer.flush(30) == 0

    def offsets() -> list[int]:
        return [one.offset for one in committed_records(broker.bootstrap, topic)]

    wait_until(lambda: len(offsets()) < len(values), lambda: "the log was not compacted")
    left = offsets()
    assert odradek("archive", topic, "--to", str(archive)).returncode == 0
    (found,) = archived_offsets(archive, topic).values()
    assert found == sorted(found) and set(found) <= set(left) and found[-3:] == [27, 28, 29]
    assert {offset % 3 for offset in found} == {0, 1, 2}, "the last value of each key"
    topics.fill(topic, [b"more"])
    odradek("archive", topic, "--to", str(archive))
    assert archived_offsets(archive, topic)[0] == [*found, 30]


def test_topics_by_pattern_each_have_a_table(odradek, topics, archive):
    names = [topics.create(partitions=1, name=f"shop.{name}") for name in ("orders", "returns")]
    topics.create(partitions=1, name="shopping")
    for name in names:
        topics.fill(name, [b"x"])
    assert odradek("archive", "--pattern", r"shop\..*", "--to", str(archive)).stdout == "2 records archived\n"
    assert sorted(path.name for path in archive.iterdir()) == names


def test_a_topic_that_fails_does_not_keep_the_others_from_being_archived(odradek, topics, archive):
    good = topics.create(partitions=1)
    topics.fill(good, [b"a"])
    done = odradek("archive", "absent", good, "--to", str(archive))
    assert done.returncode == 1 and "topic 'absent' does not exist" in done.stderr
    assert archived_offsets(archive, good) == {0: [0]}


def test_many_small_commits_are_merged_and_readers_see_the_same(broker, topics, archive):
    topic = topics.create(partitions=1)
    one = archiver(broker, archive, topic)
    for number in range(21):
        topics.fill(topic, [b"%d" % number])
        assert one.run_once() == 1
    snapshot = Table.open(Location.of(str(archive), topic)).snapshot()
    assert len(snapshot.files) <= 4
    assert archived_offsets(archive, topic) == {0: list(range(21))}
    older = Table.open(Location.of(str(archive), topic), version=9)
    assert all((archive / topic / file.path).exists() for file in older.pinned().files), (
        "for those who read it"
    )
    assert dict(older.pinned().ends) != dict(snapshot.ends)


def test_versions_survive_a_checkpoint_of_the_log(broker, topics, archive):
    topic = topics.create(partitions=1)
    topics.fill(topic, [b"a"])
    archiver(broker, archive, topic).run_once()
    from deltalake import DeltaTable

    DeltaTable(str(archive / topic)).create_checkpoint()
    topics.fill(topic, [b"b"])
    archiver(broker, archive, topic).run_once()
    assert archived_offsets(archive, topic) == {0: [0, 1]}


def test_of_two_archivers_the_second_is_refused(broker, topics, archive):
    topic = topics.create(partitions=1)
    topics.fill(topic, [b"a"])
    location = Location.of(str(archive), topic)
    one, other = archiver(broker, archive, topic), archiver(broker, archive, topic)
    one.run_once()
    other.run_once()
    topics.fill(topic, [b"b"])
    # Both have read the table; one commits while the other is reading the topic.
    work, _ = other._archiver(topic)
    write = work._source.write

    def overtaken(ranges, epochs):
        parts = write(ranges, epochs)
        one.run_once()
        return parts

    work._source.write = overtaken
    with pytest.raises(AnotherArchiver, match="was first: this one has added nothing"):
        other.run_once()
    assert archived_offsets(archive, topic) == {0: [0, 1]}
    assert dict(Table.open(location).snapshot().ends) == {0: 2}


def test_two_archivers_that_race_for_each_record_double_nothing(broker, topics, archive):
    """Each begins anew when it is refused, as a service that is restarted does."""
    topic = topics.create(partitions=2)
    topics.fill(topic, [b"first"])
    archiver(broker, archive, topic).run_once()
    refused: list[AnotherArchiver] = []
    done = threading.Event()

    def run() -> None:
        one = archiver(broker, archive, topic)
        while not done.is_set():
            try:
                one.run_once()
            except AnotherArchiver as error:
                refused.append(error)
                one = archiver(broker, archive, topic)

    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(run) for _ in range(2)]
        for number in range(200):
            if len(refused) >= 3:
                break
            topics.fill(topic, [b"%d" % number] * 5, lambda index: index % 2)
        done.set()
        for one in both:
            one.result(60)
    assert refused, "they never met"
    archiver(broker, archive, topic).run_once()
    found = archived_offsets(archive, topic)
    assert [*found[0], *found[1]] == [one.offset for one in committed_records(broker.bootstrap, topic)]


def test_bad_input_gets_a_sentence(odradek, topics, archive, tmp_path):
    topic = topics.create(partitions=1)
    topics.fill(topic, [b"a"])

    def problem(*arguments: str) -> str:
        done = odradek("archive", *arguments)
        assert done.returncode != 0
        return done.stderr

    assert "Missing option '--to'" in problem(topic)
    assert "give a --pattern" in problem("--to", str(archive))
    assert "give one of them" in problem(topic, "--to", str(archive), "--once", "--watch")
    assert "topic 'absent' does not exist" in problem("absent", "--to", str(archive))
    assert "no topic matches nothing" in problem("--pattern", "nothing", "--to", str(archive))
    (tmp_path / "file").write_text("")
    assert "cannot write the archive" in problem(topic, "--to", str(tmp_path / "file"))


def test_a_cluster_that_is_not_there_gets_the_advice_of_all_commands():
    with (
        pytest.raises(CommandError, match="start one with 'odradek up', or name another with --bootstrap"),
        failures_told(),
    ):
        raise TimedOut(f"could not list topics{NOBODY_REACHED}")


def test_a_topic_that_was_created_again_is_refused(odradek, topics, archive):
    topic = topics.create(partitions=1)
    topics.fill(topic, [b"a"])
    odradek("archive", topic, "--to", str(archive))
    topics.delete(topic)
    topics.create(partitions=1, name=topic)
    done = odradek("archive", topic, "--to", str(archive))
    assert done.returncode == 1 and "was deleted and created again" in done.stderr


def test_records_deleted_before_they_were_archived(odradek, topics, archive):
    topic = topics.create(partitions=1)
    topics.fill(topic, [b"a"])
    odradek("archive", topic, "--to", str(archive))
    topics.fill(topic, [b"b", b"c", b"d"])
    deleted = odradek("topic", "delete-records", topic, "--partition", "0", "--before", "3", "--yes")
    assert deleted.returncode == 0, deleted.stderr
    done = odradek("archive", topic, "--to", str(archive))
    assert done.returncode == 1 and f"offsets 1 to 2 of {topic}-0 were deleted" in done.stderr
    done = odradek("archive", topic, "--to", str(archive), "--skip-lost")
    assert (
        done.returncode == 0 and f"warning: offsets 1 to 2 of {topic}-0 are not in the archive" in done.stderr
    )
    assert archived_offsets(archive, topic) == {0: [0, 3]}


def test_a_short_retention_is_warned_of(odradek, broker, topics, archive):
    topic = topics.create(partitions=1, retention_ms="3600000")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    old_ms = int(datetime.now(UTC).timestamp() * 1000) - 3_000_000
    producer.produce(topic, value=b"old", timestamp=old_ms)
    assert producer.flush(30) == 0
    done = odradek("archive", topic, "--to", str(archive))
    assert "deletes records after 60 minutes" in done.stderr and "was 50 minutes old" in done.stderr


def test_partitions_are_added(odradek, topics, archive):
    topic = topics.create(partitions=1)
    topics.fill(topic, [b"a"])
    odradek("archive", topic, "--to", str(archive))
    assert odradek("topic", "alter", topic, "--partitions", "2").returncode == 0
    topics.fill(topic, [b"b"], 1)
    odradek("archive", topic, "--to", str(archive))
    assert archived_offsets(archive, topic) == {0: [0], 1: [0]}


def test_progress_as_json(odradek, topics, archive):
    topic, target = topics.create(partitions=2), topics.create(partitions=2)
    topics.fill(topic, [b"a", b"b"], 1)

    def events(*arguments: str) -> list[dict]:
        done = odradek(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    first, last = events("archive", topic, "--to", str(archive))
    assert first.pop("bytes") > 0
    assert first == {
        "event": "progress",
        "topic": topic,
        "records": 2,
        "lag": 0,
        "partitions": [
            {"partition": 0, "end_offset": 0, "lag": 0},
            {"partition": 1, "end_offset": 2, "lag": 0},
        ],
    }
    assert last == {"event": "end", "records": 2}
    assert events("replay", topic, "--archive", str(archive), "--to", target) == [
        {"event": "progress", "part": "partition 1", "position": 2, "end": 2, "records": 2},
        {"event": "end", "topic": target, "records": 2},
    ]


def test_a_port_for_metrics_that_is_taken_gets_a_sentence(odradek, topics, archive):
    topic = topics.create(partitions=1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = odradek("archive", topic, "--to", str(archive), "--metrics-port", port)
    assert done.returncode == 1
    assert (
        f"cannot serve metrics at 127.0.0.1:{port}: Address already in use. Choose another port"
        in done.stderr
    )


def test_watching_goes_on_reports_and_counts(broker, topics, archive):
    topic = topics.create(partitions=1)
    topics.fill(topic, [b"a"])
    reported = []
    one = Archiver(order(broker, archive, topic), reported.append, lambda text: None)
    passes = iter([b"b", b"c"])

    def wait() -> bool:
        value = next(passes, None)
        if value is not None:
            topics.fill(topic, [value])
        return value is not None

    one.run(wait)
    assert [done.rows for done in reported] == [1, 1, 1]
    assert archived_offsets(archive, topic) == {0: [0, 1, 2]}
    text = one.metrics.text()
    assert f'odradek_archive_rows_total{{topic="{topic}"}} 3' in text
    assert f'odradek_archive_lag_records{{partition="0",topic="{topic}"}} 0' in text
    assert f'odradek_archive_end_offset{{partition="0",topic="{topic}"}} 3' in text


def test_one_topic_that_cannot_be_archived_any_more_does_not_stop_the_others(broker, topics, archive):
    good, bad = topics.create(partitions=1), topics.create(partitions=1)
    for topic in (good, bad):
        topics.fill(topic, [b"a"])
    warned = []
    one = Archiver(order(broker, archive, good, bad), lambda done: None, warned.append)
    passes = iter([True, True])

    def wait() -> bool:
        if not warned:
            topics.delete(bad)
            topics.create(partitions=1, name=bad)
        topics.fill(good, [b"more"])
        return next(passes, False)

    one.run(wait)
    assert [text for text in warned if bad in text and "is not archived any more" in text] == warned
    assert len(warned) == 1
    assert archived_offsets(archive, good) == {0: [0, 1, 2]}


def test_a_topic_that_fails_while_the_cluster_is_away_does_not_end_the_others(
    broker, topics, archive, monkeypatch
):
    """Which topics match the pattern is not asked anew in the middle of a pass."""
    good, bad = topics.create(partitions=1), topics.create(partitions=1)
    warned: list[str] = []
    one = Archiver(order(broker, archive, pattern=f"{good}|{bad}"), lambda done: None, warned.append)
    caught_up, asked = one._catch_up, one.topics

    def fail(topic: str) -> int:
        if topic == bad:
            monkeypatch.setattr(one, "topics", away)
            raise Final("it cannot be archived")
        return caught_up(topic)

    def away() -> list[str]:
        monkeypatch.setattr(one, "topics", asked)
        raise ConnectionLost("no broker responds")

    passes = iter([True, True])
    monkeypatch.setattr(one, "_catch_up", fail)
    one.run(lambda: topics.fill(good, [b"more"]) is None and next(passes, False))
    assert warned == [f"{bad} is not archived any more: it cannot be archived"]
    assert archived_offsets(archive, good) == {0: [0, 1]}


def test_a_table_is_read_by_other_tools(odradek, topics, archive):
    """delta-rs itself reads it, with statistics that prune."""
    topic = topics.create(partitions=1)
    topics.fill(topic, [json.dumps({"n": number}).encode() for number in range(10)])
    odradek("archive", topic, "--to", str(archive))
    from deltalake import DeltaTable

    table = DeltaTable(str(archive / topic))
    assert table.to_pyarrow_table(columns=["offset"]).column("offset").to_pylist() == list(range(10))


def test_a_process_that_watches_serves_metrics_and_ends_by_a_signal(broker, topics, archive):
    topic = topics.create(partitions=1)
    topics.fill(topic, [b"a"])
    command = odradek_command("-b", broker.bootstrap, "archive", topic, "--to", str(archive))
    options = ["--watch", "--interval", "0.1", "--metrics-port", "0"]
    environ = {**os.environ, "PYTHONFAULTHANDLER": "1"}
    process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True, env=environ)
    try:
        assert process.stderr is not None
        address = process.stderr.readline().removeprefix("metrics at ").strip()
        assert "1 record archived" in process.stderr.readline()
        topics.fill(topic, [b"b"])
        assert "1 record archived" in process.stderr.readline()
        with urllib.request.urlopen(address, timeout=30) as response:
            assert (
                f'odradek_archive_end_offset{{partition="0",topic="{topic}"}} 2' in response.read().decode()
            )
        process.send_signal(signal.SIGINT)
        status, errors = await_end(process)
        assert status == 0 and "Traceback" not in errors
    finally:
        process.kill()
        process.wait()
    assert archived_offsets(archive, topic) == {0: [0, 1]}


@pytest.mark.long
def test_a_process_that_waits_for_the_cluster_ends_by_a_signal(tmp_path, archive):
    """Not only after the ten minutes that it waits for a cluster that is away."""
    with running_broker(tmp_path) as own:
        topics = Topics(own.bootstrap)
        topic = topics.create(partitions=1)
        topics.fill(topic, [b"a"])
        command = odradek_command("-b", own.bootstrap, "archive", "--pattern", topic, "--to", str(archive))
        environ = {**os.environ, "PYTHONFAULTHANDLER": "1"}
        process = subprocess.Popen(
            [*command, "--watch", "--interval", "0.1"], stderr=subprocess.PIPE, text=True, env=environ
        )
        try:
            assert process.stderr is not None
            assert "1 record archived" in process.stderr.readline()
            own.kill()
            assert "still cannot" in process.stderr.readline()
            process.send_signal(signal.SIGTERM)
            status, errors = await_end(process)
            assert (status, errors) == (0, "")
        finally:
            process.kill()
            process.wait()
