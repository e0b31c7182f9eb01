"""The response to a Fetch, written around the records instead of with them in it.

All other responses come from `codec`. This one carries the data: its frame is a list of parts, our own bytes and,
between them, slices of log files that are never copied.
"""

from functools import lru_cache
from struct import Struct
from typing import Generic, NamedTuple, TypeVar
from uuid import UUID

from odradek.wire.codec import ELEMENTS_PER_STEP, Steps, drain, write_uvarint
from odradek.wire.leader_hint import Address, LeaderHint, encoded_addresses, encoded_leader

PARTITION_V4 = Struct(">ihqq")  # index, error, high watermark, last stable offset
PARTITION_V5 = Struct(">ihqqq")  # and log start offset
ABORTED = Struct(">qq")
INT32 = Struct(">i")
INT16 = Struct(">h")
FRAME_START = Struct(">ii")
SESSION = Struct(">ihi")  # throttle time, error, session id
NO_PREFERRED_REPLICA = INT32.pack(-1)
SESSIONS_SINCE = 7
PREFERRED_REPLICA_SINCE = 11
FLEXIBLE = 12
TOPIC_IDS_SINCE = 13
NO_TAGS = bytes(3)  # of the partition, its topic, and the response
SMALL_COUNTS = [*(bytes((count + 1,)) for count in range(127)), b"\0"]  # the last is that of -1
REMEMBERED_TOPICS = 1024
DIVERGING_EPOCH_TAG, CURRENT_LEADER_TAG = 0, 1
DIVERGING_EPOCH = Struct(">iqx")  # epoch, end offset, no tagged fields

R = TypeVar("R")  # how records are carried: in memory, or as slices of files; passed on unchanged


class Divergence(NamedTuple):
    """The point where the log of a client that asks with a last fetched epoch has diverged from ours."""

    epoch: int
    end_offset: int


class FetchedPartition(NamedTuple, Generic[R]):
    partition: int
    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: list[tuple[int, int]] | None = None  # producer id, first offset
    records: R | None = None
    length: int = 0  # of the records, in bytes
    divergence: Divergence | None = None
    preferred_replica: int = -1  # where the client should read instead
    leader: LeaderHint | None = None  # where it is, if it is not here; since version 16


class FetchedTopic(NamedTuple, Generic[R]):
    name: str
    topic_id: UUID
    partitions: list[FetchedPartition[R]]


def encode_fetch_response(
    version: int,
    correlation_id: int,
    error_code: int,
    session_id: int,
    topics: list[FetchedTopic[R]],
    throttle_ms: int = 0,
) -> list[R | bytes | bytearray]:
    """A whole frame in parts."""
    if len(topics) == 1 and len(topics[0].partitions) == 1 and version >= SESSIONS_SINCE:
        response = topics[0].partitions[0]
        if (
            not (response.aborted or response.error_code or response.divergence)
            and response.preferred_replica < 0
        ):
            session = SESSION.pack(throttle_ms, error_code, session_id)
            return _encode_one_response(version, correlation_id, session, topics[0], response)
    return drain(encode_in_steps(version, correlation_id, error_code, session_id, topics, throttle_ms))


def encode_in_steps(
    version: int,
    correlation_id: int,
    error_code: int,
    session_id: int,
    topics: list[FetchedTopic[R]],
    throttle_ms: int = 0,
) -> Steps[list[R | bytes | bytearray]]:
    encoder: _Encoder[R] = _Encoder(version)
    return encoder.encode(correlation_id, error_code, session_id, topics, throttle_ms)


def _encode_one_response(
    version: int, correlation_id: int, session: bytes, topic: FetchedTopic[R], response: FetchedPartition[R]
) -> list[R | bytes | bytearray]:
    """The most common response: one partition, and nothing unusual about it."""
    flexible = version >= FLEXIBLE
    before = _one_partition_of(version, topic.name, topic.topic_id)
    fields = PARTITION_V5.pack(*response[:5]) + _no_aborted(version, response.aborted is None)
    length, records = response.length, response.records
    count = encoded_count(length, flexible)
    behind = NO_TAGS if flexible else b""
    size = (
        INT32.size + flexible + SESSION.size + len(before) + len(fields) + len(count) + length + len(behind)
    )
    start = (
        FRAME_START.pack(size, correlation_id),
        b"\0" if flexible else b"",
        session,
        before,
        fields,
        count,
    )
    if records is None or not length:
        return [b"".join((*start, behind))]
    if isinstance(records, bytearray):
        return [b"".join((*start, records, behind))]
    return [b"".join(start), records, behind]


