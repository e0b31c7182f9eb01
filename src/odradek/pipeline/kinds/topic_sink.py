"""A topic as a sink: rows become records. Rows that no broker would take are found before they are sent.

Rows of a key are written in the order of their records, as long as each task writes what it has read. A shuffle
between the two, of a join for example, loses that order. Rows that still know their places (`PLACE`) are then brought
back into it, in `write`: a stream cannot be sorted, but a batch can.
"""

import json
from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StructType

from odradek.pipeline.file.definition import Pipeline, Sink, TopicSink
from odradek.pipeline.kinds import topics
from odradek.pipeline.kinds.avro_values import AvroValues
from odradek.pipeline.kinds.sink import Batch, SinkKind, without_metadata
from odradek.pipeline.kinds.topics import DEFAULT_MESSAGE_BYTES, kafka_options
from odradek.pipeline.rows.plans import may_shuffle
from odradek.spark.exactly_once import Part
from odradek.spark.options import parse_sink_options

RECORD_OVERHEAD_BYTES = 200  # of a batch with one record, generously
SINK_MARK = "odradek sink "
PLACE = ("_topic", "_partition", "_offset")
RAW_COLUMNS = ("headers", "partition", "timestamp")


class TopicSinkKind(SinkKind):
    def __init__(self, pipeline: Pipeline, sink: Sink, target: TopicSink) -> None:
        super().__init__(pipeline, sink)
        self.target = target
        self._message_bytes = DEFAULT_MESSAGE_BYTES
        declaration = target.declaration
        self._options = kafka_options(declaration.kafka) | {"topic": declaration.topic}
        self._avro = None if target.avro is None else AvroValues(pipeline, sink, target.avro)

    @property
    def destination(self) -> str:
        return f"topic {self.target.declaration.topic}"

    @property
    def guarantee(self) -> str:
        if self.ledger_settings is not None:
            return "exactly once, for readers of committed data"
        if self.sink.mode == "update":
            return "at least once; the newest row of a key is the last one"
        return super().guarantee

    @property
    def ledger_settings(self) -> Mapping[str, str] | None:
        return self.kafka if self.target.declaration.exactly_once else None

    def part(self, frame: DataFrame) -> Part:
        """A batch as a part of a transaction."""
        return Part(_in_order(frame), parse_sink_options(self._options))

    @property
    def kafka(self) -> Mapping[str, str]:
        return self.target.declaration.kafka

    def check_declared(self, *, create: bool = False) -> None:
        view = topics.check_declaration(self.pipeline, self.sink.key, self.target.declaration, create=create)
        if view is not None and view.max_message_bytes is not None:
            self._message_bytes = view.max_message_bytes
        if self._avro is not None and create:
            self._avro.will_run = True

    def check_outside(self, rows: DataFrame) -> None:
        if self._avro is not None:
            self._avro.check()

    def write(self, batch: Batch, frame: DataFrame) -> int:
        _in_order(frame).write.format("odradek").options(**self._options).mode("append").save()
        return 0

    def readable(self, row: dict[str, object]) -> dict[str, object]:
        value = row["value"]
        if self._avro is not None:
            return row | {"value": self._avro.decoded(value)}
        if self.target.format != "json" or not isinstance(value, str):
            return row
        return row | {"value": json.loads(value)}

    def plan(self, frame: DataFrame) -> DataFrame:
        target, rows = self.target, without_metadata(frame)
        self._check_columns(frame, target.row_key, "key")
        deletes = self._met(frame, target.delete_when, "delete_when") if target.delete_when else None
        value = self._value(rows, deletes)
        if deletes is not None:
            value = F.when(deletes, F.lit(None)).otherwise(value)
        columns = {"key": _key(target, frame, rows), "value": value}
        if target.format == "raw":
            columns |= {name: F.col(name) for name in RAW_COLUMNS if name in rows.columns}
        if target.row_key and all(frame.columns.count(name) == 1 for name in PLACE) and may_shuffle(frame):
            columns |= {name: F.col(name) for name in PLACE}
        written = frame.select(*(column.alias(name) for name, column in columns.items()))
        return written.withColumn("value", self._checked())

    def _value(self, rows: DataFrame, deletes: Column | None) -> Column:
        if self.target.format == "raw":
            if dict(rows.dtypes).get("value") not in ("string", "binary"):
                problem = "the format raw writes the column 'value', which must be a string or binary"
                raise self.pipeline.error((*self.sink.key, "format"), problem)
            return F.col("value").cast("binary")
        if not rows.columns:
            raise self.pipeline.error((*self.sink.key, "from"), "there are no columns to write")
        columns = [F.col(f"`{name}`") for name in rows.columns]
        if self._avro is not None:
            refusal = f"{SINK_MARK}'{self.sink.name}': the Avro schema does not take the row"
            return self._avro.column(rows, refusal, deletes)
        if self.target.format == "csv":
            return F.to_csv(F.struct(*columns)).cast("binary")
        return F.to_json(F.struct(*columns), {"ignoreNullFields": "false"}).cast("binary")

    def _checked(self) -> Column:
        """The value, or an error that names the sink."""
        limit = self._message_bytes - RECORD_OVERHEAD_BYTES
        size = F.coalesce(F.length("value"), F.lit(0)) + F.coalesce(F.length("key"), F.lit(0))
        too_large = self._refusal(
            f"key and value are larger than the topic allows ({self._message_bytes} bytes)"
        )
        value = F.when(size > limit, too_large).otherwise(F.col("value"))
        if self.target.row_key and (self.sink.mode == "update" or self.target.delete_when):
            no_key = self._refusal("the key is null, and an upsert needs one")
            value = F.when(F.col("key").isNull(), no_key).otherwise(value)
        return value

    def _refusal(self, problem: str) -> Column:
        return F.raise_error(F.lit(f"{SINK_MARK}'{self.sink.name}': {problem}")).cast("binary")


def _in_order(frame: DataFrame) -> DataFrame:
    if all(name in frame.columns for name in PLACE):
        return frame.repartition("key").sortWithinPartitions(*PLACE).drop(*PLACE)
    return frame


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
