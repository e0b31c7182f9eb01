"""EndQuorumEpoch (54): a leader that resigns says so, and who should stand for election first."""

from odradek.raft.rpc import from_request
from odradek.serving.cluster import Cluster
from odradek.serving.quorum import learn_leader
from odradek.serving.request import Request
from odradek.wire.messages.end_quorum_epoch import EndQuorumEpochRequest


def handle(cluster: Cluster, request: Request, message: EndQuorumEpochRequest) -> None:
    body = from_request(request.api_key, request.version, message)
    learn_leader(cluster, request.api_key, message)
    cluster.quorum.handle(request, body)
