"""A coordinator's partition as its runner uses it: append a batch, wait until it is committed, read it all back."""

from collections.abc import Callable, Iterator
from typing import Protocol

from odradek.coordinators.runtime import Producer, StateBatch
from odradek.errors import ErrorCode, KafkaError
from odradek.model import TopicPartition
from odradek.records.batch import BatchHeader, Buffer
from odradek.records.record import build_keyed_batch, decode_batch
from odradek.storage.log.log import Log
from odradek.storage.log.reading import read_batches
from odradek.storage.log.run import AppendResult
from odradek.storage.producers.markers import TransactionEnd, read_marker

Waiter = Callable[[ErrorCode], None]


class JournalLeader(Protocol):
    """The part of `replication.leader.Leader` that a journal needs."""

    topic_partition: TopicPartition
    log: Log
    high_watermark: int

    def check_enough_replicas(self) -> None: ...

    def append(
        self, batch: bytearray, header: BatchHeader, now_ms: int, *, check_sequence: bool
    ) -> AppendResult: ...

    def append_marker(self, end: TransactionEnd, now_ms: int) -> int: ...

    def when_committed(self, offset: int, waiter: Waiter) -> None: ...


class Journal:
    """On the leader of one epoch: when that ends, so does the journal."""

    def __init__(self, leader: JournalLeader) -> None:
        self._leader = leader

    @property
    def name(self) -> TopicPartition:
        return self._leader.topic_partition

    @property
    def high_watermark(self) -> int:
        return self._leader.high_watermark

    # --- writing ---

    def append(self, batch: StateBatch, now_ms: int) -> int:
        """The offset of its last record. If it raises, no part of the batch is in the log."""
        leader = self._leader
        leader.check_enough_replicas()
        if batch.marker is not None:
            return self._append_marker(batch, now_ms)
        if batch.producer is not None and not batch.is_verified:
            self._check_open(batch.producer)
        encoded, header = encode(batch, now_ms)
        return leader.append(encoded, header, now_ms, check_sequence=False).last_offset

    def _append_marker(self, batch: StateBatch, now_ms: int) -> int:
        producer, marker = batch.producer, batch.marker
        assert producer is not None and marker is not None
        end = TransactionEnd(
            producer.id,
            producer.epoch,
            marker.coordinator_epoch,
            not marker.is_abort,
            batch.transaction_version,
        )
        return self._leader.append_marker(end, now_ms)

    def _check_open(self, producer: Producer) -> None:
        """Records that began a transaction which its coordinator does not know, or has ended meanwhile, would be
        pending for ever, or join the producer's next one."""
        if not self._leader.log.producers.has_open_transaction(producer.id, producer.epoch):
            reason = f"Producer {producer.id} has no transaction in progress here"
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, reason)

    def commit(self, last_offset: int, waiter: Waiter) -> None:
        """`waiter` is told when the appended records are committed, or why they never will be."""
        self._leader.when_committed(last_offset + 1, waiter)

    # --- reading ---

    @property
    def is_empty(self) -> bool:
        log = self._leader.log
        return log.end_offset == log.log_start_offset

    @property
    def last_uncommitted(self) -> int | None:
        """The last record, if it is not committed yet: whoever leads next may not have it."""
        end_offset = self._leader.log.end_offset
        return end_offset - 1 if end_offset > self._leader.high_watermark else None

    def pieces(self) -> Iterator[list[StateBatch]]:
        """Everything from the beginning, about a megabyte at a time."""
        for piece in read_batches(self._leader.log):
            yield [decode(header, batch) for header, batch in piece]


def encode(batch: StateBatch, now_ms: int) -> tuple[bytearray, BatchHeader]:
    """Records; a marker is the leader's own."""
    producer = batch.producer
    if producer is None:
        return build_keyed_batch(batch.records, now_ms)
    return build_keyed_batch(batch.records, now_ms, producer.id, producer.epoch, transactional=True)


def decode(header: BatchHeader, batch: Buffer) -> StateBatch:
    """A control batch that ends no transaction, and a record without a key, mean nothing to a coordinator."""
    producer = Producer(header.producer_id, header.producer_epoch) if header.is_transactional else None
    if header.is_control:
        return StateBatch([], producer, read_marker(batch, header))
    records = [(record.key, record.value) for record in decode_batch(batch, header) if record.key is not None]
    return StateBatch(records, producer)
