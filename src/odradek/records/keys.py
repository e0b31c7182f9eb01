"""The keys of a batch, fast: compaction needs them for every record of a log."""

from odradek.records.batch import BatchHeader, Buffer
from odradek.records.native import FEW_RECORDS, native_records
from odradek.records.record import MAX_UNCOMPRESSED_BYTES, scan_records, uncompressed_records

# Offset, key, and whether the value is null: a tombstone.
KeyRow = tuple[int, bytes | None, bool]


def read_keys(buffer: Buffer, header: BatchHeader, *, limit: int = MAX_UNCOMPRESSED_BYTES) -> list[KeyRow]:
    """One row for each record; INVALID_RECORD or CORRUPT_MESSAGE where they cannot be read."""
    data = uncompressed_records(buffer, header, limit=limit)
    if header.record_count > FEW_RECORDS:
        found = native_records(data, header)
        if found is not None:
            return [(record.offset, record.key, record.value is None) for record in found]
    base_offset = header.base_offset
    return [
        (base_offset + offset_delta, key, value is None)
        for _, _, _, offset_delta, key, value, _ in scan_records(data, header)
    ]
