"""Fetch (1): the metadata log, for the other replicas of the quorum: voters and brokers.

- A fetch says how far the replica has the log on disk. From that the leader knows what is committed.
- With nothing to send it is parked until there is, or until the high watermark advances.
- A replica whose log has diverged is told where to cut it; one that is too far behind, which snapshot to fetch.

Left out: fetch sessions (there is one partition), and any partition but the metadata's (INVALID_REQUEST).
"""

from odradek.apis.row import May, Need, Operation, Resource
from odradek.raft.rpc import from_request
from odradek.serving.cluster import Cluster
from odradek.serving.request import Request
from odradek.wire.messages.fetch import FetchRequest


def access(message: FetchRequest, version: int, may: May) -> tuple[Need, ...]:
    return (Need(Operation.CLUSTER_ACTION, Resource.CLUSTER),)


def handle(cluster: Cluster, request: Request, message: FetchRequest) -> None:
    cluster.quorum.handle(request, from_request(request.api_key, request.version, message))
