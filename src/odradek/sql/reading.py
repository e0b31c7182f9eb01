"""The committed records of a topic's partitions as an Arrow table, with the columns of an archive."""

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pyarrow as pa

from odradek.archive.describing import describe
from odradek.archive.layout import Range
from odradek.archive.planning import Topic
from odradek.archive.rows import HEADERS
from odradek.client.cluster import EARLIEST, LATEST, NO_OFFSET, borrow_cluster
from odradek.client.fetching import OffsetsGone, RangeReader, read_range
from odradek.client.settings import ClientSettings, FetchSettings
from odradek.model import TopicPartition
from odradek.records.record import Record, decode_batch

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("headers", HEADERS),
    ]
)
FETCH = FetchSettings(read_committed=True)
SMALL = 20_000  # records up to which plain Python is faster than importing numba
RECORD_TIMEOUT_S = 60.0
MOST_MS = (2**63 - 1) // 1000


class TopicReader:
    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings

    def topics(self) -> list[str]:
        with borrow_cluster(self._settings) as cluster:
            return cluster.topic_names()

    def ranges(self, topic: str, begun: Mapping[int, int], from_ms: int | None) -> list[Range]:
        """Return what there is of each partition now, from where an archive ends, and from a time on."""
        with borrow_cluster(self._settings) as cluster:
            partitions = cluster.partitions_of([topic])
            ends = cluster.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=True)
            starts = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
            since = {} if from_ms is None else cluster.list_offsets(dict.fromkeys(partitions, from_ms))
        ranges = []
        for one in partitions:
            first = max(begun.get(one.partition, 0), starts[one])
            if one in since:
                first = ends[one] if since[one] == NO_OFFSET else max(first, since[one])
            ranges.append(Range(one.partition, first, max(first, ends[one])))
        return [one for one in ranges if one.end > one.start]

    def describe(self, topic: str) -> Topic:
        with borrow_cluster(self._settings) as cluster:
            return describe(cluster, topic)

    def read(self, topic: str, ranges: list[Range]) -> pa.Table:
        is_small = sum(one.end - one.start for one in ranges) <= SMALL
        read = self._read_plainly if is_small else self._read_compiled
        if not ranges:
            return SCHEMA.empty_table()
        with ThreadPoolExecutor(min(len(ranges), os.cpu_count() or 1)) as pool:
            parts = list(pool.map(lambda one: list(read(topic, one)), ranges))
        return pa.Table.from_batches([batch for part in parts for batch in part], SCHEMA)

    def _chunks(self, topic: str, wanted: Range) -> Iterator[Any]:
        with borrow_cluster(self._settings, was_reached=True) as cluster:
            partition = TopicPartition(topic, wanted.partition)
            reader = RangeReader(cluster, partition, wanted.start, wanted.end, FETCH, RECORD_TIMEOUT_S)
            try:
                with closing(read_range(reader)) as chunks:
                    yield from chunks
            except OffsetsGone:  # deleted while we read, as if we had come later
                return

    def _read_compiled(self, topic: str, wanted: Range) -> Iterator[pa.RecordBatch]:
        from odradek.archiving.topics import record_decoder

        decoder = record_decoder(TopicPartition(topic, wanted.partition))
        for chunk in self._chunks(topic, wanted):
            for batch in decoder.decode(chunk, wanted.start, wanted.end):
                yield batch.select(SCHEMA.names)

    def _read_plainly(self, topic: str, wanted: Range) -> Iterator[pa.RecordBatch]:
        for chunk in self._chunks(topic, wanted):
            records = [
                record
                for batch in chunk.batches
                for record in decode_batch(batch.data, batch.header)
                if wanted.start <= record.offset < wanted.end
            ]
            if records:
                yield _batch(records, wanted.partition)


def _batch(records: list[Record], partition: int) -> pa.RecordBatch:
    columns = [
        pa.array([one.key for one in records], pa.binary()),
        pa.array([one.value for one in records], pa.binary()),
        pa.array([partition] * len(records), pa.int32()),
        pa.array([one.offset for one in records], pa.int64()),
        pa.array([_microseconds(one) for one in records], pa.int64()).cast(SCHEMA.field("timestamp").type),
        pa.array([_headers(one.headers) for one in records], HEADERS),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _microseconds(record: Record) -> int:
    """As the kernel has them, which knows no times beyond what a number of microseconds can be."""
    return max(-MOST_MS, min(record.timestamp, MOST_MS)) * 1000


def _headers(headers: Sequence[tuple[bytes, bytes | None]]) -> list[dict[str, Any]] | None:
    """Return the headers as the kernel does."""
    return [{"key": key.decode(errors="replace"), "value": value} for key, value in headers] or None
