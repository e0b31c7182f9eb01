"""Produce, read and written by hand: with a small batch, the generic codec would be half of the request's cost.

Nothing is copied: the records of each partition are views into the frame.
"""

from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import NamedTuple
from uuid import UUID

from odradek.errors import ProtocolError
from odradek.model import NO_TOPIC_ID
from odradek.wire.codec import ELEMENTS_PER_STEP, Buffer, Steps, drain, read_uvarint, write_uvarint
from odradek.wire.frame import RESPONSE_START, SIZE, skip_tagged_fields
from odradek.wire.leader_hint import Address, LeaderHint, encoded_addresses, encoded_leader

LOG_START_SINCE = 5
FLEXIBLE = 9
CURRENT_LEADER_TAG = 0
REMEMBERED_TOPICS = 1024
MAX_ELEMENTS = (
    10_000  # topics and partitions of one request; the largest request of a client has no room for more
)
SMALL_BATCH = 4096
TOPIC_IDS_SINCE = 13

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_ACKS_AND_TIMEOUT = Struct(">hi")
_BEFORE_TOPICS = Struct(">hii")  # acks, timeout, number of topics
_INDEX_AND_SIZE = Struct(">ii")
_PARTITION_RESPONSE = Struct(">ihqqq")  # index, error, base offset, log append time, log start offset
_ANSWER_V4 = Struct(">ihqq")
NULL_INT16 = b"\xff\xff"
NO_ELEMENTS = bytes(4)
NO_TAGGED_FIELDS = bytes(3)  # of the partition, its topic, and the request
# What follows the numbers of a partition without an error: no record errors, no message, no tagged fields.
NOTHING_TO_SAY = b"\x01\x00\x00"
NOTHING_TO_SAY_V8 = NO_ELEMENTS + NULL_INT16


class TopicBatches(NamedTuple):
    name: str  # empty where the topic is named by its id
    topic_id: UUID
    partitions: list[tuple[int, memoryview | None]]  # index, records


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[TopicBatches]


class ProducedPartition:
    """The result for one partition; changed while the response waits, if its batch is not committed in time."""

    leader_hint: LeaderHint  # set only if another broker leads it

    __slots__ = (
        "base_offset",
        "error_code",
        "error_message",
        "index",
        "leader_hint",
        "log_start_offset",
        "record_errors",
        "time_ms",
    )

    def __init__(
        self,
        index: int,
        error_code: int = 0,
        base_offset: int = -1,
        time_ms: int = -1,
        log_start_offset: int = -1,
        error_message: str | None = None,
        record_errors: list[tuple[int, str]] | None = None,
    ) -> None:
        self.index = index
        self.error_code = error_code
        self.base_offset = base_offset
        self.time_ms = time_ms
        self.log_start_offset = log_start_offset
        self.error_message = error_message
        self.record_errors = record_errors or ()


class ProducedTopic(NamedTuple):
    """Waits until its batches are committed, so it keeps no view of their frame."""

    name: str
    topic_id: UUID
    partitions: list[ProducedPartition]


class ProduceReader:
    """Reads the requests of one connection, and remembers the beginning of one with a single partition.

    A client that sends many small requests repeats everything except the partition and its batch. So the bytes before
    those are compared with those of an earlier request, and parsed only if they differ. A request is remembered once
    another one for its topic has followed it: where each is for another topic, that would be in vain.
    """

    __slots__ = ("_beginning", "_last", "_seen", "_topic", "_version")

    def __init__(self) -> None:
        self._version = -1
        self._beginning = b""  # from the first byte of the message to the index of the partition
        self._last = ProduceRequest(None, 0, 0, [])
        self._topic = TopicBatches("", NO_TOPIC_ID, [])
        self._seen: tuple[object, ...] = ()  # what the last request that was parsed is for

    def read(self, frame: memoryview, position: int, version: int) -> ProduceRequest:
        if version == self._version:
            end = position + len(self._beginning)
            if frame[position:end] == self._beginning:
                partition = _only_partition(frame, end, version)
                if partition is not None:
                    return self._like_the_last(partition)
        request = read_produce_request(frame, position, version)
        self._remember(frame, position, version, request)
        return request

    def _like_the_last(self, partition: tuple[int, memoryview]) -> ProduceRequest:
        transactional_id, acks, timeout_ms, _ = self._last
        name, topic_id, _ = self._topic
        topic = TopicBatches(name, topic_id, [partition])
        return ProduceRequest(transactional_id, acks, timeout_ms, [topic])

    def _remember(self, frame: memoryview, position: int, version: int, request: ProduceRequest) -> None:
        if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
            return
        seen = version, request.transactional_id, request.acks, request.topics[0][:2]
        if seen != self._seen:
            self._seen = seen
            return
        ((index, batch),) = request.topics[0].partitions
        if (
            not batch or len(batch) > SMALL_BATCH
        ):  # for large ones the comparison below is slow, and gains nothing
            return
        end = len(frame) - len(batch) - _sizes_around(len(batch), version)
        if _only_partition(frame, end, version) == (index, batch):
            self._version = version
            self._beginning = bytes(frame[position:end])
            self._topic = request.topics[0]._replace(partitions=[])
            self._last = request._replace(topics=[])


