"""`run --dry-run`: the first records of every source, through every stage, and nothing written anywhere."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from odradek.pipeline.dead_letters import rejected_in_batch
from odradek.pipeline.definition import Pipeline, TopicSource
from odradek.pipeline.sinks import as_table, destination, project
from odradek.pipeline.topics import Offsets, topics_of
from odradek.pipeline.transforms import plain
from odradek.pipeline.weaving import BatchReader, Weaver

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
    for sink in pipeline.sinks.values():
        frame = project(pipeline, sink, woven.rows[sink.input])
        yield f"sink {sink.name}, to {destination(sink)} (nothing is written)\n{_table(frame, rows)}"
    if pipeline.dead_letters is not None:
        letters = rejected_in_batch(pipeline, woven)
        columns = [name for name in SHOWN_OF_LETTERS if name in letters.columns]
        yield f"dead letters\n{_table(letters.select(*columns), rows)}"


def _limits(pipeline: Pipeline, records: int) -> tuple[dict[str, Offsets], dict[str, Offsets]]:
    starting: dict[str, Offsets] = {}
    ending: dict[str, Offsets] = {}
    for source in pipeline.sources.values():
        origin = source.origin
        if not isinstance(origin, TopicSource):
            continue
        with topics_of(pipeline, origin.kafka, source.key) as topics:
            names = topics.subscribed(origin)
            first, last = topics.earliest(names), topics.latest(names)
        starting[source.name] = first
        ending[source.name] = {
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
