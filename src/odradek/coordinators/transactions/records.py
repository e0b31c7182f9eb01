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
from odradek.wire.codec import (
    FOREVER,
    Buffer,
    Wire,
    read_message,
    wire_struct,
    write_message,
    write_uvarint,
)

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_VALUE_START = struct.Struct(">hqhib")  # version, producer id, producer epoch, timeout, state
_VALUE_TIMES = struct.Struct(">qq")  # updated, started
_TAGGED_ID = struct.Struct(">BBq")
_TAGGED_VERSION = struct.Struct(">BBh")
NULL_ARRAY = (_INT32.pack(-1), b"\x00")  # in each version of the value
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
    FLEXIBLE_SINCE: ClassVar[int] = 1

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
    """Encode by hand, because there are three records for each transaction. `transaction_version` is the cluster's
    finalized level.
    """
    key = _key_of(transactional_id)
    if transaction is None:
        return key, None
    version = 1 if transaction_version >= FLEXIBLE_VALUES_SINCE else 0
    (_, producer_id, epoch, _, _, _, timeout_ms, state, partitions, started_ms, updated_ms, _) = transaction
    value = _VALUE_START.pack(version, producer_id, epoch, timeout_ms, state)
    if state is EMPTY:
        value += NULL_ARRAY[version]
    else:
        write = _write_partitions if len(partitions) > MANY_PARTITIONS else _known_partitions
        value += write(partitions, version)
    value += _VALUE_TIMES.pack(updated_ms, started_ms)
    return key, value + _tagged_fields(transaction) if version else value


def _tagged_fields(transaction: Transaction) -> bytes:
    """Encode the fields of version 1 that do not have their default value: a tag, a size and a number each."""
    count, fields = 0, b""
    if transaction.previous_producer_id != NO_PRODUCER_ID:
        count, fields = 1, _TAGGED_ID.pack(0, 8, transaction.previous_producer_id)
    if transaction.next_producer_id != NO_PRODUCER_ID:
        count, fields = count + 1, fields + _TAGGED_ID.pack(1, 8, transaction.next_producer_id)
    if transaction.client_version:
        count, fields = count + 1, fields + _TAGGED_VERSION.pack(2, 2, transaction.client_version)
    return bytes((count,)) + fields


def _write_partitions(partitions: frozenset[TopicPartition], version: int) -> bytes:
    value = bytearray()
    topics = by_topic(partitions)
    if version:
        write_uvarint(value, len(topics) + 1)
    else:
        value += _INT32.pack(len(topics))
    for topic, indexes in topics:
        write_message(PartitionsOfTopic(topic, indexes), version, value)
    return bytes(value)


_known_partitions = lru_cache(REMEMBERED)(_write_partitions)


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
