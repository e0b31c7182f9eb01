"""InitProducerId (22): an id and an epoch for a producer.

- Without a transactional id: an id for an idempotent producer, unique in the cluster for all time. A producer that
  sends an id and epoch (version 3 on) gets a new id too, as in Kafka: without a transactional id there is no proof
  that the id is its own.
- With one: the coordinator of that id (`coordinators.transactions`) fences those who had it before; it responds once
  its decision is committed. Before version 4 PRODUCER_FENCED is called INVALID_PRODUCER_EPOCH.
- If no ids can be allocated, because the metadata log cannot be written, the error is COORDINATOR_LOAD_IN_PROGRESS, as
  in Kafka: it is the one error here after which all clients wait and retry.

Left out: two-phase commit (KIP-939, version 6), which Kafka itself does not serve yet.
"""

from odradek.apis.row import ANY_NAME, May, Need, Operation, Resource
from odradek.errors import ErrorCode, KafkaError
from odradek.serving.coordination import Coordination
from odradek.serving.fencing import fenced_for
from odradek.serving.request import Request
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NO_PRODUCER_ID = -1
NO_EPOCH = -1
FENCED_SINCE = 4


def access(message: InitProducerIdRequest, version: int, may: May) -> tuple[Need, ...]:
    """Name the needs; an idempotent producer needs no more than the right to write to any topic."""
    if message.transactional_id is not None:
        return (Need(Operation.WRITE, Resource.TRANSACTIONAL_ID, "transactional_id"),)
    if may(Operation.WRITE, Resource.TOPIC, ANY_NAME):
        return ()
    return (Need(Operation.IDEMPOTENT_WRITE, Resource.CLUSTER),)


def handle(
    coordination: Coordination, request: Request, message: InitProducerIdRequest
) -> InitProducerIdResponse | None:
    if message.transactional_id == "":
        return _refuse(ErrorCode.INVALID_REQUEST)
    if (message.producer_id == NO_PRODUCER_ID) != (message.producer_epoch == NO_EPOCH):
        return _refuse(ErrorCode.INVALID_REQUEST)
    if message.transactional_id is None:
        request.then(_new_id(coordination))
        return None

    def amend(response: InitProducerIdResponse) -> InitProducerIdResponse:
        response.error_code = fenced_for(response.error_code, request.version >= FENCED_SINCE)
        return response

    coordination.transactions.handle(request, message, message.transactional_id, amend)
    return None


async def _new_id(coordination: Coordination) -> InitProducerIdResponse:
    try:
        return InitProducerIdResponse(producer_id=await coordination.new_producer_id(), producer_epoch=0)
    except KafkaError:
        return _refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def _refuse(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)
