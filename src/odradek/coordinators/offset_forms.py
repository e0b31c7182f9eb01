"""Forms that requests and responses about offsets have in some versions, from and to those that `offsets` works with.

Before version 8, OffsetFetch is about one group, whose topics are in the message itself. TxnOffsetCommit has the
results of OffsetCommit.
"""

from odradek.model import NO_TOPIC_ID
from odradek.wire.messages.offset_commit import OffsetCommitResponse
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from odradek.wire.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)


def in_transaction(response: OffsetCommitResponse) -> TxnOffsetCommitResponse:
    topics = [
        TxnOffsetCommitResponseTopic(
            topic.name,
            [
                TxnOffsetCommitResponsePartition(each.partition_index, each.error_code)
                for each in topic.partitions
            ],
        )
        for topic in response.topics
    ]
    return TxnOffsetCommitResponse(topics=topics)


def of_single_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(NO_TOPIC_ID, each.name, each.partition_indexes)
            for each in request.topics
        ]
    return OffsetFetchRequestGroup(request.group_id, topics=topics)


def as_single_group(group: OffsetFetchResponseGroup) -> OffsetFetchResponse:
    topics = [
        OffsetFetchResponseTopic(
            topic.name,
            [
                OffsetFetchResponsePartition(
                    each.partition_index,
                    each.committed_offset,
                    each.committed_leader_epoch,
                    each.metadata,
                    each.error_code,
                )
                for each in topic.partitions
            ],
        )
        for topic in group.topics
    ]
    return OffsetFetchResponse(topics=topics)
