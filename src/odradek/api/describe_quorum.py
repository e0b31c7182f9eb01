"""DescribeQuorum (55): who leads the metadata quorum, its voters and observers, and how far each of them is.

Only the leader knows. A broker forwards the request to it; a controller that does not lead returns
NOT_LEADER_OR_FOLLOWER.
"""

from collections.abc import Iterable

from odradek.errors import ErrorCode, KafkaError
from odradek.model import METADATA_TOPIC
from odradek.raft.view import QuorumView, ReplicaView
from odradek.serving.cluster import Cluster
from odradek.serving.request import Request
from odradek.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionDataInResponse,
    ReplicaState,
    TopicDataInResponse,
)

METADATA_PARTITION = (METADATA_TOPIC, 0)


async def handle(
    cluster: Cluster, request: Request, message: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    async def respond() -> DescribeQuorumResponse:
        return _describe(cluster, message)

    response: DescribeQuorumResponse = await cluster.at_leader(request, message, respond)
    return response


def _describe(cluster: Cluster, message: DescribeQuorumRequest) -> DescribeQuorumResponse:
    asked = [
        (topic.topic_name, item.partition_index) for topic in message.topics for item in topic.partitions
    ]
    if asked != [METADATA_PARTITION]:
        reason = f"The quorum's only partition is {METADATA_TOPIC}-0."
        return _refuse(message, KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, reason))
    try:
        view = cluster.quorum.describe()
    except KafkaError as error:
        return _refuse(message, error)
    partition = PartitionDataInResponse(
        leader_id=view.leader_id,
        leader_epoch=view.epoch,
        high_watermark=view.high_watermark,
        current_voters=_replicas(view.voters),
        observers=_replicas(view.observers),
    )
    topics = [TopicDataInResponse(METADATA_TOPIC, [partition])]
    return DescribeQuorumResponse(topics=topics, nodes=_nodes(view))


def _replicas(views: Iterable[ReplicaView]) -> list[ReplicaState]:
    return [ReplicaState(*view.key, *view[1:]) for view in views]


def _nodes(view: QuorumView) -> list[Node]:
    return [
        Node(voter.key.node_id, [Listener(*endpoint) for endpoint in voter.endpoints]) for voter in view.nodes
    ]


def _refuse(message: DescribeQuorumRequest, error: KafkaError) -> DescribeQuorumResponse:
    """The code belongs to each partition, as in Kafka."""
    return DescribeQuorumResponse(
        topics=[
            TopicDataInResponse(
                topic.topic_name,
                [
                    PartitionDataInResponse(item.partition_index, error.code, error.message)
                    for item in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )
