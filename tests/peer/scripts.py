"""Scripts of requests that every Kafka should answer alike. Each takes a `Cluster` and talks to it.

The name of a script is its function's; `needs` are the APIs without which it makes no sense. Topic names
begin with the script's own prefix, so that scripts do not meet.
"""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from odradek.records.batch import CRC_OFFSET
from odradek.records.record import Record, build_batch
from odradek.wire.messages import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
)
from tests.peer.exchange import Cluster

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
TIMEOUT_MS = 10_000
TIME_MS = 1_700_000_000_000
KEEP_OLD = {"message_timestamp_before_max_ms": "9223372036854775807", "retention_ms": "-1"}

Script = Callable[[Cluster, str], None]


@dataclass(frozen=True)
class Scenario:
    script: Script
    needs: tuple[int, ...]


SCENARIOS: dict[str, Scenario] = {}


def scenario(*needs: int) -> Callable[[Script], Script]:
    def register(script: Script) -> Script:
        SCENARIOS[script.__name__] = Scenario(script, needs)
        return script

    return register


# Building blocks


def batch(
    *values: bytes | None, key: bytes | None = b"key", first_time_ms: int = TIME_MS, **options: int
) -> bytearray:
    """Record batch of `values`, a second apart."""
    records = [Record(place, first_time_ms + 1000 * place, key, value) for place, value in enumerate(values)]
    return build_batch(records, **options)  # type: ignore[arg-type]


def produce_request(
    cluster: Cluster, topic: str, records: bytes | bytearray, partition: int = 0, acks: int = -1
) -> object:
    data = produce.PartitionProduceData(partition, records)
    topic_data = produce.TopicProduceData(cluster.id_of(topic), topic, [data])
    return produce.ProduceRequest(None, acks, TIMEOUT_MS, [topic_data])


def fill(cluster: Cluster, topic: str, batches: int = 3) -> None:
    """Three records a batch, all keyed; times rise by three seconds a batch."""
    for number in range(batches):
        values = [f"value {number}.{place}".encode() for place in range(3)]
        records = batch(*values, first_time_ms=TIME_MS + 3000 * number)
        response = cluster.ask_quietly(produce_request(cluster, topic, records))
        assert response.responses[0].partition_responses[0].error_code == 0, response


def list_offsets_request(
    topic: str, timestamp: int, partition: int = 0, epoch: int = -1, isolation: int = 0
) -> object:
    wanted = list_offsets.ListOffsetsPartition(partition, epoch, timestamp)
    return list_offsets.ListOffsetsRequest(
        -1, isolation, [list_offsets.ListOffsetsTopic(topic, [wanted])], TIMEOUT_MS
    )


def describe(*keys: str, name: str, kind: int = TOPIC, synonyms: bool = True) -> object:
    resource = describe_configs.DescribeConfigsResource(kind, name, list(keys) or None)
    return describe_configs.DescribeConfigsRequest([resource], synonyms, True)


def producer_id_from(cluster: Cluster) -> init_producer_id.InitProducerIdResponse:
    """Kafka's first response may be that it is still fetching a block of ids."""
    request = init_producer_id.InitProducerIdRequest(None, 1000)
    response: init_producer_id.InitProducerIdResponse = cluster.until(
        request, lambda found: found.error_code == 0
    )
    return response


# Metadata


@scenario(3, 19)
def metadata_of_topics(cluster: Cluster, prefix: str) -> None:
    cluster.create(f"{prefix}-a", 3)
    cluster.create(f"{prefix}-b", 1)
    names = [f"{prefix}-a", f"{prefix}-b", "", "..", "a/b", "x" * 250]
    if cluster.version_of(3) >= 4:  # before, to ask for a topic is to create it, at once or a moment later
        names.append(f"{prefix}-missing")
    for name in names:
        wanted = [metadata.MetadataRequestTopic(name=name)]
        cluster.ask(metadata.MetadataRequest(wanted, allow_auto_topic_creation=False), label=repr(name[:40]))
    if cluster.version_of(3) > 0:  # where an empty list means all of them
        cluster.ask(metadata.MetadataRequest([]), label="no topics")


