"""CreateTopics (19): new topics, each with its own outcome.

The controller checks and decides (`controller.topics`). The response is sent once the topics are
committed and this broker leads its partitions of them. If the metadata log cannot be written, as on a full disk, each
topic is refused with KAFKA_STORAGE_ERROR; the same goes for every API that changes metadata.

Left out: `timeout_ms`: the response comes with the commit, or says that there was no controller in time.
"""

from odradek.apis.row import May, Need, Operation, Resource
from odradek.errors import ErrorCode
from odradek.serving.cluster import Cluster
from odradek.serving.request import Request
from odradek.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse

UNKNOWN = -1


def access(message: CreateTopicsRequest, version: int, may: May) -> tuple[Need, ...]:
    """Whoever may create in the cluster need not be allowed each topic."""
    if may(Operation.CREATE, Resource.CLUSTER, ""):
        return ()
    return (Need(Operation.CREATE, Resource.TOPIC),)


def hide(message: CreateTopicsRequest, response: CreateTopicsResponse, may: May) -> None:
    """Whoever may not see the settings of a topic does not see those that it was created with."""
    for topic in response.topics:
        if not topic.error_code and not may(Operation.DESCRIBE_CONFIGS, Resource.TOPIC, topic.name):
            topic.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            topic.num_partitions = topic.replication_factor = UNKNOWN
            topic.configs = []


async def handle(cluster: Cluster, request: Request, message: CreateTopicsRequest) -> CreateTopicsResponse:
    response: CreateTopicsResponse = await cluster.decide(request, message)
    return response
