"""OffsetCommit (8): how far a group has read, by member or, without membership, by anybody.

The work is done by the group's coordinator (`coordinators`); it answers once what it decided is committed. Topics by
id from version 10 on. Partitions that do not exist are refused here: the coordinator knows only names.
"""

from dataclasses import replace

from odradek.api.request import Request
from odradek.api.services import Services
from odradek.errors import ErrorCode
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

TOPIC_IDS_SINCE = 10


def handle(services: Services, request: Request, message: OffsetCommitRequest) -> OffsetCommitResponse | None:
    known: list[OffsetCommitRequestTopic] = []
    refused: list[OffsetCommitResponseTopic] = []
    for topic in message.topics:
        _sort_out(services, request.version, topic, known, refused)
    if not known and refused:
        return OffsetCommitResponse(topics=refused)

    def add_refused(answer: OffsetCommitResponse) -> OffsetCommitResponse:
        answer.topics += refused
        return answer

    services.groups.handle(request, replace(message, topics=known), message.group_id, add_refused)
    return None


def _sort_out(
    services: Services,
    version: int,
    topic: OffsetCommitRequestTopic,
    known: list[OffsetCommitRequestTopic],
    refused: list[OffsetCommitResponseTopic],
) -> None:
    by_id = version >= TOPIC_IDS_SINCE
    name = services.topic_name(topic.topic_id) if by_id else topic.name
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    there = services.image.topics.get(name) if name else None
    indexes = there.partitions if there else {}
    good = [partition for partition in topic.partitions if partition.partition_index in indexes]
    bad = [partition for partition in topic.partitions if partition.partition_index not in indexes]
    if good or not bad:
        known.append(OffsetCommitRequestTopic(topic.topic_id, name or "", good))
    if bad:
        results = [OffsetCommitResponsePartition(partition.partition_index, unknown) for partition in bad]
        refused.append(OffsetCommitResponseTopic(topic.topic_id, topic.name, results))