@scenario(3, 19)
def metadata_by_id(cluster: Cluster, prefix: str) -> None:
    cluster.create(prefix)
    if cluster.version_of(3) < 12:
        return
    for topic_id in (cluster.topic_ids[prefix], UUID(int=7)):
        wanted = [metadata.MetadataRequestTopic(topic_id, None)]
        cluster.ask(metadata.MetadataRequest(wanted, allow_auto_topic_creation=False))


@scenario(60)
def the_cluster(cluster: Cluster, prefix: str) -> None:
    cluster.ask(describe_cluster.DescribeClusterRequest())


@scenario(75, 19)
def topic_partitions(cluster: Cluster, prefix: str) -> None:
    cluster.create(f"{prefix}-a", 3)
    cluster.create(f"{prefix}-b", 2)
    names = [describe_topic_partitions.TopicRequest(f"{prefix}-{end}") for end in ("a", "b", "missing")]
    for limit in (100, 1, 4):
        cluster.ask(
            describe_topic_partitions.DescribeTopicPartitionsRequest(names, limit), label=f"limit {limit}"
        )
    cursor = describe_topic_partitions.CursorInRequest(f"{prefix}-a", 2)
    cluster.ask(describe_topic_partitions.DescribeTopicPartitionsRequest(names, 100, cursor), label="cursor")


# Topics


@scenario(19)
def create_topics_good_and_bad(cluster: Cluster, prefix: str) -> None:
    new = create_topics.CreatableTopic
    config = create_topics.CreatableTopicConfig
    assign = create_topics.CreatableReplicaAssignment
    cluster.create(f"{prefix}.there")
    cases = {
        "plain": new(f"{prefix}-plain", 2, 1),
        "defaults": new(f"{prefix}-defaults", -1, -1),
        "exists": new(f"{prefix}.there", 1, 1),
        "collides": new(f"{prefix}_there", 1, 1),
        "empty name": new("", 1, 1),
        "dot": new(".", 1, 1),
        "dots": new("..", 1, 1),
        "slash": new(f"{prefix}/x", 1, 1),
        "long": new("x" * 250, 1, 1),
        "no partitions": new(f"{prefix}-p0", 0, 1),
        "negative partitions": new(f"{prefix}-p-2", -2, 1),
        "no replicas": new(f"{prefix}-r0", 1, 0),
        "too many replicas": new(f"{prefix}-r2", 1, 2),
        "config": new(f"{prefix}-config", 1, 1, [], [config("retention.ms", "1000")]),
        "unknown config": new(f"{prefix}-unknown", 1, 1, [], [config("no.such.config", "1")]),
        "bad config": new(f"{prefix}-bad", 1, 1, [], [config("retention.ms", "soon")]),
        "config out of range": new(f"{prefix}-range", 1, 1, [], [config("segment.bytes", "1")]),
        "null config": new(f"{prefix}-null", 1, 1, [], [config("retention.ms", None)]),
        "assigned": new(f"{prefix}-assigned", -1, -1, [assign(0, [1]), assign(1, [1])]),
        "assigned and counted": new(f"{prefix}-both", 2, 1, [assign(0, [1])]),
        "gap": new(f"{prefix}-gap", -1, -1, [assign(0, [1]), assign(2, [1])]),
        "same broker twice": new(f"{prefix}-twice", -1, -1, [assign(0, [1, 1])]),
        "unknown broker": new(f"{prefix}-who", -1, -1, [assign(0, [77])]),
        "no broker": new(f"{prefix}-nobody", -1, -1, [assign(0, [])]),
        "differing factors": new(f"{prefix}-factors", -1, -1, [assign(0, [1]), assign(1, [])]),
    }
    for label, topic in cases.items():
        cluster.ask(create_topics.CreateTopicsRequest([topic], TIMEOUT_MS), label=label)
    twins = [new(f"{prefix}-twin", 1, 1), new(f"{prefix}-twin", 1, 1), new(f"{prefix}-single", 1, 1)]
    cluster.ask(create_topics.CreateTopicsRequest(twins, TIMEOUT_MS), label="twice in one request")
    tried = [new(f"{prefix}-tried", 1, 1), new("a b", 1, 1)]
    cluster.ask(create_topics.CreateTopicsRequest(tried, TIMEOUT_MS, True), label="validate only")


