"""From rows to a sink's format, and the guarantees of each sink.

Topics, tables behind JDBC and the console are written batch by batch by our own function (`foreachBatch`), which
also makes a clean stop possible: between two batches nothing is half written. Files are written by
Spark's own sink, which lists the files of finished batches in `_spark_metadata`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StructType

from odradek.pipeline.decoding import METADATA_COLUMNS
from odradek.pipeline.definition import (
    ConsoleSink,
    FileSink,
    JdbcSink,
    Pipeline,
    Sink,
    TableSink,
    TopicSink,
)
from odradek.pipeline.sources import jdbc_options, kafka_options
from odradek.pipeline.transforms import plain

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

DEFAULT_MESSAGE_BYTES = 1_048_588
RECORD_OVERHEAD_BYTES = 200  # of a batch with one record, generously
SINK_MARK = "odradek sink "
WRITTEN_COLUMNS = ("key", "value", "headers", "partition", "timestamp")


def guarantee(sink: Sink) -> str:
    """The guarantee for rows, in one line."""
    if isinstance(sink.target, FileSink):
        return "exactly once, for readers that honour _spark_metadata, as Spark does"
    if isinstance(sink.target, TableSink):
        return f"exactly once, by the transaction log of {sink.target.format}"
    if isinstance(sink.target, ConsoleSink):
        return "shown at least once"
    if isinstance(sink.target, TopicSink) and sink.mode == "update":
        return "at least once; the newest row of a key is the last one"
    return "at least once: no loss; after a crash the batch in flight may be repeated"


def destination(sink: Sink) -> str:
    target = sink.target
    if isinstance(target, TopicSink):
        return f"topic {target.declaration.topic}"
    if isinstance(target, FileSink):
        return f"{target.format} files in {target.path}"
    if isinstance(target, TableSink):
        return f"{target.format} table {target.target}"
    if isinstance(target, JdbcSink):
        return f"table {target.target.table}"
    return "the console"


def project(pipeline: Pipeline, sink: Sink, frame: DataFrame, message_bytes: int | None = None) -> DataFrame:
    """The rows for the sink. `PipelineError` if they do not fit it."""
    if isinstance(sink.target, TopicSink):
        return _records(pipeline, sink, sink.target, frame, message_bytes or DEFAULT_MESSAGE_BYTES)
    rows = without_metadata(frame)
    if not rows.columns:
        raise pipeline.error((*sink.key, "from"), "there are no columns to write")
    if isinstance(sink.target, (FileSink, TableSink)):
        _check_columns(pipeline, sink, rows, sink.target.partition_by, "partition_by")
    if isinstance(sink.target, FileSink):
        _check_file_types(pipeline, sink, sink.target, rows)
    return rows


def without_metadata(frame: DataFrame) -> DataFrame:
    return frame.drop(*METADATA_COLUMNS)


def _check_columns(
    pipeline: Pipeline, sink: Sink, rows: DataFrame, wanted: tuple[str, ...], key: str
) -> None:
    for name in wanted:
        if name not in rows.columns:
            problem = f"there is no column '{name}'; there are {', '.join(rows.columns)}"
            raise pipeline.error((*sink.key, key), problem)


def _check_file_types(pipeline: Pipeline, sink: Sink, target: FileSink, rows: DataFrame) -> None:
    if len(set(target.partition_by)) == len(rows.columns):
        raise pipeline.error((*sink.key, "partition_by"), "at least one column must not be among these")
    for field in rows.schema.fields:
        nested = isinstance(field.dataType, (StructType, ArrayType, MapType, BinaryType))
        if target.format == "csv" and nested:
            problem = (
                f"the column '{field.name}' is {field.dataType.simpleString()}, which CSV cannot represent"
            )
            raise pipeline.error((*sink.key, "from"), f"{problem}: cast it, or write JSON or Parquet")


# Topics


def _records(
    pipeline: Pipeline, sink: Sink, target: TopicSink, frame: DataFrame, message_bytes: int
) -> DataFrame:
    rows = without_metadata(frame)
    for name in target.row_key:
        if name not in frame.columns:
            problem = f"there is no column '{name}'; there are {', '.join(rows.columns)}"
            raise pipeline.error((*sink.key, "key"), problem)
    key = _key(target, frame, rows)
    value = _value(pipeline, sink, target, rows)
    if target.delete_when:
        value = F.when(_condition(pipeline, sink, target, frame), F.lit(None)).otherwise(value)
    columns = {"key": key, "value": value}
    if target.format == "raw":
        columns |= {name: F.col(name) for name in WRITTEN_COLUMNS[2:] if name in rows.columns}
    written = frame.select(*(column.alias(name) for name, column in columns.items()))
    return written.withColumn("value", _checked(sink, target, message_bytes))


def _key(target: TopicSink, frame: DataFrame, rows: DataFrame) -> Column:
    if not target.row_key:
        in_row = target.format == "raw" and "key" in rows.columns
        return F.col("key").cast("binary") if in_row else F.lit(None).cast("binary")
    if len(target.row_key) == 1:
        (name,) = target.row_key
        kind = frame.schema[name].dataType
        return F.col(name) if isinstance(kind, BinaryType) else _text(F.col(name), kind).cast("binary")
    return F.to_json(F.struct(*target.row_key), {"ignoreNullFields": "false"}).cast("binary")


def _text(column: Column, kind: DataType) -> Column:
    nested = isinstance(kind, (StructType, ArrayType, MapType))
    return F.to_json(column) if nested else column.cast("string")


def _value(pipeline: Pipeline, sink: Sink, target: TopicSink, rows: DataFrame) -> Column:
    if target.format == "raw":
        types = dict(rows.dtypes)
        if types.get("value") not in ("string", "binary"):
            problem = "the format raw writes the column 'value', which must be a string or binary"
            raise pipeline.error((*sink.key, "format"), problem)
        return F.col("value").cast("binary")
    if not rows.columns:
        raise pipeline.error((*sink.key, "from"), "there are no columns to write")
    columns = [F.col(f"`{name}`") for name in rows.columns]
    if target.format == "csv":
        return F.to_csv(F.struct(*columns)).cast("binary")
    return F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}).cast("binary")


def _condition(pipeline: Pipeline, sink: Sink, target: TopicSink, frame: DataFrame) -> Column:
    try:
        kind = frame.select(F.expr(target.delete_when).alias("met")).dtypes[0][1]
    except (AnalysisException, ParseException) as error:
        raise pipeline.error((*sink.key, "delete_when"), plain(error)) from None
    if kind != "boolean":
        raise pipeline.error((*sink.key, "delete_when"), f"the condition is {kind}, it must be boolean")
    return F.coalesce(F.expr(target.delete_when), F.lit(False))


def _checked(sink: Sink, target: TopicSink, message_bytes: int) -> Column:
    """The value, or an error that names the sink: rows that no broker would take, found before they are sent."""
    limit = message_bytes - RECORD_OVERHEAD_BYTES
    size = F.coalesce(F.length("value"), F.lit(0)) + F.coalesce(F.length("key"), F.lit(0))
    too_large = _refusal(sink, f"key and value are larger than the topic allows ({message_bytes} bytes)")
    value = F.when(size > limit, too_large).otherwise(F.col("value"))
    if target.row_key and (sink.mode == "update" or target.delete_when):
        no_key = _refusal(sink, "the key is null, and an upsert needs one")
        value = F.when(F.col("key").isNull(), no_key).otherwise(value)
    return value


def _refusal(sink: Sink, problem: str) -> Column:
    return F.raise_error(F.lit(f"{SINK_MARK}'{sink.name}': {problem}")).cast("binary")


# Writing

BatchWriter = Callable[[DataFrame, int], None]


def batch_writer(sink: Sink, show: Callable[[str], None]) -> BatchWriter:
    """Writes one batch; for sinks of `foreachBatch`."""
    target = sink.target
    if isinstance(target, TopicSink):
        options = kafka_options(target.declaration.kafka) | {"topic": target.declaration.topic}
        return lambda rows, _: rows.write.format("odradek").options(**options).mode("append").save()
    if isinstance(target, JdbcSink):
        return lambda rows, _: write_jdbc(target, rows)
    assert isinstance(target, ConsoleSink)
    return lambda rows, number: _show(sink, target, rows, number, show)


def write_jdbc(target: JdbcSink, rows: DataFrame) -> None:
    """All rows in one transaction, over one connection: a failed batch leaves nothing behind."""
    options = jdbc_options(target.target) | {"dbtable": target.target.table}
    rows.coalesce(1).write.format("jdbc").options(**options).mode("append").save()


def _show(sink: Sink, target: ConsoleSink, rows: DataFrame, number: int, show: Callable[[str], None]) -> None:
    rows.persist()  # shown in part and counted as a whole, but computed once
    try:
        count = rows.count()
        found = rows.limit(target.rows).collect() if count else []
    finally:
        rows.unpersist()
    if found:
        more = f"\n({count - len(found)} more)" if count > len(found) else ""
        show(f"{sink.name}, batch {number}\n{as_table(rows.columns, found)}{more}")


def as_table(columns: list[str], rows: list[Any]) -> str:
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(len(name), *(len(row[at]) for row in cells), 0) for at, name in enumerate(columns)]
    lines = [columns, ["-" * width for width in widths], *cells]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _cell(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, (bytes, bytearray)):
        text = bytes(value).decode(errors="backslashreplace")
    else:
        text = str(value)
    text = text.replace("\n", "\\n")
    return text if len(text) <= 60 else f"{text[:59]}…"


def is_written_by_us(sink: Sink) -> bool:
    return not isinstance(sink.target, (FileSink, TableSink))


def file_writer(pipeline: Pipeline, sink: Sink, writer: "DataStreamWriter") -> "DataStreamWriter":
    """For sinks that Spark writes itself; `start` them with no argument."""
    target = sink.target
    assert isinstance(target, (FileSink, TableSink))
    writer = writer.format(target.format).options(**target.options)
    if target.partition_by:
        writer = writer.partitionBy(*target.partition_by)
    place = target.path if isinstance(target, FileSink) else target.target
    if isinstance(target, FileSink) or "/" in place:
        return writer.option("path", pipeline.path(place))
    return writer


def check_jdbc(pipeline: Pipeline, sink: Sink, rows: DataFrame) -> None:
    """The table must exist, and have the columns; without a connection this cannot be checked."""
    assert isinstance(sink.target, JdbcSink)
    target = sink.target.target
    reader = rows.sparkSession.read.format("jdbc").options(**jdbc_options(target))
    try:
        table = reader.option("dbtable", target.table).load()
    except Exception as error:
        reason = str(error).strip().splitlines()[0]
        problem = f"table {target.table} cannot be read: {reason}"
        raise pipeline.error((*sink.key, "jdbc"), problem) from None
    known = {name.lower() for name in table.columns}
    for name in rows.columns:
        if name.lower() not in known:
            problem = f"table {target.table} has no column '{name}'; it has {', '.join(table.columns)}"
            raise pipeline.error((*sink.key, "from"), problem)
