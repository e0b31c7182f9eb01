"""Offsets for the group commands: those that a group has committed, and where logs start and end."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from odradek.cli.access import REQUEST_TIMEOUT_S, Access
from odradek.cli.completion import complete_topics
from odradek.cli.failures import CommandError
from odradek.cli.framework import BadParameter, Option
from odradek.cli.librdkafka import kafka, kafka_admin

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, OffsetSpec


NOWHERE = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION")  # names of error codes

TopicsAndPartitions = Annotated[
    list[str] | None,
    Option("--topic", metavar="NAME[:0,1,…]", help="A topic; repeatable.", complete=complete_topics),
]
TOPIC_AND_PARTITIONS = re.compile(r"([^:]+)(?::(\d+(?:,\d+)*))?")


class Place(NamedTuple):
    topic: str
    partition: int


def committed_offsets(admin: "AdminClient", group: str) -> dict[Place, int]:
    """All offsets that a group has committed; none for a group that does not exist."""
    request = [kafka.ConsumerGroupTopicPartitions(group)]
    future = admin.list_consumer_group_offsets(request, request_timeout=REQUEST_TIMEOUT_S)[group]
    found = future.result(REQUEST_TIMEOUT_S).topic_partitions
    return {Place(each.topic, each.partition): each.offset for each in found if each.offset >= 0}


def end_offsets(admin: "AdminClient", places: Iterable[Place]) -> dict[Place, int]:
    return find_offsets(admin, dict.fromkeys(places, kafka_admin.OffsetSpec.latest()))


def find_offsets(admin: "AdminClient", wanted: "Mapping[Place, OffsetSpec]") -> dict[Place, int]:
    """Offsets by kind: first, last, or of a time (-1 if no record is that late). Deleted partitions are left out."""
    if not wanted:
        return {}
    request = {kafka.TopicPartition(*place): spec for place, spec in wanted.items()}
    futures = admin.list_offsets(request, request_timeout=REQUEST_TIMEOUT_S)
    answers = {Place(each.topic, each.partition): _offset(future) for each, future in futures.items()}
    return {place: offset for place, offset in answers.items() if offset is not None}


def _offset(future: Any) -> int | None:
    try:
        offset: int = future.result(REQUEST_TIMEOUT_S).offset
    except kafka.KafkaException as error:
        if error.args[0].name() in NOWHERE:
            return None
        raise
    return offset


def commit_offsets(admin: "AdminClient", group: str, offsets: Mapping[Place, int]) -> None:
    """Commit without being a member, which is allowed only while the group has no members."""
    partitions = [kafka.TopicPartition(*place, offset) for place, offset in offsets.items()]
    request = [kafka.ConsumerGroupTopicPartitions(group, partitions)]
    future = admin.alter_consumer_group_offsets(request, request_timeout=REQUEST_TIMEOUT_S)[group]
    for answer in future.result(REQUEST_TIMEOUT_S).topic_partitions:
        if answer.error is not None:
            raise CommandError(f"{answer.topic}-{answer.partition}: {answer.error.str()}")


def named_places(cluster: Access, texts: Sequence[str]) -> list[Place]:
    """The partitions meant by `topic` or `topic:0,1,2`; CommandError for one that does not exist."""
    places: set[Place] = set()
    for text in texts:
        parts = TOPIC_AND_PARTITIONS.fullmatch(text)
        if parts is None:
            raise BadParameter(f"{text!r} is not of the form topic or topic:0,1,2")
        there = existing_partitions(cluster, parts[1])
        wanted = [int(number) for number in parts[2].split(",")] if parts[2] else there
        if missing := set(wanted).difference(there):
            raise CommandError(f"{parts[1]} has no partition {min(missing)}")
        places.update(Place(parts[1], partition) for partition in wanted)
    return sorted(places)


def existing_partitions(cluster: Access, topic: str) -> list[int]:
    """In the one way that does not create the topic."""
    futures = cluster.admin.describe_topics(kafka.TopicCollection([topic]), request_timeout=REQUEST_TIMEOUT_S)
    with cluster.failures_told(topic):
        return sorted(partition.id for partition in futures[topic].result(REQUEST_TIMEOUT_S).partitions)
