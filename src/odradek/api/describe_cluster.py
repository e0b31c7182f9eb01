"""DescribeCluster (60): the brokers and the controller.

Left out: endpoints of controllers (endpoint type 2, UNSUPPORTED_ENDPOINT_TYPE).
"""

from odradek.errors import ErrorCode
from odradek.requests.authorized import CLUSTER_OPERATIONS
from odradek.requests.request import Request
from odradek.requests.services import Services
from odradek.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1
NOT_ASKED = -(2**31)


def handle(services: Services, request: Request, message: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.version >= 1 and message.endpoint_type != BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="This is a broker; its endpoint type is 1",
            endpoint_type=message.endpoint_type,
        )
    image = services.image
    wants_operations = message.include_cluster_authorized_operations
    return DescribeClusterResponse(
        cluster_authorized_operations=CLUSTER_OPERATIONS if wants_operations else NOT_ASKED,
        cluster_id=image.cluster_id,
        controller_id=services.controller_id,
        brokers=[
            DescribeClusterBroker(broker.id, endpoint.host, endpoint.port, broker.rack, broker.is_fenced)
            for broker in image.brokers.values()
            if (endpoint := broker.endpoint(request.listener))
            and (message.include_fenced_brokers or not broker.is_fenced)
        ],
    )
