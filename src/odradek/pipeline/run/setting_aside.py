"""Makes dead letters of the records that a query fails on, and tells the query to skip them.

A record that a transform fails on makes every query fail that reads the transform: those of sinks, and the one that
writes the rows which the transform rejects. Each of them has to skip it. A sink writes a dead letter of its own; the
query of rejected rows shares one with the sinks.
"""

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from odradek.pipeline.checkpoint import Checkpoint
from odradek.pipeline.file.definition import Pipeline
from odradek.pipeline.kinds.dead_letters import write_letters
from odradek.pipeline.kinds.topic_sink import SINK_MARK
from odradek.pipeline.run.failures import Kind, classify
from odradek.pipeline.run.isolation import BadRecord, batch_in_flight, isolate
from odradek.pipeline.run.letters import letter_of, stage_of
from odradek.pipeline.run.outputs import QueryId
from odradek.pipeline.run.queries import Query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def records_that_fail(query: Query) -> dict[QueryId, list[BadRecord]]:
    """Return the records of the batch in flight that fail, by output. Raises `TooMany`, or a `PySparkException` that
    is not about data.
    """
    identity = query.identity
    batch = batch_in_flight(query.pipeline, query.checkpoint, identity.kind, identity.name)
    found = {}
    with query.held_batch(batch) as build:
        for output in query.unwritten:
            if failing := isolate(batch, partial(build, output), failure_of):
                found[output.identity] = failing
    return found


def failure_of(frame: DataFrame) -> str | None:
    """Run a batch without writing; returns why it fails, or None. Raises errors that are not about data."""
    try:
        frame.write.format("noop").mode("overwrite").save()
    except PySparkException as error:
        failure = classify(error)
        if failure.kind is not Kind.DATA:
            raise
        return failure.reason
    return None


def set_aside(spark: "SparkSession", query: Query, identity: QueryId, found: list[BadRecord]) -> None:
    """Each record is skipped only after its dead letter is written, where a crash may repeat one and loses none; or is
    noted, to be written in the transaction of the batch."""
    checkpoint = query.checkpoint
    progress = checkpoint.progress(query.identity.kind, query.identity.name)
    for record in found:
        if not has_letter(checkpoint, identity, record):
            if query.letters_in_transaction and progress is not None:
                checkpoint.add_pending(identity.kind, identity.name, progress.batch, asdict(record))
            else:
                _write_letter(spark, query.pipeline, identity, record)
        where = (record.source, record.topic, record.partition, record.offset)
        checkpoint.skip(identity.kind, identity.name, *where)


def has_letter(checkpoint: Checkpoint, identity: QueryId, record: BadRecord) -> bool:
    """True if a query that shares its dead letters with this one has set the record aside."""
    if SINK_MARK in record.reason:
        return False
    others = [
        skipped
        for kind, name, skipped in checkpoint.all_skipped()
        if (kind, name) != (identity.kind, identity.name) and not kind == identity.kind == "sink"
    ]
    places = (
        one.get(record.source, {}).get(record.topic, {}).get(str(record.partition), []) for one in others
    )
    return any(record.offset in offsets for offsets in places)


def _write_letter(spark: "SparkSession", pipeline: Pipeline, identity: QueryId, record: BadRecord) -> None:
    place = f"{stage_of(record)}.{identity.name}/{record.topic}-{record.partition}-{record.offset}"
    write_letters(letter_of(spark, pipeline, identity.name, record), pipeline, place)
