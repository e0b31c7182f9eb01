"""AddPartitionsToTxn: partitions join a transaction, or a broker asks whether they have joined.

A client of the older protocol adds partitions before it writes to them, and the partition's leader asks back
(`verify_only`). Under transaction.version 2 the leader adds the partition itself, with the first Produce.
"""

from __future__ import annotations

from odradek.coordinators.transactions.states import ONGOING, PREPARED
from odradek.coordinators.transactions.transaction import Transaction
from odradek.errors import ErrorCode, KafkaError
from odradek.model import TopicPartition
from odradek.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

BROKERS_SINCE = (
    4  # AddPartitionsToTxn: only brokers send these versions, for clients of transaction.version 2
)


def partitions_of(asked: AddPartitionsToTxnTransaction) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic.name, index) for topic in asked.topics for index in topic.partitions
    )


def check_add(transaction: Transaction, asked: AddPartitionsToTxnTransaction) -> bool:
    """True if there is anything to add."""
    if transaction.state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    _check_producer(transaction, asked)
    return transaction.state is not ONGOING or not partitions_of(asked) <= transaction.partitions


def verify(transaction: Transaction, asked: AddPartitionsToTxnTransaction) -> AddPartitionsToTxnResult:
    _check_producer(transaction, asked)
    if transaction.state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    return AddPartitionsToTxnResult(
        asked.transactional_id,
        [
            AddPartitionsToTxnTopicResult(
                topic.name,
                [
                    AddPartitionsToTxnPartitionResult(
                        index,
                        ErrorCode.NONE
                        if TopicPartition(topic.name, index) in transaction.partitions
                        else ErrorCode.TRANSACTION_ABORTABLE,
                    )
                    for index in topic.partitions
                ],
            )
            for topic in asked.topics
        ],
    )


def _check_producer(transaction: Transaction, asked: AddPartitionsToTxnTransaction) -> None:
    if transaction.producer_id != asked.producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.producer_epoch != asked.producer_epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)


def result_for(asked: AddPartitionsToTxnTransaction, code: ErrorCode) -> AddPartitionsToTxnResult:
    """The same for all partitions."""
    return AddPartitionsToTxnResult(
        asked.transactional_id,
        [
            AddPartitionsToTxnTopicResult(
                topic.name, [AddPartitionsToTxnPartitionResult(index, code) for index in topic.partitions]
            )
            for topic in asked.topics
        ],
    )
