"""BeginQuorumEpoch (53): the leader of a new epoch says so, and where it is, to voters that do not fetch from it."""

from odradek.raft.rpc import from_request
from odradek.serving.cluster import Cluster
from odradek.serving.quorum import learn_leader
from odradek.serving.request import Request
from odradek.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest


def handle(cluster: Cluster, request: Request, message: BeginQuorumEpochRequest) -> None:
    body = from_request(request.api_key, request.version, message)
    learn_leader(cluster, request.api_key, message)
    cluster.quorum.handle(request, body)
