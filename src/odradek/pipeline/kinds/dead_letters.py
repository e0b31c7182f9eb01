"""Records and rows that could not be processed, with all that is known about them.

A dead letter has the record's own bytes, key, headers and time, and says in headers (`odradek.…`) which pipeline
rejected it, at which stage, where it came from and why. A row whose record is no longer known is kept as JSON instead
(`odradek.content` is then `row`). A dead letter that is larger than its topic allows has only the beginning of its
value (`cut`): bad records must not stop good ones. In files a dead letter is a line of JSON with the same facts; bytes
are base64.

    decode     the record does not follow the source's format or schema
    transform  the row does not meet a requirement, or the query failed on the record
    sink       the sink refuses the row
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from odradek.admin.dead_letters import FACTS, PREFIX
from odradek.pipeline.file.definition import Pipeline, Source, TopicDeclaration
from odradek.pipeline.file.errors import PipelineError
from odradek.pipeline.kinds.source import SourceKind
from odradek.pipeline.kinds.topics import DEFAULT_MESSAGE_BYTES, kafka_options, topics_of
from odradek.pipeline.rows.decoding import METADATA_COLUMNS, REJECTED, reason_column
from odradek.pipeline.rows.expectations import ADDED, REASON
from odradek.spark.exactly_once import Part
from odradek.spark.options import parse_sink_options

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

HEADER_TYPE = "array<struct<key: string, value: binary>>"
LETTER_COLUMNS = (*FACTS, "key", "value", "headers", "recordTime")
REASON_CHARACTERS = 1000  # Spark's own may contain the whole value
FACTS_BYTES = 8000  # of the headers that we add, generously
ORIGIN_COLUMNS = ("_topic", "_partition", "_offset")


def _letters(frame: DataFrame, pipeline: Pipeline, facts: dict[str, Column]) -> DataFrame:
    """Columns in one order, whatever is known."""
    fixed = {"pipeline": F.lit(pipeline.name), "version": F.lit(pipeline.version)}
    known = fixed | facts | {"reason": F.substring(facts["reason"], 1, REASON_CHARACTERS)}
    missing = {"key": "binary", "headers": HEADER_TYPE, "recordTime": "timestamp", "file": "string"}
    missing |= {"topic": "string", "partition": "int", "offset": "bigint", "timestamp": "bigint"}
    columns = [
        known[name].alias(name) if name in known else F.lit(None).cast(missing[name]).alias(name)
        for name in LETTER_COLUMNS
    ]
    return frame.select(*columns)


def record_letters(
    records: DataFrame, pipeline: Pipeline, stage: str, name: str, reason: Column
) -> DataFrame:
    """Letters of records as a source reads them."""
    facts = {
        "stage": F.lit(stage),
        "name": F.lit(name),
        "content": F.lit("record"),
        "reason": reason,
        "value": F.col("value"),
    }
    for column in ("topic", "partition", "offset", "key", "headers", "file"):
        if column in records.columns:
            facts[column] = F.col(column)
    if "timestamp" in records.columns:
        facts |= {"timestamp": F.unix_millis("timestamp"), "recordTime": F.col("timestamp")}
    return _letters(records, pipeline, facts)


def row_letters(rows: DataFrame, pipeline: Pipeline, stage: str, name: str, reason: Column) -> DataFrame:
    """Letters of rows that have lost their records."""
    content = [f"`{column}`" for column in rows.columns if column not in (*METADATA_COLUMNS, *ADDED)]
    value = F.to_json(F.struct(*content), {"ignoreNullFields": "false"}).cast("binary")
    facts = {
        "stage": F.lit(stage),
        "name": F.lit(name),
        "content": F.lit("row"),
        "reason": reason,
        "value": value,
    }
    for column in ("topic", "partition", "offset", "key"):
        if f"_{column}" in rows.columns:
            facts[column] = F.col(f"_{column}")
    return _letters(rows, pipeline, facts)


def decode_letters(pipeline: Pipeline, source: Source, decoded: DataFrame, schema: StructType) -> DataFrame:
    rejected = decoded.where(F.col(REJECTED))
    return record_letters(rejected, pipeline, "decode", source.name, reason_column(pipeline, source, schema))


# Rows that know their records


def knows_its_record(frame: DataFrame, sources: Iterable[SourceKind]) -> SourceKind | None:
    """The source whose records can be read again for these rows: the only topic source among theirs."""
    origins = [source for source in sources if source.subscription is not None]
    has_columns = all(column in frame.columns for column in ORIGIN_COLUMNS)
    return origins[0] if has_columns and len(origins) == 1 else None


def records_of_rows(spark: "SparkSession", source: SourceKind, rows: DataFrame) -> DataFrame:
    """The records that rows came from, read again from their topics, with the rows' `REASON`."""
    places = rows.select(
        *(F.col(f"_{name}").alias(name) for name in ("topic", "partition", "offset")), REASON
    )
    ranges = places.groupBy("topic", "partition").agg(F.min("offset").alias("a"), F.max("offset").alias("b"))
    starting: dict[str, dict[str, int]] = {}
    ending: dict[str, dict[str, int]] = {}
    for one in ranges.collect():
        starting.setdefault(one.topic, {})[str(one.partition)] = one.a
        ending.setdefault(one.topic, {})[str(one.partition)] = one.b + 1
    records = source.batch(spark, starting=starting, ending=ending)
    return records.join(places, ["topic", "partition", "offset"])