@scenario(19, 20)
def delete_topics_good_and_bad(cluster: Cluster, prefix: str) -> None:
    for end in ("a", "b"):
        cluster.create(f"{prefix}-{end}")
    wanted = delete_topics.DeleteTopicState
    if cluster.version_of(20) >= 6:
        requests = {
            "by name": [wanted(f"{prefix}-a")],
            "by id": [wanted(None, cluster.topic_ids[f"{prefix}-b"])],
            "unknown name": [wanted(f"{prefix}-c")],
            "unknown id": [wanted(None, UUID(int=7))],
            "both": [wanted(f"{prefix}-d", UUID(int=8))],
            "neither": [wanted(None)],
            "twice": [wanted(f"{prefix}-e"), wanted(f"{prefix}-e")],
        }
        for label, topics in requests.items():
            cluster.ask(delete_topics.DeleteTopicsRequest(topics, [], TIMEOUT_MS), label=label)
    else:
        for names in ([f"{prefix}-a"], [f"{prefix}-b", f"{prefix}-c"], [""]):
            cluster.ask(delete_topics.DeleteTopicsRequest([], names, TIMEOUT_MS), label=str(names))


@scenario(19, 37)
def more_partitions(cluster: Cluster, prefix: str) -> None:
    cluster.create(prefix, 2)
    new = create_partitions.CreatePartitionsTopic
    on_one = create_partitions.CreatePartitionsAssignment([1])
    cases = {
        "fewer": new(prefix, 1, None),
        "the same": new(prefix, 2, None),
        "negative": new(prefix, -1, None),
        "unknown topic": new(f"{prefix}-missing", 3, None),
        "too few assignments": new(prefix, 4, [on_one]),
        "unknown broker": new(prefix, 3, [create_partitions.CreatePartitionsAssignment([77])]),
        "no broker": new(prefix, 3, [create_partitions.CreatePartitionsAssignment([])]),
        "more": new(prefix, 3, None),
        "assigned": new(prefix, 4, [on_one]),
    }
    for label, topic in cases.items():
        cluster.ask(
            create_partitions.CreatePartitionsRequest([topic], TIMEOUT_MS, True), label=f"would: {label}"
        )
        cluster.ask(create_partitions.CreatePartitionsRequest([topic], TIMEOUT_MS), label=label)
    twins = [new(prefix, 9, None), new(prefix, 9, None)]
    cluster.ask(create_partitions.CreatePartitionsRequest(twins, TIMEOUT_MS), label="twice")


# Configurations


@scenario(19, 32)
def describe_topic_configs(cluster: Cluster, prefix: str) -> None:
    cluster.create(prefix, retention_ms="1000", cleanup_policy="compact,delete")
    cluster.ask(describe(name=prefix), label="all")
    cluster.ask(describe(name=prefix, synonyms=False), label="no synonyms")
    cluster.ask(describe("retention.ms", "no.such.config", name=prefix), label="some")
    cluster.ask(describe(name=f"{prefix}-missing"), label="unknown topic")
    cluster.ask(describe(name=""), label="no name")
    cluster.ask(describe(name="a/b"), label="illegal name")
    cluster.ask(describe(name=prefix, kind=99), label="unknown kind")


@scenario(32)
def describe_broker_configs(cluster: Cluster, prefix: str) -> None:
    keys = (
        "num.partitions",
        "log.retention.ms",
        "auto.create.topics.enable",
        "message.max.bytes",
        "log.segment.bytes",
    )
    cluster.ask(describe(*keys, name="1", kind=BROKER), label="of broker 1")
    cluster.ask(describe(*keys, name="", kind=BROKER), label="cluster defaults")
    cluster.ask(describe(name="77", kind=BROKER), label="of another broker")
    cluster.ask(describe(name="x", kind=BROKER), label="of no number")