def _sizes_around(size: int, version: int) -> int:
    """Bytes of the index and the size before the only batch, and of the empty tagged fields after it."""
    if version < FLEXIBLE:
        return _INDEX_AND_SIZE.size
    before = bytearray()
    write_uvarint(before, size + 1)
    return _INT32.size + len(before) + len(NO_TAGGED_FIELDS)


def _only_partition(frame: memoryview, position: int, version: int) -> tuple[int, memoryview] | None:
    """The partition whose index is here, and its batch, if only the end of the message follows."""
    try:
        if version < FLEXIBLE:
            index, size = _INDEX_AND_SIZE.unpack_from(frame, position)
            start, end = position + _INDEX_AND_SIZE.size, len(frame)
        else:
            (index,) = _INT32.unpack_from(frame, position)
            size, start = read_uvarint(frame, position + _INT32.size)
            size, end = size - 1, len(frame) - len(NO_TAGGED_FIELDS)
            if frame[end:] != NO_TAGGED_FIELDS:
                return None
    except (StructError, IndexError, ValueError):
        return None
    return (index, frame[start:end]) if start + size == end and size > 0 else None


def read_produce_request(frame: memoryview, position: int, version: int) -> ProduceRequest:
    try:
        if version >= FLEXIBLE:
            return _read_flexible(frame, position, version)
        return _read_legacy(frame, position)
    except (StructError, IndexError, ValueError) as error:
        raise ProtocolError(f"cannot read ProduceRequest v{version}: {error}") from None