# Writing


def topic_records(letters: DataFrame, message_bytes: int) -> DataFrame:
    """Letters as records for a topic: facts in headers, after the record's own."""
    letters = _cut(letters, message_bytes)
    facts = []
    for name in FACTS:
        value = F.col(name).cast("string").cast("binary")
        header = F.struct(F.lit(f"{PREFIX}{name}").alias("key"), value.alias("value"))
        facts.append(F.when(F.col(name).isNotNull(), header))
    ours = F.filter(F.array(*facts), lambda header: header.isNotNull())
    own = F.filter(
        F.coalesce(F.col("headers"), F.array().cast(HEADER_TYPE)),
        lambda header: ~F.startswith(header["key"], F.lit(PREFIX)),
    )
    return letters.select("key", "value", F.concat(own, ours).alias("headers"))


def _cut(letters: DataFrame, message_bytes: int) -> DataFrame:
    """Dead letters that the topic accepts: the value of a larger one is cut, and its headers and a large key left
    out."""
    part = message_bytes // 4
    no_headers = F.array().cast(HEADER_TYPE)
    of_headers = F.aggregate(
        F.coalesce("headers", no_headers),
        F.lit(0),
        lambda total, header: (
            total + F.octet_length(header["key"]) + F.coalesce(F.octet_length(header["value"]), F.lit(0))
        ),
    )
    sizes = [F.coalesce(F.octet_length(name), F.lit(0)) for name in ("key", "value")]
    is_large = sizes[0] + sizes[1] + of_headers > message_bytes - FACTS_BYTES
    return letters.withColumns(
        {
            "content": F.when(is_large, "cut").otherwise(F.col("content")),
            "key": F.when(~is_large | (sizes[0] <= part), F.col("key")),
            "value": F.when(is_large, F.substring("value", 1, part)).otherwise(F.col("value")),
            "headers": F.when(is_large, no_headers).otherwise(F.col("headers")),
        }
    )


def _message_bytes(pipeline: Pipeline, topic: TopicDeclaration) -> int:
    try:
        with topics_of(pipeline, topic.kafka, ("dead_letters", "topic")) as topics:
            view = topics.find(topic.topic)
    except PipelineError:  # the writer waits for brokers, or reports the problem
        return DEFAULT_MESSAGE_BYTES
    return (view.max_message_bytes if view is not None else None) or DEFAULT_MESSAGE_BYTES


def file_lines(letters: DataFrame) -> DataFrame:
    """Letters as rows for JSON files: bytes as base64, and as text where they are text."""
    text = F.when(F.is_valid_utf8(F.col("value").cast("string")), F.col("value").cast("string"))
    encoded = F.transform(
        "headers",
        lambda header: F.struct(header["key"].alias("key"), F.base64(header["value"]).alias("value")),
    )
    return letters.select(
        *FACTS,
        F.base64("key").alias("key"),
        F.base64("value").alias("value"),
        text.alias("text"),
        encoded.alias("headers"),
    )


def letters_part(letters: DataFrame, pipeline: Pipeline) -> Part:
    """Letters for a topic, as a part of a transaction."""
    assert pipeline.dead_letters is not None and pipeline.dead_letters.topic is not None
    topic = pipeline.dead_letters.topic
    options = parse_sink_options(kafka_options(topic.kafka) | {"topic": topic.topic})
    return Part(topic_records(letters, _message_bytes(pipeline, topic)), options)


def write_refused(
    session: "SparkSession",
    pipeline: Pipeline,
    sink: str,
    rows: "pa.Table",
    refused: Mapping[int, str],
    place: str,
) -> None:
    """Write letters of the rows that a sink refused, by their number, each with its reason."""
    import pyarrow as pa

    reasoned = rows.take(list(refused)).append_column(REASON, pa.array(refused.values(), pa.string()))
    letters = session.createDataFrame(reasoned)
    write_letters(row_letters(letters, pipeline, "sink", sink, F.col(REASON)), pipeline, place)


def write_letters(letters: DataFrame, pipeline: Pipeline, place: str) -> None:
    """Write a batch of letters. In files `place` names it: written again, it takes the place of the first."""
    target = pipeline.dead_letters
    assert target is not None
    if target.topic is not None:
        options = kafka_options(target.topic.kafka) | {"topic": target.topic.topic}
        records = topic_records(letters, _message_bytes(pipeline, target.topic))
        records.write.format("odradek").options(**options).mode("append").save()
    else:
        path = f"{pipeline.path(target.path)}/{place}"
        file_lines(letters).coalesce(1).write.mode("overwrite").json(path)
