"""The records in `__transaction_state`: Kafka's own key and value.

The value is the whole state of a transactional id. Version 0, as before transaction.version 1, has no room for what the
newer protocol needs; version 1 has it in tagged fields.
"""

import struct
from collections.abc import Iterable
from dataclasses import field
from functools import lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Annotated, ClassVar

from odradek.coordinators.transactions.states import BY_NUMBER, EMPTY
from odradek.coordinators.transactions.transaction import NO_PRODUCER_ID, Transaction
from odradek.errors import ProtocolError
from odradek.model import TopicPartition
from odradek.wire.codec import FOREVER, Buffer, Wire, read_message, wire_struct, write_message

_INT16 = struct.Struct(">h")
KEY_VERSION = 0
HIGHEST_VALUE_VERSION = 1
FLEXIBLE_VALUES_SINCE = 1  # transaction.version
REMEMBERED = 1024  # ids, and sets of partitions: those of a producer are mostly the same again
MANY_PARTITIONS = 32  # are not remembered


@wire_struct
class TransactionLogKey:
    FLEXIBLE_SINCE: ClassVar[int] = FOREVER

    transactional_id: Annotated[str, Wire("string")]


@wire_struct
class PartitionsOfTopic:
    topic: Annotated[str, Wire("string")] = ""
    partition_ids: Annotated[list[int], Wire("int32[]")] = field(default_factory=list)


@wire_struct
class TransactionLogValue:
    FLEXIBLE_SINCE: ClassVar[int] = 1

    producer_id: Annotated[int, Wire("int64")] = 0
    previous_producer_id: Annotated[int, Wire("int64", since=1, tag=0, tag_since=1)] = NO_PRODUCER_ID
    next_producer_id: Annotated[int, Wire("int64", since=1, tag=1, tag_since=1)] = NO_PRODUCER_ID
    producer_epoch: Annotated[int, Wire("int16")] = 0
    transaction_timeout_ms: Annotated[int, Wire("int32")] = 0
    transaction_status: Annotated[int, Wire("int8")] = 0
    transaction_partitions: Annotated[list[PartitionsOfTopic] | None, Wire("struct[]", nullable_since=0)] = (
        field(default_factory=list)
    )
    transaction_last_update_timestamp_ms: Annotated[int, Wire("int64")] = 0
    transaction_start_timestamp_ms: Annotated[int, Wire("int64")] = 0
    client_transaction_version: Annotated[int, Wire("int16", since=1, tag=2, tag_since=1)] = 0


# --- keys and values as bytes ---


def encode(
    transactional_id: str, transaction: Transaction | None, transaction_version: int
) -> tuple[bytes, bytes | None]:
    """`transaction_version` is the cluster's finalized level."""
    key = _key_of(transactional_id)
    if transaction is None:
        return key, None
    version = 1 if transaction_version >= FLEXIBLE_VALUES_SINCE else 0
    value = bytearray(_INT16.pack(version))
    write_message(_value_of(transaction), version, value)
    return key, bytes(value)


@lru_cache(REMEMBERED)
def _key_of(transactional_id: str) -> bytes:
    key = bytearray(_INT16.pack(KEY_VERSION))
    write_message(TransactionLogKey(transactional_id), 0, key)
    return bytes(key)


def decode(key: Buffer, value: Buffer | None) -> tuple[str, Transaction | None] | None:
    """The transactional id and its state (None: a tombstone), or None where the type of key is not ours."""
    (key_version,) = _INT16.unpack_from(key)
    if key_version != KEY_VERSION:
        return None
    decoded_key, _ = read_message(TransactionLogKey, 0, key, 2)
    if value is None:
        return decoded_key.transactional_id, None
    (version,) = _INT16.unpack_from(value)
    if not 0 <= version <= HIGHEST_VALUE_VERSION:
        raise ProtocolError(
            f"TransactionLogValue has version {version}; we know 0 to {HIGHEST_VALUE_VERSION}"
        )
    decoded_value, _ = read_message(TransactionLogValue, version, value, 2)
    return decoded_key.transactional_id, _transaction_of(decoded_key.transactional_id, decoded_value)


def by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    """In order: equal sets are written in equal bytes."""
    return [
        (topic, [each.partition for each in some])
        for topic, some in groupby(sorted(partitions), key=attrgetter("topic"))
    ]


def _topics_of(partitions: frozenset[TopicPartition]) -> list[PartitionsOfTopic]:
    return _made_topics(partitions) if len(partitions) > MANY_PARTITIONS else _known_topics(partitions)


def _made_topics(partitions: frozenset[TopicPartition]) -> list[PartitionsOfTopic]:
    return [PartitionsOfTopic(topic, indexes) for topic, indexes in by_topic(partitions)]


_known_topics = lru_cache(REMEMBERED)(_made_topics)


def _value_of(transaction: Transaction) -> TransactionLogValue:
    return TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None if transaction.state is EMPTY else _topics_of(transaction.partitions),
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        client_transaction_version=transaction.client_version,
    )


def _transaction_of(transactional_id: str, value: TransactionLogValue) -> Transaction:
    return Transaction(
        transactional_id,
        value.producer_id,
        value.producer_epoch,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        timeout_ms=value.transaction_timeout_ms,
        state=BY_NUMBER[value.transaction_status],
        partitions=frozenset(
            TopicPartition(topic.topic, index)
            for topic in value.transaction_partitions or ()
            for index in topic.partition_ids
        ),
        started_ms=value.transaction_start_timestamp_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version,
    )
