"""The marker that ends a transaction, read from its control batch."""

from typing import NamedTuple

from odradek.records.batch import BatchHeader, Buffer
from odradek.records.control import ControlType, decode_control_key, decode_marker
from odradek.records.record import decode_batch


class Marker(NamedTuple):
    is_abort: bool
    coordinator_epoch: int


class TransactionEnd(NamedTuple):
    """The content of a transaction's marker, in WriteTxnMarkers and in the log."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    transaction_version: int  # by whose rules the marker is checked


def read_marker(batch: Buffer, header: BatchHeader) -> Marker | None:
    """The marker; None where compaction has emptied the batch, or it is not about transactions."""
    if header.record_count == 0:
        return None
    record = decode_batch(batch, header)[0]
    control_type = decode_control_key(record.key)
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    return Marker(control_type is ControlType.ABORT, decode_marker(record.value))
