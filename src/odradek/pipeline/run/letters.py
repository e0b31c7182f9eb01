"""The dead letter of a record that a query failed on."""

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from odradek.pipeline.check.weaving import BatchReader
from odradek.pipeline.file.definition import Pipeline
from odradek.pipeline.kinds.dead_letters import record_letters
from odradek.pipeline.kinds.topic_sink import SINK_MARK
from odradek.pipeline.run.isolation import BadRecord

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def stage_of(record: BadRecord) -> str:
    return "sink" if SINK_MARK in record.reason else "transform"


def letter_of(spark: "SparkSession", pipeline: Pipeline, name: str, record: BadRecord) -> DataFrame:
    """One letter, with the record as it is in its topic; `name` is that of the sink or the stage."""
    partition = {record.topic: {str(record.partition): record.offset}}
    end = {record.topic: {str(record.partition): record.offset + 1}}
    source = pipeline.sources[record.source]
    reader = BatchReader(spark.newSession(), pipeline, {source.name: partition}, {source.name: end})
    reason = record.reason.replace(SINK_MARK, "sink ")
    return record_letters(reader.records(source), pipeline, stage_of(record), name, F.lit(reason))
