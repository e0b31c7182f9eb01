"""OffsetCommit (8): how far a group has read, by member or, without membership, by anybody.

The group's coordinator (`coordinators`) does the work; it responds once its decision is committed. Topics by
id from version 10 on; the coordinator also gets the id of a topic that was named, so that no offset outlives its topic.
Partitions that do not exist are refused here: the coordinator knows only names. A partition that is named more than
once is committed once, and a commit of very many partitions is cut into parts.
"""

from dataclasses import replace

from odradek.apis.items import cut
from odradek.errors import ErrorCode
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.codec import Steps
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

TOPIC_IDS_SINCE = 10


def handle(
    services: Services, request: Request, message: OffsetCommitRequest
) -> Steps[OffsetCommitResponse | None]:
    known: list[OffsetCommitRequestTopic] = []
    refused: list[OffsetCommitResponseTopic] = []
    for topic in message.topics:
        yield from _sort_out(services, request.version, topic, known, refused)
    if not known and refused:
        return OffsetCommitResponse(topics=refused)

    def add_refused(response: OffsetCommitResponse) -> OffsetCommitResponse:
        response.topics += refused
        return response

    parts = yield from cut(known, "partitions")
    if len(parts) == 1:
        services.coordination.groups.handle(
            request, replace(message, topics=known), message.group_id, add_refused
        )
    else:
        messages = [replace(message, topics=part) for part in parts]
        yield from services.coordination.groups.handle_parts(request, messages, message.group_id, add_refused)
    return None


def _sort_out(
    services: Services,
    version: int,
    topic: OffsetCommitRequestTopic,
    known: list[OffsetCommitRequestTopic],
    refused: list[OffsetCommitResponseTopic],
) -> Steps[None]:
    """Sort out known partitions; the last offset counts if one is named more than once."""
    by_id = version >= TOPIC_IDS_SINCE
    name = services.cluster.topic_name(topic.topic_id) if by_id else topic.name
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if name is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    there = services.cluster.image.topics.get(name) if name else None
    indexes = there.partitions if there else {}
    good: dict[int, OffsetCommitRequestPartition] = {}
    bad: dict[int, OffsetCommitResponsePartition] = {}
    for partition in topic.partitions:
        index = partition.partition_index
        if index in indexes:
            good[index] = partition
        else:
            bad[index] = OffsetCommitResponsePartition(index, unknown)
        yield
    if good or not bad:
        topic_id = there.id if there else topic.topic_id
        known.append(OffsetCommitRequestTopic(topic_id, name or "", list(good.values())))
    if bad:
        refused.append(OffsetCommitResponseTopic(topic.topic_id, topic.name, list(bad.values())))
