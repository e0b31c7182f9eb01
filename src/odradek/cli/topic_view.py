"""The output of `odradek topic list` and `odradek topic describe`; the fields are those of the JSON output."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from odradek.cli.access import REQUEST_TIMEOUT_S, Access
from odradek.cli.danger import is_internal
from odradek.cli.group_offsets import Place, end_offsets, find_offsets
from odradek.cli.librdkafka import kafka, kafka_admin
from odradek.cli.output import counted, joined, print_columns, print_line, readable_size

if TYPE_CHECKING:
    from confluent_kafka.admin import ConfigEntry


NO_LEADER = -1
URL_SAFE = str.maketrans("+/", "-_")  # librdkafka does not write ids in Kafka's URL-safe base64


@dataclass(frozen=True)
class TopicSummary:
    topic: str
    internal: bool
    partition_count: int
    replication_factor: int
    size_bytes: int | None  # None where brokers do not say


@dataclass(frozen=True)
class PartitionView:
    partition: int
    leader: int | None
    replicas: list[int]
    isr: list[int]
    start_offset: int | None
    end_offset: int | None
    size_bytes: int | None


@dataclass(frozen=True)
class TopicView:
    topic: str
    topic_id: str
    internal: bool
    partition_count: int
    replication_factor: int
    size_bytes: int | None
    configs: dict[str, str]
    partitions: list[PartitionView]


def summarize(cluster: Access, names: Sequence[str]) -> list[TopicSummary]:
    topics = cluster.metadata().topics
    sizes = log_sizes(cluster, {name: sorted(topics[name].partitions) for name in names}) if names else {}
    return [
        TopicSummary(
            topic=name,
            internal=is_internal(name),
            partition_count=len(topics[name].partitions),
            replication_factor=max(
                (len(one.replicas) for one in topics[name].partitions.values()), default=0
            ),
            size_bytes=_total(sizes.get(Place(name, number)) for number in topics[name].partitions),
        )
        for name in names
    ]


def log_sizes(cluster: Access, partitions: Mapping[str, Sequence[int]]) -> dict[Place, int]:
    from odradek.cli import own_client  # it is slow to import, and names alone do not need it

    return own_client.log_sizes(cluster, partitions)


def _total(sizes: Iterable[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if known else None


def view_topics(cluster: Access, names: Sequence[str]) -> list[TopicView]:
    """Each name once; the first topic that does not exist is the failure of the whole command."""
    names = list(dict.fromkeys(names))
    if not names:
        return []
    descriptions = describe(cluster, names)
    resources = [kafka_admin.ConfigResource(kafka_admin.ResourceType.TOPIC, name) for name in names]
    futures = cluster.admin.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S)
    configs = {
        resource.name: future.result(REQUEST_TIMEOUT_S).values() for resource, future in futures.items()
    }
    led = [
        Place(name, partition.id)
        for name, description in descriptions.items()
        for partition in description.partitions
        if _leader_id(partition.leader) is not None
    ]
    starts = find_offsets(cluster.admin, dict.fromkeys(led, kafka_admin.OffsetSpec.earliest()))
    ends = end_offsets(cluster.admin, led)
    sizes = log_sizes(
        cluster, {name: [one.id for one in found.partitions] for name, found in descriptions.items()}
    )
    return [_view(descriptions[name], configs[name], starts, ends, sizes) for name in names]


def describe(cluster: Access, names: Sequence[str]) -> dict[str, Any]:
    """In the one way that does not create the topic."""
    futures = cluster.admin.describe_topics(
        kafka.TopicCollection(list(names)), request_timeout=REQUEST_TIMEOUT_S
    )
    found = {}
    for name in names:
        with cluster.failures_told(name):
            found[name] = futures[name].result(REQUEST_TIMEOUT_S)
    return found


def _view(
    description: Any,
    configs: "Iterable[ConfigEntry]",
    starts: Mapping[Place, int],
    ends: Mapping[Place, int],
    sizes: Mapping[Place, int],
) -> TopicView:
    changed = [entry for entry in configs if entry.source != kafka_admin.ConfigSource.DEFAULT_CONFIG.value]
    partitions = [
        PartitionView(
            partition=partition.id,
            leader=_leader_id(partition.leader),
            replicas=[node.id for node in partition.replicas],
            isr=[node.id for node in partition.isr],
            start_offset=starts.get(Place(description.name, partition.id)),
            end_offset=ends.get(Place(description.name, partition.id)),
            size_bytes=sizes.get(Place(description.name, partition.id)),
        )
        for partition in sorted(description.partitions, key=lambda partition: int(partition.id))
    ]
    return TopicView(
        topic=description.name,
        topic_id=str(description.topic_id).translate(URL_SAFE),
        internal=description.is_internal,
        partition_count=len(partitions),
        replication_factor=len(partitions[0].replicas) if partitions else 0,
        size_bytes=_total(partition.size_bytes for partition in partitions),
        configs={entry.name: entry.value or "" for entry in sorted(changed, key=lambda entry: entry.name)},
        partitions=partitions,
    )


def _leader_id(leader: Any) -> int | None:
    return None if leader is None or leader.id == NO_LEADER else leader.id


def kafka_lines(view: TopicView) -> Iterable[str]:
    """The lines `kafka-topics.sh --describe` prints, so that scripts written for it keep working; followed by offsets
    and sizes."""
    configs = ",".join(f"{name}={value}" for name, value in view.configs.items())
    yield (
        f"Topic: {view.topic}\tTopicId: {view.topic_id}\tPartitionCount: {view.partition_count}"
        f"\tReplicationFactor: {view.replication_factor}\tConfigs: {configs}"
    )
    for partition in view.partitions:
        leader = "none" if partition.leader is None else partition.leader
        yield (
            f"\tTopic: {view.topic}\tPartition: {partition.partition}\tLeader: {leader}"
            f"\tReplicas: {joined(partition.replicas)}\tIsr: {joined(partition.isr)}"
            f"\tStartOffset: {_or_dash(partition.start_offset)}\tEndOffset: {_or_dash(partition.end_offset)}"
            f"\tSize: {_or_dash(partition.size_bytes)}"
        )


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)


def show_tables(views: Iterable[TopicView]) -> None:
    for view in views:
        size = readable_size(view.size_bytes)
        print_line(
            f"{view.topic}: id {view.topic_id}, {counted(view.partition_count, 'partition')}, "
            f"replication factor {view.replication_factor}" + (f", {size}" if size else "")
        )
        for name, value in view.configs.items():
            print_line(f"  {name} = {value}")
        rows = [
            (
                *(one.partition, "none" if one.leader is None else one.leader),
                *(joined(one.replicas), joined(one.isr) + (" !" if len(one.isr) < len(one.replicas) else "")),
                *(one.start_offset, one.end_offset, readable_size(one.size_bytes)),
            )
            for one in view.partitions
        ]
        print_columns(("PARTITION", "LEADER", "REPLICAS", "ISR", "START-OFFSET", "END-OFFSET", "SIZE"), rows)
