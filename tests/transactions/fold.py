"""Reads from a log what it says about its transactions, batch by batch, by none of the product's own state.

- T1 the sequences of a producer follow each other, and begin at 0 with every epoch
- T3 the epochs of a producer never decrease
"""

from struct import Struct
from typing import Any, NamedTuple

from odradek.records.batch import BatchHeader, read_header
from odradek.records.record import decode_batch
from tests.cluster.committed import Committed, read_log
from tests.simulation.connection import Violation

CONTROL_KEY = Struct(">hh")
ABORT, COMMIT = 0, 1
REMEMBERED = 5  # batches of a producer, by which retries are recognised
NO_SEQUENCE = -1


class Data(NamedTuple):
    """A batch of a transaction."""

    header: BatchHeader
    batch: bytes
    is_first: bool  # in this log, of its transaction

    @property
    def records(self) -> list[Any]:
        return decode_batch(self.batch, self.header)


class Ended(NamedTuple):
    """A transaction in one log."""

    producer_id: int
    epoch: int
    first_offset: int
    marker_offset: int
    is_commit: bool
    batches: list[Data]


class Marker(NamedTuple):
    producer_id: int
    epoch: int
    offset: int
    is_commit: bool
    ended: Ended | None  # what it ended, if anything was open


class Producer:
    """The state of one producer id."""

    def __init__(self) -> None:
        self.epoch = -1
        self.batches: list[tuple[int, int, int]] = []  # first and last sequence, last offset; of this epoch
        self.open: list[Data] = []

    def enter(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches = []

    @property
    def first_offset(self) -> int:
        return self.open[0].header.base_offset if self.open else -1


class LogFold:
    def __init__(self, name: str) -> None:
        self.name = name
        self.producers: dict[int, Producer] = {}
        self.items: dict[int, Committed] = {}  # by base offset
        self.fates: dict[
            int, bool | None
        ] = {}  # of batches with data: visible, by base offset; None while open
        self.aborted: list[tuple[int, int, int]] = []  # producer id, first offset, offset of the marker
        self.end_offset = 0

    @property
    def last_stable_offset(self) -> int:
        firsts = [producer.first_offset for producer in self.producers.values() if producer.open]
        return min(firsts, default=self.end_offset)

    def open_transactions(self) -> dict[int, list[Data]]:
        return {
            producer_id: producer.open for producer_id, producer in self.producers.items() if producer.open
        }

    def take(self, item: Committed) -> Data | Marker | None:
        """None where no transaction is concerned."""
        header = read_header(item.data)
        self.items[item.base_offset] = item
        self.end_offset = item.next_offset
        if header.producer_id < 0:
            if not header.is_control:
                self.fates[item.base_offset] = True
            return None
        producer = self.producers.setdefault(header.producer_id, Producer())
        if header.producer_epoch < producer.epoch:
            raise Violation(
                f"T3: {self.name} has epoch {header.producer_epoch} of producer {header.producer_id} at "
                f"{item.base_offset}, after epoch {producer.epoch}"
            )
        if header.is_control:
            return self._take_marker(producer, header, item)
        return self._take_data(producer, header, item)

    def _take_data(self, producer: Producer, header: BatchHeader, item: Committed) -> Data | None:
        producer.enter(header.producer_epoch)
        if header.base_sequence != NO_SEQUENCE:
            expected = producer.batches[-1][1] + 1 if producer.batches else 0
            if header.base_sequence != expected:
                raise Violation(
                    f"T1: {self.name} has sequence {header.base_sequence} of producer {header.producer_id} in epoch "
                    f"{header.producer_epoch} at {item.base_offset}, not {expected}"
                )
        last_sequence = NO_SEQUENCE if header.base_sequence == NO_SEQUENCE else header.last_sequence
        producer.batches.append((header.base_sequence, last_sequence, header.last_offset))
        del producer.batches[:-REMEMBERED]
        self.fates[item.base_offset] = None if header.is_transactional else True
        if not header.is_transactional:
            return None
        data = Data(header, item.data, not producer.open)
        producer.open.append(data)
        return data

    def _take_marker(self, producer: Producer, header: BatchHeader, item: Committed) -> Marker | None:
        (record,) = decode_batch(item.data, header)
        _, kind = CONTROL_KEY.unpack_from(record.key or b"")
        if kind not in (ABORT, COMMIT):
            return None
        is_commit = kind == COMMIT
        ended = None
        if producer.open:
            first_offset, epoch = producer.first_offset, producer.open[0].header.producer_epoch
            ended = Ended(
                header.producer_id, epoch, first_offset, header.base_offset, is_commit, producer.open
            )
            for data in producer.open:
                self.fates[data.header.base_offset] = is_commit
            if not is_commit:
                self.aborted.append((header.producer_id, first_offset, header.base_offset))
        producer.open = []
        producer.enter(header.producer_epoch)
        return Marker(header.producer_id, header.producer_epoch, header.base_offset, is_commit, ended)


def fold_log(name: str, log: Any) -> LogFold:
    """All that a replica has, committed or not."""
    fold = LogFold(name)
    for item in read_log(log, 0):
        fold.take(item)
    return fold


def check_state(fold: LogFold, log: Any) -> None:
    """T2, and what readers are told of aborted transactions: what a replica knows about producers is what its log
    says."""
    known = {
        producer_id: (
            producer.epoch,
            producer.transaction_first_offset,
            [(batch.first_sequence, batch.last_sequence, batch.last_offset) for batch in producer.batches],
        )
        for producer_id, producer in log.producers.by_id.items()
    }
    wanted = {
        producer_id: (producer.epoch, producer.first_offset, producer.batches)
        for producer_id, producer in fold.producers.items()
    }
    if known != wanted:
        raise Violation(f"T2: {fold.name}: its producers are {known}, and its log says {wanted}")
    aborted = [
        (each.producer_id, each.first_offset, each.last_offset)
        for each in log.aborted_transactions(log.log_start_offset, log.end_offset)
    ]
    if sorted(aborted) != sorted(fold.aborted):
        raise Violation(
            f"T5: {fold.name}: its index has {aborted} as aborted, and its log says {fold.aborted}"
        )