@scenario(19, 32, 44)
def alter_configs_one_by_one(cluster: Cluster, prefix: str) -> None:
    cluster.create(prefix)
    change = incremental_alter_configs.AlterableConfig
    cases = {
        "set": (prefix, [change("retention.ms", SET, "5000")]),
        "append": (prefix, [change("cleanup.policy", APPEND, "compact")]),
        "subtract": (prefix, [change("cleanup.policy", SUBTRACT, "delete")]),
        "append to no list": (prefix, [change("retention.ms", APPEND, "1")]),
        "delete": (prefix, [change("retention.ms", DELETE, None)]),
        "unknown": (prefix, [change("no.such.config", SET, "1")]),
        "bad value": (prefix, [change("retention.ms", SET, "soon")]),
        "null value": (prefix, [change("retention.ms", SET, None)]),
        "bad operation": (prefix, [change("retention.ms", 9, "1")]),
        "twice": (prefix, [change("retention.ms", SET, "1"), change("retention.ms", SET, "2")]),
        "unknown topic": (f"{prefix}-missing", [change("retention.ms", SET, "1")]),
        "no name": ("", [change("retention.ms", SET, "1")]),
    }
    for label, (name, changes) in cases.items():
        resource = incremental_alter_configs.AlterConfigsResource(TOPIC, name, changes)
        cluster.ask(incremental_alter_configs.IncrementalAlterConfigsRequest([resource]), label=label)
    last = incremental_alter_configs.AlterConfigsResource(TOPIC, prefix, [change("segment.ms", SET, "7777")])
    cluster.ask(
        incremental_alter_configs.IncrementalAlterConfigsRequest([last, last]), label="one topic twice"
    )
    cluster.ask_quietly(incremental_alter_configs.IncrementalAlterConfigsRequest([last]))
    wanted = describe("cleanup.policy", "retention.ms", "segment.ms", name=prefix)
    cluster.until(wanted, lambda response: any(c.value == "7777" for c in response.results[0].configs))
    cluster.ask(wanted, label="after all")


@scenario(19, 33)
def alter_configs_as_a_whole(cluster: Cluster, prefix: str) -> None:
    cluster.create(prefix)
    for name, value in (("retention.ms", "5000"), ("retention.ms", "soon"), ("no.such.config", "1")):
        configs = [alter_configs.AlterableConfig(name, value)]
        resource = alter_configs.AlterConfigsResource(TOPIC, prefix, configs)
        cluster.ask(alter_configs.AlterConfigsRequest([resource]), label=f"{name}={value}")


# Records


@scenario(0, 19)
def produce_good(cluster: Cluster, prefix: str) -> None:
    cluster.create(prefix, 2, **KEEP_OLD)
    cluster.create(f"{prefix}-now", 1, message_timestamp_type="LogAppendTime")
    for codec in range(5):
        records = batch(b"a" * 100, b"b" * 100, codec=codec)
        cluster.ask(produce_request(cluster, prefix, records), label=f"codec {codec}")
    cluster.ask(produce_request(cluster, prefix, batch(b"x"), partition=1, acks=1), label="acks 1")
    cluster.ask(produce_request(cluster, f"{prefix}-now", batch(b"x")), label="log append time")


