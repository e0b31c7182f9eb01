"""The work of a task of the source: the rows of one range of offsets, as Arrow."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from odradek.client.cluster import MissingTopic, borrow_cluster
from odradek.spark.history import ArchivePartition
from odradek.spark.kernels import ready
from odradek.spark.offsets import OffsetRange
from odradek.spark.options import SourceOptions
from odradek.spark.planning import report_loss
from odradek.spark.worker import spare_what_stays

if TYPE_CHECKING:
    from odradek.client.fetching import OffsetsGone
    from odradek.spark.typed.decoders import ValueDecoder

TOPIC_DELETED = "It was deleted after this batch was planned."


@dataclass
class RangePartition(InputPartition):
    """The work of one task. Spark makes a plain InputPartition if a batch has no partitions."""

    range: OffsetRange


def read_rows(
    partition: InputPartition, options: SourceOptions, schema: StructType
) -> Iterator[pa.RecordBatch]:
    if isinstance(partition, ArchivePartition):
        yield from _archived_rows(partition, options, schema)
        return
    if not isinstance(partition, RangePartition):
        return
    from odradek.client.fetching import OffsetsGone, RangeReader, read_range
    from odradek.spark.decoding import Decoder  # imports numba, which only workers need

    ready("reading")
    wanted = partition.range
    decoder = Decoder(wanted.partition, to_arrow_schema(schema, timezone="UTC"), _typed(options, schema))
    outage_ms = options.outage_in_task_ms
    with borrow_cluster(options.properties.client, was_reached=True) as cluster:
        reader = RangeReader(
            cluster,
            wanted.partition,
            wanted.start,
            wanted.end,
            options.properties.fetch,
            options.poll_timeout_ms / 1000,
            None if outage_ms is None else outage_ms / 1000,
        )
        start = wanted.start
        while reader.position < wanted.end:
            try:
                with closing(read_range(reader)) as chunks:
                    for chunk in chunks:
                        yield from decoder.decode(chunk, start, wanted.end)
            except OffsetsGone as gone:
                start = reader.position = _after_loss(gone, wanted.end, options)
            except MissingTopic:
                lost = f"offsets {reader.position} to {wanted.end - 1} of {wanted.partition} cannot be read"
                report_loss(options, f"{lost}: the topic no longer exists", TOPIC_DELETED)
                break
    spare_what_stays()


def _archived_rows(
    wanted: ArchivePartition, options: SourceOptions, schema: StructType
) -> Iterator[pa.RecordBatch]:
    from odradek.archive.rows import read_files
    from odradek.spark.decoding import ArchiveDecoder

    decoder = ArchiveDecoder(wanted.topic, to_arrow_schema(schema, timezone="UTC"), _typed(options, schema))
    for batch in read_files(wanted.location, [wanted.path], wanted.range):
        yield decoder.decode(batch)
    spare_what_stays()


def _typed(options: SourceOptions, schema: StructType) -> "ValueDecoder | None":
    if not options.values.is_typed:
        return None
    from odradek.spark.typed.decoders import value_decoder

    ready(options.values.form)
    return value_decoder(options.values, schema["value"].dataType)


def _after_loss(gone: "OffsetsGone", end: int, options: SourceOptions) -> int:
    """Return where to continue, if at all."""
    if gone.offset < gone.earliest:
        next_offset = min(gone.earliest, end)
        lost = f"offsets {gone.offset} to {next_offset - 1} of {gone.partition} are gone"
        report_loss(options, f"{lost}: it starts at {gone.earliest} now")
        return next_offset
    lost = f"offsets {gone.offset} to {end - 1} of {gone.partition} are not there"
    report_loss(options, f"{lost}: it ends at {gone.latest}")
    return end
