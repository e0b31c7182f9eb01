"""What a log remembers about its producers: to refuse gaps, to recognise retries, and to know open transactions.

For each producer id: its epoch, its last five batches, and the first offset of its open transaction. A
batch that repeats one of the five gets the offset at which it was first stored. A producer that is
not known (it never wrote here, was idle too long, or its records are gone) may start at any sequence, as in
today's Kafka, which no longer returns UNKNOWN_PRODUCER_ID.

`check` decides and changes nothing; `replay` changes and cannot refuse. The leader does both, around its
write; followers and recovery only replay.

The last stable offset: everything below the first offset of the oldest transaction that is open, or whose
marker is not yet below the high watermark.
"""

from typing import NamedTuple

from odradek.errors import ErrorCode, KafkaError
from odradek.records.batch import CONTROL, NO_SEQUENCE, NO_TIMESTAMP, TRANSACTIONAL, BatchHeader, Buffer
from odradek.storage.producers.markers import Marker, read_marker
from odradek.storage.segments.indexes import AbortedTransaction

REMEMBERED_BATCHES = 5
MAX_SEQUENCE = 2**31 - 1
NO_PRODUCER_EPOCH = -1
NO_OFFSET = -1
DEFAULT_EXPIRATION_MS = 24 * 60 * 60 * 1000


class ProducedBatch(NamedTuple):
    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def base_offset(self) -> int:
        return self.last_offset - self.offset_delta


