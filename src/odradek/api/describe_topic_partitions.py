"""DescribeTopicPartitions (75): topics page by page, for clients of very large clusters.

Topics are in the order of their names; at the end of a page, `next_cursor` names the next partition.

Left out: `last_known_elr` as Kafka has it (the last leader); ours names every in-sync replica that was killed.
"""

from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from itertools import groupby, islice

from odradek.api.metadata import online_brokers
from odradek.apis.row import May, Need, Operation, Resource
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import Partition, Topic
from odradek.model import INTERNAL_TOPICS, check_topic_name
from odradek.serving.authorized import operations
from odradek.serving.authorizer import may_of
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.codec import Steps
from odradek.wire.messages.describe_topic_partitions import (
    CursorInResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

Response = DescribeTopicPartitionsResponse
LOOKED_AT_AT_ONCE = 500  # a topic that the caller may not see costs a decision, too


def access(message: DescribeTopicPartitionsRequest, version: int, may: May) -> tuple[Need, ...]:
    return (Need(Operation.DESCRIBE, Resource.TOPIC),) if message.topics else ()


def handle(services: Services, request: Request, message: DescribeTopicPartitionsRequest) -> Steps[Response]:
    cursor = message.cursor
    first_topic, first_partition = (cursor.topic_name, cursor.partition_index) if cursor else ("", 0)
    if first_partition < 0:
        code = ErrorCode.INVALID_REQUEST
        return Response(
            topics=[
                _refused(topic.name, code, _operations(services, request, topic.name))
                for topic in message.topics
            ]
        )
    topics = services.cluster.image.topics
    online = online_brokers(services.cluster.image, request.caller.listener)
    names: Iterable[str] = [topic.name for topic in message.topics]
    is_shown = _everything if message.topics else _visible(services, request)
    most = services.node.config["max.request.partition.size.limit"]
    room = most if message.response_partition_limit < 1 else min(most, message.response_partition_limit)
    response = Response()
    for name in (yield from _in_order(names or topics, lambda name: name >= first_topic and is_shown(name))):
        yield
        topic = topics.get(name)
        if topic is None:
            response.topics.append(_unknown(name, _operations(services, request, name)))
            continue
        if room <= 0:
            response.next_cursor = CursorInResponse(name, 0)
            break
        start = first_partition if name == first_topic else 0
        described = _describe(topic, start, room, online)
        described.topic_authorized_operations = _operations(services, request, name)
        room -= len(described.partitions)
        response.topics.append(described)
        if start + len(described.partitions) < len(topic.partitions):
            response.next_cursor = CursorInResponse(name, start + len(described.partitions))
            break
    return response


def _everything(name: str) -> bool:
    return True


def _visible(services: Services, request: Request) -> Callable[[str], bool]:
    """Returns a check of whether the caller may see a topic. (A cursor must not name any other.)"""
    if services.authorizer.allows_all:
        return _everything
    may = may_of(services.authorizer, request)
    return lambda name: may(Operation.DESCRIBE, Resource.TOPIC, name)


def _operations(services: Services, request: Request, name: str) -> int:
    return operations(services.authorizer, request, Resource.TOPIC, name)


def _in_order(names: Iterable[str], is_shown: Callable[[str], bool]) -> Steps[Iterator[str]]:
    """Sorted, each once."""
    runs: list[list[str]] = []
    unsorted = iter(names)
    while some := list(islice(unsorted, LOOKED_AT_AT_ONCE)):
        runs.append(sorted(filter(is_shown, some)))
        yield
    return (name for name, _ in groupby(merge(*runs)))


def _unknown(name: str, bits: int) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_topic_name(name)
    except KafkaError as error:
        code = error.code
    return _refused(name, code, bits)


def _refused(name: str | None, code: ErrorCode, bits: int) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        code, name, is_internal=name in INTERNAL_TOPICS, topic_authorized_operations=bits
    )


def _describe(
    topic: Topic, start: int, room: int, online: frozenset[int]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=list(_partitions(topic, start, room, online)),
    )


def _partitions(
    topic: Topic, start: int, room: int, online: frozenset[int]
) -> Iterator[DescribeTopicPartitionsResponsePartition]:
    for index in range(start, min(start + room, len(topic.partitions))):
        yield _describe_partition(index, topic.partitions[index], online)


def _describe_partition(
    index: int, partition: Partition, online: frozenset[int]
) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE,  # also where nobody leads: as in Kafka, unlike Metadata
        partition_index=index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.eligible_leader_replicas),
        last_known_elr=list(partition.last_known_elr),
        offline_replicas=[replica for replica in partition.replicas if replica not in online],
    )
