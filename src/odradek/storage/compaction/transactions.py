"""Facts about transactions for compaction: which batches were aborted and which markers still mark something."""

from bisect import bisect_left
from collections.abc import Iterable

from odradek.records.batch import TRANSACTIONAL, BatchHeader
from odradek.records.control import ControlType, decode_control_key
from odradek.records.record import decode_batch
from odradek.storage.disk.files import Files
from odradek.storage.segments.indexes import ABORTED_ENTRY, AbortedTransaction
from odradek.storage.segments.segment import TRANSACTION_INDEX_SUFFIX


def read_aborted_transactions(files: Files, directory: str) -> list[AbortedTransaction]:
    """Read all transaction indexes: data here may have been aborted by a marker in any later segment."""
    aborted = []
    for entry in files.list(directory):
        if entry.name.endswith(TRANSACTION_INDEX_SUFFIX):
            data = files.read(f"{directory}/{entry.name}")
            whole = len(data) - len(data) % ABORTED_ENTRY.size
            aborted += [AbortedTransaction(*row[1:]) for row in ABORTED_ENTRY.iter_unpack(data[:whole])]
    return aborted


class AbortedBatches:
    """Which batches belong to an aborted transaction: those of its producer within its offsets."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._by_producer: dict[int, list[AbortedTransaction]] = {}
        for transaction in sorted(aborted, key=lambda transaction: transaction.last_offset):
            self._by_producer.setdefault(transaction.producer_id, []).append(transaction)

    def find(self, header: BatchHeader) -> AbortedTransaction | None:
        """A producer's transactions follow one another, so the first to end at or after the batch decides."""
        if not header.attributes & TRANSACTIONAL:
            return None
        transactions = self._by_producer.get(header.producer_id)
        if not transactions:
            return None
        slot = bisect_left(transactions, header.last_offset, key=lambda transaction: transaction.last_offset)
        if slot < len(transactions) and transactions[slot].first_offset <= header.base_offset:
            return transactions[slot]
        return None


class Transactions:
    """Follows the transactions of a log from its start, to know which markers are no longer needed."""

    def __init__(self, aborted: AbortedBatches) -> None:
        self._aborted = aborted
        self._seen_aborted: set[AbortedTransaction] = set()
        self._seen_committed: set[int] = set()  # producers

    def note_data(self, header: BatchHeader) -> bool:
        """True if the batch belongs to an aborted transaction and may go."""
        if not header.is_transactional:
            return False
        transaction = self._aborted.find(header)
        if transaction is None:
            self._seen_committed.add(header.producer_id)
            return False
        self._seen_aborted.add(transaction)
        return True

    def note_marker(self, batch: memoryview, header: BatchHeader) -> tuple[bool, AbortedTransaction | None]:
        """True if no data is left before the marker; otherwise the aborted transaction that it ends."""
        if header.record_count == 0:
            return True, None
        control_type = decode_control_key(decode_batch(batch, header)[0].key)
        if control_type is ControlType.ABORT:
            transaction = self._aborted.find(header)
            if transaction in self._seen_aborted:
                return False, transaction
            return True, None
        if control_type is ControlType.COMMIT:
            had_data = header.producer_id in self._seen_committed
            self._seen_committed.discard(header.producer_id)
            return not had_data, None
        return False, None
