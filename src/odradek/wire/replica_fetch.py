"""A follower's Fetch, and what it reads of the response, by hand: both travel once for every write that is replicated.

Only the newest version is spoken here, because brokers of one cluster ask each other. It is the same on the wire as
what `codec` writes and reads; what a follower has no use for (aborted transactions, the leader's endpoint) is skipped.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from struct import Struct, error
from typing import NamedTuple

from odradek.errors import ProtocolError
from odradek.wire.fetch_response import (
    DIVERGING_EPOCH,
    DIVERGING_EPOCH_TAG,
    PARTITION_V5,
    SESSION,
    encoded_count,
)
from odradek.wire.frame import REQUEST_START, SIZE, skip_tagged_fields
from odradek.wire.varint import read_uvarint

API_KEY = 1
VERSION = 18
LIMITS = Struct(">iiib")  # max wait, min bytes, max bytes, isolation level
SESSION_KEY = Struct(">ii")  # session id, session epoch
# Partition, leader epoch, fetch offset, last fetched epoch, log start, max bytes, no tags.
PARTITION = Struct(">iiqiqiB")
REPLICA_STATE = Struct(">iqB")  # replica id, broker epoch, no tags
REPLICA_STATE_TAG = 1
# The beginning of a response with one partition, if all its counts take one byte: correlation id, tags; throttle time,
# error, session id; topics, topic id; partitions, fields of `PARTITION_V5`; aborted transactions, preferred replica.
ONE_PARTITION = Struct(">iBihiB16sBihqqqBi")
ONE = 2  # as a count of elements is written
TOPIC_ID_SIZE = 16
NO_TAGS = b"\0"
EMPTY = b"\1"  # array or string
PREFERRED_REPLICA_SIZE = 4
ABORTED_SIZE = 17  # producer id, first offset, no tags
CORRELATION_ID_SIZE = 4
NOT_DIVERGING = -1, -1

Key = tuple[bytes, int]  # topic id and partition


class Position(NamedTuple):
    """The position that a follower asks for."""

    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    log_start_offset: int


class ReplicaFetches:
    """Writes the requests of one replica to one leader: most of their bytes are always the same."""

    def __init__(
        self,
        client_id: str,
        replica_id: int,
        broker_epoch: int,
        *,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        partition_max_bytes: int,
    ) -> None:
        name = client_id.encode()
        self._start = REQUEST_START.pack(API_KEY, VERSION, 0, len(name)) + name + NO_TAGS
        self._start += LIMITS.pack(max_wait_ms, min_bytes, max_bytes, 0)
        state = REPLICA_STATE.pack(replica_id, broker_epoch, 0)
        self._end = EMPTY + bytes((1, REPLICA_STATE_TAG, len(state))) + state  # the rack is empty
        self._partition_max_bytes = partition_max_bytes

    def encode(
        self,
        session_id: int,
        session_epoch: int,
        changed: list[tuple[Key, Position]],
        forgotten: list[Key],
    ) -> bytes:
        """A whole frame."""
        body = b"".join(
            (
                self._start,
                SESSION_KEY.pack(session_id, session_epoch),
                self._topics(changed),
                _forgotten_topics(forgotten) if forgotten else EMPTY,
                self._end,
            )
        )
        return SIZE.pack(len(body)) + body

    def _topics(self, changed: list[tuple[Key, Position]]) -> bytes:
        if len(changed) == 1:
            (topic_id, index), position = changed[0]
            partition = PARTITION.pack(index, *position, self._partition_max_bytes, 0)
            return b"\2" + topic_id + b"\2" + partition + NO_TAGS
        topics: dict[bytes, list[bytes]] = {}
        for (topic_id, index), position in changed:
            partition = PARTITION.pack(index, *position, self._partition_max_bytes, 0)
            topics.setdefault(topic_id, []).append(partition)
        parts = [encoded_count(len(topics), True)]
        for topic_id, partitions in topics.items():
            parts += [topic_id, encoded_count(len(partitions), True), *partitions, NO_TAGS]
        return b"".join(parts)


def _forgotten_topics(forgotten: Iterable[Key]) -> bytes:
    topics = [(topic_id, [*keys]) for topic_id, keys in groupby(sorted(forgotten), lambda key: key[0])]
    parts = [encoded_count(len(topics), True)]
    for topic_id, keys in topics:
        parts += [topic_id, encoded_count(len(keys), True), *(SIZE.pack(index) for _, index in keys), NO_TAGS]
    return b"".join(parts)


class ReplicatedPartition(NamedTuple):
    """The leader's response about a partition. `records` is a view on the frame, None if there are none; the last
    batch may be cut short.
    """

    key: Key
    error_code: int
    high_watermark: int
    log_start_offset: int
    diverging: tuple[int, int]  # epoch and end offset; (-1, -1) if the logs have not parted
    records: memoryview | None


class ReplicaResponse(NamedTuple):
    error_code: int
    session_id: int
    partitions: list[ReplicatedPartition]


def read_replica_response(frame: memoryview) -> ReplicaResponse:
    """Raises ProtocolError if it is malformed."""
    try:
        if len(frame) >= ONE_PARTITION.size:
            found = ONE_PARTITION.unpack_from(frame)
            _, tags, _, error_code, session_id, topics, topic_id, partitions, *fields, aborted, _ = found
            if not tags and topics == partitions == ONE and aborted <= ONE - 1:
                partition, _ = _read_records(frame, ONE_PARTITION.size, topic_id, fields)
                return ReplicaResponse(error_code, session_id, [partition])
        position = skip_tagged_fields(frame, CORRELATION_ID_SIZE)
        _, error_code, session_id = SESSION.unpack_from(frame, position)
        return ReplicaResponse(error_code, session_id, [*_partitions(frame, position + SESSION.size)])
    except (error, IndexError, ValueError) as reason:
        raise ProtocolError(f"cannot read FetchResponse version {VERSION}: {reason}") from None


def _partitions(frame: memoryview, position: int) -> Iterator[ReplicatedPartition]:
    topics, position = read_uvarint(frame, position)
    for _ in range(topics - 1):
        topic_id = bytes(frame[position : position + TOPIC_ID_SIZE])
        partitions, position = read_uvarint(frame, position + TOPIC_ID_SIZE)
        for _ in range(partitions - 1):
            fields = PARTITION_V5.unpack_from(frame, position)
            aborted, position = read_uvarint(frame, position + PARTITION_V5.size)
            position += max(aborted - 1, 0) * ABORTED_SIZE + PREFERRED_REPLICA_SIZE
            partition, position = _read_records(frame, position, topic_id, fields)
            yield partition
        position = skip_tagged_fields(frame, position)


def _read_records(
    frame: memoryview, position: int, topic_id: bytes, fields: Sequence[int]
) -> tuple[ReplicatedPartition, int]:
    """Read what comes last of a partition, and return the position after it."""
    index, error_code, high_watermark, _, log_start_offset = fields
    size, position = read_uvarint(frame, position)
    records = None
    if size > 1:
        begin, position = position, position + size - 1
        records = frame[begin:position]
    diverging = NOT_DIVERGING
    if frame[position]:  # which fails if the records reach beyond the end
        diverging, position = _read_tags(frame, position)
    else:
        position += 1
    key = topic_id, index
    found = ReplicatedPartition(key, error_code, high_watermark, log_start_offset, diverging, records)
    return found, position


def _read_tags(frame: memoryview, position: int) -> tuple[tuple[int, int], int]:
    """Return where the logs have diverged, and the position after all tagged fields."""
    diverging = NOT_DIVERGING
    count, position = read_uvarint(frame, position)
    for _ in range(count):
        tag, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        if tag == DIVERGING_EPOCH_TAG:
            epoch, end_offset = DIVERGING_EPOCH.unpack_from(frame, position)
            diverging = epoch, end_offset
        position += size
    return diverging, position
