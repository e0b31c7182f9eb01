"""AddPartitionsToTxn (24): partitions join a transaction, or a broker asks whether they have joined.

- Clients send versions 0 to 3, about one transaction. Versions 4 and 5 are the brokers', about any number: they
  verify (`verify_only`) or add on behalf of a Produce.
- If one partition does not exist, none is added: it gets UNKNOWN_TOPIC_OR_PARTITION, the others
  OPERATION_NOT_ATTEMPTED. Clients may not write to internal topics.
- Before version 2 PRODUCER_FENCED is called INVALID_PRODUCER_EPOCH.

The coordinators of the transactional ids (`coordinators.transactions`) do the work; they respond once it is committed.
"""

from odradek.apis.row import May, Need, Operation, Resource
from odradek.coordinators.transactions.adding import BROKERS_SINCE
from odradek.errors import ErrorCode
from odradek.model import INTERNAL_TOPICS
from odradek.serving.coordination import Amend, as_it_is
from odradek.serving.fencing import fenced_for
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.codec import Steps
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

FENCED_SINCE = 2


def access(message: AddPartitionsToTxnRequest, version: int, may: May) -> tuple[Need, ...]:
    """Later versions are for brokers."""
    if version >= BROKERS_SINCE:
        return (Need(Operation.CLUSTER_ACTION, Resource.CLUSTER),)
    return (
        Need(Operation.WRITE, Resource.TRANSACTIONAL_ID, "v3_and_below_transactional_id"),
        Need(Operation.WRITE, Resource.TOPIC),
    )


def handle(
    services: Services, request: Request, message: AddPartitionsToTxnRequest
) -> Steps[AddPartitionsToTxnResponse | None]:
    if request.version < BROKERS_SINCE:
        return _handle_client(services, request, message)
    if len(message.transactions) == 1:
        return _handle_one(services, request, message)
    return (yield from _handle_many(services, request, message))


def _handle_client(
    services: Services, request: Request, message: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | None:
    def amend(response: AddPartitionsToTxnResponse) -> AddPartitionsToTxnResponse:
        return _for_client(response, request.version)

    one = AddPartitionsToTxnRequest([_as_one(message)])
    refused = _handle_one(services, request, one, amend, is_client=True)
    return None if refused is None else amend(refused)


def _handle_one(
    services: Services,
    request: Request,
    message: AddPartitionsToTxnRequest,
    amend: Amend = as_it_is,
    is_client: bool = False,
) -> AddPartitionsToTxnResponse | None:
    """Handle a request about a single transaction, as nearly all are."""
    (asked,) = message.transactions
    for topic in asked.topics:
        if not _may_join(services, topic, is_client):
            return AddPartitionsToTxnResponse(results_by_transaction=[_refusal(services, asked, is_client)])
    services.coordination.transactions.handle(request, message, asked.transactional_id, amend)
    return None


def _handle_many(
    services: Services, request: Request, message: AddPartitionsToTxnRequest
) -> Steps[AddPartitionsToTxnResponse | None]:
    refused: list[AddPartitionsToTxnResult] = []
    accepted: list[AddPartitionsToTxnTransaction] = []
    for asked in message.transactions:
        if all(_may_join(services, topic, False) for topic in asked.topics):
            accepted.append(asked)
        else:
            refused.append(_refusal(services, asked, False))
        yield
    if not accepted:
        return AddPartitionsToTxnResponse(results_by_transaction=refused)

    def amend(response: AddPartitionsToTxnResponse) -> AddPartitionsToTxnResponse:
        response.results_by_transaction += refused
        return response

    yield from services.coordination.transactions.handle_many(
        request, AddPartitionsToTxnRequest(accepted), amend
    )
    return None


def _as_one(message: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        message.v3_and_below_transactional_id,
        message.v3_and_below_producer_id,
        message.v3_and_below_producer_epoch,
        verify_only=False,
        topics=message.v3_and_below_topics,
    )


def _may_join(services: Services, topic: AddPartitionsToTxnTopic, is_client: bool) -> bool:
    known = services.cluster.image.topics.get(topic.name)
    if known is None or (is_client and topic.name in INTERNAL_TOPICS):
        return not topic.partitions
    return known.partitions.keys() >= set(topic.partitions)


def _refusal(
    services: Services, transaction: AddPartitionsToTxnTransaction, is_client: bool
) -> AddPartitionsToTxnResult:
    """The refusal of a transaction that does not go to the coordinator, because of some of its partitions."""
    result = AddPartitionsToTxnResult(transaction.transactional_id)
    for topic in transaction.topics:
        known = services.cluster.image.topics.get(topic.name)
        codes: list[AddPartitionsToTxnPartitionResult] = []
        for index in topic.partitions:
            code = ErrorCode.OPERATION_NOT_ATTEMPTED
            if is_client and topic.name in INTERNAL_TOPICS:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif known is None or index not in known.partitions:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            codes.append(AddPartitionsToTxnPartitionResult(index, code))
        result.topic_results.append(AddPartitionsToTxnTopicResult(topic.name, codes))
    return result


def _for_client(response: AddPartitionsToTxnResponse, version: int) -> AddPartitionsToTxnResponse:
    (result,) = response.results_by_transaction
    for topic in result.topic_results:
        for partition in topic.results_by_partition:
            code = partition.partition_error_code
            partition.partition_error_code = fenced_for(code, version >= FENCED_SINCE)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=result.topic_results)
