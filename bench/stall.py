"""Measure what one client can do to the others: the longest wait of a bystander during a huge, legal request.

A bystander sends ApiVersions, again and again, on a connection of its own. Meanwhile another client sends the
largest request of its kind that it can think of, for every API that is served, and waits until it is answered or its
connection is closed. The bystander's longest wait is what that request costs everybody else.
"""

import argparse
import json
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from rich.console import Console
from rich.table import Table

from odradek.records.compression import Codec
from odradek.records.record import Record, build_batch
from odradek.wire.frame import encode_request
from odradek.wire.messages import (
    alter_configs,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
)

ALLOWED_STALL_MS = 50.0
QUIET_S = 1.0
GIVE_UP_S = 180.0
PING_PAUSE_S = 0.001
MILLION = 1_000_000
MANY = 150_000  # elements: a request with more is refused
TOPICS = 10_000
TOPIC, COMPACTED, WIDE, GROUP = "topic", "compacted", "wide", "group"
SOME_ID = UUID(int=7)


class Case(NamedTuple):
    name: str
    stream: Callable[[], bytes]  # whole frames
    responses: int = 1


class Stall(NamedTuple):
    case: str
    request_bytes: int
    longest_ms: float
    seconds: float
    outcome: str


def frame(request: Any, version: int) -> bytes:
    return bytes(encode_request(request, request.API_KEY, version, 1, "stall"))


def each(count: int, make: Callable[[int], Any]) -> list[Any]:
    return [make(index) for index in range(count)]


def batch(count: int = 1, codec: Codec = Codec.NONE, value: bytes = b"x") -> bytes:
    now_ms = int(time.time() * 1000)
    return bytes(build_batch([Record(at, now_ms, b"k", value) for at in range(count)], codec=codec))


def produced(topic: str, partitions: Sequence[int], records: bytes, acks: int = 1) -> bytes:
    data = [produce.PartitionProduceData(index, records) for index in partitions]
    return frame(
        produce.ProduceRequest(
            None, acks, 30_000, [produce.TopicProduceData(name=topic, partition_data=data)]
        ),
        9,
    )


def committed(count: int, index: Callable[[int], int]) -> bytes:
    partitions = each(count, lambda at: offset_commit.OffsetCommitRequestPartition(index(at), at))
    topics = [offset_commit.OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)]
    return frame(offset_commit.OffsetCommitRequest(GROUP, topics=topics), 8)


def fetched(count: int, index: Callable[[int], int]) -> bytes:
    partitions = each(count, lambda at: fetch.FetchPartition(index(at), partition_max_bytes=1000))
    return frame(
        fetch.FetchRequest(
            max_wait_ms=100, min_bytes=1, topics=[fetch.FetchTopic(TOPIC, partitions=partitions)]
        ),
        12,
    )


def new_topics(prefix: str, count: int, partitions: int = 1) -> bytes:
    topics = each(count, lambda at: create_topics.CreatableTopic(f"{prefix}-{at}", partitions, 1))
    return frame(create_topics.CreateTopicsRequest(topics, 60_000), 7)


def resources(module: Any, make: Callable[[int], Any], version: int, request: str) -> bytes:
    return frame(getattr(module, request)(each(MANY, make)), version)


def joined(count: int) -> bytes:
    protocols = each(count, lambda at: join_group.JoinGroupRequestProtocol(f"p{at}", b"x"))
    return frame(join_group.JoinGroupRequest(GROUP, 10_000, 10_000, "", None, "consumer", protocols), 5)


def asked_many_groups(count: int) -> bytes:
    topics = lambda: [offset_fetch.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]  # noqa: E731
    groups = each(count, lambda at: offset_fetch.OffsetFetchRequestGroup(f"g{at}", topics=topics()))
    return frame(offset_fetch.OffsetFetchRequest(groups=groups), 8)


def listed(count: int, index: Callable[[int], int], timestamp: int = -1) -> bytes:
    partitions = each(count, lambda at: list_offsets.ListOffsetsPartition(index(at), timestamp=timestamp))
    return frame(
        list_offsets.ListOffsetsRequest(topics=[list_offsets.ListOffsetsTopic(TOPIC, partitions)]), 7
    )


