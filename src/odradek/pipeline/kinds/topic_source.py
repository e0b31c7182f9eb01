"""Topics as a source. Records have the columns of `format("odradek")`.

Streams decode values where they are read, if the format allows it; batches, which are for the few records that a
command or a retry looks at, have them as they are.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from odradek.pipeline.file.definition import Pipeline, Source, TopicSource
from odradek.pipeline.kinds import topics
from odradek.pipeline.kinds.source import Offsets, SourceKind
from odradek.pipeline.kinds.topics import kafka_options
from odradek.pipeline.rows.decoding import schema_text
from odradek.spark.options import ARCHIVE_PREFIX
from odradek.spark.typed.settling import is_faithful, with_values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

METADATA = {
    "key": "_key",
    "topic": "_topic",
    "partition": "_partition",
    "offset": "_offset",
    "timestamp": "_timestamp",
}
RECORD = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"
DECODED_BY_SOURCE = ("json", "csv", "text", "avro")
HEADERS = "array<struct<key: string, value: binary>>"


class TopicSourceKind(SourceKind):
    def __init__(self, pipeline: Pipeline, source: Source, origin: TopicSource) -> None:
        super().__init__(pipeline, source)
        self.origin = origin

    @property
    def metadata(self) -> Mapping[str, str]:  # type: ignore[override]
        return METADATA | ({"headers": "_headers"} if self.origin.headers else {})

    @property
    def subscription(self) -> TopicSource:
        return self.origin

    @property
    def reads(self) -> Any:
        return self.origin.pattern or sorted(self.origin.topics)

    def _options(self) -> dict[str, str]:
        options = kafka_options(self.origin.kafka)
        if self.origin.pattern:
            options["subscribePattern"] = self.origin.pattern
        else:
            options["subscribe"] = ",".join(self.origin.topics)
        options["failOnDataLoss"] = str(self.origin.fail_on_data_loss).lower()
        if self.origin.archive:
            options["archive"] = self.origin.archive
            options |= {
                f"{ARCHIVE_PREFIX}{name}": value for name, value in self.origin.archive_storage.items()
            }
        return options

    def stream(self, spark: "SparkSession", group: str, *, headers: bool, named: bool) -> DataFrame:
        origin = self.origin
        options = self._options() | {"commitGroup": group}
        if origin.start.isdigit():
            options |= {"startingTimestamp": origin.start, "startingOffsetsByTimestampStrategy": "latest"}
        else:
            options["startingOffsets"] = origin.start
        if origin.max_rows_per_batch:
            options["maxOffsetsPerTrigger"] = str(origin.max_rows_per_batch)
        options["includeHeaders"] = str(headers or origin.headers).lower()
        reader = spark.readStream.format("odradek").options(**options)
        if self._decodes_itself and is_faithful(spark):
            reader = with_values(reader, spark, self.source.format, self._value_schema())
            reader = reader.options(**self._value_options())
        return (reader.name(self.source.name) if named else reader).load()

    @property
    def _decodes_itself(self) -> bool:
        """True if the source decodes values; it knows only CSV as it is without options."""
        source = self.source
        return source.format in DECODED_BY_SOURCE and not (source.format == "csv" and source.options)

    def _value_schema(self) -> str:
        if self.source.format == "text":
            return ""
        return (
            schema_text(self.pipeline, self.source) if self.source.format == "avro" else self.schema().json()
        )

    def _value_options(self) -> dict[str, str]:
        source = self.source
        if source.format != "avro":
            return {}
        options = {"valueFraming": source.framing or "none", "schemaRegistry": source.registry}
        return {name: value for name, value in options.items() if value}

    def batch(
        self, spark: "SparkSession", *, starting: Offsets | None = None, ending: Offsets | None = None
    ) -> DataFrame:
        options = self._options() | {"includeHeaders": "true"}
        if starting is not None:
            options["startingOffsets"] = json.dumps(starting)
        if ending is not None:
            options["endingOffsets"] = json.dumps(ending)
            options.pop("subscribePattern", None)
            options.pop("subscribe", None)
            partitions = {topic: sorted(map(int, found)) for topic, found in ending.items()}
            options["assign"] = json.dumps(partitions)
        return spark.read.format("odradek").options(**options).load()

    def given(self, spark: "SparkSession", values: Sequence[bytes]) -> DataFrame:
        topic = self.origin.topics[0] if self.origin.topics else self.origin.pattern
        now = datetime.now(UTC)
        rows = [(None, value, topic, 0, offset, now) for offset, value in enumerate(values)]
        return spark.createDataFrame(rows, RECORD).withColumn("headers", F.lit(None).cast(HEADERS))

    def place(self) -> list[Column]:
        partition, offset = (F.col(name).cast("string") for name in ("partition", "offset"))
        return [F.lit("record "), F.col("topic"), F.lit("-"), partition, F.lit(" offset "), offset]

    def check_outside(self) -> None:
        topics.check_source(self.pipeline, self.source.key, self.origin)
