"""The remains of a batch after compaction: all of it, some of its records, its bare header, or nothing.

The rules are in `rounds.py`.
"""

from collections.abc import Sequence
from itertools import compress as select

from odradek.records.batch import (
    CODEC_MASK,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    BatchHeader,
)
from odradek.records.keys import read_keys
from odradek.records.record import (
    decode_batch,
    encode_records,
    pack_batch,
    scan_records,
    uncompressed_records,
    wrap_int64,
)
from odradek.storage.compaction.job import CompactionJob
from odradek.storage.compaction.offset_map import OffsetMap
from odradek.storage.compaction.transactions import Transactions
from odradek.storage.segments.indexes import AbortedTransaction


class Retention:
    """The remains of each batch of the log, taken in order from its start."""

    def __init__(self, job: CompactionJob, offset_map: OffsetMap, transactions: Transactions) -> None:
        self._map = offset_map
        self._transactions = transactions
        self._now_ms = job.now_ms
        self._new_horizon_ms = job.now_ms + job.config.delete_retention_ms
        self._active_producers = job.active_producers
        self._end_offset = job.first_uncleanable_offset
        self.kept_aborted: list[AbortedTransaction] = []  # for the transaction index of the current group

    def retained(self, batch: memoryview, header: BatchHeader) -> memoryview | bytearray | None:
        """The bytes to write: the batch itself, one with fewer records or none, or None."""
        if header.is_control:
            kept = self._retained_marker(batch, header)
        elif self._transactions.note_data(header):
            kept = None
        elif header.base_offset > self._map.latest_offset:
            kept = batch
        else:
            kept = self._retained_data(batch, header)
        if kept is None and self._must_remain(header):
            return empty_batch(header)
        return kept

    def _must_remain(self, header: BatchHeader) -> bool:
        if header.next_offset == self._end_offset:
            return True
        last = self._active_producers.get(header.producer_id)
        if header.producer_id == NO_PRODUCER_ID or last is None:
            return False
        if last.last_offsets:
            return header.last_offset in last.last_offsets
        return header.is_control and header.producer_epoch == last.producer_epoch

    def _retained_marker(self, batch: memoryview, header: BatchHeader) -> memoryview | bytearray | None:
        useless, transaction = self._transactions.note_marker(batch, header)
        if transaction is not None:
            self.kept_aborted.append(transaction)
        if not useless:
            return batch
        if header.record_count == 0:
            return None
        if not header.attributes & DELETE_HORIZON:
            return rewritten(batch, header, [True] * header.record_count, self._new_horizon_ms)
        return None if header.base_timestamp <= self._now_ms else batch

    def _retained_data(self, batch: memoryview, header: BatchHeader) -> memoryview | bytearray | None:
        rows = read_keys(batch, header)
        has_horizon = bool(header.attributes & DELETE_HORIZON)
        keep_tombstones = not has_horizon or self._now_ms < header.base_timestamp
        kept = self._map.kept(rows, keep_tombstones)
        if not any(kept):
            return None
        sets_horizon = not has_horizon and any(row[2] for row in select(rows, kept))
        if all(kept) and not sets_horizon:
            return batch
        return rewritten(batch, header, kept, self._new_horizon_ms if sets_horizon else None)


def rewritten(
    batch: memoryview, header: BatchHeader, kept: Sequence[bool], new_horizon_ms: int | None
) -> bytearray:
    """The batch with only the kept records. Its range of offsets stays, and with it the producer's sequence.

    Records are copied unchanged, unless a new delete horizon changes the base of their timestamps.
    """
    if new_horizon_ms is not None:
        records = list(select(decode_batch(batch, header), kept))
        max_timestamp = max(record.timestamp for record in records)
        data = encode_records(records, header.base_offset, new_horizon_ms)
        header = header._replace(attributes=header.attributes | DELETE_HORIZON, base_timestamp=new_horizon_ms)
    else:
        source = uncompressed_records(batch, header)
        spans = list(select(scan_records(source, header), kept))
        max_timestamp = max(wrap_int64(header.base_timestamp + span[2]) for span in spans)
        data = bytearray().join(source[span[0] : span[1]] for span in spans)
    if not header.attributes & LOG_APPEND_TIME:
        header = header._replace(max_timestamp=max_timestamp)
    return pack_batch(header._replace(record_count=sum(kept)), data)


def empty_batch(header: BatchHeader) -> bytearray:
    """The bare header, which keeps the producer's sequence and the end of the log known."""
    attributes = header.attributes & ~(DELETE_HORIZON | CODEC_MASK)
    return pack_batch(
        header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0), b""
    )
