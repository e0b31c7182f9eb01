"""OffsetForLeaderEpoch (23): where an epoch ended in our log, so that a client finds out what it lost.

The current epoch ends where the log does. An epoch older than all that are known ended where the first of those
began: nothing of it is left. An epoch newer than all that are known gets -1.

Left out: asking as a replica (answered like a consumer; our followers are told by Fetch where logs part).
"""

from odradek.apis.row import May, Need, Operation, Resource
from odradek.errors import ErrorCode, KafkaError
from odradek.serving.partitions import Partitions
from odradek.serving.request import Request
from odradek.wire.codec import Steps
from odradek.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def access(message: OffsetForLeaderEpochRequest, version: int, may: May) -> tuple[Need, ...]:
    """Whoever may act in the cluster need not be allowed each topic."""
    if may(Operation.CLUSTER_ACTION, Resource.CLUSTER, ""):
        return ()
    return (Need(Operation.DESCRIBE, Resource.TOPIC),)


def handle(
    partitions: Partitions, request: Request, message: OffsetForLeaderEpochRequest
) -> Steps[OffsetForLeaderEpochResponse]:
    response = OffsetForLeaderEpochResponse()
    for topic in message.topics:
        results: list[EpochEndOffset] = []
        for asked in topic.partitions:
            results.append(_find(partitions, topic.topic, asked))
            yield
        response.topics.append(OffsetForLeaderTopicResult(topic.topic, results))
    return response


def _find(partitions: Partitions, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    response = EpochEndOffset(partition=asked.partition, leader_epoch=-1, end_offset=-1)
    try:
        leader = partitions.replicas.leader(topic, asked.partition)
        leader.check_leader_epoch(asked.current_leader_epoch)
    except KafkaError as error:
        response.error_code = error.code
        return response
    response.error_code = ErrorCode.NONE
    response.leader_epoch, response.end_offset = leader.end_offset_for_epoch(asked.leader_epoch)
    return response
