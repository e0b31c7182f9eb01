"""A topic as a round needs it, on a cluster: what it has, and its ranges written to files, several partitions at once.

Only committed records are read, up to the last stable offset. A file ends early once it is large; the next round goes
on from there.
"""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa

from odradek.archive.describing import describe
from odradek.archive.layout import Range, file_name
from odradek.archive.location import Location
from odradek.archive.planning import Topic, cut
from odradek.archive.rows import FILE_BYTES, HEADERS, SCHEMA, FileWriter
from odradek.archiving.rounds import Part
from odradek.client.cluster import Cluster, borrow_cluster
from odradek.client.fetching import NO_EPOCH, Chunk, OffsetsGone, RangeReader, read_range
from odradek.client.settings import ClientSettings, FetchSettings
from odradek.model import TopicPartition

if TYPE_CHECKING:
    from odradek.spark.decoding import Decoder

FETCH = FetchSettings(read_committed=True)
RECORD_TIMEOUT_S = 120.0  # a stable offset that is not readable for that long is a fault
DECODED = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", HEADERS),
    ]
)


@contextmanager
def patient_cluster(
    settings: ClientSettings, stopping: threading.Event, *, was_reached: bool = True
) -> Iterator[Cluster]:
    """A cluster that is waited for while it is away, but not by a process that is to end."""
    with borrow_cluster(settings, was_reached=was_reached) as cluster:
        cluster.give_up_when(stopping.is_set)
        try:
            yield cluster
        finally:
            cluster.give_up_when(lambda: False)


class ClusterTopic:
    """`stopping` lets files end early, once it is set."""

    def __init__(
        self, settings: ClientSettings, topic: str, location: Location, stopping: threading.Event
    ) -> None:
        self._settings, self._topic, self._location, self._stopping = settings, topic, location, stopping
        self._was_reached = self._has_failed = False

    def _cluster(self, *, was_reached: bool = True) -> AbstractContextManager[Cluster]:
        return patient_cluster(self._settings, self._stopping, was_reached=was_reached)

    def describe(self) -> Topic:
        with self._cluster(was_reached=self._was_reached) as cluster:
            topic = describe(cluster, self._topic)
            self._was_reached = True
        return topic

    def topic_id(self) -> UUID:
        with self._cluster() as cluster:
            return cluster.topic_ids([self._topic])[self._topic]

    def write(self, ranges: Sequence[Range], epochs: Mapping[int, int]) -> list[Part]:
        if not ranges:
            return []
        workers = min(len(ranges), os.cpu_count() or 1)
        self._has_failed = False
        with ThreadPoolExecutor(workers, thread_name_prefix="archive") as pool:
            try:
                before = [epochs.get(one.partition, NO_EPOCH) for one in ranges]
                return list(pool.map(self._write, ranges, before))
            except BaseException:  # Ctrl-C, too: the other threads end their files early
                self._has_failed = True
                pool.shutdown(cancel_futures=True)
                raise

    def _write(self, wanted: Range, epoch: int) -> Part:
        writer = FileWriter(self._location, file_name(wanted))
        reached = wanted.start
        try:
            with self._cluster() as cluster:
                for chunk, batches in self._read(cluster, wanted, epoch):
                    for batch in batches:
                        writer.append(batch)
                    reached, epoch = min(chunk.next_offset, wanted.end), chunk.epoch
                    if writer.size >= FILE_BYTES or self._has_failed or self._stopping.is_set():
                        break
            done = wanted._replace(end=reached)
            if writer.rows:
                return Part(done, writer.finish(done), epoch)
        except BaseException:
            writer.discard()
            raise
        writer.discard()
        return Part(done, None, epoch)

    def _read(
        self, cluster: Cluster, wanted: Range, epoch: int
    ) -> Iterator[tuple[Chunk, Iterator[pa.RecordBatch]]]:
        """Chunks with their rows. It ends early where records have been deleted meanwhile: the next round's plan then
        says what is lost."""
        partition = TopicPartition(self._topic, wanted.partition)
        reader = RangeReader(
            cluster, partition, wanted.start, wanted.end, FETCH, RECORD_TIMEOUT_S, last_epoch=epoch
        )
        decoder = record_decoder(partition)
        try:
            with closing(read_range(reader)) as chunks:
                for chunk in chunks:
                    rows = decoder.decode(chunk, wanted.start, wanted.end)
                    yield chunk, (_columns(one) for one in rows)
        except OffsetsGone as gone:
            if gone.offset > gone.latest:
                raise cut(self._topic, wanted.partition, gone.latest, gone.offset) from None


@cache
def _kernels() -> None:
    from odradek.spark.kernels import ready

    ready("reading")


def record_decoder(partition: TopicPartition) -> "Decoder":
    """Return a decoder from chunks of a partition to Arrow batches with the columns of `DECODED`."""
    from odradek.spark.decoding import Decoder  # imports numba, which takes a moment

    _kernels()
    return Decoder(partition, DECODED)


def _columns(batch: pa.RecordBatch) -> Any:
    return batch.select(SCHEMA.names)
