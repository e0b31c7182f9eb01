"""DescribeCluster (60): the controllers, for those who may alter the cluster."""

from odradek.api import describe_cluster
from odradek.apis.row import May, Need, Operation, Resource
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse


def access(message: DescribeClusterRequest, version: int, may: May) -> tuple[Need, ...]:
    return (Need(Operation.ALTER, Resource.CLUSTER),)


def handle(services: Services, request: Request, message: DescribeClusterRequest) -> DescribeClusterResponse:
    return describe_cluster.handle(services, request, message)
