"""Keys and values of `__transaction_state` against the bytes that Apache Kafka 4.3.1's own classes write."""

import pytest

from odradek.coordinators.transactions.records import decode, encode
from odradek.coordinators.transactions.states import (
    COMPLETE_COMMIT,
    LEGAL_MOVES,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
)
from odradek.coordinators.transactions.transaction import Transaction
from odradek.errors import ProtocolError
from odradek.model import TopicPartition

T1 = TopicPartition("t", 1)
KEY = bytes.fromhex("000000027478")

# The transaction, the version of the value, and the value.
KAFKA_WROTE: list[tuple[Transaction, int, str]] = [
    (
        Transaction("tx", 5, 3, previous_producer_id=5, timeout_ms=60_000, updated_ms=99),
        0,
        "0000000000000000000500030000ea6000ffffffff0000000000000063ffffffffffffffff",
    ),
    (
        Transaction("tx", 5, 3, previous_producer_id=5, timeout_ms=60_000, updated_ms=99),
        1,
        "0001000000000000000500030000ea6000000000000000000063ffffffffffffffff0100080000000000000005",
    ),
    (
        Transaction(
            "tx",
            5,
            3,
            previous_producer_id=5,
            timeout_ms=60_000,
            state=PREPARE_ABORT,
            partitions=frozenset({T1}),
            started_ms=88,
            updated_ms=99,
        ),
        0,
        "0000000000000000000500030000ea600300000001000174000000010000000100000000000000630000000000000058",
    ),
    (
        Transaction(
            "tx",
            5,
            3,
            previous_producer_id=5,
            timeout_ms=60_000,
            state=PREPARE_ABORT,
            partitions=frozenset({T1}),
            started_ms=88,
            updated_ms=99,
        ),
        1,
        "0001000000000000000500030000ea60030202740200000001000000000000000063000000000000"
        "00580100080000000000000005",
    ),
    (
        Transaction(
            "tx",
            5,
            3,
            previous_producer_id=5,
            timeout_ms=60_000,
            state=ONGOING,
            partitions=frozenset({T1}),
            started_ms=88,
            updated_ms=99,
            client_version=2,
        ),
        1,
        "0001000000000000000500030000ea60010202740200000001000000000000000063000000000000"
        "0058020008000000000000000502020002",
    ),
    (
        Transaction(
            "tx",
            5,
            32767,
            previous_producer_id=5,
            next_producer_id=6,
            timeout_ms=60_000,
            state=PREPARE_COMMIT,
            partitions=frozenset({T1}),
            started_ms=88,
            updated_ms=99,
            client_version=2,
        ),
        1,
        "000100000000000000057fff0000ea60020202740200000001000000000000000063000000000000"
        "005803000800000000000000050108000000000000000602020002",
    ),
    (
        Transaction(
            "tx",
            6,
            0,
            previous_producer_id=5,
            timeout_ms=60_000,
            state=COMPLETE_COMMIT,
            started_ms=88,
            updated_ms=99,
            client_version=2,
        ),
        1,
        "0001000000000000000600000000ea60040100000000000000630000000000000058020008000000000000000502020002",
    ),
]


@pytest.mark.parametrize(("transaction", "version", "value"), KAFKA_WROTE)
def test_what_kafka_writes(transaction: Transaction, version: int, value: str) -> None:
    assert encode("tx", transaction, transaction_version=version) == (KEY, bytes.fromhex(value))
    if version:
        assert encode("tx", transaction, transaction_version=2) == (KEY, bytes.fromhex(value))
    known = transaction if version else transaction._replace(previous_producer_id=-1)
    assert decode(KEY, bytes.fromhex(value)) == ("tx", known)


def test_partitions_of_many_topics_are_written_in_order() -> None:
    partitions = frozenset(TopicPartition(topic, index) for topic in ("b", "a") for index in (2, 10, 1))
    transaction = Transaction("tx", 5, 0, state=ONGOING, partitions=partitions)
    key, value = encode("tx", transaction, 2)
    assert decode(key, value) == ("tx", transaction)
    assert value == encode("tx", transaction._replace(partitions=frozenset(sorted(partitions))), 2)[1]


def test_the_epoch_before_is_not_written() -> None:
    assert decode(*encode("tx", Transaction("tx", 5, 3, last_producer_epoch=2), 2)) == (
        "tx",
        Transaction("tx", 5, 3),
    )


def test_a_tombstone() -> None:
    assert encode("tx", None, 2) == (KEY, None)
    assert decode(KEY, None) == ("tx", None)


def test_keys_and_values_of_the_future() -> None:
    assert decode(b"\0\x01" + KEY[2:], None) is None
    with pytest.raises(ProtocolError):
        decode(KEY, b"\0\x02")


def test_a_decided_transaction_can_only_be_completed() -> None:
    for state in PREPARED:
        assert len(LEGAL_MOVES[state]) == 1
    assert not any(PREPARED & LEGAL_MOVES[state] for state in PREPARED)
