"""AssignReplicasToDirs (73): a broker tells the controller that the log of one of its replicas is lost.

Left out: any other directory, because a broker has only one.
"""

from odradek.serving.cluster import Cluster
from odradek.serving.request import Request
from odradek.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)


async def handle(
    cluster: Cluster, request: Request, message: AssignReplicasToDirsRequest
) -> AssignReplicasToDirsResponse:
    response: AssignReplicasToDirsResponse = await cluster.decide(request, message)
    return response
