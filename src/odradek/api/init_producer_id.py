"""InitProducerId (22): an id for an idempotent producer, unique in the cluster for all time.

- A producer that sends an id and epoch (version 3 on) gets a new id too, as in Kafka: without a transactional
  id there is no proof that the id is its own.

- If no ids can be allocated, because the metadata log cannot be written, the error is COORDINATOR_LOAD_IN_PROGRESS, as
  in Kafka: it is the one error here after which all clients wait and retry.

Left out: transactional ids. They are refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, the one error that every
client takes as final: `init_transactions` fails at once instead of being retried until its timeout.
"""

from odradek.errors import ErrorCode, KafkaError
from odradek.requests.request import Request
from odradek.requests.services import Services
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NO_PRODUCER_ID = -1
NO_EPOCH = -1


async def handle(
    services: Services, request: Request, message: InitProducerIdRequest
) -> InitProducerIdResponse:
    if message.transactional_id == "":
        return _refuse(ErrorCode.INVALID_REQUEST)
    if message.transactional_id is not None:
        return _refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if (message.producer_id == NO_PRODUCER_ID) != (message.producer_epoch == NO_EPOCH):
        return _refuse(ErrorCode.INVALID_REQUEST)
    try:
        return InitProducerIdResponse(producer_id=await services.new_producer_id(), producer_epoch=0)
    except KafkaError:
        return _refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def _refuse(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)
