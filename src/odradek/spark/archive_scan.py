"""The files of an archive read by our own reader, for storage that Spark has no jar for.

A version of the archive is pinned by its number, and a task reads a file. Files and row groups that a filter on
`timestamp`, `offset` or `partition` excludes are not read, if the session lets filters through
(`spark.sql.python.filterPushdown.enabled`). Spark applies the filters once more. It does not tell a source in Python
which columns it needs: all of them are read, where Spark's own Parquet scan reads a few.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from odradek.archive.layout import ArchivedFile, Snapshot
from odradek.archive.location import Location
from odradek.archive.rows import SCHEMA, unreadable, vacuumed
from odradek.spark.options import ARCHIVE_PREFIX
from odradek.spark.schema import source_schema
from odradek.spark.worker import called_by_spark, iterated_by_spark, spare_what_stays

NAME = "odradek-archive"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
BATCH_ROWS = 1 << 16
COMPARED = {
    EqualTo: "equal",
    GreaterThan: "greater",
    GreaterThanOrEqual: "greater_equal",
    LessThan: "less",
    LessThanOrEqual: "less_equal",
}
FILTERED = {"timestamp": datetime, "offset": int, "partition": int}


@dataclass(frozen=True)
class Condition:
    """A column, one of Arrow's comparisons, and a value: what a row must meet."""

    column: str
    comparison: str
    value: Any

    def expression(self) -> Any:
        kind = SCHEMA.field(self.column).type
        return getattr(pc, self.comparison)(pc.field(self.column), pa.scalar(self.value, kind))

    def may_meet(self, file: ArchivedFile) -> bool:
        """True if a file may have such rows, by what the table says of it."""
        low, high = self._bounds(file)
        if low is None or high is None:
            return True
        value = self.value.timestamp() * 1000 if self.column == "timestamp" else self.value
        met: dict[str, bool] = {
            "equal": low <= value <= high,
            "greater": high > value,
            "greater_equal": high >= value,
            "less": low < value,
            "less_equal": low <= value,
        }
        return met[self.comparison]

    def _bounds(self, file: ArchivedFile) -> tuple[float | None, float | None]:
        if self.column == "partition":
            return file.partition, file.partition
        if self.column == "offset":
            return file.start, file.end
        low, high = file.min_timestamp_ms, file.max_timestamp_ms
        return None if low is None else low - 1, None if high is None else high + 1  # they are rounded


def condition_of(filter: Filter) -> Condition | None:
    """None if it cannot help: Spark applies every filter itself."""
    comparison = COMPARED.get(type(filter))
    path, value = tuple(getattr(filter, "attribute", ())), getattr(filter, "value", None)
    if comparison is None or len(path) != 1:
        return None
    column = path[0]
    if column not in FILTERED or type(value) is not FILTERED[column]:
        return None
    if isinstance(value, datetime) and value.tzinfo is None:
        return None
    return Condition(column, comparison, value)


@dataclass
class FilePartition(InputPartition):
    """The work of one task."""

    path: str


def scan_options(location: Location, snapshot: Snapshot, *, pushdown: bool) -> dict[str, str]:
    """Options of the source. Secrets have names by which Spark hides them."""
    storage = {f"{ARCHIVE_PREFIX}{name}": value for name, value in location.storage}
    facts = {"uri": location.uri, "version": str(snapshot.version), "topic": snapshot.topic}
    return {**facts, "pushdown": str(pushdown).lower(), **storage}


class ArchiveSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return source_schema(include_headers=True)

    def reader(self, schema: StructType) -> "ArchiveReader":
        options = dict(self.options)
        storage = {
            name.removeprefix(ARCHIVE_PREFIX): value
            for name, value in options.items()
            if name.startswith(ARCHIVE_PREFIX)
        }
        location = Location(options["uri"], tuple(sorted(storage.items())))
        kind = FilteringReader if options["pushdown"] == "true" else ArchiveReader
        return kind(location, int(options["version"]), options["topic"], schema)


class ArchiveReader(DataSourceReader):
    def __init__(self, location: Location, version: int, topic: str, schema: StructType) -> None:
        self._location, self._version, self._topic = location, version, topic
        self._schema = schema
        self._conditions: list[Condition] = []

    @called_by_spark
    def partitions(self) -> Sequence[InputPartition]:
        from odradek.archive.tables import Table

        files = Table.open(self._location, self._version).pinned().files
        return [
            FilePartition(one.path)
            for one in files
            if all(condition.may_meet(one) for condition in self._conditions)
        ]

    @iterated_by_spark
    def read(self, partition: FilePartition) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        return self._rows(partition.path)

    def _rows(self, path: str) -> Iterator[pa.RecordBatch]:
        import pyarrow.dataset as ds

        from odradek.spark.decoding import ArchiveDecoder

        decoder = ArchiveDecoder(self._topic, to_arrow_schema(self._schema, timezone="UTC"))
        wanted = None
        for condition in self._conditions:
            one = condition.expression()
            wanted = one if wanted is None else wanted & one
        try:
            file = ds.dataset(path, filesystem=self._location.filesystem(), format="parquet", schema=SCHEMA)
            for batch in file.to_batches(filter=wanted, batch_size=BATCH_ROWS):
                if batch.num_rows:
                    yield decoder.decode(batch)
        except FileNotFoundError:
            raise vacuumed(self._location, path) from None
        except (OSError, pa.ArrowInvalid) as error:
            raise unreadable(self._location, path, error) from None
        spare_what_stays()


class FilteringReader(ArchiveReader):
    """Spark refuses a reader with `pushFilters` where the session does not let filters through."""

    @called_by_spark
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        found = [condition_of(one) for one in filters]
        self._conditions = [one for one in found if one is not None]
        return filters
