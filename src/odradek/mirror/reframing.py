"""Batches of the source as batches for the target: the records stay as they are, compressed or not.

A batch is decoded and encoded again only where its records cannot stay: it has gaps, it begins before the position, or
it has its broker's append time, which a producer may not claim. Its records then get that time as their own, which is
what readers of the source see.
"""

from collections.abc import Iterable, Iterator, Sequence

from odradek.client.producing import EncodedRecords
from odradek.model import TopicPartition
from odradek.records.batch import HEADER_SIZE, LOG_APPEND_TIME, BatchHeader
from odradek.records.compression import Codec, codec_of, compress
from odradek.records.record import Record, decode_batch, encode_records
from odradek.records.walk import Batch


def reframed(batches: Iterable[Batch], target: TopicPartition, start: int) -> list[EncodedRecords]:
    """Reframe the records at `start` and after it, in order; batches without a record are left out."""
    return list(_reframed(batches, target, start))


def _reframed(batches: Iterable[Batch], target: TopicPartition, start: int) -> Iterator[EncodedRecords]:
    for batch in batches:
        if _can_stay(batch.header, start):
            yield _passed_on(batch, target)
            continue
        records = [one for one in decode_batch(batch.data, batch.header) if one.offset >= start]
        if records:
            yield _encoded(records, codec_of(batch.header.codec), target)


def _can_stay(header: BatchHeader, start: int) -> bool:
    is_dense = header.record_count == header.last_offset_delta + 1
    return is_dense and header.base_offset >= start and not header.attributes & LOG_APPEND_TIME


def _passed_on(batch: Batch, target: TopicPartition) -> EncodedRecords:
    """The bit for a delete horizon goes, and the base timestamp stays: timestamps are relative to it either way."""
    header = batch.header
    return EncodedRecords(
        target,
        batch.data[HEADER_SIZE:],
        header.record_count,
        header.base_timestamp,
        header.max_timestamp,
        codec_of(header.codec),
    )


def _encoded(records: Sequence[Record], codec: Codec, target: TopicPartition) -> EncodedRecords:
    dense = [one._replace(offset=number) for number, one in enumerate(records)]
    base = dense[0].timestamp
    payload = compress(codec, encode_records(dense, 0, base), None)
    return EncodedRecords(target, payload, len(dense), base, max(one.timestamp for one in dense), codec)
