"""A mirror between two real brokers: what arrives, what is kept in step, and what is refused with a sentence."""

import json
import re
import shlex

from confluent_kafka import Producer

from odradek.admin.access import Access
from odradek.admin.places import Place
from odradek.admin.resources import RESOURCE_CODES, Kind
from odradek.admin.settings import alter_resource, describe_configs
from odradek.admin.topics import add_partitions, delete_records
from odradek.mirror.position import Copy
from odradek.mirror.positions import Positions
from tests.mirror.lab import (
    Inside,
    client,
    codecs_of,
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


def access(broker) -> Access:
    return Access(broker.bootstrap, {})


def settings_of(broker, topic: str) -> dict[str, str]:
    """Return the settings that the topic has of its own."""
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
    copied, after = (
        ledger(*one)[0] for one in ((east.bootstrap, f"{name}.{topic}"), (west.bootstrap, topic))
    )
    assert is_part(after, copied) and is_part(copied, before[0]), (
        "a round of compaction may still have been under way"
    )


def is_part(some: list, whole: list) -> bool:
    """In the same order."""
    rest = iter(whole)
    return all(one in rest for one in some)


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
    advice = "raise max.message.bytes of the copy (name it in own_settings of the mirror's file"
    assert advice in end["not_copying"][f"{topic}-0"]
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
