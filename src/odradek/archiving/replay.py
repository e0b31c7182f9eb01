"""From an archive into a topic: by partition, in order, each record exactly once for readers of committed data.

A transaction is some records and a record in the ledger (`odradek.ledger`), whose number is the source offset to go on
from. Whoever runs the same replay again asks the ledger, and a replay that runs twice at once is fenced. Keys, values,
headers and timestamps are those of the archive; offsets are the target's own.
"""

import logging
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

import pyarrow as pa

from odradek.archive.failures import ArchiveError, Final
from odradek.archive.layout import ArchivedFile, Range, Snapshot
from odradek.archive.rows import read_range
from odradek.archive.tables import Table
from odradek.client.cluster import Cluster, MissingTopic
from odradek.client.settings import ProduceSettings
from odradek.client.transactions import ProducerFenced, TransactionalProducer, TransactionGone
from odradek.ledger.record import Entry
from odradek.ledger.topic import TRANSACTIONAL_ID, Ledger
from odradek.model import TopicPartition

if TYPE_CHECKING:
    from odradek.spark.encoding import Encoder

CHUNK_ROWS = 50_000  # of a transaction
CHUNK_BYTES = 16 * 1024 * 1024
TIMEOUT_MS = 120_000
MOST_LOSSES = 3  # of transactions, one after the other
FINGERPRINT = "replay"

log = logging.getLogger("odradek.archiving")


class AnotherReplay(Final):
    """The same replay runs in another process."""


@dataclass(frozen=True, slots=True)
class Progress:
    """After a transaction: up to which source offset a partition is replayed."""

    partition: int
    position: int
    end: int
    rows: int


def sink_of(topic_id: UUID, target_id: UUID, partition: int) -> str:
    """Under which name the ledger keeps a partition's position. A topic that is created again begins again."""
    return f"replay-{topic_id.hex[:12]}-{target_id.hex[:12]}-{partition}"


class Replay:
    """`report` hears of each transaction."""

    def __init__(
        self, cluster: Cluster, table: Table, target: str, report: Callable[[Progress], None] = lambda _: None
    ) -> None:
        self._cluster, self._table, self._target, self._report = cluster, table, target, report
        self._snapshot = table.snapshot()
        self._ledger = Ledger(cluster)
        self._target_id, count = self._check_target()
        self._encoder = _encoder(target, count)

    @property
    def snapshot(self) -> Snapshot:
        return self._snapshot

    def _check_target(self) -> tuple[UUID, int]:
        name, wanted = self._target, len(self._snapshot.ends)
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
        if target_id == self._snapshot.topic_id:
            raise Final(
                f"the archive is of topic {name} itself, where these records would be a second time: replay into "
                "another topic with --to"
            )
        return target_id, count

    def run(self) -> int:
        """Replay what is left; returns how many records this run has written."""
        return sum(self._replay(number) for number in sorted(self._snapshot.ends))

    def _replay(self, partition: int) -> int:
        """One partition. A lost transaction is looked up in the ledger and tried again."""
        sink = sink_of(self._snapshot.topic_id, self._target_id, partition)
        producer = TransactionalProducer(
            self._cluster, TRANSACTIONAL_ID + sink, ProduceSettings(), TIMEOUT_MS
        )
        rows = losses = 0
        while True:
            try:
                for done in self._attempt(producer, sink, partition):
                    rows, losses = rows + done.rows, 0
                    self._report(done)
                return rows
            except ProducerFenced as error:
                if producer.open_ms < producer.timeout_ms:
                    raise AnotherReplay(
                        f"another process replays {self._snapshot.topic} into {self._target}: this one stops, and has "
                        "doubled nothing. Run only one"
                    ) from None
                losses = _counted(losses, error)
            except TransactionGone as error:
                losses = _counted(losses, error)

    def _attempt(self, producer: TransactionalProducer, sink: str, partition: int) -> Iterator[Progress]:
        self._ledger.ensure()
        producer.initialize()
        entry = self._ledger.read(sink)
        end = self._snapshot.ends[partition]
        position = self._snapshot.start_of(partition) if entry is None else entry.batch
        rows = read_range(self._table.location, self._snapshot, Range(partition, position, end))
        for chunk in _chunks(rows):
            position = chunk.column("offset")[chunk.num_rows - 1].as_py() + 1
            try:
                self._write(producer, sink, partition, chunk, position)
            except (ProducerFenced, TransactionGone):
                raise
            except Exception:
                producer.initialize()  # readers must not wait for what is never committed
                raise
            yield Progress(partition, position, end, chunk.num_rows)

    def _write(
        self, producer: TransactionalProducer, sink: str, partition: int, chunk: pa.Table, position: int
    ) -> None:
        now_ms = int(time.time() * 1000)
        producer.add([TopicPartition(self._target, partition), self._ledger.partition_of(sink)])
        producer.send(list(self._encoder.encode(chunk, now_ms)))
        name = f"{self._snapshot.topic} into {self._target}"
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


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    most = max(1, min(CHUNK_ROWS, batch.num_rows * CHUNK_BYTES // max(batch.nbytes, 1)))
    for start in range(0, batch.num_rows, most):
        yield batch.slice(start, most)


def _encoder(target: str, count: int) -> "Encoder":
    from odradek.spark.encoding import Encoder
    from odradek.spark.kernels import ready

    ready("writing")
    return Encoder(target, ProduceSettings().batch_bytes, lambda _: count, random.Random(0))


def retention_warning(
    files: tuple[ArchivedFile, ...], target: str, retention_ms: int | None, now_ms: int
) -> str | None:
    """A sentence where the target would delete records as soon as they are replayed."""
    if retention_ms is None:
        return None
    oldest_kept_ms = now_ms - retention_ms
    rows = sum(one.rows for one in files if (one.max_timestamp_ms or 0) < oldest_kept_ms)
    if not rows:
        return None
    return (
        f"topic {target} deletes records after {retention_ms} ms, and {rows} of the archive's records or more are "
        f"older: it would delete them at once. 'odradek config alter topic {target} --set retention.ms=-1' keeps them"
    )
