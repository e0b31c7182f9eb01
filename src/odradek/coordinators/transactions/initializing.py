"""InitProducerId: a producer begins, or begins again, and those before it are fenced.

- A producer that says which id and epoch it had continues with the next epoch if nobody else initialized since; if
  it did not get the response to that, it may ask again.
- A transaction that is open is aborted first. The producer is told CONCURRENT_TRANSACTIONS, and comes again.
- After the last epoch of a producer id comes another producer id.
"""

from __future__ import annotations

from typing import NamedTuple

from odradek.coordinators.transactions.states import PREPARED
from odradek.coordinators.transactions.transaction import (
    LAST_EPOCH_OF_A_PRODUCER,
    NO_EPOCH,
    NO_PRODUCER_ID,
    Transaction,
)
from odradek.errors import ErrorCode, KafkaError
from odradek.wire.messages.init_producer_id import InitProducerIdRequest


class Expected(NamedTuple):
    """The producer that the client takes itself for."""

    producer_id: int
    epoch: int


def check(request: InitProducerIdRequest, max_timeout_ms: int) -> Expected | None:
    """Check what can be checked without looking at the transaction. Two-phase commit (KIP-939) is not enabled."""
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if not request.transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if request.enable2_pc:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if request.keep_prepared_txn:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if not 0 < request.transaction_timeout_ms <= max_timeout_ms:
        raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    if request.producer_id == NO_PRODUCER_ID:
        return None
    return Expected(request.producer_id, request.producer_epoch)


def check_producer(transaction: Transaction, expected: Expected | None) -> None:
    if transaction.state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if expected is None or expected.producer_id == transaction.producer_id:
        return
    # Maybe it got this id in a response that was lost, because the epochs of its last one were used up.
    was_renewed = (
        expected.producer_id == transaction.previous_producer_id
        and expected.epoch >= LAST_EPOCH_OF_A_PRODUCER
    )
    if not was_renewed:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)


def needs_producer_id(transaction: Transaction, expected: Expected | None) -> bool:
    """True if the transaction needs a new producer id, given that nothing is open."""
    return transaction.is_epoch_exhausted and (
        expected is None or expected.epoch == transaction.producer_epoch
    )


def next_epoch(transaction: Transaction, expected: Expected | None) -> tuple[int, int]:
    """The producer's epoch from now on, and the one it had before if it may ask again."""
    epoch = transaction.producer_epoch
    if expected is None:
        return epoch + 1, NO_EPOCH
    if expected.epoch == epoch:
        return epoch + 1, epoch
    if expected.epoch == transaction.last_producer_epoch:
        return epoch, transaction.last_producer_epoch
    raise KafkaError(ErrorCode.PRODUCER_FENCED)
