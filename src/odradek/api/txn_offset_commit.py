"""TxnOffsetCommit (28): how far a group has read, as part of a producer's transaction.

The transaction's coordinator is asked first (`services.coordination.verification`): up to version 4 the producer must
have named the group in AddOffsetsToTxn; from version 5 on, with transaction.version 2, this request adds the group's
partition to the transaction. Then the group's coordinator (`coordinators`) does the work; it responds once its decision
is committed. The offsets are seen once the transaction is committed.

As in OffsetCommit, the coordinator gets the ids of topics, partitions that do not exist are refused here, a partition
that is named more than once is committed once, and a commit of very many partitions is cut into parts. Only the first
part may begin the transaction in the log: if a marker ends it between two of them, the rest is refused.
"""

from collections.abc import Iterator

from odradek.apis.items import cut
from odradek.coordinators.offsets import TransactionalCommit
from odradek.coordinators.runtime import Producer
from odradek.errors import ErrorCode
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.codec import Steps
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

LOADING_KNOWN_SINCE = 2

Response = TxnOffsetCommitResponse
Topics = list[OffsetCommitRequestTopic]
Refused = list[TxnOffsetCommitResponseTopic]


def handle(services: Services, request: Request, message: TxnOffsetCommitRequest) -> Steps[Response | None]:
    known: Topics = []
    refused: Refused = []
    for topic in message.topics:
        yield from _sort_out(services, topic, known, refused)
    if not known:
        return Response(topics=refused)
    if not message.group_id:
        return Response(topics=[*_refuse(known, ErrorCode.INVALID_GROUP_ID), *refused])
    parts = yield from cut(known, "partitions")
    request.then(_commit(services, request, message, parts, refused))
    return None


def _sort_out(
    services: Services, topic: TxnOffsetCommitRequestTopic, known: Topics, refused: Refused
) -> Steps[None]:
    """Sort out known partitions; the last offset counts if one is named more than once."""
    there = services.cluster.image.topics.get(topic.name)
    indexes = there.partitions if there else {}
    good: dict[int, OffsetCommitRequestPartition] = {}
    bad: dict[int, TxnOffsetCommitResponsePartition] = {}
    for each in topic.partitions:
        index = each.partition_index
        if index in indexes:
            good[index] = OffsetCommitRequestPartition(
                index, each.committed_offset, each.committed_leader_epoch, each.committed_metadata
            )
        else:
            bad[index] = TxnOffsetCommitResponsePartition(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        yield
    if good and there is not None:
        known.append(OffsetCommitRequestTopic(there.id, topic.name, list(good.values())))
    if bad:
        refused.append(TxnOffsetCommitResponseTopic(topic.name, list(bad.values())))


async def _commit(
    services: Services,
    request: Request,
    message: TxnOffsetCommitRequest,
    parts: list[Topics],
    refused: Refused,
) -> Response | None:
    def finish(response: Response) -> Response:
        response.topics += refused
        return _as_known(response, request.version)

    code = await services.coordination.verification.verify_offsets(
        request.version,
        message.transactional_id,
        message.producer_id,
        message.producer_epoch,
        services.coordination.groups.partition_for(message.group_id),
    )
    if code is not ErrorCode.NONE:
        return finish(Response(topics=[topic for part in parts for topic in _refuse(part, code)]))
    # In this very turn of the event loop: later the transaction may have ended.
    commits = list(_commits(message, parts))
    await services.node.turns.complete(
        services.coordination.groups.handle_parts(request, commits, message.group_id, finish)
    )
    return None


def _commits(message: TxnOffsetCommitRequest, parts: list[Topics]) -> Iterator[TransactionalCommit]:
    producer = Producer(message.producer_id, message.producer_epoch)
    for place, topics in enumerate(parts):
        commit = OffsetCommitRequest(
            group_id=message.group_id,
            generation_id_or_member_epoch=message.generation_id,
            member_id=message.member_id,
            group_instance_id=message.group_instance_id,
            topics=topics,
        )
        yield TransactionalCommit(commit, producer, is_verified=place == 0)


def _refuse(topics: Topics, code: ErrorCode) -> Refused:
    return [
        TxnOffsetCommitResponseTopic(
            topic.name,
            [TxnOffsetCommitResponsePartition(each.partition_index, code) for each in topic.partitions],
        )
        for topic in topics
    ]


def _as_known(response: Response, version: int) -> Response:
    """Older producers may crash when they hear that a coordinator is loading (KAFKA-7296)."""
    if version < LOADING_KNOWN_SINCE:
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    partition.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return response
