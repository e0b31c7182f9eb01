"""Error responses: where the response to each request has an error code.

A request without a transactional id is invalid whoever coordinates, and says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.coordinators.transactions.adding import result_for
from odradek.coordinators.transactions.transaction import NO_EPOCH, NO_PRODUCER_ID
from odradek.errors import ErrorCode
from odradek.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from odradek.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from odradek.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from odradek.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from odradek.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse


def _for(transactional_id: str, code: ErrorCode) -> ErrorCode:
    return code if transactional_id else ErrorCode.INVALID_REQUEST


def _init_producer_id(request: InitProducerIdRequest, code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)


def _add_partitions(request: AddPartitionsToTxnRequest, code: ErrorCode) -> AddPartitionsToTxnResponse:
    results = [result_for(asked, _for(asked.transactional_id, code)) for asked in request.transactions]
    return AddPartitionsToTxnResponse(results_by_transaction=results)


def _describe(request: DescribeTransactionsRequest, code: ErrorCode) -> DescribeTransactionsResponse:
    states = [
        TransactionState(error_code=_for(each, code), transactional_id=each)
        for each in request.transactional_ids
    ]
    return DescribeTransactionsResponse(transaction_states=states)


REFUSALS: dict[type[Any], Callable[[Any, ErrorCode], Any]] = {
    InitProducerIdRequest: _init_producer_id,
    AddPartitionsToTxnRequest: _add_partitions,
    EndTxnRequest: lambda request, code: EndTxnResponse(error_code=_for(request.transactional_id, code)),
    DescribeTransactionsRequest: _describe,
    ListTransactionsRequest: lambda request, code: ListTransactionsResponse(error_code=code),
}


def refuse(request: Any, code: ErrorCode) -> Any:
    return REFUSALS[type(request)](request, code)
