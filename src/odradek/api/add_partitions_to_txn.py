"""AddPartitionsToTxn (24): partitions join a transaction, or a broker asks whether they have joined.

- Clients send versions 0 to 3, about one transaction. Versions 4 and 5 are the brokers', about any number: they
  verify (`verify_only`) or add on behalf of a Produce.
- If one partition does not exist, none is added: it gets UNKNOWN_TOPIC_OR_PARTITION, the others
  OPERATION_NOT_ATTEMPTED. Clients may not write to internal topics.
- Before version 2 PRODUCER_FENCED is called INVALID_PRODUCER_EPOCH.

The coordinators of the transactional ids (`coordinators.transactions`) do the work; they respond once it is committed.
"""

from odradek.coordinators.transactions.adding import BROKERS_SINCE
from odradek.errors import ErrorCode
from odradek.model import INTERNAL_TOPICS
from odradek.requests.fencing import fenced_for
from odradek.requests.request import Request
from odradek.requests.services import Services
from odradek.wire.codec import Steps
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

FENCED_SINCE = 2


def handle(
    services: Services, request: Request, message: AddPartitionsToTxnRequest
) -> Steps[AddPartitionsToTxnResponse | None]:
    is_client = request.version < BROKERS_SINCE
    asked = [_as_one(message)] if is_client else message.transactions
    refused: list[AddPartitionsToTxnResult] = []
    accepted: list[AddPartitionsToTxnTransaction] = []
    for transaction in asked:
        result = _refuse(services, transaction, is_client)
        if result is None:
            accepted.append(transaction)
        else:
            refused.append(result)
        yield

    def amend(response: AddPartitionsToTxnResponse) -> AddPartitionsToTxnResponse:
        if is_client:
            return _for_client(response, request.version)
        response.results_by_transaction += refused
        return response

    if not accepted:
        return amend(AddPartitionsToTxnResponse(results_by_transaction=refused if is_client else []))
    yield from services.transactions.handle_many(request, AddPartitionsToTxnRequest(accepted), amend)
    return None


def _as_one(message: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        message.v3_and_below_transactional_id,
        message.v3_and_below_producer_id,
        message.v3_and_below_producer_epoch,
        verify_only=False,
        topics=message.v3_and_below_topics,
    )


def _refuse(
    services: Services, transaction: AddPartitionsToTxnTransaction, is_client: bool
) -> AddPartitionsToTxnResult | None:
    """None if it goes to the coordinator."""
    result = AddPartitionsToTxnResult(transaction.transactional_id)
    is_refused = False
    for topic in transaction.topics:
        known = services.image.topics.get(topic.name)
        codes: list[AddPartitionsToTxnPartitionResult] = []
        for index in topic.partitions:
            code = ErrorCode.OPERATION_NOT_ATTEMPTED
            if is_client and topic.name in INTERNAL_TOPICS:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif known is None or index not in known.partitions:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            is_refused |= code is not ErrorCode.OPERATION_NOT_ATTEMPTED
            codes.append(AddPartitionsToTxnPartitionResult(index, code))
        result.topic_results.append(AddPartitionsToTxnTopicResult(topic.name, codes))
    return result if is_refused else None


def _for_client(response: AddPartitionsToTxnResponse, version: int) -> AddPartitionsToTxnResponse:
    (result,) = response.results_by_transaction
    for topic in result.topic_results:
        for partition in topic.results_by_partition:
            code = partition.partition_error_code
            partition.partition_error_code = fenced_for(code, version >= FENCED_SINCE)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=result.topic_results)
