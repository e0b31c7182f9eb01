"""The records of a failed batch, read once and held by Spark, so that parts of it can be tried quickly."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from odradek.pipeline.file.definition import Pipeline, Source
from odradek.pipeline.kinds.registry import source_kind
from odradek.pipeline.run.isolation import Ranges, limits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass
class HeldReader:
    """A reader of the records within `ranges`, by source. Other sources are read as they are."""

    spark: "SparkSession"
    pipeline: Pipeline
    ranges: Mapping[str, Ranges]
    held: dict[str, DataFrame] = field(default_factory=dict)

    def hold(self) -> None:
        for name, ranges in self.ranges.items():
            kind = source_kind(self.pipeline, self.pipeline.sources[name])
            starting, ending = limits(ranges, "start"), limits(ranges, "end")
            self.held[name] = kind.batch(self.spark, starting=starting, ending=ending).persist()

    def release(self) -> None:
        for frame in self.held.values():
            frame.unpersist()

    def only(self, ranges: Mapping[str, Ranges]) -> "HeldReader":
        return replace(self, ranges=ranges)

    def records(self, source: Source) -> DataFrame:
        if source.name not in self.held:
            return source_kind(self.pipeline, source).batch(self.spark)
        return self.held[source.name].where(_within(self.ranges[source.name]))

    def rows(self, source: Source, schema: StructType) -> DataFrame | None:
        return None


def _within(ranges: Ranges) -> Column:
    found = F.lit(False)
    for one in ranges:
        place = (F.col("topic") == one.topic) & (F.col("partition") == one.partition)
        found = found | (place & F.col("offset").between(one.start, one.end - 1))
    return found
