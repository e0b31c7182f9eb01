"""`format("odradek")`: the interface of a Spark data source.

Spark constructs these objects often, in several processes, and pickles them: they have options and nothing
else. State that must survive is in the checkpoint. Every stream has a separate process for its source, which is
started with it: modules that only tasks and sinks need are imported where they are used.

The start of a stream must be durable before its first row is read, or after a crash in the first batch it would start
again at a later `latest`. Spark asks for `initialOffset` but does not store it. So it is always `{}`, and the
first `latestOffset` returns where the first batch ends together with where it starts (`offsets` says how): Spark
journals that before it runs the batch. New partitions are added in the same way.

Spark calls `commit` a batch late, and never for the last. But the `start` that it passes to `latestOffset` is
finished work, so that is committed to `commitGroup`, to make lag visible.
"""

import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from odradek.client.cluster import Cluster, borrow_cluster
from odradek.client.connection import ConnectionLost
from odradek.client.deadline import TimedOut
from odradek.client.properties import Properties
from odradek.errors import KafkaError
from odradek.model import TopicPartition
from odradek.spark.offsets import (
    OffsetRange,
    Offsets,
    begun_in,
    from_checkpoint,
    share_out,
    split_ranges,
    to_checkpoint,
)
from odradek.spark.options import (
    InvalidOption,
    NoTable,
    SinkOptions,
    SourceOptions,
    includes_headers,
    parse_sink_options,
    parse_source_options,
    parse_value_options,
)
from odradek.spark.planning import Planner
from odradek.spark.reading import RangePartition, read_rows
from odradek.spark.schema import check_sink_schema, check_source_schema, source_schema, typed_source_schema
from odradek.spark.worker import OWN_ERRORS, called_by_spark, iterated_by_spark

if TYPE_CHECKING:
    from odradek.spark.writing import BatchWriter, StreamWriter

GROUP_COMMIT_TIMEOUT_S = 5.0
COMMITTING = "pyspark.sql.worker.python_streaming_sink_runner"  # the module that such a process runs
UNLIMITED = 2**63 - 1

log = logging.getLogger("odradek.spark")


class OdradekDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "odradek"

    @called_by_spark
    def schema(self) -> StructType | str:
        if {"provider", "owner"} <= self.options.keys():  # which Spark adds for CREATE TABLE alone
            raise NoTable
        has_headers, values = includes_headers(self.options), parse_value_options(self.options)
        return typed_source_schema(has_headers, values) if values.is_typed else source_schema(has_headers)

    @called_by_spark
    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_source_options(self.options, streaming=False)
        check_source_schema(schema, options.include_headers, options.values)
        return BatchReader(options, schema)

    @called_by_spark
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """An error here would be lost: Spark then tries to stop the reader that it did not get, and reports that."""
        try:
            options = parse_source_options(self.options, streaming=True)
            check_source_schema(schema, options.include_headers, options.values)
            return StreamReader(options, schema)
        except OWN_ERRORS as error:
            return RefusedStreamReader(error)

    @called_by_spark
    def writer(self, schema: StructType, overwrite: bool) -> "BatchWriter":
        from odradek.spark.writing import BatchWriter

        if overwrite:
            raise InvalidOption("mode", "a topic cannot be overwritten; use .mode('append')")
        return BatchWriter(self._sink_options(schema), schema)

    @called_by_spark
    def streamWriter(self, schema: StructType, overwrite: bool) -> "StreamWriter":
        from odradek.spark.writing import StreamWriter

        return StreamWriter(self._sink_options(schema), schema)

    def _sink_options(self, schema: StructType) -> SinkOptions:
        options = parse_sink_options(self.options)
        check_sink_schema(schema, options)
        warn_of_ignored(options.properties)
        return options


