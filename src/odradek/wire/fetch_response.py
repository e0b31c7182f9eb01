"""The answer to a Fetch, written around the records instead of with them in it.

All other answers come from `codec`. This one carries the data: its frame is a list of parts, bytes of our own
and, between them, slices of log files that nobody copies.
"""

from struct import Struct
from typing import NamedTuple, TypeVar
from uuid import UUID

from odradek.wire.codec import write_uvarint

PARTITION_V4 = Struct(">ihqq")  # index, error, high watermark, last stable offset
PARTITION_V5 = Struct(">ihqqq")  # and log start offset
ABORTED = Struct(">qq")
INT32 = Struct(">i")
INT16 = Struct(">h")
FRAME_START = Struct(">ii")
SESSION = Struct(">ihi")  # throttle time, error, session id
NO_PREFERRED_REPLICA = INT32.pack(-1)
FLEXIBLE = 12
DIVERGING_EPOCH_TAG = 0
DIVERGING_EPOCH = Struct(">iq")

S = TypeVar("S")


class Divergence(NamedTuple):
    """Where the log of a client that asks with a last fetched epoch has parted from ours."""

    epoch: int
    end_offset: int


class PartitionAnswer(NamedTuple):
    partition: int
    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: list[tuple[int, int]] | None = None  # producer id, first offset
    records: object | None = None  # anything with a `length`; handed on as it is
    length: int = 0
    divergence: Divergence | None = None


class TopicAnswer(NamedTuple):
    name: str
    topic_id: UUID
    partitions: list[PartitionAnswer]


def encode_fetch_response(
    version: int, correlation_id: int, error_code: int, session_id: int, topics: list[TopicAnswer]
) -> list[object]:
    """A whole frame in parts."""
    return _Encoder(version).encode(correlation_id, error_code, session_id, topics)


class _Encoder:
    def __init__(self, version: int) -> None:
        self.version = version
        self.flexible = version >= FLEXIBLE
        self.out = bytearray(FRAME_START.size)
        self.parts: list[object] = [self.out]
        self.records_size = 0

    def encode(
        self, correlation_id: int, error_code: int, session_id: int, topics: list[TopicAnswer]
    ) -> list[object]:
        first = self.out
        if self.flexible:
            self.out.append(0)  # the header's tagged fields
        if self.version >= 7:
            self.out += SESSION.pack(0, error_code, session_id)
        else:
            self.out += INT32.pack(0)
        self.write_count(len(topics))
        for topic in topics:
            self.write_topic(topic)
        self.write_no_tags()
        size = sum(len(part) for part in self.parts if isinstance(part, bytearray)) + self.records_size
        FRAME_START.pack_into(first, 0, size - 4, correlation_id)
        return self.parts

    def write_count(self, count: int) -> None:
        if self.flexible:
            write_uvarint(self.out, count + 1)
        else:
            self.out += INT32.pack(count)

    def write_no_tags(self) -> None:
        if self.flexible:
            self.out.append(0)

    def write_topic(self, topic: TopicAnswer) -> None:
        if self.version >= 13:
            self.out += topic.topic_id.bytes
        else:
            name = topic.name.encode()
            if self.flexible:
                write_uvarint(self.out, len(name) + 1)
            else:
                self.out += INT16.pack(len(name))
            self.out += name
        self.write_count(len(topic.partitions))
        for partition in topic.partitions:
            self.write_partition(partition)
        self.write_no_tags()

    def write_partition(self, answer: PartitionAnswer) -> None:
        if self.version >= 5:
            self.out += PARTITION_V5.pack(*answer[:5])
        else:
            self.out += PARTITION_V4.pack(*answer[:4])
        self.write_aborted(answer.aborted)
        if self.version >= 11:
            self.out += NO_PREFERRED_REPLICA
        self.write_count(answer.length)  # a length is written like a count
        if answer.length:
            self.parts.append(answer.records)
            self.records_size += answer.length
            self.out = bytearray()
            self.parts.append(self.out)
        if self.flexible:
            self.write_partition_tags(answer.divergence)

    def write_aborted(self, aborted: list[tuple[int, int]] | None) -> None:
        """Null where the client did not ask for committed records only."""
        self.write_count(-1 if aborted is None else len(aborted))
        for producer_id, first_offset in aborted or ():
            self.out += ABORTED.pack(producer_id, first_offset)
            self.write_no_tags()

    def write_partition_tags(self, divergence: Divergence | None) -> None:
        if divergence is None:
            self.out.append(0)
            return
        self.out += bytes((1, DIVERGING_EPOCH_TAG, DIVERGING_EPOCH.size + 1))
        self.out += DIVERGING_EPOCH.pack(divergence.epoch, divergence.end_offset)
        self.out.append(0)
