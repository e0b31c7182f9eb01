"""OffsetFetch (9): what groups committed; many groups at once from version 8 on, topics by id from version 10 on.

The groups' coordinators (`coordinators`) do the work. They know topics by name; ids are translated here.
"""

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any

from odradek.apis.items import cut
from odradek.apis.row import May, Need, Operation, Resource
from odradek.errors import ErrorCode
from odradek.model import NO_TOPIC_ID
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.codec import Steps
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

MANY_GROUPS_SINCE = 8
TOPIC_IDS_SINCE = 10

Refused = dict[str, list[OffsetFetchResponseTopics]]  # by group


def access(message: OffsetFetchRequest, version: int, may: May) -> tuple[Need, ...]:
    if version >= MANY_GROUPS_SINCE:
        return (Need(Operation.DESCRIBE, Resource.GROUP),)
    return (Need(Operation.DESCRIBE, Resource.GROUP, "group_id"),)


def hide(message: OffsetFetchRequest, response: OffsetFetchResponse, may: May) -> None:
    """Topics that the caller may not describe are refused if it named them, and left out if it asked for all. It may
    ask for a group more than once, in both ways."""
    named: dict[str, set[str]] = {}
    for asked in message.groups:
        named.setdefault(asked.group_id, set()).update(topic.name for topic in asked.topics or ())
    _hide(response, {topic.name for topic in message.topics or ()}, may)
    for group in response.groups:
        _hide(group, named.get(group.group_id, set()), may)


def _hide(response: Any, named: Container[str], may: May) -> None:
    """A topic without a name is one whose id is not known."""
    shown: list[Any] = []
    for topic in response.topics:
        if topic.name and not may(Operation.DESCRIBE, Resource.TOPIC, topic.name):
            if topic.name not in named:
                continue
            _deny(topic.partitions)
        shown.append(topic)
    response.topics = shown


def _deny(partitions: Sequence[Any]) -> None:
    for partition in partitions:
        partition.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        partition.committed_offset = partition.committed_leader_epoch = -1
        partition.metadata = ""


def handle(services: Services, request: Request, message: OffsetFetchRequest) -> Steps[None]:
    if request.version < MANY_GROUPS_SINCE:
        parts = [message]
        if message.topics:
            cut_topics = yield from cut(message.topics, "partition_indexes")
            parts = [replace(message, topics=topics) for topics in cut_topics]
        yield from services.coordination.groups.handle_parts(request, parts, message.group_id)
    elif request.version < TOPIC_IDS_SINCE:
        yield from services.coordination.groups.handle_many(request, message)
    else:
        refused = yield from _ids_to_names(services, message)
        yield from services.coordination.groups.handle_many(
            request, message, lambda response: _names_to_ids(services, response, refused)
        )


def _ids_to_names(services: Services, message: OffsetFetchRequest) -> Steps[Refused]:
    """Give every topic its name, and take out those that have none."""
    refused: Refused = {}
    for group in message.groups:
        for topic in group.topics or ():
            yield
            name = services.cluster.topic_name(topic.topic_id)
            if name is not None:
                topic.name = name
                continue
            results = [
                OffsetFetchResponsePartitions(index, -1, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
                for index in topic.partition_indexes
            ]
            refused.setdefault(group.group_id, []).append(
                OffsetFetchResponseTopics(topic.topic_id, "", results)
            )
        if group.topics is not None:
            group.topics = [topic for topic in group.topics if topic.name]
    return refused


def _names_to_ids(services: Services, response: OffsetFetchResponse, refused: Refused) -> OffsetFetchResponse:
    """Offsets of deleted topics have no id to return: they are left out."""
    for group in response.groups:
        for topic in group.topics:
            there = services.cluster.image.topics.get(topic.name)
            topic.topic_id = there.id if there else topic.topic_id
        group.topics = [topic for topic in group.topics if topic.topic_id != NO_TOPIC_ID]
        group.topics += refused.get(group.group_id, [])
    return response
