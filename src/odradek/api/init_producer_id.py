"""InitProducerId (22): an id for an idempotent producer, unique in the cluster for all time.

- A producer that comes with its id and epoch (version 3 on, after a fatal sequence error) keeps the id and gets
  the next epoch; an exhausted epoch gets a new id.

Left out: transactional ids. They are refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, the one error that every
client takes as final: `init_transactions` fails at once instead of being retried until its timeout.
"""

from odradek.api.request import Request
from odradek.api.services import Services
from odradek.errors import ErrorCode
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

NO_PRODUCER_ID = -1
NO_EPOCH = -1
LAST_EPOCH = 2**15 - 2  # the one above is Kafka's for fencing


async def handle(
    services: Services, request: Request, message: InitProducerIdRequest
) -> InitProducerIdResponse:
    if message.transactional_id == "":
        return _refuse(ErrorCode.INVALID_REQUEST)
    if message.transactional_id is not None:
        return _refuse(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    known_id, known_epoch = message.producer_id, message.producer_epoch
    if (known_id == NO_PRODUCER_ID) != (known_epoch == NO_EPOCH):
        return _refuse(ErrorCode.INVALID_REQUEST)
    if known_id != NO_PRODUCER_ID and known_epoch < LAST_EPOCH:
        return InitProducerIdResponse(producer_id=known_id, producer_epoch=known_epoch + 1)
    return InitProducerIdResponse(producer_id=await services.new_producer_id(), producer_epoch=0)


def _refuse(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)
