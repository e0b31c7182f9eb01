"""ListConfigResources (74): the names of what can be configured.

Version 0 lists client metrics only, of which there are none.
"""

from odradek.errors import ErrorCode
from odradek.metadata.image import ResourceType
from odradek.serving.cluster import Cluster
from odradek.serving.request import Request
from odradek.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

LISTED = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.BROKER_LOGGER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
)


def handle(
    cluster: Cluster, request: Request, message: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    if request.version == 0:
        return ListConfigResourcesResponse()
    wanted = message.resource_types or LISTED
    if not set(wanted) <= set(LISTED):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    found: list[ConfigResource] = []
    for resource_type in sorted(set(wanted)):
        found += [ConfigResource(name, resource_type) for name in _names(cluster, resource_type)]
    return ListConfigResourcesResponse(config_resources=found)


def _names(cluster: Cluster, resource_type: int) -> list[str]:
    if resource_type == ResourceType.TOPIC:
        return sorted(cluster.image.topics)
    if resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [str(broker_id) for broker_id in sorted(cluster.image.brokers)]
    return []
