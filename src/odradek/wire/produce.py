"""Produce, read and written by hand: with a small batch, the generic codec would be half of the request's cost.

Nothing is copied: the records of each partition are views into the frame.
"""

from struct import Struct
from struct import error as StructError
from typing import NamedTuple
from uuid import UUID

from odradek.errors import ProtocolError
from odradek.model import NO_TOPIC_ID
from odradek.wire.codec import MAX_TAGGED_FIELDS, read_uvarint, write_uvarint
from odradek.wire.frame import RESPONSE_START, SIZE

FLEXIBLE = 9
TOPIC_IDS_SINCE = 13

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_ACKS_AND_TIMEOUT = Struct(">hi")
_ANSWER = Struct(">ihqqq")  # index, error, base offset, log append time, log start offset
_ANSWER_V4 = Struct(">ihqq")
NULL_INT16 = b"\xff\xff"
NO_ELEMENTS = bytes(4)


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
    reader = _FlexibleReader(frame, position) if version >= FLEXIBLE else _Reader(frame, position)
    try:
        return reader.read(version)
    except (StructError, IndexError, ValueError) as error:
        raise ProtocolError(f"cannot read ProduceRequest v{version}: {error}") from None


class _Reader:
    """Versions before 9: lengths are fixed-width integers."""

    __slots__ = ("frame", "position")

    def __init__(self, frame: memoryview, position: int) -> None:
        self.frame = frame
        self.position = position

    def read(self, version: int) -> ProduceRequest:
        transactional_id = self.string()
        acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(self.frame, self.position)
        self.position += _ACKS_AND_TIMEOUT.size
        topics = [self.topic(version) for _ in range(self.count())]
        self.end_struct()
        return ProduceRequest(transactional_id, acks, timeout_ms, topics)

    def topic(self, version: int) -> TopicBatches:
        if version >= TOPIC_IDS_SINCE:
            name, topic_id = "", UUID(bytes=bytes(self.take(16)))
        else:
            name, topic_id = self.string() or "", NO_TOPIC_ID
        partitions = [self.partition() for _ in range(self.count())]
        self.end_struct()
        return TopicBatches(name, topic_id, partitions)

    def partition(self) -> tuple[int, memoryview | None]:
        (index,) = _INT32.unpack_from(self.frame, self.position)
        self.position += 4
        length = self.length(_INT32)
        records = None if length < 0 else self.take(length)
        self.end_struct()
        return index, records

    def string(self) -> str | None:
        length = self.length(_INT16)
        return None if length < 0 else str(self.take(length), "utf-8")

    def take(self, length: int) -> memoryview:
        start = self.position
        self.position = end = start + length
        if end > len(self.frame):
            raise ValueError("a field reaches beyond the frame")
        return self.frame[start:end]

    def count(self) -> int:
        count = self.length(_INT32)
        if count > len(self.frame) - self.position:
            raise ValueError("more elements than bytes remain")
        return count

    def length(self, packer: Struct) -> int:
        length: int = packer.unpack_from(self.frame, self.position)[0]
        self.position += packer.size
        return length

    def end_struct(self) -> None:
        """No tagged fields."""


class _FlexibleReader(_Reader):
    """Version 9 on: lengths are varints, one too large, and structs end with tagged fields."""

    __slots__ = ()

    def length(self, packer: Struct) -> int:
        byte = self.frame[self.position]
        if byte < 0x80:
            self.position += 1
            return byte - 1
        length, self.position = read_uvarint(self.frame, self.position)
        return length - 1

    def end_struct(self) -> None:
        if self.frame[self.position] == 0:
            self.position += 1
            return
        count, self.position = read_uvarint(self.frame, self.position)
        if count > MAX_TAGGED_FIELDS:
            raise ValueError("too many tagged fields")
        for _ in range(count):
            _, self.position = read_uvarint(self.frame, self.position)
            size, self.position = read_uvarint(self.frame, self.position)
            self.take(size)


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