def _tasks(ranges: list[OffsetRange], planner: Planner) -> list[InputPartition]:
    options = planner.options
    archived, rest = planner.split(ranges)
    pieces = split_ranges(rest, options.min_partitions, options.max_records_per_partition)
    return [*archived, *(RangePartition(piece) for piece in pieces)]


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema

    @called_by_spark
    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        warn_of_ignored(options.properties)
        with borrow_cluster(options.properties.client) as cluster:
            planner = Planner(options, cluster)
            return _tasks(planner.batch_ranges(), planner)

    @iterated_by_spark
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_rows(partition, self._options, self._schema)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Exists as long as its query, next to the driver; it remembers things only to save work."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema
        self._was_reached = False
        self._latest: Offsets = {}
        self._target: Offsets | None = None
        self._available_now = False
        self._last_trigger_ms = 0
        self._committed: Offsets = {}

    @called_by_spark
    def initialOffset(self) -> dict[str, Any]:
        warn_of_ignored(self._options.properties)
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadMaxRows(UNLIMITED)

    def prepareForTriggerAvailableNow(self) -> None:
        self._available_now = True

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return to_checkpoint(self._latest) if self._latest else None

    @called_by_spark
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        with self._cluster(is_known=bool(start)) as cluster:
            planner, begun = Planner(self._options, cluster), from_checkpoint(start)
            self._commit_to_group(cluster, begun)
            latest, added = self._latest_and_added(planner, begun if start else None)
        end = self._limited(begun | added, latest, limit)
        if start and not added:
            return start if end == begun or not end else to_checkpoint(end)
        return to_checkpoint(end, added)

    @contextmanager
    def _cluster(self, *, is_known: bool) -> Iterator[Cluster]:
        """A query with a checkpoint has reached its brokers some day, and waits for them."""
        client = self._options.properties.client
        with borrow_cluster(client, was_reached=is_known or self._was_reached) as cluster:
            yield cluster
            self._was_reached = cluster.was_reached

    def _latest_and_added(self, planner: Planner, begun: Offsets | None) -> tuple[Offsets, Offsets]:
        """Return where the partitions end, and where those start that are new to the query: at first, all of them."""
        if begun is None:
            added = planner.resolve(self._options.start, is_start=True)
            latest = self._latest_or_target(planner, list(added), added)
            return latest, planner.begin_within(added, latest)
        target = self._target
        if target is None:
            target = self._latest_or_target(planner, planner.partitions(begun), begun)
        return target, planner.new_partitions(target.keys() - begun.keys())

    def _latest_or_target(
        self, planner: Planner, partitions: list[TopicPartition], begun: Offsets
    ) -> Offsets:
        self._latest = planner.latest(partitions, known=begun)
        if self._available_now:
            self._target = self._latest
        return self._latest

    def _limited(self, begun: Offsets, latest: Offsets, limit: ReadLimit) -> Offsets:
        if isinstance(limit, ReadAllAvailable):
            return latest
        if self._waits_for_more(begun, latest):
            return begun
        highest = self._options.max_offsets_per_trigger
        return latest if highest is None else share_out(highest, begun, latest)

    def _waits_for_more(self, begun: Offsets, latest: Offsets) -> bool:
        """True while there are too few rows and the longest wait is not over. AvailableNow does not wait."""
        lowest = self._options.min_offsets_per_trigger
        if lowest is None or self._available_now:
            return False
        now_ms = int(time.time() * 1000)
        waiting = sum(latest[key] - begun.get(key, 0) for key in latest)
        in_time = now_ms - self._last_trigger_ms < self._options.max_trigger_delay_ms
        if waiting < lowest and in_time:
            return True
        self._last_trigger_ms = now_ms
        return False

    @called_by_spark
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        added = begun_in(end)
        if not start and added is None:
            raise InvalidOption(
                "checkpointLocation",
                "Spark's Kafka connector started the first batch of this query and did not finish it; "
                "run the query once with format('kafka'), then switch",
            )
        options, begun, ends = self._options, (added or {}) | from_checkpoint(start), from_checkpoint(end)
        if begun == ends:
            return []
        with self._cluster(is_known=True) as cluster:
            planner = Planner(options, cluster)
            return _tasks(planner.stream_ranges(begun, ends), planner)

    @iterated_by_spark
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_rows(partition, self._options, self._schema)

    def _commit_to_group(self, cluster: Cluster, finished: Offsets) -> None:
        group = self._options.commit_group
        if group is None or not finished or finished == self._committed:
            return
        try:
            cluster.commit_offsets(group, finished, GROUP_COMMIT_TIMEOUT_S)
        except (KafkaError, ConnectionLost, TimedOut) as error:
            log.warning("option 'commitGroup': offsets of group %s were not committed: %s", group, error)
        self._committed = finished


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises the reason why there is no reader as soon as it is used."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    @called_by_spark
    def prepareForTriggerAvailableNow(self) -> None:
        raise self._error

    @called_by_spark
    def initialOffset(self) -> dict[str, Any]:
        raise self._error

    @called_by_spark
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        raise self._error

    @called_by_spark
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        raise self._error

    @called_by_spark
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self._error


_named: set[str] = set()


def warn_of_ignored(properties: Properties) -> None:
    """Each setting once per process, although Spark constructs this for every batch.

    The writer of a stream is also created in a process that only commits, which does not repeat the warning.
    """
    if COMMITTING in sys.modules:
        return
    for name, reason in properties.ignored.items():
        if name not in _named:
            _named.add(name)
            log.warning("option 'kafka.%s' is ignored: %s", name, reason)
