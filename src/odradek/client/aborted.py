"""Find the batches of a fetch that belong to aborted transactions.

A broker responds to a `read_committed` fetch with whole batches up to the last stable offset, aborted ones among
them, and a list of the transactions that were aborted in it: producer id and first offset. A
producer's batches are left out from there up to its ABORT marker, which is in the log as a control batch.
"""

from collections.abc import Iterable

from odradek.errors import KafkaError
from odradek.records.batch import BatchHeader
from odradek.records.control import ControlType, decode_control_key
from odradek.records.record import decode_batch
from odradek.wire.messages.fetch import AbortedTransaction


class AbortedTransactions:
    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        self._to_come = sorted(
            ((aborted.first_offset, aborted.producer_id) for aborted in transactions), reverse=True
        )
        self._open: set[int] = set()

    def leaves_out(self, header: BatchHeader, batch: memoryview) -> bool:
        """Call it for every batch, in order: markers among them end an aborted transaction."""
        while self._to_come and self._to_come[-1][0] <= header.last_offset:
            self._open.add(self._to_come.pop()[1])
        if header.is_control:
            if header.producer_id in self._open and _is_abort_marker(batch):
                self._open.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._open


def _is_abort_marker(batch: memoryview) -> bool:
    try:
        records = decode_batch(batch)
        return any(decode_control_key(record.key) is ControlType.ABORT for record in records)
    except KafkaError:
        return False
