"""Records of topics read and written without Spark, for the few that a command handles."""

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from odradek.client.cluster import borrow_cluster
from odradek.client.fetching import OffsetsGone, RangeReader, read_range
from odradek.client.properties import parse_properties
from odradek.model import TopicPartition
from odradek.pipeline.file.definition import Pipeline
from odradek.pipeline.file.document import Key
from odradek.pipeline.kinds.topics import Offsets, client_settings, kafka_options, topics_of
from odradek.records.record import Record, decode_batch

READ_TIMEOUT_S = 30.0
ROUND = 1000  # records that are sent together
RECORDS = pa.schema(
    {
        "topic": pa.string(),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
        "timestamp": pa.timestamp("us", "UTC"),
    }
)


def read_records(
    pipeline: Pipeline, kafka: Mapping[str, str], key: Key, starting: Offsets, ending: Offsets
) -> Iterator[tuple[TopicPartition, Record]]:
    """All committed records between offsets; those that retention deletes meanwhile are left out."""
    with topics_of(pipeline, kafka, key), borrow_cluster(client_settings(kafka)) as cluster:
        for topic, ends in ending.items():
            for number, end in ends.items():
                place = TopicPartition(topic, int(number))
                start = starting[topic][number]
                settings = replace(parse_properties(kafka).fetch, read_committed=True)
                reader = RangeReader(cluster, place, start, end, settings, READ_TIMEOUT_S)
                for record in _read(reader):
                    yield place, record


def _read(reader: RangeReader) -> Iterator[Record]:
    start, end = reader.position, reader.end
    while reader.position < end:
        try:
            with contextlib.closing(read_range(reader)) as chunks:
                for chunk in chunks:
                    for batch in chunk.batches:
                        for record in decode_batch(batch.data, batch.header):
                            if start <= record.offset < end:
                                yield record
        except OffsetsGone as gone:
            start = reader.position = min(max(gone.earliest, reader.position + 1), end)


def send_records(
    pipeline: Pipeline, kafka: Mapping[str, str], key: Key, rows: Iterator[dict[str, Any]]
) -> None:
    """Send rows with the columns of `RECORDS`, to the partitions that any producer would choose for their keys."""
    first = next(rows, None)
    if first is None:
        return
    from odradek.spark.options import parse_sink_options
    from odradek.spark.writing import Sender

    with topics_of(pipeline, kafka, key), borrow_cluster(client_settings(kafka)) as cluster:
        sender = Sender(cluster, parse_sink_options(kafka_options(kafka)))
        held: list[dict[str, Any]] = []
        for row in itertools.chain([first], rows):
            held.append(row)
            if len(held) == ROUND:
                sender(pa.Table.from_pylist(held, RECORDS))
                held = []
        if held:
            sender(pa.Table.from_pylist(held, RECORDS))
        sender.close()
