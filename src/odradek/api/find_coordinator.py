"""FindCoordinator (10): which broker looks after a group, a transactional id or a share partition.

The internal topic is created at the first request. Many keys in one request from version 4 on.

Left out: share groups.
"""

from odradek.apis.row import May, Need, Operation
from odradek.errors import ErrorCode, KafkaError
from odradek.serving.coordination import KINDS, TRANSACTIONS
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

KEYS_SINCE = 4


def access(message: FindCoordinatorRequest, version: int, may: May) -> tuple[Need, ...]:
    resource = KINDS.get(message.key_type, TRANSACTIONS).resource
    return (Need(Operation.DESCRIBE, resource, "coordinator_keys" if version >= KEYS_SINCE else "key"),)


async def handle(
    services: Services, request: Request, message: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    services.cluster.check_metadata()
    keys = message.coordinator_keys if request.version >= KEYS_SINCE else [message.key]
    found: list[Coordinator] = []
    pace = services.node.turns.pace()
    for key in keys:
        found.append(await _find(services, request, message.key_type, key))
        await pace.step()
    if request.version >= KEYS_SINCE:
        return FindCoordinatorResponse(coordinators=found)
    only = found[0]
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


async def _find(services: Services, request: Request, key_type: int, key: str) -> Coordinator:
    response = Coordinator(key=key, node_id=-1, host="", port=-1)
    kind = KINDS.get(key_type)
    if kind is None:
        response.error_code = ErrorCode.INVALID_REQUEST
        response.error_message = f"coordinator type {key_type} is not served"
        return response
    try:
        node_id = await services.coordination.get(kind).find(key)
    except KafkaError as error:
        response.error_code, response.error_message = error.code, error.message
        return response
    except OSError as error:  # the coordinators' code cannot be read, for lack of a descriptor
        response.error_code, response.error_message = ErrorCode.COORDINATOR_NOT_AVAILABLE, str(error)
        return response
    broker = services.cluster.image.brokers.get(node_id)
    endpoint = broker.endpoint(request.caller.listener) if broker else None
    if endpoint is None:
        response.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        response.error_message = "the coordinator is not available"
        return response
    response.node_id, response.host, response.port = node_id, endpoint.host, endpoint.port
    return response
