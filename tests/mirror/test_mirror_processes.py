"""Processes between two real brokers: they share the work, give way to a rival, and serve metrics."""

import pytest

from odradek.client.producing import EncodedRecords
from odradek.client.settings import ProduceSettings
from odradek.client.transactions import TransactionalProducer
from odradek.mirror.file import load
from odradek.mirror.running import MirrorRun
from odradek.model import TopicPartition
from odradek.records.record import Record, encode_records
from tests.mirror.lab import (
    Process,
    client,
    fill,
    ledger,
    run_once,
    running,
)
from tests.processes.nodes import until
from tests.spark.spark_topics import Topics
from tests.support import run_command


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
    """Return what readers see while a transaction is open."""
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
