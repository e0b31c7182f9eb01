"""EndTxn: may this producer end its transaction, and has it perhaps done so already?

Under the older protocol the epoch stays, so a retry looks like the request itself: Complete says yes if it was
the same end. Under transaction.version 2 every end raises the epoch, and a retry is recognized by the epoch before.
What such a producer gets:

                        abort                       commit
                        retry       current         retry       current
    Empty               FENCED      ends            FENCED      INVALID_TXN_STATE
    CompleteAbort       NONE        ends            INVALID…    INVALID_TXN_STATE
    CompleteCommit      INVALID…    ends            NONE        INVALID_TXN_STATE

"ends" aborts a transaction to which nothing was added: only its epoch rises.
"""

from __future__ import annotations

import enum

from odradek.coordinators.transactions.states import AT_REST, COMPLETE_COMMIT, EMPTY, ONGOING, PREPARED
from odradek.coordinators.transactions.transaction import (
    LAST_EPOCH_OF_A_PRODUCER,
    Transaction,
)
from odradek.errors import ErrorCode, KafkaError
from odradek.model import EPOCH_FOR_EACH_TRANSACTION
from odradek.wire.messages.end_txn import EndTxnRequest


class Verdict(enum.Enum):
    """Anything else is refused, by a KafkaError."""

    END = "end it"
    ENDED = "it ended that way"


def judge(transaction: Transaction, request: EndTxnRequest) -> Verdict:
    """Judge by the older protocol."""
    if transaction.producer_id != request.producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.producer_epoch != request.producer_epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if transaction.state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if transaction.state is ONGOING:
        return Verdict.END
    return _ended_so(transaction, request)


def judge_by_raised_epoch(transaction: Transaction, request: EndTxnRequest) -> Verdict:
    """Judge by transaction.version 2."""
    if transaction.state in PREPARED:  # first: the producer may know its next id already
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    got_new_id = (
        request.producer_id == transaction.previous_producer_id
        and request.producer_epoch == LAST_EPOCH_OF_A_PRODUCER
        and transaction.producer_epoch == 0
    )
    if transaction.producer_id != request.producer_id and not got_new_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_current = transaction.producer_epoch == request.producer_epoch
    is_retry = got_new_id or transaction.producer_epoch == request.producer_epoch + 1
    # An end by the older protocol raised no epoch: whoever has the epoch before was fenced by its producer. Kafka takes
    # that for a retry, and tells the fenced producer of a commit that was not its own.
    if transaction.state in (ONGOING, EMPTY) or transaction.client_version < EPOCH_FOR_EACH_TRANSACTION:
        is_retry = False
    if not is_current and not is_retry:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if is_retry:
        return _ended_so(transaction, request)
    if transaction.state is ONGOING or not request.committed:
        return Verdict.END
    raise KafkaError(ErrorCode.INVALID_TXN_STATE)


def _ended_so(transaction: Transaction, request: EndTxnRequest) -> Verdict:
    assert transaction.state in AT_REST
    if transaction.state is EMPTY or (transaction.state is COMPLETE_COMMIT) != request.committed:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)
    return Verdict.ENDED