@lru_cache(REMEMBERED_TOPICS)
def _one_partition_of(version: int, name: str, topic_id: UUID) -> bytes:
    """One topic follows, which it is, and that one partition of it follows."""
    flexible = version >= FLEXIBLE
    return encoded_count(1, flexible) + topic_key(version, name, topic_id) + encoded_count(1, flexible)


@lru_cache
def _no_aborted(version: int, is_null: bool) -> bytes:
    """No aborted transactions, and no preferred replica."""
    preferred = NO_PREFERRED_REPLICA if version >= PREFERRED_REPLICA_SINCE else b""
    return encoded_count(-1 if is_null else 0, version >= FLEXIBLE) + preferred


def topic_key(version: int, name: str, topic_id: UUID) -> bytes:
    if version >= TOPIC_IDS_SINCE:
        return topic_id.bytes
    encoded = name.encode()
    if version >= FLEXIBLE:
        return encoded_count(len(encoded), True) + encoded
    return INT16.pack(len(encoded)) + encoded


def encoded_count(count: int, flexible: bool) -> bytes:
    """Also of bytes; -1 is null."""
    if not flexible:
        return INT32.pack(count)
    if count < 127:
        return SMALL_COUNTS[count]
    out = bytearray()
    write_uvarint(out, count + 1)
    return bytes(out)


class _Encoder(Generic[R]):
    def __init__(self, version: int) -> None:
        self.version = version
        self.flexible = version >= FLEXIBLE
        self.out = bytearray(FRAME_START.size)
        self.parts: list[R | bytes | bytearray] = [self.out]
        self.records_size = 0
        self.addresses: dict[Address, None] = {}  # of leaders that are elsewhere

    def encode(
        self,
        correlation_id: int,
        error_code: int,
        session_id: int,
        topics: list[FetchedTopic[R]],
        throttle_ms: int,
    ) -> Steps[list[R | bytes | bytearray]]:
        first = self.out
        if self.flexible:
            self.out.append(0)  # the header's tagged fields
        if self.version >= SESSIONS_SINCE:
            self.out += SESSION.pack(throttle_ms, error_code, session_id)
        else:
            self.out += INT32.pack(throttle_ms)
        self.write_count(len(topics))
        for topic in topics:
            yield from self.write_topic(topic)
        if self.flexible:
            self.out += encoded_addresses(self.addresses)
        own = self.parts[::2]  # with records between them, of whatever type
        size = sum(len(part) for part in own if isinstance(part, bytearray)) + self.records_size
        FRAME_START.pack_into(first, 0, size - 4, correlation_id)
        return self.parts

    def write_count(self, count: int) -> None:
        self.out += encoded_count(count, self.flexible)

    def write_no_tags(self) -> None:
        if self.flexible:
            self.out.append(0)

    def write_topic(self, topic: FetchedTopic[R]) -> Steps[None]:
        self.out += topic_key(self.version, topic.name, topic.topic_id)
        self.write_count(len(topic.partitions))
        for count, partition in enumerate(topic.partitions):
            self.write_partition(partition)
            if count % ELEMENTS_PER_STEP == 0:
                yield
        self.write_no_tags()

    def write_partition(self, response: FetchedPartition[R]) -> None:
        if self.version >= 5:
            self.out += PARTITION_V5.pack(*response[:5])
        else:
            self.out += PARTITION_V4.pack(*response[:4])
        self.write_aborted(response.aborted)
        if self.version >= PREFERRED_REPLICA_SINCE:
            self.out += INT32.pack(response.preferred_replica)
        self.write_count(response.length)  # a length is written like a count
        if response.length and response.records is not None:
            self.parts.append(response.records)
            self.records_size += response.length
            self.out = bytearray()
            self.parts.append(self.out)
        if self.flexible:
            self.write_partition_tags(response.divergence, response.leader)

    def write_aborted(self, aborted: list[tuple[int, int]] | None) -> None:
        """Null where the client did not ask for committed records only."""
        self.write_count(-1 if aborted is None else len(aborted))
        for producer_id, first_offset in aborted or ():
            self.out += ABORTED.pack(producer_id, first_offset)
            self.write_no_tags()

    def write_partition_tags(self, divergence: Divergence | None, leader: LeaderHint | None) -> None:
        self.out.append((divergence is not None) + (leader is not None))
        if divergence is not None:
            self.out += bytes((DIVERGING_EPOCH_TAG, DIVERGING_EPOCH.size))
            self.out += DIVERGING_EPOCH.pack(divergence.epoch, divergence.end_offset)
        if leader is not None:
            field = encoded_leader(leader)
            self.out += bytes((CURRENT_LEADER_TAG, len(field))) + field
            if leader.address is not None:
                self.addresses[leader.address] = None
