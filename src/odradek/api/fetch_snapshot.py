"""FetchSnapshot (59): a part of a snapshot of the metadata, for a replica whose log ends before the leader's begins."""

from odradek.raft.rpc import from_request
from odradek.serving.cluster import Cluster
from odradek.serving.request import Request
from odradek.wire.messages.fetch_snapshot import FetchSnapshotRequest


def handle(cluster: Cluster, request: Request, message: FetchSnapshotRequest) -> None:
    cluster.quorum.handle(request, from_request(request.api_key, request.version, message))
