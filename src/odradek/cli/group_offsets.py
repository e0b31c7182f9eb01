"""Offsets as the group commands ask for them: what a group has committed, and where logs begin and end."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from odradek.cli.clients import REQUEST_TIMEOUT_S, CommandError

NOWHERE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


class Place(NamedTuple):
    topic: str
    partition: int


def committed_offsets(admin: AdminClient, group: str) -> dict[Place, int]:
    """All that a group has committed; nothing for a group that does not exist."""
    request = [ConsumerGroupTopicPartitions(group)]
    future = admin.list_consumer_group_offsets(request, request_timeout=REQUEST_TIMEOUT_S)[group]
    found = future.result(REQUEST_TIMEOUT_S).topic_partitions
    return {Place(each.topic, each.partition): each.offset for each in found if each.offset >= 0}


def end_offsets(admin: AdminClient, places: Iterable[Place]) -> dict[Place, int]:
    return find_offsets(admin, dict.fromkeys(places, OffsetSpec.latest()))


def find_offsets(admin: AdminClient, wanted: Mapping[Place, OffsetSpec]) -> dict[Place, int]:
    """Offsets by kind: first, last, or of a time (-1 where no record is so late). Gone partitions are left out."""
    if not wanted:
        return {}
    request = {TopicPartition(*place): spec for place, spec in wanted.items()}
    futures = admin.list_offsets(request, request_timeout=REQUEST_TIMEOUT_S)
    answers = {Place(each.topic, each.partition): _offset(future) for each, future in futures.items()}
    return {place: offset for place, offset in answers.items() if offset is not None}


def _offset(future: Any) -> int | None:
    try:
        offset: int = future.result(REQUEST_TIMEOUT_S).offset
    except KafkaException as error:
        if error.args[0].code() in NOWHERE:
            return None
        raise
    return offset


def commit_offsets(admin: AdminClient, group: str, offsets: Mapping[Place, int]) -> None:
    """Commit from outside of the group, which is let only while it has no members."""
    partitions = [TopicPartition(*place, offset) for place, offset in offsets.items()]
    request = [ConsumerGroupTopicPartitions(group, partitions)]
    future = admin.alter_consumer_group_offsets(request, request_timeout=REQUEST_TIMEOUT_S)[group]
    for answer in future.result(REQUEST_TIMEOUT_S).topic_partitions:
        if answer.error is not None:
            raise CommandError(f"{answer.topic}-{answer.partition}: {answer.error.str()}")