def beat() -> bytes:
    request = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        "new-group", rebalance_timeout_ms=10_000, topic_partitions=[],
        subscribed_topic_names=each(MANY, lambda at: f"topic-{at}"),
    )  # fmt: skip
    return frame(request, 0)


def synced() -> bytes:
    assignments = each(MANY, lambda at: sync_group.SyncGroupRequestAssignment(f"member-{at}", b"x"))
    return frame(sync_group.SyncGroupRequest(GROUP, 1, "member-1", assignments=assignments), 5)


def left() -> bytes:
    members = each(MANY, lambda at: leave_group.MemberIdentity(f"member-{at}"))
    return frame(leave_group.LeaveGroupRequest(GROUP, members=members), 4)


same: Callable[[int], int] = lambda at: 0  # noqa: E731
distinct: Callable[[int], int] = lambda at: at  # noqa: E731


def simple(make: Callable[[], Any], version: int) -> Callable[[], bytes]:
    return lambda: frame(make(), version)


CASES = [
    Case("nothing", lambda: frame(api_versions.ApiVersionsRequest("stall", "1"), 3)),
    Case("10,000 pipelined Metadata", lambda: frame(metadata.MetadataRequest(None), 9) * TOPICS, TOPICS),
    Case("10,000 pipelined Produce, acks=1", lambda: produced(TOPIC, [0], batch()) * TOPICS, TOPICS),
    Case("OffsetCommit, a partition a million times", partial(committed, MILLION, same)),
    Case("OffsetCommit, a partition many times", lambda: committed(MANY, same)),
    Case("OffsetCommit, many partitions", lambda: committed(MANY, distinct)),
    Case("OffsetFetch, a partition many times", simple(lambda: offset_fetch.OffsetFetchRequest(groups=[
        offset_fetch.OffsetFetchRequestGroup(GROUP, topics=[
            offset_fetch.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0] * MANY)])]), 8)),
    Case("OffsetFetch, many groups", lambda: asked_many_groups(MANY // 3)),
    Case("OffsetDelete, many partitions", simple(lambda: offset_delete.OffsetDeleteRequest(GROUP, [
        offset_delete.OffsetDeleteRequestTopic(TOPIC, each(MANY, offset_delete.OffsetDeleteRequestPartition))]), 0)),
    Case("FindCoordinator, many keys", simple(lambda: find_coordinator.FindCoordinatorRequest(
        coordinator_keys=each(MANY, lambda at: f"g{at}")), 4)),
    Case("Metadata, many names", simple(lambda: metadata.MetadataRequest(
        each(MANY, lambda at: metadata.MetadataRequestTopic(name=f"t{at}")), False), 9)),
    Case("Metadata that creates topics", simple(lambda: metadata.MetadataRequest(
        each(5_000, lambda at: metadata.MetadataRequestTopic(name=f"auto-{at}")), True), 9)),
    Case("ListOffsets, a partition many times", lambda: listed(MANY, same)),
    Case("ListOffsets, many partitions", lambda: listed(MANY, distinct)),
    Case("Fetch, many partitions", lambda: fetched(MANY, distinct)),
    Case("Fetch, a partition many times", lambda: fetched(MANY, same)),
    Case("OffsetForLeaderEpoch, many partitions", simple(
        lambda: offset_for_leader_epoch.OffsetForLeaderEpochRequest(-1, [
            offset_for_leader_epoch.OffsetForLeaderTopic(TOPIC, each(MANY,
                lambda at: offset_for_leader_epoch.OffsetForLeaderPartition(at % 2, -1, 0)))]), 4)),
    Case("Produce, a partition many times", lambda: produced(TOPIC, [0] * MANY, batch())),
    Case("Produce, 90 partitions of 1 MB", lambda: produced(WIDE, range(90), batch(1, value=b"x" * 1_000_000))),
    Case("Produce, 300,000 gzipped records, compacted", lambda: produced(COMPACTED, [0], batch(300_000, Codec.GZIP))),
    Case("Produce, zstd bomb, compacted", lambda: produced(COMPACTED, [0], batch(60, Codec.ZSTD, bytes(1 << 20)))),
    Case("DeleteRecords, a partition many times", simple(lambda: delete_records.DeleteRecordsRequest([
        delete_records.DeleteRecordsTopic(TOPIC, each(MANY,
            lambda at: delete_records.DeleteRecordsPartition(0, 0)))]), 2)),
    Case("DescribeProducers, many partitions", simple(lambda: describe_producers.DescribeProducersRequest([
        describe_producers.TopicRequest(TOPIC, [0] * MANY)]), 0)),
    Case("DescribeConfigs, a topic many times", simple(lambda: describe_configs.DescribeConfigsRequest(each(
        MANY // 8, lambda at: describe_configs.DescribeConfigsResource(2, TOPIC))), 4)),
    Case("DescribeLogDirs, many partitions", simple(lambda: describe_log_dirs.DescribeLogDirsRequest([
        describe_log_dirs.DescribableLogDirTopic(TOPIC, [0] * MANY)]), 4)),
    Case("DescribeTopicPartitions, many names", simple(
        lambda: describe_topic_partitions.DescribeTopicPartitionsRequest(
            each(MANY, lambda at: describe_topic_partitions.TopicRequest(f"t{at}"))), 0)),
    Case("DescribeGroups, many groups", simple(lambda: describe_groups.DescribeGroupsRequest(
        each(MANY, lambda at: f"g{at}")), 5)),
    Case("ConsumerGroupDescribe, many groups", simple(lambda: consumer_group_describe.ConsumerGroupDescribeRequest(
        each(MANY, lambda at: f"g{at}")), 1)),
    Case("DeleteGroups, many groups", simple(lambda: delete_groups.DeleteGroupsRequest(
        each(MANY, lambda at: f"g{at}")), 2)),
    Case("JoinGroup, many protocols", lambda: joined(MANY)),
    Case("SyncGroup, many assignments", synced),
    Case("LeaveGroup, many members", left),
    Case("ConsumerGroupHeartbeat, many names", beat),
    Case("AlterConfigs, many topics", lambda: resources(alter_configs, lambda at: alter_configs.AlterConfigsResource(
        2, f"t{at}", []), 2, "AlterConfigsRequest")),
    Case("IncrementalAlterConfigs, many topics", lambda: resources(
        incremental_alter_configs,
        lambda at: incremental_alter_configs.AlterConfigsResource(2, f"t{at}", []),
        1, "IncrementalAlterConfigsRequest")),
    Case("CreatePartitions, many topics", simple(lambda: create_partitions.CreatePartitionsRequest(each(
        MANY, lambda at: create_partitions.CreatePartitionsTopic(f"t{at}", 2, None))), 3)),
    Case("CreateTopics, more than are allowed", lambda: new_topics("many", MANY)),
    Case("CreateTopics, one of 10,000 partitions", lambda: new_topics("broad", 1, TOPICS)),
    Case("Metadata of all topics", simple(lambda: metadata.MetadataRequest(None), 9)),
    Case("CreateTopics, 10,000 topics", lambda: new_topics("each", TOPICS)),
    Case("Metadata of all topics, again", lambda: frame(metadata.MetadataRequest(None), 9) * 10, 10),
    Case("ListConfigResources", simple(lambda: list_config_resources.ListConfigResourcesRequest([]), 1)),
    Case("ListGroups", simple(lambda: list_groups.ListGroupsRequest(), 5)),
    Case("DescribeLogDirs, all", simple(lambda: describe_log_dirs.DescribeLogDirsRequest(None), 4)),
    Case("DeleteTopics, 10,000 topics", simple(lambda: delete_topics.DeleteTopicsRequest(
        topic_names=each(TOPICS, lambda at: f"each-{at}"), timeout_ms=60_000), 5)),
    Case("DeleteTopics, many names", simple(lambda: delete_topics.DeleteTopicsRequest(
        topic_names=each(MANY, lambda at: f"t{at}"), timeout_ms=60_000), 5)),
]  # fmt: skip


class Bystander:
    """Sends small requests one after the other, and remembers how long the slowest took."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._request = frame(api_versions.ApiVersionsRequest("bystander", "1"), 3)
        self._stopped = threading.Event()
        self._longest = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._stopped.wait(PING_PAUSE_S):
            begin = time.perf_counter()
            self._socket.sendall(self._request)
            receive(self._socket)
            self._longest = max(self._longest, time.perf_counter() - begin)

    def __enter__(self) -> "Bystander":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._socket.close()

    def take_longest_ms(self) -> float:
        longest, self._longest = self._longest, 0.0
        return longest * 1000


def receive(connection: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", read_exactly(connection, 4))
    return read_exactly(connection, size)


def read_exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            raise ConnectionError("closed")
        data += piece
    return bytes(data)


def attack(port: int, stream: bytes, responses: int) -> str:
    """Send it all, and read what comes back; returns how it ended."""
    with socket.create_connection(("127.0.0.1", port), timeout=GIVE_UP_S) as connection:
        reader: list[str] = []
        thread = threading.Thread(target=lambda: reader.append(read_responses(connection, responses)))
        thread.start()
        try:
            connection.sendall(stream)
        except OSError:
            pass  # the reader says so
        thread.join()
        return reader[0]


def read_responses(connection: socket.socket, responses: int) -> str:
    try:
        for _ in range(responses):
            receive(connection)
    except TimeoutError:
        return "no response"
    except OSError:
        return "closed"
    return "answered"


def measure(port: int, cases: Sequence[Case]) -> Iterator[Stall]:
    with Bystander(port) as bystander:
        for case in cases:
            stream = case.stream()
            time.sleep(QUIET_S)
            bystander.take_longest_ms()
            begin = time.perf_counter()
            outcome = attack(port, stream, case.responses)
            seconds = time.perf_counter() - begin
            time.sleep(QUIET_S / 4)
            yield Stall(case.name, len(stream), bystander.take_longest_ms(), seconds, outcome)


@contextmanager
def running_broker(data_dir: Path) -> Iterator[int]:
    """A broker process with settings as they come; its port."""
    command = [sys.executable, "-m", "odradek", "up", "--json", "--port", "0", "--log-level", "error"]
    with subprocess.Popen([*command, "--data-dir", str(data_dir)], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield int(json.loads(process.stdout.readline())["bootstrap"].rpartition(":")[2])
        finally:
            process.terminate()


def prepare(port: int) -> None:
    """Make the topics and the group that the cases name."""
    configs = [create_topics.CreatableTopicConfig("cleanup.policy", "compact")]
    topics = [
        create_topics.CreatableTopic(TOPIC, 2, 1),
        create_topics.CreatableTopic(WIDE, 100, 1),
        create_topics.CreatableTopic(COMPACTED, 1, 1, configs=configs),
    ]
    attack(port, frame(create_topics.CreateTopicsRequest(topics, 30_000), 7), 1)
    attack(port, frame(find_coordinator.FindCoordinatorRequest(key=GROUP), 3), 1)
    attack(port, committed(2, distinct), 1)


def print_stalls(stalls: Sequence[Stall], console: Console) -> None:
    table = Table(title=f"The longest wait of a bystander (aim: {ALLOWED_STALL_MS:g} ms)")
    table.add_column("request")
    for name in ("bytes", "stall ms", "s"):
        table.add_column(name, justify="right")
    table.add_column("")
    for case, size, longest_ms, seconds, outcome in stalls:
        style = "red" if longest_ms > ALLOWED_STALL_MS else None
        table.add_row(case, f"{size:,}", f"{longest_ms:.1f}", f"{seconds:.2f}", outcome, style=style)
    console.print(table)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("python -m bench.stall", description=__doc__)
    parser.add_argument("only", nargs="*", metavar="NAME", help="cases whose names have this in them")
    only = parser.parse_args(arguments).only
    cases = [case for case in CASES if not only or any(word in case.name for word in only)]
    with tempfile.TemporaryDirectory() as directory, running_broker(Path(directory) / "data") as port:
        prepare(port)
        stalls = list(measure(port, cases))
    print_stalls(stalls, Console(width=110))
    return 1 if any(stall.longest_ms > ALLOWED_STALL_MS for stall in stalls) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
