"""Produce, read and written by hand: with a small batch, the generic codec would be half of the request's cost.

Nothing is copied: the records of each partition are views into the frame.
"""

from struct import Struct
from struct import error as StructError
from typing import NamedTuple
from uuid import UUID

from odradek.errors import ProtocolError
from odradek.model import NO_TOPIC_ID
from odradek.wire.codec import read_uvarint, write_uvarint
from odradek.wire.frame import RESPONSE_START, SIZE, skip_tagged_fields

FLEXIBLE = 9
TOPIC_IDS_SINCE = 13

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_ACKS_AND_TIMEOUT = Struct(">hi")
_BEFORE_TOPICS = Struct(">hii")  # acks, timeout, number of topics
_INDEX_AND_SIZE = Struct(">ii")
_ANSWER = Struct(">ihqqq")  # index, error, base offset, log append time, log start offset
_ANSWER_V4 = Struct(">ihqq")
NULL_INT16 = b"\xff\xff"
NO_ELEMENTS = bytes(4)
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


class PartitionAnswer:
    """What is said of one partition; changed while the answer waits, if its batch is not committed in time."""

    __slots__ = (
        "base_offset",
        "error_code",
        "error_message",
        "index",
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


TopicAnswer = tuple[TopicBatches, list[PartitionAnswer]]


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
    for _ in range(_checked_count(topic_count, frame, position)):
        name, position = _read_string(frame, position)
        (partition_count,) = _INT32.unpack_from(frame, position)
        position += 4
        partitions = []
        for _ in range(_checked_count(partition_count, frame, position)):
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
    for _ in range(_checked_count(topic_count - 1, frame, position)):
        name, topic_id = "", NO_TOPIC_ID
        if version >= TOPIC_IDS_SINCE:
            raw_id, position = _view(frame, position, 16)
            topic_id = UUID(bytes=bytes(raw_id or b""))
        else:
            found, position = _read_compact_string(frame, position)
            name = found or ""
        partition_count, position = read_uvarint(frame, position)
        partitions = []
        for _ in range(_checked_count(partition_count - 1, frame, position)):
            (index,) = _INT32.unpack_from(frame, position)
            size, position = read_uvarint(frame, position + 4)
            records, position = _view(frame, position, size - 1)
            position = _skip_tagged_fields(frame, position)
            partitions.append((index, records))
        position = _skip_tagged_fields(frame, position)
        topics.append(TopicBatches(name, topic_id, partitions))
    _skip_tagged_fields(frame, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _checked_count(count: int, frame: memoryview, position: int) -> int:
    if count > len(frame) - position:
        raise ValueError("more elements than bytes remain")
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


def encode_produce_response(version: int, correlation_id: int, topics: list[TopicAnswer]) -> bytearray:
    """A whole frame."""
    flexible = version >= FLEXIBLE
    out = bytearray(RESPONSE_START.size)
    if flexible:
        out.append(0)
    _write_count(out, len(topics), flexible)
    for topic, partitions in topics:
        _write_topic_key(out, topic, version)
        _write_count(out, len(partitions), flexible)
        for answer in partitions:
            _write_partition(out, answer, version, flexible)
        if flexible:
            out.append(0)
    out += NO_ELEMENTS  # throttle time
    if flexible:
        out.append(0)
    RESPONSE_START.pack_into(out, 0, len(out) - SIZE.size, correlation_id)
    return out


def _write_count(out: bytearray, count: int, flexible: bool) -> None:
    if not flexible:
        out += _INT32.pack(count)
    elif count < 127:
        out.append(count + 1)
    else:
        write_uvarint(out, count + 1)


def _write_topic_key(out: bytearray, topic: TopicBatches, version: int) -> None:
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


def _write_partition(out: bytearray, answer: PartitionAnswer, version: int, flexible: bool) -> None:
    if version < 5:
        out += _ANSWER_V4.pack(answer.index, answer.error_code, answer.base_offset, answer.time_ms)
        return
    out += _ANSWER.pack(
        answer.index, answer.error_code, answer.base_offset, answer.time_ms, answer.log_start_offset
    )
    if answer.error_code == 0:
        out += NOTHING_TO_SAY if flexible else NOTHING_TO_SAY_V8 if version >= 8 else b""
        return
    if version >= 8:
        _write_count(out, len(answer.record_errors), flexible)
        for index, reason in answer.record_errors:
            out += _INT32.pack(index)
            _write_string(out, reason, flexible)
            if flexible:
                out.append(0)
        _write_string(out, answer.error_message, flexible)
    if flexible:
        out.append(0)
