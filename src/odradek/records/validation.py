"""The checks and changes that Produce makes on a batch before it is stored.

`check_batch` looks at the header and the CRC alone: a few microseconds, whatever is in the batch. Then
`prepare_batch` applies the topic's rules, which for most topics is a comparison of timestamps and no more.
Records are decoded only if a rule needs it: compacted topics (every record needs a key), a limit on how
old a record may be, a topic with its own compression type, and full validation.

Kafka decodes every record of every batch. We do so only if a rule needs it, so we accept some batches that Kafka
would refuse, which harms only the readers of that producer's records:

- records that are malformed, or compressed bytes that are damaged, under a CRC that is right;
- a header whose maximal timestamp is not that of its records (Kafka corrects it): limits on how far in the
  future a record may be are checked against the header (its base timestamp too: the first record has it), and
  hold only if that is right.

What we refuse and Kafka does not: bytes after the batch that are not a batch (Kafka drops them), the log append
time attribute on any topic (Kafka only if the topic keeps that time), a transactional batch without a
producer id, a producer id below -1 or one without an epoch, offset deltas that do not count up from zero, a
timestamp beyond int64 if records are decoded (Kafka's addition overflows, and so does our reading). A
codec that does not exist is UNSUPPORTED_COMPRESSION_TYPE, where Kafka returns UNKNOWN_SERVER_ERROR.

Messages older than format v2 are INVALID_RECORD: Produce has not allowed them since version 3, which is the
oldest that Kafka 4 serves.
"""

from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from odradek.errors import ErrorCode, KafkaError
from odradek.records.batch import (
    CODEC_MASK,
    CONTROL,
    CRC_START,
    HEADER_SIZE,
    LENGTH_END,
    LENGTH_OFFSET,
    LOG_APPEND_TIME,
    MAGIC,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    read_header,
)
from odradek.records.compression import Codec, codec_of
from odradek.records.crc import crc32c
from odradek.records.record import (
    INT64_MAX,
    TimestampType,
    invalid,
    pack_batch,
    patch_crc,
    scan_records,
    uncompressed_records,
)
from odradek.wire.codec import Steps, drain

MAGIC_OFFSET = 16
ZSTD = int(Codec.ZSTD)
ATTRIBUTES_OFFSET = 21
MAX_TIMESTAMP_OFFSET = 35

OLDEST_MESSAGE_LENGTH = 14  # of the smallest message in the oldest format
ZSTD_SINCE_PRODUCE_VERSION = 7
LATEST_PRODUCE_VERSION = 13

DEFAULT_MAX_MESSAGE_BYTES = 1024 * 1024 + LENGTH_END
DEFAULT_TIMESTAMP_AFTER_MAX_MS = 60 * 60 * 1000
NO_LIMIT_MS: Final = INT64_MAX

MAX_REPORTED_RECORDS = 100
# Limits of what is checked without a pause, and of what is decompressed for that.
MANY_RECORDS = 1_000
RECORDS_PER_STEP = 100
UNFOLDED_AT_ONCE = 1 << 20

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")


@dataclass(frozen=True, slots=True)
class TopicRules:
    """The settings of a topic that Produce enforces, with Kafka's defaults."""

    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = NO_LIMIT_MS
    timestamp_after_max_ms: int = DEFAULT_TIMESTAMP_AFTER_MAX_MS
    compression_type: Codec | None = None  # None: as the producer has it
    compression_level: int | None = None  # None: the codec's own default
    compact: bool = False
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    full_validation: bool = False  # look at every record of every batch, as Kafka does
    take_as_is: bool = field(init=False)  # batches of the current time are stored unchanged

    def __post_init__(self) -> None:
        as_is = (
            self.message_timestamp_type is TimestampType.CREATE_TIME
            and self.timestamp_before_max_ms == NO_LIMIT_MS
            and self.compression_type is None
            and not self.compact
            and not self.full_validation
        )
        object.__setattr__(self, "take_as_is", as_is)

    def needs_records(self, header: BatchHeader) -> bool:
        return (
            self.compact
            or self.full_validation
            or self.recompresses(header)
            or (
                self.timestamp_before_max_ms != NO_LIMIT_MS
                and self.message_timestamp_type is TimestampType.CREATE_TIME
            )
        )

    def recompresses(self, header: BatchHeader) -> bool:
        return self.compression_type is not None and self.compression_type != header.codec


DEFAULT_RULES = TopicRules()


