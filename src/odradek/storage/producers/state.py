"""The memory of a log about its producers: to refuse gaps, to recognise retries, and to know open transactions.

For each producer id: its epoch, its last five batches, and the first offset of its open transaction. A
batch that repeats one of the five gets the offset at which it was first stored. A producer that is
not known (it never wrote here, was idle too long, or its records are gone) may start at any sequence, as in
today's Kafka, which no longer returns UNKNOWN_PRODUCER_ID.

`check` decides and changes nothing; `replay` changes and cannot refuse. The leader does both, around its
write; followers and recovery only replay.

The first batch of a transaction is taken only after its coordinator has verified it (`verification`). While a
transaction is open its batches need no more than the same epoch.

The last stable offset: everything below the first offset of the oldest transaction that is open, or whose
marker is not yet below the high watermark.
"""

from typing import NamedTuple

from odradek.errors import ErrorCode, KafkaError
from odradek.model import EPOCH_FOR_EACH_TRANSACTION
from odradek.records.batch import CONTROL, NO_SEQUENCE, NO_TIMESTAMP, TRANSACTIONAL, BatchHeader, Buffer
from odradek.storage.producers.markers import Marker, read_marker
from odradek.storage.producers.verification import NOT_REQUIRED, Verification
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
        """True if this batch follows the last one; a new epoch starts at 0."""
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
    __slots__ = ("by_id", "ended", "next_expiry_ms", "open_transactions", "verifications")

    def __init__(self) -> None:
        self.by_id: dict[int, Producer] = {}
        # First offset -> producer id. Offsets only grow, so the order of insertion is the order of offsets.
        self.open_transactions: dict[int, int] = {}
        # First offset -> offset of the marker, while that is not below the high watermark.
        self.ended: dict[int, int] = {}
        self.next_expiry_ms: int | None = None  # before then `expire` would find nothing
        # By producer id and epoch: of transactions that have no batch here yet.
        self.verifications: dict[tuple[int, int], Verification] = {}

    def check(
        self, header: BatchHeader, check_sequence: bool, verification: Verification | None = None
    ) -> ProducedBatch | None:
        """Refuse a batch that may not be appended; return the earlier batch that this one repeats, if any."""
        producer = self.by_id.get(header.producer_id)
        if producer is None:
            if check_sequence and header.attributes & TRANSACTIONAL:
                self._check_verified(header, verification, True)
            return None
        if header.producer_epoch < producer.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Producer {header.producer_id} has epoch {producer.epoch} here, not {header.producer_epoch}",
            )
        if check_sequence and not producer.expects(header):
            return producer.repeated(header)
        if producer.transaction_first_offset >= 0:
            if not header.attributes & (TRANSACTIONAL | CONTROL):
                raise KafkaError(
                    ErrorCode.INVALID_TXN_STATE,
                    f"Producer {header.producer_id} wrote outside its open transaction",
                )
            if check_sequence and header.producer_epoch != producer.epoch:
                self._check_verified(header, verification, False)
        elif header.attributes & TRANSACTIONAL and check_sequence:
            self._check_verified(header, verification, not producer.batches)
        return None

    def _check_verified(
        self, header: BatchHeader, verification: Verification | None, is_first_batch: bool
    ) -> None:
        """A client's batch that would begin a transaction: one that its coordinator does not know might never end."""
        if verification is NOT_REQUIRED:
            return
        producer_id, sequence = header.producer_id, header.base_sequence
        known = self.verifications.get((producer_id, header.producer_epoch))
        if verification is None or known is not verification:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE, f"Producer {producer_id} has no transaction in progress here"
            )
        # A producer whose last batch is known is held to it; what was lower then was a retry that came late.
        if is_first_batch and (
            sequence > verification.lowest_sequence or (verification.expects_sequence_zero and sequence != 0)
        ):
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {producer_id} began a transaction with sequence {sequence}, which is not its lowest",
            )

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """True if it may append to its transaction without a verification."""
        producer = self.by_id.get(producer_id)
        return (
            producer is not None
            and producer.transaction_first_offset >= 0
            and producer.epoch == producer_epoch
        )

    def begin_verification(
        self, producer_id: int, producer_epoch: int, sequence: int, now_ms: int, expects_sequence_zero: bool
    ) -> Verification:
        """Before the coordinator is asked about a transaction that is not open here. Requests at the same time share
        one."""
        key = producer_id, producer_epoch
        known = self.verifications.get(key)
        if known is None:
            known = Verification(producer_id, producer_epoch, sequence, now_ms, expects_sequence_zero)
            self.verifications[key] = known
        known.lowest_sequence = min(known.lowest_sequence, sequence)
        return known

    def is_known(self, verification: Verification) -> bool:
        """True if no marker has ended the transaction since, and no batch has begun it."""
        key = verification.producer_id, verification.producer_epoch
        return self.verifications.get(key) is verification

    def give_up(self, verification: Verification) -> None:
        """The coordinator knows no such transaction."""
        if self.is_known(verification):
            del self.verifications[verification.producer_id, verification.producer_epoch]

    def _forget_verifications(self, producer_id: int) -> None:
        for key in [key for key in self.verifications if key[0] == producer_id]:
            del self.verifications[key]

    def _forget_ended(self, producer_id: int, marker_epoch: int) -> None:
        """A marker ends the transactions of earlier epochs. Where each transaction has an epoch of its own, the marker
        carries the epoch of the next one, which may be under verification already."""
        for key, verification in list(self.verifications.items()):
            is_next = verification.expects_sequence_zero and verification.producer_epoch == marker_epoch
            if key[0] == producer_id and not is_next:
                del self.verifications[key]

    def check_batch(
        self,
        batch: Buffer,
        header: BatchHeader,
        check_sequence: bool,
        verification: Verification | None = None,
        marker: Marker | None = None,
    ) -> tuple[ProducedBatch | None, Marker | None]:
        """The same for a batch of any kind; also the marker in it, if there is one. Who has built it knows it."""
        if not header.attributes & CONTROL:
            return self.check(header, check_sequence, verification), None
        if marker is None:
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

    def is_repeated_marker(self, producer_id: int, producer_epoch: int, transaction_version: int) -> bool:
        """True if a marker with this epoch is in the log already. A marker that may be appended, or has to be refused
        for another reason, is not; one that would end the next transaction is refused here.

        Before transaction.version 2 a marker has the epoch of the data before it and of the data after it, so nobody
        can tell. Since then every transaction has an epoch, and its marker a higher one (KIP-1228)."""
        producer = self.by_id.get(producer_id)
        if (
            transaction_version < EPOCH_FOR_EACH_TRANSACTION
            or producer is None
            or producer_epoch != producer.epoch
        ):
            return False
        if producer.transaction_first_offset >= 0:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"A marker of producer {producer_id} with epoch {producer_epoch}, which its open transaction has",
            )
        return True

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
            if self.verifications:
                self._forget_verifications(header.producer_id)

    def replay_batch(self, header: BatchHeader, base_offset: int, marker: Marker | None) -> None:
        """A batch of any kind with a producer id is in the log."""
        if marker is not None:
            self.replay_marker(header, base_offset, marker)
        elif not header.attributes & CONTROL:
            self.replay(header, base_offset)

    def copy_of(self, producer_id: int) -> Producer | None:
        """Return a copy for `put_back`, if the batches replayed after this cannot be written."""
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
        if self.verifications:
            self._forget_ended(header.producer_id, header.producer_epoch)
        if first_offset >= 0:
            del self.open_transactions[first_offset]
            self.ended[first_offset] = base_offset

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset of the oldest transaction that is open, or whose marker is not yet committed."""
        if self.ended:
            self.forget_committed(high_watermark)
        elif not self.open_transactions:
            return None
        first_open = next(iter(self.open_transactions), None)
        first_ended = min(self.ended, default=None)
        if first_open is None or first_ended is None:
            return first_ended if first_open is None else first_open
        return min(first_open, first_ended)

    def forget_committed(self, high_watermark: int) -> None:
        """Transactions whose marker is below the high watermark have ended for good."""
        self.ended = {first: last for first, last in self.ended.items() if last >= high_watermark}

    def restore(self, producer_id: int, producer: Producer) -> None:
        """Take over a producer from a snapshot."""
        self.by_id[producer_id] = producer
        if producer.transaction_first_offset >= 0:
            self.open_transactions[producer.transaction_first_offset] = producer_id
            self.open_transactions = dict(sorted(self.open_transactions.items()))

    def clear(self) -> None:
        self.by_id.clear()
        self.open_transactions.clear()
        self.ended.clear()
        self.verifications.clear()

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
        for verification in list(self.verifications.values()):
            if verification.started_ms + expiration_ms <= now_ms:
                self.give_up(verification)
        self.next_expiry_ms = min(expiry.values(), default=None)
