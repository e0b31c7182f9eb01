"""Where a source's records come from: topics and files as streams or batches, tables as they are now.

Records of topics have the columns of `format("odradek")`; lines of files have `value` and `file`. Every stream has
its source's name, under which Spark keeps its offsets in the checkpoint.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from odradek.pipeline.decoding import row_schema
from odradek.pipeline.definition import FileSource, JdbcTable, Pipeline, Source, TopicSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Offsets = Mapping[str, Mapping[str, int]]  # as in checkpoints: {"topic": {"0": 23}}


def kafka_options(settings: Mapping[str, str]) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in settings.items()}


def topic_options(origin: TopicSource) -> dict[str, str]:
    options = kafka_options(origin.kafka)
    if origin.pattern:
        options["subscribePattern"] = origin.pattern
    else:
        options["subscribe"] = ",".join(origin.topics)
    options["failOnDataLoss"] = str(origin.fail_on_data_loss).lower()
    return options


def group_of(pipeline: Pipeline, query: str) -> str:
    """The group to which a query commits its offsets, so that any tool shows its lag."""
    return f"odradek-pipeline-{pipeline.name}-{query}"


def stream(
    spark: "SparkSession",
    pipeline: Pipeline,
    source: Source,
    query: str,
    *,
    headers: bool = False,
    named: bool = True,
) -> "DataFrame":
    origin = source.origin
    if isinstance(origin, JdbcTable):
        return table(spark, origin)
    if isinstance(origin, FileSource):
        return _file_stream(spark, pipeline, source, origin, named)
    options = topic_options(origin) | {"commitGroup": group_of(pipeline, query)}
    if origin.start.isdigit():
        options |= {"startingTimestamp": origin.start, "startingOffsetsByTimestampStrategy": "latest"}
    else:
        options["startingOffsets"] = origin.start
    if origin.max_rows_per_batch:
        options["maxOffsetsPerTrigger"] = str(origin.max_rows_per_batch)
    options["includeHeaders"] = str(headers or origin.headers).lower()
    reader = spark.readStream.format("odradek").options(**options)
    return (reader.name(source.name) if named else reader).load()


def _file_stream(
    spark: "SparkSession", pipeline: Pipeline, source: Source, origin: FileSource, named: bool
) -> "DataFrame":
    reader = spark.readStream.format("parquet" if source.format == "parquet" else "text")
    if named:
        reader = reader.name(source.name)
    if origin.max_files_per_batch:
        reader = reader.option("maxFilesPerTrigger", origin.max_files_per_batch)
    if source.format == "parquet":
        reader = reader.schema(row_schema(pipeline, source)).options(**source.options)
        return reader.load(pipeline.path(origin.path))
    return _lines(reader.load(pipeline.path(origin.path)), pipeline, source)


def batch(
    spark: "SparkSession",
    pipeline: Pipeline,
    source: Source,
    *,
    starting: Offsets | None = None,
    ending: Offsets | None = None,
) -> "DataFrame":
    """The same records as a batch: all of them, or those within offsets."""
    origin = source.origin
    if isinstance(origin, JdbcTable):
        return table(spark, origin)
    if isinstance(origin, FileSource):
        path = pipeline.path(origin.path)
        if source.format == "parquet":
            return spark.read.schema(row_schema(pipeline, source)).options(**source.options).parquet(path)
        return _lines(spark.read.format("text").load(path), pipeline, source)
    options = topic_options(origin) | {"includeHeaders": "true"}
    if starting is not None:
        options["startingOffsets"] = json.dumps(starting)
    if ending is not None:
        options["endingOffsets"] = json.dumps(ending)
        options.pop("subscribePattern", None)
        options.pop("subscribe", None)
        partitions = {topic: sorted(map(int, found)) for topic, found in ending.items()}
        options["assign"] = json.dumps(partitions)
    return spark.read.format("odradek").options(**options).load()


def _lines(text: "DataFrame", pipeline: Pipeline, source: Source) -> "DataFrame":
    lines = text.select(
        F.col("value").cast("binary").alias("value"), F.col("_metadata.file_path").alias("file")
    )
    if source.format == "text":
        return lines
    content = F.trim(F.regexp_replace(F.col("value").cast("string"), r"\r$", ""))
    lines = lines.where(content != "")  # a blank line is no record
    if source.format == "csv" and source.options.get("header") == "true":
        separator = source.options.get("sep", ",")
        header = separator.join(row_schema(pipeline, source).fieldNames())
        lines = lines.where(F.lower(content) != header.lower())
    return lines


def table(spark: "SparkSession", origin: JdbcTable) -> "DataFrame":
    options = jdbc_options(origin)
    options |= {"query": origin.query} if origin.query else {"dbtable": origin.table}
    return spark.read.format("jdbc").options(**options).load()


def jdbc_options(target: JdbcTable) -> dict[str, Any]:
    options: dict[str, Any] = {"url": target.url, **target.options}
    if target.driver:
        options["driver"] = target.driver
    return options
