"""`run --dry-run`: the first records of every source, through every stage, and nothing written anywhere."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from odradek.pipeline.check.weaving import BatchReader, Weaver, rejected_in_batch
from odradek.pipeline.file.definition import Pipeline
from odradek.pipeline.kinds.console_sink import as_table
from odradek.pipeline.kinds.registry import sink_kinds, source_kinds
from odradek.pipeline.kinds.sink import without_metadata
from odradek.pipeline.kinds.topics import Offsets, topics_of
from odradek.pipeline.rows.transforms import plain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHOWN_OF_LETTERS = ("stage", "name", "reason", "topic", "partition", "offset", "value")
RECORDS_PER_ROW = 50  # a stage may need many records for one row


def preview(spark: "SparkSession", pipeline: Pipeline, rows: int) -> Iterator[str]:
    """A table for each stage, with its name."""
    session = spark.newSession()
    starting, ending = _limits(pipeline, rows * RECORDS_PER_ROW)
    woven = Weaver(session, pipeline, BatchReader(session, pipeline, starting, ending)).weave()
    for name, frame in woven.rows.items():
        kind = "source" if name in pipeline.sources else "transform"
        yield f"{kind} {name}\n{_table(frame, rows)}"
    for sink in sink_kinds(pipeline).values():
        frame = without_metadata(sink.plan(woven.rows[sink.sink.input]))
        yield f"sink {sink.sink.name}, to {sink.destination} (nothing is written)\n{_table(frame, rows)}"
    if pipeline.dead_letters is not None:
        letters = rejected_in_batch(pipeline, woven)
        columns = [name for name in SHOWN_OF_LETTERS if name in letters.columns]
        yield f"dead letters\n{_table(letters.select(*columns), rows)}"


def _limits(pipeline: Pipeline, records: int) -> tuple[dict[str, Offsets], dict[str, Offsets]]:
    starting: dict[str, Offsets] = {}
    ending: dict[str, Offsets] = {}
    for name, kind in source_kinds(pipeline).items():
        origin = kind.subscription
        if origin is None:
            continue
        with topics_of(pipeline, origin.kafka, kind.source.key) as topics:
            names = topics.subscribed(origin)
            first, last = topics.earliest(names), topics.latest(names)
        starting[name] = first
        ending[name] = {
            topic: {one: min(end, first[topic][one] + records) for one, end in partitions.items()}
            for topic, partitions in last.items()
        }
    return starting, ending


def _table(frame: "DataFrame", rows: int) -> str:
    try:
        found = frame.limit(rows).collect()
    except PySparkException as error:
        return f"(failed: {plain(error)})"
    return as_table(frame.columns, found) if found else "(no rows)"
