"""A disk returns wrong bytes: a bit is flipped in an old segment while its broker is down.

Whoever reads there gets an error, or is served by another replica; nobody is told that the records are not there.
"""

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from odradek.errors import ErrorCode
from odradek.records.walk import whole_batches
from odradek.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tests.processes.nodes import ask, cluster, until
from tests.processes.record_faults import client, ends_of
from tests.processes.replica_scan import check_replicas
from tests.processes.test_replication_scenarios import (
    COMBINED,
    PREFERRED,
    SETTINGS,
    TOPIC,
    await_in_sync,
    await_partition,
    await_records,
    command,
    elect,
    produce,
)
from tests.support import RunningBroker, run_command, running_broker

RECORDS = [f"record-{number:03}" for number in range(120)]
DAMAGED = 3  # the number of the batch, in the oldest segment
LENGTH, MAGIC = 9, 16  # bytes of its header
OFTEN = {
    "replica_high_watermark_checkpoint_interval_ms": "50"
}  # so that recovery does not read old segments again
SMALL = "internal.segment.bytes=2000"


def produce_one_by_one(bootstrap: str, topic: str = TOPIC) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    for record in RECORDS:
        producer.produce(topic, record, partition=0)
        producer.flush()


def flip(data_dir: Path, field: int, name: str = f"{TOPIC}-0") -> tuple[Path, int]:
    """A bit of the oldest segment: the file, and where the damaged batch begins."""
    path, *others = sorted((data_dir / name).glob("*.log"))
    assert others, "there is only one segment"
    data = bytearray(path.read_bytes())
    position = sum(len(batch.data) for batch in list(whole_batches(memoryview(bytes(data))))[:DAMAGED])
    data[position + field] ^= 0x10
    path.write_bytes(data)
    return path, position


def await_checkpoint(data_dir: Path, name: str, at_least: int) -> None:
    """The old segments are known to be synced, so that the start after a crash does not read them again."""
    topic, _, index = name.rpartition("-")

    def look() -> bool:
        checkpoint = data_dir / "recovery-point-offset-checkpoint"
        lines = checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else []
        points = {tuple(line.split()[:2]): int(line.split()[2]) for line in lines}
        return points.get((topic, index), 0) >= at_least

    until(look, f"the recovery point of {name} is on disk")


def end(broker: RunningBroker, is_clean: bool, name: str, records: int) -> None:
    if is_clean:
        broker.stop()
    else:
        await_checkpoint(broker.data_dir, name, records)
        broker.kill()


def fetch(broker: RunningBroker, offset: int) -> Any:
    host, port = broker.bootstrap.split(":")
    partition = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
    wanted = FetchTopic(topic=TOPIC, partitions=[partition])
    request = FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[wanted])
    return ask(host, int(port), request, FetchResponse).responses[0].partitions[0]


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("field", [LENGTH, MAGIC])
def test_the_only_replica_serves_what_it_can_and_refuses_the_damaged_records(
    tmp_path: Path, field: int, is_clean: bool
) -> None:
    with running_broker(tmp_path, **OFTEN) as broker:
        command("topic", "create", TOPIC, "--partitions", "1", "--config", SMALL, "-b", broker.bootstrap)
        produce_one_by_one(broker.bootstrap)
        end(broker, is_clean, f"{TOPIC}-0", len(RECORDS))
        path, position = flip(broker.data_dir, field)
        broker.start()
        before = fetch(broker, 0)
        assert before.error_code == ErrorCode.NONE
        offsets = [batch.header.base_offset for batch in whole_batches(memoryview(before.records))]
        assert offsets == list(range(DAMAGED))
        assert fetch(broker, DAMAGED).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert fetch(broker, len(RECORDS) - 1).error_code == ErrorCode.NONE
        assert f"{path} is damaged at byte {position}: " in broker.log
        assert f"{TOPIC}-0 has no other replica to copy from" in broker.log
        status = run_command("cluster", "status", "-b", broker.bootstrap)
        assert (status.returncode, "broker 1 has 1 damaged log" in status.stdout) == (1, True), status
        produce_one_by_one(broker.bootstrap)  # it takes records as before


def test_a_group_whose_offsets_are_damaged_is_not_served_as_if_it_had_none(tmp_path: Path) -> None:
    settings = {
        "offsets_topic_num_partitions": "1",
        "log_cleaner_enable": "false",
        **OFTEN,
    }
    with running_broker(tmp_path, **settings) as broker:
        command("topic", "create", TOPIC, "--partitions", "1", "-b", broker.bootstrap)
        produce(broker_at(broker), ["one"])
        commit(broker, "early", 1)
        command(
            *("config", "alter", "topic", "__consumer_offsets", "--set", SMALL),
            *("--force", "-b", broker.bootstrap),
        )
        for number in range(60):
            commit(broker, "late", number)
        broker.stop()
        path, _ = flip(broker.data_dir, LENGTH, "__consumer_offsets-0")
        broker.start()
        assert committed(broker, "early").error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        until(lambda: "its coordinator cannot be loaded" in broker.log, "the log says why")
        assert committed(broker, "early").error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert f"{path} is damaged" in broker.log


def broker_at(broker: RunningBroker) -> Any:
    """Return what `produce` needs of a node."""

    class Address:
        def address(self, listener: str) -> str:
            return broker.bootstrap

    return Address()


def commit(broker: RunningBroker, group: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
    consumer.close()


def committed(broker: RunningBroker, group: str) -> Any:
    host, port = broker.bootstrap.split(":")
    wanted = OffsetFetchRequestGroup(group, topics=[OffsetFetchRequestTopics(TOPIC, partition_indexes=[0])])
    return ask(host, int(port), OffsetFetchRequest(groups=[wanted]), OffsetFetchResponse).groups[0]


@pytest.mark.parametrize("is_clean", [pytest.param(True, marks=pytest.mark.long), False])
def test_a_damaged_leader_resigns_and_is_copied_again(tmp_path: Path, is_clean: bool) -> None:
    with cluster(tmp_path, COMBINED, **SETTINGS, **OFTEN) as nodes:
        command(
            *("topic", "create", TOPIC, "--partitions", "1", "--replication-factor", "3"),
            *("--config", SMALL, "-b", nodes.bootstrap),
        )
        first = await_partition(nodes[1], "somebody leads", lambda found: found.leader_id > 0).replica_nodes[
            0
        ]
        damaged = nodes[first]
        others = [node for node in nodes if node is not damaged]
        produce_one_by_one(nodes.bootstrap)
        await_in_sync(*nodes)
        end(damaged, is_clean, f"{TOPIC}-0", len(RECORDS))
        path, position = flip(damaged.data_dir, MAGIC)
        await_partition(others[0], "another one leads", lambda found: found.leader_id not in (-1, first))
        damaged.start()
        await_in_sync(*nodes)
        assert elect(others[0], PREFERRED) in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
        await_records(RECORDS, *nodes)
        damaged.wait_for_line(f"copying {TOPIC}-0 again from broker")
        assert f"{path} is damaged at byte {position}: " in damaged.log
        await_in_sync(*nodes)
        await_records(RECORDS, damaged)
        with client(nodes) as own:
            high_watermarks = ends_of(own, TOPIC)
        for node in nodes:
            node.stop()
        assert check_replicas({node.id: node.data_dir for node in nodes}, high_watermarks)
