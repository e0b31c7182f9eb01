"""A mirror between two real brokers: what arrives, what is kept in step, and what is refused with a sentence."""

import itertools
import json
import re
import shlex

import pytest
from confluent_kafka import Producer

from odradek.admin.access import Access
from odradek.admin.places import Place
from odradek.admin.resources import RESOURCE_CODES, Kind
from odradek.admin.settings import alter_resource, describe_configs
from odradek.admin.topics import add_partitions, delete_records
from odradek.client.producing import EncodedRecords
from odradek.client.settings import ProduceSettings
from odradek.client.transactions import TransactionalProducer
from odradek.mirror.file import load
from odradek.mirror.position import Copy
from odradek.mirror.positions import Positions
from odradek.mirror.running import MirrorRun
from odradek.model import TopicPartition
from odradek.records.record import Record, encode_records
from tests.mirror.lab import (
    Inside,
    Process,
    client,
    codecs_of,
    commit,
    committed,
    fill,
    ledger,
    records_of,
    run_once,
    running,
    write_file,
)
from tests.processes.nodes import until
from tests.spark.spark_topics import Topics
from tests.support import run_command

DYNAMIC_TOPIC_CONFIG = 1

_numbers = itertools.count()


@pytest.fixture
def topic() -> str:
    return f"orders-{next(_numbers)}"


@pytest.fixture
def name() -> str:
    """Name of the source: each test has a mirror, and so a group, of its own."""
    return f"west{next(_numbers)}"


@pytest.fixture
def mirror(west, east, tmp_path, topic, name):
    """A mirror's file for the test's topic."""

    def write(**more):
        return write_file(
            tmp_path,
            west.bootstrap,
            east.bootstrap,
            **{"topics": f'names = ["{topic}"]', "names": (name, "east"), **more},
        )

    return write


def access(broker) -> Access:
    return Access(broker.bootstrap, {})


def settings_of(broker, topic: str) -> dict[str, str]:
    """Those that the topic has of its own."""
    (address, *_) = access(broker).servers()
    (found,) = describe_configs(access(broker), address, RESOURCE_CODES[Kind.TOPIC], [topic], [])
    return {one.name: one.value for one in found.configs if one.config_source == DYNAMIC_TOPIC_CONFIG}


def alter(broker, topic: str, **changes: str | None) -> None:
    named = {key.replace("_", "."): value for key, value in changes.items()}
    alter_resource(access(broker), Kind.TOPIC, topic, named)


def test_records_arrive_as_they_are(west, east, mirror, topic, name):
    Topics(west.bootstrap).create(2, topic)
    for codec in ("none", "lz4", "zstd", "gzip", "snappy"):
        fill(west.bootstrap, topic, 60, compression_type=codec)
    end = run_once(mirror())
    copy = ledger(east.bootstrap, f"{name}.{topic}")
    assert copy == ledger(west.bootstrap, topic)
    assert codecs_of(east.bootstrap, f"{name}.{topic}") == codecs_of(west.bootstrap, topic)
    assert (end["records"], end["lag"], end["ok"]) == (300, 0, True)
    assert end["transactions"] > 2
    assert run_once(mirror())["records"] == 0
    fill(west.bootstrap, topic, 40)
    assert run_once(mirror())["records"] == 40
    assert ledger(east.bootstrap, f"{name}.{topic}") == ledger(west.bootstrap, topic)