class RejectedRecords(KafkaError):
    """Names the records that made a batch unacceptable: they are in Produce's response since version 8."""

    def __init__(self, code: ErrorCode, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors  # index in the batch, reason


class NotOneBatch(KafkaError):
    """The bytes are not one batch of format v2: refused before the log is looked at."""


# The header


def check_batch(
    buffer: memoryview,
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
    produce_version: int = LATEST_PRODUCE_VERSION,
) -> BatchHeader:
    """The header of the one batch that must be in `buffer`, if a client may append it."""
    size = len(buffer)
    if size < HEADER_SIZE:
        raise _not_one_batch(buffer)
    header = read_header(buffer)
    base_offset, length, _, magic, crc, attributes, last_offset_delta, _, _, producer_id, _, _, count = header
    if length != size - LENGTH_END or magic != MAGIC:
        raise _not_one_batch(buffer)
    if attributes & CODEC_MASK >= ZSTD:
        _check_codec(attributes & CODEC_MASK, produce_version)
    if base_offset != 0:
        raise invalid(f"The base offset of the record batch should be 0, but it is {base_offset}")
    if size > max_message_bytes:
        raise _too_large(size, max_message_bytes)
    if crc32c(buffer[CRC_START:]) != crc:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Record batch is corrupt (stored crc = {crc})")
    if count <= 0 or count != last_offset_delta + 1:
        raise invalid(f"{count} records with a last offset delta of {last_offset_delta}")
    if attributes & CONTROL:
        raise invalid("Clients are not allowed to write control records")
    if producer_id != NO_PRODUCER_ID or attributes & TRANSACTIONAL:
        _check_producer(header)
    return header


def _not_one_batch(buffer: memoryview) -> NotOneBatch:
    """Why the bytes are not exactly one batch of format v2."""
    if len(buffer) <= MAGIC_OFFSET:
        return NotOneBatch(
            ErrorCode.INVALID_RECORD, "Exactly one record batch per partition is required, there is none"
        )
    (length,) = _INT32.unpack_from(buffer, LENGTH_OFFSET)
    (magic,) = buffer[MAGIC_OFFSET : MAGIC_OFFSET + 1].cast("b")
    if length < OLDEST_MESSAGE_LENGTH:
        return NotOneBatch(ErrorCode.CORRUPT_MESSAGE, f"A record batch cannot have a length of {length}")
    if not 0 <= magic <= MAGIC:
        return NotOneBatch(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record batch: {magic}")
    if LENGTH_END + length > len(buffer):
        return NotOneBatch(
            ErrorCode.INVALID_RECORD,
            f"A record batch of {LENGTH_END + length} bytes, but there are {len(buffer)}",
        )
    if magic != MAGIC:
        return NotOneBatch(
            ErrorCode.INVALID_RECORD, f"Only record batches with magic version 2 are allowed, not {magic}"
        )
    if LENGTH_END + length < HEADER_SIZE:
        return NotOneBatch(ErrorCode.CORRUPT_MESSAGE, f"A record batch cannot have a length of {length}")
    return NotOneBatch(
        ErrorCode.INVALID_RECORD,
        "Exactly one record batch per partition is required, but more bytes follow it",
    )


def _no_batch(message: str) -> NotOneBatch:
    return NotOneBatch(ErrorCode.INVALID_RECORD, message)


def _check_codec(codec: int, produce_version: int) -> None:
    if codec_of(codec) is Codec.ZSTD and produce_version < ZSTD_SINCE_PRODUCE_VERSION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce requests with version {produce_version} are not allowed to use ZStandard compression",
        )


def _check_producer(header: BatchHeader) -> None:
    if header.producer_id < 0:
        raise invalid(f"Producer id {header.producer_id} in a record batch that needs one")
    if header.producer_epoch < 0:
        raise invalid(f"Producer epoch {header.producer_epoch} of producer id {header.producer_id}")
    if header.base_sequence < 0:
        raise invalid(f"Sequence number {header.base_sequence} of producer id {header.producer_id}")


def _too_large(size: int, max_message_bytes: int) -> KafkaError:
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE,
        f"The record batch size is {size} bytes, the maximum configured is {max_message_bytes}",
    )


# The topic's rules


Prepared = tuple[memoryview, BatchHeader]


class TakesLong(Exception):
    """There are so many records to check that it should be done in steps."""


def prepare_batch(buffer: memoryview, header: BatchHeader, rules: TopicRules, now_ms: int) -> Prepared:
    """The batch as the topic needs it: mostly unchanged, sometimes changed in place, rarely rebuilt.

    Raises TakesLong, having changed nothing, if `check_records` and `finish_records` should be used instead.
    """
    if (
        rules.take_as_is
        and header.max_timestamp <= (latest := now_ms + rules.timestamp_after_max_ms)
        and header.base_timestamp <= latest
        and not header.attributes & LOG_APPEND_TIME
    ):
        return buffer, header
    wanted = _wanted_header(header, rules, now_ms)
    if rules.needs_records(header):
        if header.record_count > MANY_RECORDS:
            raise TakesLong
        return _prepare_few_records(buffer, header, rules, now_ms)
    if wanted is header:
        return buffer, header
    return _restamp(buffer, wanted)


