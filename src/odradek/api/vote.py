"""Vote (52): a voter that stands for election asks this replica for its vote, or whether it would get it (pre-vote).

The vote is on disk before the response is sent (`raft.core`).
"""

from odradek.raft.rpc import from_request
from odradek.serving.cluster import Cluster
from odradek.serving.request import Request
from odradek.wire.messages.vote import VoteRequest


def handle(cluster: Cluster, request: Request, message: VoteRequest) -> None:
    cluster.quorum.handle(request, from_request(request.api_key, request.version, message))
