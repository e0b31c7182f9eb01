"""DescribeCluster (60): the brokers, or on a controller's listener the controllers, and which of them to ask.

A request for the others is refused (MISMATCHED_ENDPOINT_TYPE): this listener does not know their addresses. A
controller tells only those who may alter the cluster (`describe_controllers`).
"""

from odradek.apis.row import May, Need
from odradek.errors import ErrorCode
from odradek.serving.authorized import cluster_operations
from odradek.serving.cluster import NO_NODE, Cluster
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS, CONTROLLERS = 1, 2
KINDS = {BROKERS: "brokers", CONTROLLERS: "controllers"}
NOT_ASKED = -(2**31)


def access(message: DescribeClusterRequest, version: int, may: May) -> tuple[Need, ...]:
    """Brokers tell everybody who is connected."""
    return ()


def handle(services: Services, request: Request, message: DescribeClusterRequest) -> DescribeClusterResponse:
    cluster = services.cluster
    cluster.check_metadata()
    served = CONTROLLERS if cluster.is_for_controller(request) else BROKERS
    if message.endpoint_type != served:
        return _refuse(message.endpoint_type, served)
    wants_operations = message.include_cluster_authorized_operations
    return DescribeClusterResponse(
        cluster_authorized_operations=cluster_operations(services.authorizer, request)
        if wants_operations
        else NOT_ASKED,
        cluster_id=cluster.image.cluster_id,
        endpoint_type=served,
        controller_id=cluster.next_controller_id() if served == BROKERS else _leader(cluster),
        brokers=_brokers(cluster, request, message) if served == BROKERS else _controllers(cluster, request),
    )


def _refuse(asked: int, served: int) -> DescribeClusterResponse:
    code, reason = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"There is no endpoint type {asked}."
    if asked in KINDS:
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE
        reason = f"This listener describes {KINDS[served]}, the request is for {KINDS[asked]}."
    return DescribeClusterResponse(error_code=code, error_message=reason)


def _brokers(
    cluster: Cluster, request: Request, message: DescribeClusterRequest
) -> list[DescribeClusterBroker]:
    return [
        DescribeClusterBroker(broker.id, endpoint.host, endpoint.port, broker.rack, broker.is_fenced)
        for broker in cluster.image.brokers.values()
        if (endpoint := broker.endpoint(request.caller.listener))
        and (message.include_fenced_brokers or not broker.is_fenced)
    ]


def _controllers(cluster: Cluster, request: Request) -> list[DescribeClusterBroker]:
    return [
        DescribeClusterBroker(controller.id, endpoint.host, endpoint.port)
        for controller in cluster.image.controllers.values()
        for endpoint in controller.endpoints
        if endpoint.name == request.caller.listener
    ]


def _leader(cluster: Cluster) -> int:
    leader = cluster.quorum.leader
    return NO_NODE if leader is None else leader[0]