def _wanted_header(header: BatchHeader, rules: TopicRules, now_ms: int) -> BatchHeader:
    """Unchanged, unless the topic needs another."""
    if header.attributes & LOG_APPEND_TIME:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP, "Producers should not set the timestamp type to log append time"
        )
    if rules.message_timestamp_type is not TimestampType.CREATE_TIME:
        return header._replace(attributes=header.attributes | LOG_APPEND_TIME, max_timestamp=now_ms)
    newest = max(header.base_timestamp, header.max_timestamp)
    if newest > now_ms + rules.timestamp_after_max_ms:
        raise _out_of_range(newest, rules, now_ms)
    return header


def _prepare_few_records(buffer: memoryview, header: BatchHeader, rules: TopicRules, now_ms: int) -> Prepared:
    try:
        data = uncompressed_records(buffer, header, limit=UNFOLDED_AT_ONCE)
    except KafkaError as error:
        if error.code is ErrorCode.MESSAGE_TOO_LARGE:
            raise TakesLong from None
        raise
    return finish_records(
        buffer, header, rules, data, drain(check_records(data, header, rules, now_ms)), now_ms
    )


def finish_records(
    buffer: memoryview, header: BatchHeader, rules: TopicRules, data: bytes, max_timestamp: int, now_ms: int
) -> Prepared:
    """The batch, once its records have been checked. Compressing it again may take long."""
    wanted = _wanted_header(header, rules, now_ms)
    if rules.message_timestamp_type is TimestampType.CREATE_TIME and max_timestamp != header.max_timestamp:
        wanted = wanted._replace(max_timestamp=max_timestamp)
    if rules.recompresses(header):
        return _recompress(data, wanted, rules)
    return (buffer, header) if wanted is header else _restamp(buffer, wanted)


def check_records(data: bytes, header: BatchHeader, rules: TopicRules, now_ms: int) -> Steps[int]:
    """The latest timestamp, once every record has been found to be acceptable."""
    errors: list[tuple[int, str]] = []
    rejected = 0
    code = ErrorCode.INVALID_RECORD
    create_time = rules.message_timestamp_type is TimestampType.CREATE_TIME
    earliest = now_ms - rules.timestamp_before_max_ms
    latest = min(now_ms + rules.timestamp_after_max_ms, INT64_MAX)
    max_timestamp = NO_TIMESTAMP
    # If as many offset deltas rise as there are records, they can only be 0, 1, 2 and so on.
    for index, (_, _, timestamp_delta, _, key, _, _) in enumerate(scan_records(data, header)):
        if index % RECORDS_PER_STEP == 0:
            yield
        reason = ""
        if key is None and rules.compact:
            reason = "Compacted topic cannot accept message without key"
        else:
            timestamp = header.base_timestamp + timestamp_delta
            if timestamp > max_timestamp:
                max_timestamp = timestamp
            if create_time and timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
                code = ErrorCode.INVALID_TIMESTAMP
                reason = _out_of_range(timestamp, rules, now_ms).message
        if reason:
            rejected += 1
            if rejected <= MAX_REPORTED_RECORDS:
                errors.append((index, reason))
    if rejected:
        raise RejectedRecords(code, f"{rejected} records have been rejected", errors)
    return max_timestamp


def _out_of_range(timestamp: int, rules: TopicRules, now_ms: int) -> KafkaError:
    earliest, latest = now_ms - rules.timestamp_before_max_ms, now_ms + rules.timestamp_after_max_ms
    return KafkaError(
        ErrorCode.INVALID_TIMESTAMP, f"Timestamp {timestamp} is not within [{earliest}, {latest}]"
    )


def _recompress(data: bytes, header: BatchHeader, rules: TopicRules) -> tuple[memoryview, BatchHeader]:
    """The same records under another codec. Offsets, timestamps and producer do not change."""
    codec = rules.compression_type
    assert codec is not None
    attributes = header.attributes & ~CODEC_MASK | codec
    batch = pack_batch(header._replace(attributes=attributes), data, level=rules.compression_level)
    if len(batch) > rules.max_message_bytes:
        raise _too_large(len(batch), rules.max_message_bytes)
    return memoryview(batch), read_header(batch)


def _restamp(buffer: memoryview, header: BatchHeader) -> tuple[memoryview, BatchHeader]:
    """Write the header's attributes and maximal timestamp over the batch, which is in our own buffer."""
    _INT16.pack_into(buffer, ATTRIBUTES_OFFSET, header.attributes)
    _INT64.pack_into(buffer, MAX_TIMESTAMP_OFFSET, header.max_timestamp)
    return buffer, header._replace(crc=patch_crc(buffer))
