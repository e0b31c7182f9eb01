"""Hints about a partition's leader from a broker that refuses the partition (KIP-951)."""

from odradek.errors import ErrorCode
from odradek.metadata.image import NO_LEADER
from odradek.serving.cluster import Cluster
from odradek.serving.request import Request
from odradek.wire.leader_hint import Address, LeaderHint

HINTED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
NO_EPOCH = -1


def leader_hint(cluster: Cluster, request: Request, topic: str, index: int) -> LeaderHint:
    """The leader by this node's metadata. Its address is that of the listener that the client used."""
    partition = cluster.image.partition(topic, index)
    if partition is None:
        return LeaderHint(NO_LEADER, NO_EPOCH, None)
    broker = cluster.image.brokers.get(partition.leader)
    endpoint = (
        broker.endpoint(request.caller.listener) if broker is not None and not broker.is_fenced else None
    )
    address = None
    if broker is not None and endpoint is not None:
        address = Address(broker.id, endpoint.host, endpoint.port, broker.rack)
    return LeaderHint(partition.leader, partition.leader_epoch, address)