@scenario(0, 19)
def produce_bad(cluster: Cluster, prefix: str) -> None:
    cluster.create(prefix, 1, **KEEP_OLD)
    cluster.create(f"{prefix}-small", 1, max_message_bytes="200", **KEEP_OLD)
    cluster.create(f"{prefix}-compacted", 1, cleanup_policy="compact", **KEEP_OLD)
    cluster.create(f"{prefix}-recent", 1, message_timestamp_before_max_ms="1000")
    good = batch(b"x")
    bad_crc, old_magic, short_length = bytearray(good), bytearray(good), bytearray(good)
    bad_crc[CRC_OFFSET] ^= 0xFF
    old_magic[16] = 1
    short_length[8:12] = (10).to_bytes(4)
    cases = {
        "bad CRC": (prefix, bad_crc),
        "magic 1": (prefix, old_magic),
        "length too short": (prefix, short_length),
        "cut off": (prefix, good[:-1]),
        "garbage behind": (prefix, good + b"garbage"),
        "two batches": (prefix, good + good),
        "nothing": (prefix, b""),
        "control batch": (prefix, batch(b"x", control=True)),
        "too large": (f"{prefix}-small", batch(b"x" * 300)),
        "no key": (f"{prefix}-compacted", batch(b"x", b"y", key=None)),
        "too old": (f"{prefix}-recent", batch(b"x", b"y")),
        "unknown topic": (f"{prefix}-missing", good),
        "illegal name": ("a/b", good),
    }
    for label, (topic, records) in cases.items():
        cluster.ask(produce_request(cluster, topic, records), label=label)
    cluster.ask(produce_request(cluster, prefix, good, partition=5), label="unknown partition")
    cluster.ask(produce_request(cluster, prefix, good, acks=2), label="acks 2")
    cluster.ask(list_offsets_request(prefix, LATEST), label="what came through")


@scenario(0, 19, 22)
def produce_idempotent(cluster: Cluster, prefix: str) -> None:
    cluster.create(prefix, 1, **KEEP_OLD)
    response = producer_id_from(cluster)

    def send(label: str, sequence: int, epoch: int = 0, producer_id: int = response.producer_id) -> None:
        records = batch(b"a", b"b", producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        cluster.ask(produce_request(cluster, prefix, records), label=label)

    send("first", 0)
    send("second", 2)
    send("second again", 2)
    send("first again", 0)
    send("a gap", 6)
    for sequence in range(4, 14, 2):
        send(f"sequence {sequence}", sequence)
    send("first, forgotten", 0)
    send("new epoch", 0, epoch=1)
    send("old epoch", 14, epoch=0)
    send("new epoch, not from 0", 5, epoch=2)
    send("unknown producer, not from 0", 7, producer_id=response.producer_id + 500)
    cluster.ask(list_offsets_request(prefix, LATEST), label="end")


@scenario(22)
def producer_ids(cluster: Cluster, prefix: str) -> None:
    request = init_producer_id.InitProducerIdRequest
    producer_id_from(cluster)
    cluster.ask(request(None, 1000), label="first")
    cluster.ask(request(None, -1), label="second, timeout not looked at")
    cluster.ask(request("", 1000), label="empty transactional id")


@scenario(0, 1, 19)
def fetch_good_and_bad(cluster: Cluster, prefix: str) -> None:
    cluster.create(prefix, 2, **KEEP_OLD)
    fill(cluster, prefix)

    def ask(label: str, topic: str = prefix, session: tuple[int, int] = (0, -1), **options: int) -> None:
        max_bytes = options.pop("max_bytes", 1 << 20)
        partition = fetch.FetchPartition(**({"partition_max_bytes": 1 << 20} | options))
        request = fetch.FetchRequest(
            max_bytes=max_bytes,
            session_id=session[0],
            session_epoch=session[1],
            topics=[fetch.FetchTopic(cluster.id_of(topic), topic, [partition])],
        )
        cluster.ask(request, label=label)

    ask("all")
    ask("from within a batch", fetch_offset=4)
    ask("the end", fetch_offset=9)
    ask("behind the end", fetch_offset=10)
    ask("negative", fetch_offset=-1)
    ask("an empty partition", partition=1)
    ask("unknown partition", partition=5)
    ask("unknown topic", topic=f"{prefix}-missing")
    ask("one byte of the partition", partition_max_bytes=1)
    ask("one byte of all", max_bytes=1)
    ask("nothing at all", max_bytes=0, partition_max_bytes=0)
    ask("right epoch", current_leader_epoch=0)
    ask("epoch to come", current_leader_epoch=5)
    if cluster.version_of(1) >= 7:
        ask("unknown session", session=(12345, 1))
        ask("bad session epoch", session=(0, 5))


@scenario(0, 2, 19)
def offsets(cluster: Cluster, prefix: str) -> None:
    cluster.create(prefix, 2, **KEEP_OLD)
    fill(cluster, prefix)
    newest = cluster.version_of(2)
    times = {
        "latest": LATEST,
        "earliest": EARLIEST,
        "long ago": 0,
        "first": TIME_MS,
        "between": TIME_MS + 1500,
    }
    times |= {"within a batch": TIME_MS + 4000, "last": TIME_MS + 8000, "future": TIME_MS + 9000, "odd": -77}
    if newest >= 7:
        times["newest message"] = MAX_TIMESTAMP
    if newest >= 8:
        times["earliest local"] = -4
    if newest >= 9:
        times["latest tiered"] = -5
    for label, timestamp in times.items():
        cluster.ask(list_offsets_request(prefix, timestamp), label=label)
        cluster.ask(list_offsets_request(prefix, timestamp, partition=1), label=f"{label}, empty partition")
    cluster.ask(list_offsets_request(prefix, LATEST, isolation=1), label="read committed")
    cluster.ask(list_offsets_request(prefix, LATEST, epoch=0), label="right epoch")
    cluster.ask(list_offsets_request(prefix, LATEST, epoch=5), label="epoch to come")
    cluster.ask(list_offsets_request(prefix, LATEST, partition=9), label="unknown partition")
    cluster.ask(list_offsets_request(f"{prefix}-missing", LATEST), label="unknown topic")


@scenario(0, 19, 23)
def leader_epochs(cluster: Cluster, prefix: str) -> None:
    cluster.create(prefix, 2, **KEEP_OLD)
    fill(cluster, prefix)
    wanted = offset_for_leader_epoch.OffsetForLeaderPartition
    cases = {
        "this epoch": wanted(0, -1, 0),
        "empty partition": wanted(1, -1, 0),
        "epoch to come": wanted(0, -1, 5),
        "undefined epoch": wanted(0, -1, -1),
        "right current epoch": wanted(0, 0, 0),
        "current epoch to come": wanted(0, 5, 0),
        "unknown partition": wanted(9, -1, 0),
    }
    for label, partition in cases.items():
        topic = offset_for_leader_epoch.OffsetForLeaderTopic(prefix, [partition])
        cluster.ask(offset_for_leader_epoch.OffsetForLeaderEpochRequest(-1, [topic]), label=label)


@scenario(0, 2, 19, 21)
def delete_records_good_and_bad(cluster: Cluster, prefix: str) -> None:
    cluster.create(prefix, 1, **KEEP_OLD)
    fill(cluster, prefix)

    def ask(label: str, offset: int, partition: int = 0, topic: str = prefix) -> None:
        wanted = delete_records.DeleteRecordsPartition(partition, offset)
        topics = [delete_records.DeleteRecordsTopic(topic, [wanted])]
        cluster.ask(delete_records.DeleteRecordsRequest(topics, TIMEOUT_MS), label=label)

    ask("within a batch", 4)
    cluster.ask(list_offsets_request(prefix, EARLIEST), label="earliest now")
    ask("before the start", 1)
    ask("behind the end", 10)
    ask("odd offset", -2)
    ask("unknown partition", 1, partition=4)
    ask("unknown topic", 1, topic=f"{prefix}-missing")
    ask("all", -1)
    cluster.ask(list_offsets_request(prefix, EARLIEST), label="earliest at last")
    cluster.ask(list_offsets_request(prefix, LATEST), label="latest at last")


# Coordinators


@scenario(10)
def coordinators(cluster: Cluster, prefix: str) -> None:
    version = cluster.version_of(10)

    def request(key: str, kind: int) -> find_coordinator.FindCoordinatorRequest:
        return find_coordinator.FindCoordinatorRequest(key, kind, [key])

    def is_found(response: find_coordinator.FindCoordinatorResponse) -> bool:
        return response.error_code == 0 and all(one.error_code == 0 for one in response.coordinators)

    cluster.until(request(prefix, 0), is_found)
    cluster.ask(request(prefix, 0), label="of a group")
    if version >= 1:
        cluster.ask(request(prefix, 9), label="of an unknown kind")