def _read_legacy(frame: memoryview, position: int) -> ProduceRequest:
    """Versions before 9: lengths are fixed-width integers."""
    transactional_id, position = _read_string(frame, position)
    acks, timeout_ms, topic_count = _BEFORE_TOPICS.unpack_from(frame, position)
    position += _BEFORE_TOPICS.size
    topics = []
    budget = [MAX_ELEMENTS]
    for _ in range(_checked_count(topic_count, frame, position, budget)):
        name, position = _read_string(frame, position)
        (partition_count,) = _INT32.unpack_from(frame, position)
        position += 4
        partitions = []
        for _ in range(_checked_count(partition_count, frame, position, budget)):
            index, size = _INDEX_AND_SIZE.unpack_from(frame, position)
            position += 8
            records, position = _view(frame, position, size)
            partitions.append((index, records))
        topics.append(TopicBatches(name or "", NO_TOPIC_ID, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _read_flexible(frame: memoryview, position: int, version: int) -> ProduceRequest:
    """Version 9 on: lengths are varints, one too large, and structs end with tagged fields."""
    transactional_id, position = _read_compact_string(frame, position)
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(frame, position)
    topic_count, position = read_uvarint(frame, position + _ACKS_AND_TIMEOUT.size)
    topics = []
    budget = [MAX_ELEMENTS]
    for _ in range(_checked_count(topic_count - 1, frame, position, budget)):
        name, topic_id = "", NO_TOPIC_ID
        if version >= TOPIC_IDS_SINCE:
            raw_id, position = _view(frame, position, 16)
            topic_id = UUID(bytes=bytes(raw_id or b""))
        else:
            found, position = _read_compact_string(frame, position)
            name = found or ""
        partition_count, position = read_uvarint(frame, position)
        partitions = []
        for _ in range(_checked_count(partition_count - 1, frame, position, budget)):
            (index,) = _INT32.unpack_from(frame, position)
            size, position = read_uvarint(frame, position + 4)
            records, position = _view(frame, position, size - 1)
            position = _skip_tagged_fields(frame, position)
            partitions.append((index, records))
        position = _skip_tagged_fields(frame, position)
        topics.append(TopicBatches(name, topic_id, partitions))
    _skip_tagged_fields(frame, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _checked_count(count: int, frame: memoryview, position: int, budget: list[int]) -> int:
    if count > len(frame) - position:
        raise ValueError("more elements than bytes remain")
    budget[0] -= count
    if budget[0] < 0:
        raise ValueError(f"more than {MAX_ELEMENTS} topics and partitions")
    return count


def _view(frame: memoryview, position: int, size: int) -> tuple[memoryview | None, int]:
    """None for a negative size, which means null."""
    if size < 0:
        return None, position
    end = position + size
    if end > len(frame):
        raise ValueError("a field reaches beyond the frame")
    return frame[position:end], end


def _read_string(frame: memoryview, position: int) -> tuple[str | None, int]:
    (size,) = _INT16.unpack_from(frame, position)
    view, position = _view(frame, position + 2, size)
    return (None if view is None else str(view, "utf-8")), position


def _read_compact_string(frame: memoryview, position: int) -> tuple[str | None, int]:
    size, position = read_uvarint(frame, position)
    view, position = _view(frame, position, size - 1)
    return (None if view is None else str(view, "utf-8")), position


def _skip_tagged_fields(frame: memoryview, position: int) -> int:
    if frame[position] == 0:
        return position + 1
    return skip_tagged_fields(frame, position)


def encode_produce_response(
    version: int, correlation_id: int, topics: list[ProducedTopic], throttle_ms: int = 0
) -> Buffer:
    """A whole frame."""
    if len(topics) == 1 and version >= LOG_START_SINCE and not throttle_ms:
        name, topic_id, responses = topics[0]
        if len(responses) == 1 and responses[0].error_code == 0:
            return _encode_one_response(version, correlation_id, name, topic_id, responses[0])
    return drain(encode_responses_in_steps(version, correlation_id, topics, throttle_ms))


def _encode_one_response(
    version: int, correlation_id: int, name: str, topic_id: UUID, response: ProducedPartition
) -> bytes:
    """The most common response: a few numbers between bytes that hardly ever change."""
    size, before, behind = _around_one_response(version, name, topic_id)
    return (
        RESPONSE_START.pack(size, correlation_id)
        + before
        + _PARTITION_RESPONSE.pack(
            response.index, 0, response.base_offset, response.time_ms, response.log_start_offset
        )
        + behind
    )


@lru_cache(REMEMBERED_TOPICS)
def _around_one_response(version: int, name: str, topic_id: UUID) -> tuple[int, bytes, bytes]:
    """The frame's size, and the bytes around the numbers of its one partition."""
    topic = ProducedTopic(name, topic_id, [ProducedPartition(0)])
    frame = bytes(drain(encode_responses_in_steps(version, 0, [topic])))
    (size,) = SIZE.unpack_from(frame)
    start = frame.index(_PARTITION_RESPONSE.pack(0, 0, -1, -1, -1))
    return size, frame[RESPONSE_START.size : start], frame[start + _PARTITION_RESPONSE.size :]


def encode_responses_in_steps(
    version: int, correlation_id: int, topics: list[ProducedTopic], throttle_ms: int = 0
) -> Steps[bytearray]:
    flexible = version >= FLEXIBLE
    addresses: dict[Address, None] = {}  # of leaders that are elsewhere
    out = bytearray(RESPONSE_START.size)
    if flexible:
        out.append(0)
    _write_count(out, len(topics), flexible)
    for topic in topics:
        _write_topic_key(out, topic, version)
        _write_count(out, len(topic.partitions), flexible)
        for count, response in enumerate(topic.partitions):
            _write_partition(out, response, version, flexible, addresses)
            if count % ELEMENTS_PER_STEP == 0:
                yield
        if flexible:
            out.append(0)
    out += _INT32.pack(throttle_ms)
    if flexible:
        out += encoded_addresses(addresses)
    RESPONSE_START.pack_into(out, 0, len(out) - SIZE.size, correlation_id)
    return out


def _write_count(out: bytearray, count: int, flexible: bool) -> None:
    if not flexible:
        out += _INT32.pack(count)
    elif count < 127:
        out.append(count + 1)
    else:
        write_uvarint(out, count + 1)


def _write_topic_key(out: bytearray, topic: ProducedTopic, version: int) -> None:
    if version >= TOPIC_IDS_SINCE:
        out += topic.topic_id.bytes
    else:
        _write_string(out, topic.name, version >= FLEXIBLE)


def _write_string(out: bytearray, text: str | None, flexible: bool) -> None:
    encoded = b"" if text is None else text.encode()
    if flexible:
        write_uvarint(out, 0 if text is None else len(encoded) + 1)
    else:
        out += NULL_INT16 if text is None else _INT16.pack(len(encoded))
    out += encoded


def _write_partition(
    out: bytearray, response: ProducedPartition, version: int, flexible: bool, addresses: dict[Address, None]
) -> None:
    if version < LOG_START_SINCE:
        out += _ANSWER_V4.pack(response.index, response.error_code, response.base_offset, response.time_ms)
        return
    out += _PARTITION_RESPONSE.pack(
        response.index, response.error_code, response.base_offset, response.time_ms, response.log_start_offset
    )
    if response.error_code == 0:
        out += NOTHING_TO_SAY if flexible else NOTHING_TO_SAY_V8 if version >= 8 else b""
        return
    if version >= 8:
        _write_count(out, len(response.record_errors), flexible)
        for index, reason in response.record_errors:
            out += _INT32.pack(index)
            _write_string(out, reason, flexible)
            if flexible:
                out.append(0)
        _write_string(out, response.error_message, flexible)
    if flexible:
        _write_leader(out, getattr(response, "leader_hint", None), addresses)


def _write_leader(out: bytearray, hint: LeaderHint | None, addresses: dict[Address, None]) -> None:
    """All tagged fields of a partition."""
    if hint is None:
        out.append(0)
        return
    field = encoded_leader(hint)
    out += bytes((1, CURRENT_LEADER_TAG, len(field))) + field
    if hint.address is not None:
        addresses[hint.address] = None
