"""A pipeline's stages assembled in one Spark session, over any kind of input.

A stream, a test's rows, the first records of a topic and the records of a failed batch go through the same
stages: only the `Reader` differs. Every query is woven separately, in its own session, and has only the
stages that it needs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from odradek.pipeline.file.definition import Pipeline, Source
from odradek.pipeline.kinds.dead_letters import decode_letters, row_letters
from odradek.pipeline.kinds.registry import source_kind
from odradek.pipeline.kinds.source import Offsets, SourceKind
from odradek.pipeline.kinds.topics import group_of
from odradek.pipeline.rows.decoding import decode, refuse_rejected, rows_of
from odradek.pipeline.rows.expectations import REASON, UNMET, check_requirements, judged, kept, unmet_counts
from odradek.pipeline.rows.transforms import apply, inputs_of, order, with_watermark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Skipped = Mapping[str, Mapping[str, list[int]]]  # of one source: offsets by topic and partition


class Reader(Protocol):
    """The place where the sources' records come from. `rows` are some more, which need no decoding."""

    def records(self, source: Source) -> DataFrame: ...

    def rows(self, source: Source, schema: StructType) -> DataFrame | None: ...


@dataclass
class StreamReader:
    """`headers`: dead letters keep the headers of their records. `named`: as checkpoints know the sources."""

    spark: "SparkSession"
    pipeline: Pipeline
    query: str
    headers: bool = False
    named: bool = True

    def records(self, source: Source) -> DataFrame:
        kind, group = source_kind(self.pipeline, source), group_of(self.pipeline, self.query)
        return kind.stream(self.spark, group, headers=self.headers, named=self.named)

    def rows(self, source: Source, schema: StructType) -> DataFrame | None:
        return None


@dataclass
class BatchReader:
    """Records between offsets, by the source's name; all records if there are none."""

    spark: "SparkSession"
    pipeline: Pipeline
    starting: Mapping[str, Offsets] = field(default_factory=dict)
    ending: Mapping[str, Offsets] = field(default_factory=dict)

    def records(self, source: Source) -> DataFrame:
        name = source.name
        kind = source_kind(self.pipeline, source)
        return kind.batch(self.spark, starting=self.starting.get(name), ending=self.ending.get(name))

    def rows(self, source: Source, schema: StructType) -> DataFrame | None:
        return None


@dataclass(frozen=True)
class Graph:
    """Which stage reads which, and an order in which all of them can be built."""

    inputs: Mapping[str, list[str]]
    order: list[str]

    def needed_by(self, name: str) -> set[str]:
        needed = {name}
        for before in self.inputs.get(name, ()):
            needed |= self.needed_by(before)
        return needed


def graph(spark: "SparkSession", pipeline: Pipeline) -> Graph:
    inputs = {name: inputs_of(spark, pipeline, one) for name, one in pipeline.transforms.items()}
    return Graph(inputs, order(pipeline, inputs))


@dataclass
class Woven:
    """Frames of one query: rows of every stage, decoded records of sources, rows before requirements."""

    graph: Graph
    schemas: dict[str, StructType] = field(default_factory=dict)
    decoded: dict[str, DataFrame] = field(default_factory=dict)
    judged: dict[str, DataFrame] = field(default_factory=dict)
    rows: dict[str, DataFrame] = field(default_factory=dict)


class Weaver:
    def __init__(
        self, spark: "SparkSession", pipeline: Pipeline, reader: Reader, stages: Graph | None = None
    ) -> None:
        self.spark, self.pipeline, self.reader = spark, pipeline, reader
        self.woven = Woven(stages or graph(spark, pipeline))

    def weave(self, until: str | None = None, skipped: Mapping[str, Skipped] | None = None) -> Woven:
        """All stages, or those that one needs."""
        needed = None if until is None else self.woven.graph.needed_by(until)
        for source in self.pipeline.sources.values():
            if needed is None or source.name in needed:
                self.add_source(source, (skipped or {}).get(source.name, {}))
        for name in self.woven.graph.order:
            if needed is None or name in needed:
                self.add_transform(name)
        return self.woven

    def add_source(self, source: Source, skipped: Skipped | None = None) -> DataFrame:
        kind = source_kind(self.pipeline, source)
        schema = self.woven.schemas[source.name] = self.schema_of(kind)
        given = self.reader.rows(source, schema)
        if not kind.decodes:
            rows = self.reader.records(source) if given is None else given
        else:
            rows = rows_of(self.decoded(kind, schema, skipped or {}), schema, kind.metadata)
            rows = rows if given is None else rows.unionByName(given)
        rows = with_watermark(self.pipeline, rows, source.key, source.watermark)
        return self._name(source.name, rows)

    def schema_of(self, kind: SourceKind) -> StructType:
        return kind.schema()

    def decoded(self, kind: SourceKind, schema: StructType, skipped: Skipped) -> DataFrame:
        source = kind.source
        records = without_skipped(self.reader.records(source), skipped)
        decoded = decode(records, self.pipeline, source, schema)
        self.woven.decoded[source.name] = decoded
        if self.pipeline.dead_letters is None:
            decoded = refuse_rejected(decoded, self.pipeline, source, schema, kind.place())
        return decoded

    def add_transform(self, name: str) -> DataFrame:
        transform = self.pipeline.transforms[name]
        frame = apply(self.spark, self.pipeline, transform, self.woven.rows)
        if transform.require:
            check_requirements(self.pipeline, transform, frame)
            rows = self.woven.judged[name] = self.judged(name, frame)
            frame = kept(self.pipeline, transform, rows)
        return self._name(name, frame)

    def judged(self, name: str, frame: DataFrame) -> DataFrame:
        """The rows with what is decided about each."""
        return judged(self.pipeline, self.pipeline.transforms[name], frame)

    def _name(self, name: str, frame: DataFrame) -> DataFrame:
        frame.createOrReplaceTempView(name)
        self.woven.rows[name] = frame
        return frame


class CountingWeaver(Weaver):
    """A weaver for the stream of a sink: Spark's reports of a batch say how many rows did not meet a requirement."""

    def judged(self, name: str, frame: DataFrame) -> DataFrame:
        counts = unmet_counts(self.pipeline.transforms[name])
        return super().judged(name, frame).observe(f"{UNMET}{name}", *counts)


def without_skipped(records: DataFrame, skipped: Skipped) -> DataFrame:
    """The records but for those that were set aside."""
    for topic, partitions in skipped.items():
        for partition, offsets in partitions.items():
            place = (F.col("topic") == topic) & (F.col("partition") == int(partition))
            records = records.where(~(place & F.col("offset").isin(offsets)))
    return records


def rejected_in_batch(pipeline: Pipeline, woven: Woven) -> DataFrame:
    """All dead letters of a batch of rows, for tests and previews."""
    found = [
        decode_letters(pipeline, pipeline.sources[name], frame, woven.schemas[name])
        for name, frame in woven.decoded.items()
    ]
    found += [
        row_letters(frame.where(F.col(REASON).isNotNull()), pipeline, "transform", name, F.col(REASON))
        for name, frame in woven.judged.items()
    ]
    if not found:
        from pyspark.sql import SparkSession

        session = SparkSession.getActiveSession()
        assert session is not None
        return session.createDataFrame([], "stage string, name string, reason string")
    letters = found[0]
    for more in found[1:]:
        letters = letters.unionByName(more)
    return letters