def test_transactions_that_were_aborted_are_left_out(west, east, mirror, topic, name):
    Topics(west.bootstrap).create(2, topic)
    producer = Producer({"bootstrap.servers": west.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    for number in range(6):
        producer.begin_transaction()
        for value in range(20):
            producer.produce(topic, f"{number}/{value}", partition=value % 2)
        if number % 2:
            producer.flush(30)
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    run_once(mirror())
    copy = ledger(east.bootstrap, f"{name}.{topic}")
    assert copy == ledger(west.bootstrap, topic)
    assert [one.value.decode() for one in copy[0]] == [f"{n}/{v}" for n in (0, 2, 4) for v in range(0, 20, 2)]
    fill(west.bootstrap, topic, 10)
    run_once(mirror())
    assert ledger(east.bootstrap, f"{name}.{topic}") == ledger(west.bootstrap, topic)


def test_the_gaps_of_a_compacted_topic(west, east, mirror, topic, name):
    Topics(west.bootstrap).create(
        1, topic, cleanup_policy="compact", segment_ms="100", min_cleanable_dirty_ratio="0.0"
    )

    def has_gaps() -> bool:
        fill(west.bootstrap, topic, 10, partitions=1)
        records = records_of(west.bootstrap, topic)[0]
        return len(records) < records[-1].offset - 20

    until(has_gaps, "the source is compacted")
    alter(west, topic, min_cleanable_dirty_ratio="1.0")
    before = ledger(west.bootstrap, topic)
    run_once(
        mirror(topics=f'names = ["{topic}"]\nown_settings = ["min.cleanable.dirty.ratio", "segment.ms"]')
    )
    assert ledger(east.bootstrap, f"{name}.{topic}") == before == ledger(west.bootstrap, topic)


def test_the_brokers_append_time_becomes_the_records_own(west, east, mirror, topic, name):
    """A producer may not claim it; readers of the copy see what readers of the source see."""
    Topics(west.bootstrap).create(2, topic, message_timestamp_type="LogAppendTime")
    fill(west.bootstrap, topic, 50, start_ms=1_700_000_000_000, compression_type="lz4")
    run_once(mirror())
    copy = ledger(east.bootstrap, f"{name}.{topic}")
    assert copy == ledger(west.bootstrap, topic)
    assert copy[0][0].timestamp > 1_700_000_000_100
    assert codecs_of(east.bootstrap, f"{name}.{topic}") == {3}


def test_a_batch_that_begins_before_the_log(west, east, mirror, topic, name):
    Topics(west.bootstrap).create(1, topic)
    fill(west.bootstrap, topic, 50, partitions=1, batch_size=100_000, linger_ms=200)
    delete_records(access(west), {Place(topic, 0): 17})
    run_once(mirror())
    copy = ledger(east.bootstrap, f"{name}.{topic}")
    assert copy == ledger(west.bootstrap, topic)
    assert len(copy[0]) == 33


def test_partitions_and_settings_are_kept_in_step(west, east, mirror, topic, name):
    copy = f"{name}.{topic}"
    Topics(west.bootstrap).create(
        1, topic, retention_ms="86400000", min_insync_replicas="1", segment_ms="600000"
    )
    file = mirror(topics=f'names = ["{topic}"]\nown_settings = ["retention.bytes"]')
    run_once(file)
    assert settings_of(east, copy) == {"retention.ms": "86400000", "segment.ms": "600000"}
    alter(west, topic, retention_ms=None, segment_ms="700000", max_message_bytes="900000")
    alter(east, copy, retention_bytes="12345")
    add_partitions(access(west), topic, 3)
    fill(west.bootstrap, topic, 30, partitions=3)
    told = run_command("mirror", "check", str(file)).stdout
    assert f"would give {copy} 3 partitions" in told
    assert f"would reset retention.ms of {copy}" in told
    run_once(file)
    wanted = {"segment.ms": "700000", "max.message.bytes": "900000", "retention.bytes": "12345"}
    assert settings_of(east, copy) == wanted
    assert ledger(east.bootstrap, copy) == ledger(west.bootstrap, topic)


def test_a_mirror_that_runs_follows_partitions_and_new_topics(west, east, mirror, topic, name):
    Topics(west.bootstrap).create(1, f"{topic}-a")
    process = Inside(mirror(topics=f'pattern = "{topic}-."'))
    with running(process):
        fill(west.bootstrap, f"{topic}-a", 10, partitions=1)
        until(lambda: process.partitions == [f"{topic}-a-0"], "the partition is assigned")
        add_partitions(access(west), f"{topic}-a", 2)
        Topics(west.bootstrap).create(1, f"{topic}-b")
        until(lambda: len(process.partitions or ()) == 3, "the others, too")
        fill(west.bootstrap, f"{topic}-a", 10)
        fill(west.bootstrap, f"{topic}-b", 10, partitions=1)
        until(
            lambda: all(
                ledger(east.bootstrap, f"{name}.{one}") == ledger(west.bootstrap, one)
                for one in (f"{topic}-a", f"{topic}-b")
            ),
            "everything is copied",
        )
        assert process.end()
    assert process.events[-1]["not_copying"] == {}, "partitions that end with the process are no problem"


# What is refused


def test_a_topic_that_was_created_again_is_refused_until_the_copy_is_deleted(west, east, mirror, topic, name):
    topics = Topics(west.bootstrap)
    topics.create(2, topic)
    fill(west.bootstrap, topic, 20)
    run_once(mirror())
    before = ledger(east.bootstrap, f"{name}.{topic}")
    topics.delete(topic)
    topics.create(2, topic)
    fill(west.bootstrap, topic, 30)
    why = run_once(mirror(), ok=False)["not_copying"][f"{topic}-0"]
    assert f"{topic} of {name} was deleted and created again" in why
    assert f"odradek topic delete {name}.{topic}" in why
    assert ledger(east.bootstrap, f"{name}.{topic}") == before
    assert run_command("-b", east.bootstrap, "topic", "delete", f"{name}.{topic}", "--yes").returncode == 0
    run_once(mirror())
    assert ledger(east.bootstrap, f"{name}.{topic}") == ledger(west.bootstrap, topic)


def test_records_that_the_source_deleted_too_early(west, east, mirror, topic, name):
    Topics(west.bootstrap).create(1, topic)
    fill(west.bootstrap, topic, 20, partitions=1)
    run_once(mirror())
    fill(west.bootstrap, topic, 20, partitions=1)
    delete_records(access(west), {Place(topic, 0): 30})
    why = run_once(mirror(), ok=False)["not_copying"][f"{topic}-0"]
    assert "was to go on at offset 20" in why and "begins at 30" in why and "--accept-loss" in why
    run_once(mirror(), accepts_loss=True)
    values = [one.value for one in ledger(east.bootstrap, f"{name}.{topic}")[0]]
    assert len(values) == 30 and values[20:] == [one.value for one in ledger(west.bootstrap, topic)[0]]


def test_records_that_the_target_refuses(west, east, mirror, topic, name):
    """The partition stops with a sentence, and leaves no transaction open; the other one goes on."""
    Topics(west.bootstrap).create(2, topic)
    fill(west.bootstrap, topic, 20)
    own = f'names = ["{topic}"]\nown_settings = ["max.message.bytes"]'
    run_once(mirror(topics=own))
    alter(east, f"{name}.{topic}", max_message_bytes="500")
    producer = Producer({"bootstrap.servers": west.bootstrap})
    producer.produce(topic, b"x" * 1000, partition=0)
    producer.produce(topic, b"y", partition=1)
    assert producer.flush(30) == 0
    end = run_once(mirror(topics=own), ok=False)
    assert "raise max.message.bytes of the copy" in end["not_copying"][f"{topic}-0"]
    assert len(ledger(east.bootstrap, f"{name}.{topic}")[1]) == 11
    alter(east, f"{name}.{topic}", max_message_bytes=None)
    run_once(mirror(topics=own))
    assert ledger(east.bootstrap, f"{name}.{topic}") == ledger(west.bootstrap, topic)


def test_a_copy_that_somebody_else_has_filled(west, east, mirror, topic, name):
    Topics(west.bootstrap).create(1, topic)
    Topics(east.bootstrap).create(1, f"{name}.{topic}")
    fill(west.bootstrap, topic, 5, partitions=1)
    fill(east.bootstrap, f"{name}.{topic}", 5, partitions=1)
    end = run_once(mirror(), ok=False)
    assert "there is no position that tells where they come from" in end["not_copying"][f"{topic}-0"]
    assert len(ledger(east.bootstrap, f"{name}.{topic}")[0]) == 5


def test_records_of_others_among_the_positions(west, east, mirror, topic, name):
    """One stops the partition whose key it has, and says how to remove it; all others are ignored."""
    Topics(west.bootstrap).create(2, topic)
    fill(west.bootstrap, topic, 20)
    run_once(mirror())
    positions = Positions(client(east.bootstrap))
    positions.prepare()
    place = positions.partition_of(Copy(name, topic, 0))
    producer = Producer({"bootstrap.servers": east.bootstrap})
    for key in ("no JSON", "[1, 2]", f'["{name}",["{topic}"],0,"9.9"]', f'["{name}","{topic}",0,"9.9"]'):
        producer.produce(place.topic, b"garbage", key, partition=place.partition)
    assert producer.flush(30) == 0
    fill(west.bootstrap, topic, 20)
    refused = run_once(mirror(), ok=False)["not_copying"]
    assert refused.keys() == {f"{topic}-0"}
    advice = re.search(r"remove it from the target: odradek (.*)$", refused[f"{topic}-0"])
    assert advice is not None
    assert run_command("-b", east.bootstrap, *shlex.split(advice[1])).returncode == 0
    run_once(mirror())
    assert ledger(east.bootstrap, f"{name}.{topic}") == ledger(west.bootstrap, topic)


def test_what_the_target_knows_while_the_source_is_away(west, east, mirror, topic, name):
    Topics(west.bootstrap).create(2, topic)
    fill(west.bootstrap, topic, 20)
    run_once(mirror())
    file = mirror()
    file.write_text(file.read_text().replace(west.bootstrap, "127.0.0.1:1"))
    result = run_command("mirror", "status", str(file), "--json")
    assert result.returncode == 0
    assert f"no broker reachable at 127.0.0.1:1 (connection refused): check bootstrap.servers of {name}" in (
        result.stderr
    )
    found = json.loads(result.stdout)
    assert [(one["partition"], one["copied_to"], one["lag"]) for one in found] == [
        (0, 10, None),
        (1, 10, None),
    ]
    assert all(one["copied_at_ms"] > 0 for one in found)


def test_a_cluster_is_not_mirrored_to_itself(west, tmp_path, topic):
    file = write_file(tmp_path, west.bootstrap, west.bootstrap, f'names = ["{topic}"]')
    result = run_command("mirror", str(file), "--once")
    assert result.returncode == 1
    assert "west and east are the same cluster" in result.stderr


def test_a_source_that_lacks_the_topic(west, mirror, topic):
    result = run_command("mirror", str(mirror()), "--once")
    assert result.returncode == 1
    assert f"has no topic {topic} yet" in result.stderr


def test_clusters_that_are_away(west, tmp_path):
    file = write_file(tmp_path, west.bootstrap, "127.0.0.1:1")
    result = run_command("mirror", str(file), "--once")
    assert result.returncode == 1
    assert "no broker reachable at 127.0.0.1:1" in result.stderr


# Sharing


def test_two_processes_share_the_work_and_take_over(west, east, mirror, topic, name):
    Topics(west.bootstrap).create(4, topic)
    one, two = Process(mirror()), Process(mirror())
    with running(one, two):
        until(lambda: len(one.partitions or ()) == len(two.partitions or ()) == 2, "each has two partitions")
        assert sorted([*(one.partitions or ()), *(two.partitions or ())]) == [
            f"{topic}-{n}" for n in range(4)
        ]
        fill(west.bootstrap, topic, 100, partitions=4)
        one.kill()
        until(lambda: len(two.partitions or ()) == 4, "the other takes over")
        fill(west.bootstrap, topic, 100, partitions=4)
        assert run_command("mirror", "status", str(mirror()), "--json").returncode == 0
        until(
            lambda: ledger(east.bootstrap, f"{name}.{topic}") == ledger(west.bootstrap, topic),
            "everything is copied once",
        )
        assert two.end() == 0


def test_a_rival_without_the_group_is_fenced_or_fences(west, east, mirror, topic, name):
    """Whoever initialized last goes on; the other one waits for the group."""
    Topics(west.bootstrap).create(1, topic)
    process = Process(mirror())
    with running(process):
        fill(west.bootstrap, topic, 10, partitions=1)
        until(lambda: len(ledger_or_none(east, f"{name}.{topic}")) == 10, "the mirror copies")
        rival = TransactionalProducer(
            client(east.bootstrap), f"odradek-mirror.{name}.{topic}.0", ProduceSettings(), 60_000
        )
        rival.initialize()
        target = TopicPartition(f"{name}.{topic}", 0)
        rival.send([EncodedRecords(target, encode_records([Record(0, 0, None, b"no")], 0, 0), 1, 0, 0)])
        fill(west.bootstrap, topic, 10, partitions=1)
        until(lambda: "another process copies it" in process.log.read_text(), "the mirror is fenced")
        assert len(records_of_stable(east, f"{name}.{topic}")) == 10, "and has not fenced the rival in return"
        assert process.end() == 0
    run_once(mirror())
    assert ledger(east.bootstrap, f"{name}.{topic}") == ledger(west.bootstrap, topic)


def ledger_or_none(broker, topic: str) -> list:
    return ledger(broker.bootstrap, topic)[0] if topic in client(broker.bootstrap).topic_names() else []


def records_of_stable(broker, topic: str) -> list:
    """What readers see while a transaction is open."""
    from odradek.client.fetching import RangeReader
    from odradek.client.settings import FetchSettings
    from odradek.records.record import decode_batch

    cluster, partition = client(broker.bootstrap), TopicPartition(topic, 0)
    end = cluster.list_offsets({partition: -1}, read_committed=True)[partition]
    reader = RangeReader(cluster, partition, 0, end, FetchSettings(read_committed=True), 30)
    found = []
    while reader.position < end:
        for batch in reader.fetch().batches:
            found += decode_batch(batch.data, batch.header)
    return found


# Failing over and back


def test_groups_fail_over_and_back(west, east, tmp_path, topic, name):
    """A group reads in the west, goes on in the east, and comes back; each time it skips nothing."""
    Topics(west.bootstrap).create(2, topic)
    fill(west.bootstrap, topic, 200)
    forth = write_file(
        tmp_path,
        west.bootstrap,
        east.bootstrap,
        f'names = ["{topic}"]',
        f'pattern = "{name}-read.*"',
        names=(name, "east"),
    )
    commit(west.bootstrap, f"{name}-readers", {(topic, 0): 60, (topic, 1): 100})
    process, copy = Inside(forth), f"{name}.{topic}"
    with running(process):
        until(
            lambda: len(committed(east.bootstrap, f"{name}-readers", copy)) == 2, "the group is carried over"
        )
        first = committed(east.bootstrap, f"{name}-readers", copy)
        commit(west.bootstrap, f"{name}-readers", {(topic, 0): 90, (topic, 1): 100})
        until(lambda: committed(east.bootstrap, f"{name}-readers", copy) != first, "and follows")
        over = until(lambda: committed(east.bootstrap, f"{name}-readers", copy), "its offsets")
        assert process.end()
    unread = {
        number: [one.value for one in records if one.offset >= over[number]]
        for number, records in records_of(east.bootstrap, copy).items()
    }
    values = {number: [one.value for one in found] for number, found in ledger(west.bootstrap, topic).items()}
    for number, read in ((0, 90), (1, 100)):
        left = values[number][read:]
        assert unread[number][len(unread[number]) - len(left) :] == left, "it skips nothing"
        assert len(unread[number]) - len(left) <= 20, "and repeats few"

    # It reads on in the east, where new records are written to a topic of its own.
    places = {
        number: [one.offset for one in found] for number, found in records_of(east.bootstrap, copy).items()
    }
    commit(east.bootstrap, f"{name}-readers", {(copy, 0): places[0][95], (copy, 1): places[1][99] + 1})
    Topics(east.bootstrap).create(2, topic)
    fill(east.bootstrap, topic, 50)
    shown = run_command("mirror", "offsets", str(forth), "--group", f"{name}-readers", "--back", "--execute")
    assert shown.returncode == 0, shown.stderr
    back = committed(west.bootstrap, f"{name}-readers", topic)
    assert 85 <= back[0] <= 95 and 90 <= back[1] <= 100

    # The way back brings what was written in the east, and never the copies of the west's own topics.
    other = write_file(
        tmp_path, east.bootstrap, west.bootstrap, f'pattern = ".*{topic}"', names=("east", name)
    )
    run_once(other)
    names = client(west.bootstrap).topic_names()
    assert f"east.{topic}" in names and f"east.{copy}" not in names
    assert ledger(west.bootstrap, f"east.{topic}") == ledger(east.bootstrap, topic)


def test_offsets_of_an_active_group_are_left_alone(west, east, mirror, topic, name):
    from confluent_kafka import Consumer

    Topics(west.bootstrap).create(2, topic)
    fill(west.bootstrap, topic, 20)
    run_once(mirror())
    commit(west.bootstrap, f"{name}-active", {(topic, 0): 5, (topic, 1): 5})
    consumer = Consumer({"bootstrap.servers": east.bootstrap, "group.id": f"{name}-active"})
    consumer.subscribe([f"{name}.{topic}"])
    until(lambda: consumer.poll(0.2) is None and consumer.assignment(), "the group has a member in the east")
    result = run_command("mirror", "offsets", str(mirror()), "--group", f"{name}-active", "--execute")
    consumer.close()
    assert result.returncode == 1
    assert "the group has active members" in result.stderr


def test_a_bug_in_the_upkeep_ends_the_process(west, mirror, topic, monkeypatch):
    """Rather than copying on without new partitions and groups."""
    Topics(west.bootstrap).create(1, topic)

    def look_after(self) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(MirrorRun, "_look_after", look_after)
    with pytest.raises(RuntimeError, match="a bug"):
        MirrorRun(load(mirror()), lambda event: None).run()


def test_metrics_are_served(west, east, mirror, topic):
    import urllib.request

    Topics(west.bootstrap).create(1, topic)
    fill(west.bootstrap, topic, 20, partitions=1)
    process = Process(mirror(), "--metrics-port", "0")
    with running(process):
        url = until(lambda: next((one["url"] for one in process.events if "url" in one), None), "metrics")

        def shown() -> bool:
            with urllib.request.urlopen(url, timeout=10) as response:
                return b'odradek_mirror_records_total{source="' in response.read()

        until(shown, "the number of records")
