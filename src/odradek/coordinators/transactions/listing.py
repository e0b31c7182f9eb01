"""ListTransactions and DescribeTransactions, for the transactional ids of one shard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import re2

from odradek.coordinators.transactions.records import by_topic
from odradek.coordinators.transactions.states import BY_LABEL
from odradek.coordinators.transactions.transaction import Transaction
from odradek.errors import ErrorCode, KafkaError
from odradek.wire.messages import describe_transactions
from odradek.wire.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)


def listed(
    transactions: Iterable[Transaction], request: ListTransactionsRequest, now_ms: int
) -> ListTransactionsResponse:
    """A state that we do not know is named in the response; it matches nothing."""
    is_wanted = _filter(request, now_ms)
    return ListTransactionsResponse(
        unknown_state_filters=[label for label in request.state_filters if label not in BY_LABEL],
        transaction_states=[
            TransactionState(each.transactional_id, each.producer_id, each.state.label)
            for each in transactions
            if is_wanted(each)
        ],
    )


def _filter(request: ListTransactionsRequest, now_ms: int) -> Callable[[Transaction], bool]:
    labels, producer_ids = set(request.state_filters), set(request.producer_id_filters)
    matches = compiled(request.transactional_id_pattern) if request.transactional_id_pattern else None

    def is_wanted(transaction: Transaction) -> bool:
        if producer_ids and transaction.producer_id not in producer_ids:
            return False
        if labels and transaction.state.label not in labels:
            return False
        if request.duration_filter >= 0 and now_ms - transaction.started_ms <= request.duration_filter:
            return False
        return matches is None or matches.fullmatch(transaction.transactional_id) is not None

    return is_wanted


@lru_cache(maxsize=64)
def compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION) from None


def described(
    transactions: Mapping[str, Transaction], transactional_id: str
) -> describe_transactions.TransactionState:
    if not transactional_id:
        return _unknown(transactional_id, ErrorCode.INVALID_REQUEST)
    transaction = transactions.get(transactional_id)
    if transaction is None:
        return _unknown(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    return describe_transactions.TransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.state.label,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[
            describe_transactions.TopicData(topic, indexes)
            for topic, indexes in by_topic(transaction.partitions)
        ],
    )


def _unknown(transactional_id: str, code: ErrorCode) -> describe_transactions.TransactionState:
    return describe_transactions.TransactionState(error_code=code, transactional_id=transactional_id)
