"""Stored records into a topic: in order, each record exactly once for readers of committed data.

A transaction is some records and a record in the ledger (`odradek.ledger`), whose number is the position to go on
from. Whoever runs the same replay again asks the ledger, and a replay that runs twice at once is fenced. Keys, values,
headers and timestamps are those that are stored; offsets are the target's own. `replay_sources` says where records are.
"""

import logging
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

import pyarrow as pa

from odradek.archive.failures import ArchiveError, Final
from odradek.client.cluster import Cluster, MissingTopic
from odradek.client.deadline import TimedOut
from odradek.client.settings import ProduceSettings
from odradek.client.transactions import ProducerFenced, TransactionalProducer, TransactionGone
from odradek.ledger.record import Entry
from odradek.ledger.topic import TRANSACTIONAL_ID, Ledger

if TYPE_CHECKING:
    from odradek.spark.encoding import Encoder

CHUNK_ROWS = 65_536  # of a transaction: as many as pyarrow reads of a file at once
CHUNK_BYTES = 16 * 1024 * 1024
TIMEOUT_MS = 120_000
MOST_LOSSES = 3  # of transactions, one after the other
FINGERPRINT = "replay"

log = logging.getLogger("odradek.archiving")


class AnotherReplay(Final):
    """The same replay runs in another process."""


@dataclass(frozen=True, slots=True)
class Part:
    """Records that are replayed in order, under a name of their own in the ledger. Positions are whole numbers."""

    sink: str
    title: str
    start: int
    end: int
    read: Callable[[int], Iterator[pa.RecordBatch]]  # the records from a position on
    after: Callable[[int, pa.Table], int]  # the position behind some records that begin at a position


class Source(Protocol):
    """A place to read records from. `partitions`: how many the target must have at least."""

    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> int: ...

    @property
    def topic_id(self) -> UUID | None:
        """The id of the topic that the records came from."""

    def parts(self, target_id: UUID) -> list[Part]: ...


@dataclass(frozen=True, slots=True)
class Progress:
    """After a transaction: up to which position a part is replayed."""

    title: str
    position: int
    end: int
    rows: int


class Replay:
    """`report` hears of each transaction."""

    def __init__(
        self,
        cluster: Cluster,
        source: Source,
        target: str,
        report: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        self._cluster, self._source, self._target, self._report = cluster, source, target, report
        self._ledger = Ledger(cluster)
        self._target_id, count = self._check_target()
        self._encoder = _encoder(target, count)

    def _check_target(self) -> tuple[UUID, int]:
        name, wanted = self._target, self._source.partitions
        try:
            target_id = self._cluster.topic_ids([name])[name]
            count = len(self._cluster.partitions_of([name]))
        except MissingTopic:
            raise Final(
                f"topic {name} does not exist: create it with 'odradek topic create {name} --partitions {wanted} "
                "--config retention.ms=-1'"
            ) from None
        if count < wanted:
            raise Final(
                f"topic {name} has {count} partitions, the archive {wanted}, and records stay in theirs: "
                f"'odradek topic alter {name} --partitions {wanted}' adds some"
            )
        if target_id == self._source.topic_id:
            raise Final(
                f"the archive is of topic {name} itself, where these records would be a second time: replay into "
                "another topic with --to"
            )
        return target_id, count

    def run(self) -> int:
        """Replay what is left; returns how many records this run has written."""
        return sum(self._replay(part) for part in self._source.parts(self._target_id))

    def _replay(self, part: Part) -> int:
        """One part. A lost transaction is looked up in the ledger and tried again."""
        settings = ProduceSettings()
        producer = TransactionalProducer(self._cluster, TRANSACTIONAL_ID + part.sink, settings, TIMEOUT_MS)
        rows = losses = 0
        while True:
            try:
                for done in self._attempt(producer, part):
                    rows, losses = rows + done.rows, 0
                    self._report(done)
                return rows
            except ProducerFenced as error:
                if producer.open_ms < producer.timeout_ms:
                    raise AnotherReplay(
                        f"another process replays {self._source.name} into {self._target}: this one stops, and has "
                        "doubled nothing. Run only one"
                    ) from None
                losses = _counted(losses, error)
            except TransactionGone as error:
                losses = _counted(losses, error)

    def _attempt(self, producer: TransactionalProducer, part: Part) -> Iterator[Progress]:
        self._ledger.ensure()
        producer.initialize()
        entry = self._ledger.read(part.sink)
        position = part.start if entry is None else entry.batch
        for chunk, is_last in _with_last(_chunks(part.read(position))):
            position = part.end if is_last else part.after(position, chunk)
            try:
                self._write(producer, part.sink, chunk, position)
            except (ProducerFenced, TransactionGone, TimedOut):
                raise  # a coordinator that is away aborts it by itself, when its time is over
            except BaseException:  # Ctrl-C, too: readers must not wait for what is never committed
                producer.initialize()
                raise
            yield Progress(part.title, position, part.end, chunk.num_rows)

    def _write(self, producer: TransactionalProducer, sink: str, chunk: pa.Table, position: int) -> None:
        now_ms = int(time.time() * 1000)
        records = list(self._encoder.encode(chunk, now_ms))
        producer.add([*(one.partition for one in records), self._ledger.partition_of(sink)])
        producer.send(records)
        name = f"{self._source.name} into {self._target}"
        entry = Entry(position, FINGERPRINT, chunk.num_rows, 0, now_ms, name, (self._target,))
        producer.send([self._ledger.encoded(sink, entry, now_ms)])
        if self._cluster.topic_ids([self._target])[self._target] != self._target_id:
            raise ArchiveError(
                f"topic {self._target} was deleted and created again meanwhile: run the replay again"
            )
        producer.commit()


def _counted(losses: int, error: Exception) -> int:
    if losses + 1 >= MOST_LOSSES:
        raise ArchiveError(
            f"a transaction was lost {MOST_LOSSES} times: {error}. Run the replay again"
        ) from error
    log.warning("%s. Asking the ledger, and trying again", error)
    return losses + 1


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Tables of a transaction's size."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for piece in _pieces(batch):
            if waiting and (rows + piece.num_rows > CHUNK_ROWS or size + piece.nbytes > CHUNK_BYTES):
                yield pa.Table.from_batches(waiting)
                waiting, rows, size = [], 0, 0
            waiting.append(piece)
            rows, size = rows + piece.num_rows, size + piece.nbytes
    if waiting:
        yield pa.Table.from_batches(waiting)


def _with_last(chunks: Iterator[pa.Table]) -> Iterator[tuple[pa.Table, bool]]:
    """Each with True for the last: what follows it, up to the end, are markers and the like."""
    before = next(chunks, None)
    for chunk in chunks:
        assert before is not None
        yield before, False
        before = chunk
    if before is not None:
        yield before, True


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    most = max(1, min(CHUNK_ROWS, batch.num_rows * CHUNK_BYTES // max(batch.nbytes, 1)))
    for start in range(0, batch.num_rows, most):
        yield batch.slice(start, most)


def _encoder(target: str, count: int) -> "Encoder":
    from odradek.spark.encoding import Encoder
    from odradek.spark.kernels import ready

    ready("writing")
    return Encoder(target, ProduceSettings().batch_bytes, lambda _: count, random.Random(0))