class Producer:
    """One producer id's state. `batches` are of the current epoch, newest last, at most five."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "transaction_first_offset")

    def __init__(
        self,
        epoch: int = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = -1,
        last_timestamp: int = NO_TIMESTAMP,
        transaction_first_offset: int = NO_OFFSET,
    ) -> None:
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.transaction_first_offset = transaction_first_offset
        self.batches: list[ProducedBatch] = []

    def expects(self, header: BatchHeader) -> bool:
        """Whether this batch follows the last one; a new epoch starts at 0."""
        if header.producer_epoch != self.epoch:
            return header.base_sequence == 0 or self.epoch == NO_PRODUCER_EPOCH
        last = self.batches[-1].last_sequence if self.batches else NO_SEQUENCE
        return header.base_sequence == (last + 1) & MAX_SEQUENCE

    def repeated(self, header: BatchHeader) -> ProducedBatch:
        """The stored batch that an out-of-order one repeats; if there is none, it is refused."""
        first, last = header.base_sequence, header.last_sequence
        for batch in self.batches:
            if (
                batch.first_sequence == first
                and batch.last_sequence == last
                and header.producer_epoch == self.epoch
            ):
                return batch
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Producer {header.producer_id} sent sequence {first}, which does not follow its last batch",
        )

    def copy(self) -> "Producer":
        copy = Producer(
            self.epoch, self.coordinator_epoch, self.last_timestamp, self.transaction_first_offset
        )
        copy.batches = self.batches.copy()
        return copy

    def enter_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()


class Producers:
    __slots__ = ("_ended", "by_id", "next_expiry_ms", "open_transactions")

    def __init__(self) -> None:
        self.by_id: dict[int, Producer] = {}
        # First offset -> producer id. Offsets only grow, so the order of insertion is the order of offsets.
        self.open_transactions: dict[int, int] = {}
        # First offset -> offset of the marker, while that is not below the high watermark.
        self._ended: dict[int, int] = {}
        self.next_expiry_ms: int | None = None  # before then `expire` would find nothing

    def check(self, header: BatchHeader, check_sequence: bool) -> ProducedBatch | None:
        """Refuse a batch that may not be appended; return the earlier batch that this one repeats, if any."""
        producer = self.by_id.get(header.producer_id)
        if producer is None:
            return None
        if header.producer_epoch < producer.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Producer {header.producer_id} has epoch {producer.epoch} here, not {header.producer_epoch}",
            )
        if check_sequence and not producer.expects(header):
            return producer.repeated(header)
        if producer.transaction_first_offset >= 0 and not header.attributes & (TRANSACTIONAL | CONTROL):
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"Producer {header.producer_id} wrote outside its open transaction",
            )
        return None

    def check_batch(
        self, batch: Buffer, header: BatchHeader, check_sequence: bool
    ) -> tuple[ProducedBatch | None, Marker | None]:
        """The same for a batch of any kind; also the marker in it, if there is one."""
        if not header.attributes & CONTROL:
            return self.check(header, check_sequence), None
        marker = read_marker(batch, header)
        self.check(header, False)
        if marker is not None:
            self.check_marker(header, marker)
        return None, marker

    def check_marker(self, header: BatchHeader, marker: Marker) -> None:
        """Refuse a marker of a coordinator that was replaced."""
        producer = self.by_id.get(header.producer_id)
        if producer is not None and producer.coordinator_epoch > marker.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"A coordinator with epoch {producer.coordinator_epoch} has written here, "
                f"not {marker.coordinator_epoch}",
            )

    def replay(self, header: BatchHeader, base_offset: int) -> None:
        """A data batch with a producer id is in the log."""
        producer = self.by_id.get(header.producer_id)
        if producer is None:
            producer = self.by_id[header.producer_id] = Producer()
        if header.producer_epoch != producer.epoch:
            producer.enter_epoch(header.producer_epoch)
        delta = header.last_offset_delta
        last_sequence = header.last_sequence if header.base_sequence >= 0 else NO_SEQUENCE
        batches = producer.batches
        if len(batches) == REMEMBERED_BATCHES:
            del batches[0]
        batches.append(
            ProducedBatch(
                header.base_sequence, last_sequence, base_offset + delta, delta, header.max_timestamp
            )
        )
        producer.last_timestamp = header.max_timestamp
        if header.attributes & TRANSACTIONAL and producer.transaction_first_offset < 0:
            producer.transaction_first_offset = base_offset
            self.open_transactions[base_offset] = header.producer_id

    def replay_batch(self, header: BatchHeader, base_offset: int, marker: Marker | None) -> None:
        """A batch of any kind with a producer id is in the log."""
        if marker is not None:
            self.replay_marker(header, base_offset, marker)
        elif not header.attributes & CONTROL:
            self.replay(header, base_offset)

    def copy_of(self, producer_id: int) -> Producer | None:
        """For `put_back`, if the batches replayed after this cannot be written."""
        producer = self.by_id.get(producer_id)
        return None if producer is None else producer.copy()

    def put_back(self, copies: dict[int, Producer | None]) -> None:
        for producer_id, copy in copies.items():
            replayed = self.by_id.pop(producer_id, None)
            if replayed is not None:
                self.open_transactions.pop(replayed.transaction_first_offset, None)
            if copy is not None:
                self.restore(producer_id, copy)

    def aborted_by(self, header: BatchHeader, base_offset: int, marker: Marker) -> AbortedTransaction | None:
        """The transaction that this marker, once in the log, will have aborted."""
        producer = self.by_id.get(header.producer_id)
        if not marker.is_abort or producer is None or producer.transaction_first_offset < 0:
            return None
        first_offset = producer.transaction_first_offset
        others = (offset for offset in self.open_transactions if offset != first_offset)
        return AbortedTransaction(
            header.producer_id, first_offset, base_offset, next(others, base_offset + 1)
        )

    def replay_marker(self, header: BatchHeader, base_offset: int, marker: Marker) -> None:
        """A marker is in the log: its transaction has ended."""
        producer = self.by_id.get(header.producer_id)
        if producer is None:
            producer = self.by_id[header.producer_id] = Producer()
        first_offset = producer.transaction_first_offset
        producer.enter_epoch(header.producer_epoch)
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp = header.max_timestamp
        producer.transaction_first_offset = NO_OFFSET
        if first_offset >= 0:
            del self.open_transactions[first_offset]
            self._ended[first_offset] = base_offset

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset of the oldest transaction that is open, or whose marker is not yet committed."""
        if self._ended:
            self._ended = {first: last for first, last in self._ended.items() if last >= high_watermark}
        elif not self.open_transactions:
            return None
        first_open = next(iter(self.open_transactions), None)
        first_ended = min(self._ended, default=None)
        if first_open is None or first_ended is None:
            return first_ended if first_open is None else first_open
        return min(first_open, first_ended)

    def restore(self, producer_id: int, producer: Producer) -> None:
        """Take over a producer from a snapshot."""
        self.by_id[producer_id] = producer
        if producer.transaction_first_offset >= 0:
            self.open_transactions[producer.transaction_first_offset] = producer_id
            self.open_transactions = dict(sorted(self.open_transactions.items()))

    def clear(self) -> None:
        self.by_id.clear()
        self.open_transactions.clear()
        self._ended.clear()

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers that have been idle this long, unless they have an open transaction."""
        if self.next_expiry_ms is not None and now_ms < self.next_expiry_ms:
            return
        expiry = {
            producer_id: producer.last_timestamp + expiration_ms
            for producer_id, producer in self.by_id.items()
            if producer.transaction_first_offset < 0
        }
        for producer_id in [producer_id for producer_id, due_ms in expiry.items() if due_ms <= now_ms]:
            del self.by_id[producer_id], expiry[producer_id]
        self.next_expiry_ms = min(expiry.values(), default=None)
