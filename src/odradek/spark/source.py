"""`format("odradek")`: what Spark asks of a data source, answered.

Spark constructs these objects often, in several processes, and pickles them: they hold options and nothing
else. What must survive stands in the checkpoint.

Where a stream begins must be durable before its first row is read, or a crash in the first batch would begin
again at a later `latest`. Spark asks for `initialOffset` and keeps it nowhere. So it is always `{}`; the
first `latestOffset` answers the offsets where the query begins, which makes a first batch without rows, and
Spark writes those down before it runs. New partitions come in the same way: the batch that first knows one
ends at its earliest offset, and the next reads on from there.

`trigger(once=True)` has one batch only. Where the start is one that can be looked up again, as all but `latest`
can, that batch reads from it at once; it is known by its limit, which no other trigger has.

Spark calls `commit` a batch late, and never for the last. But the `start` that it hands to `latestOffset` is
finished work, so that is what is committed to `commitGroup`, for lag to be seen.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
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

from odradek.client.cluster import Cluster, TimedOut, borrow_cluster
from odradek.client.connection import ConnectionLost
from odradek.errors import KafkaError
from odradek.spark.offsets import (
    START_MARK,
    WHOLE_MARK,
    OffsetRange,
    Offsets,
    from_checkpoint,
    share_out,
    split_ranges,
    to_checkpoint,
)
from odradek.spark.options import (
    InvalidOption,
    SinkOptions,
    SourceOptions,
    includes_headers,
    parse_sink_options,
    parse_source_options,
)
from odradek.spark.planning import Planner
from odradek.spark.reading import RangePartition, read_rows
from odradek.spark.schema import check_sink_schema, check_source_schema, source_schema
from odradek.spark.writing import BatchWriter, StreamWriter

GROUP_COMMIT_TIMEOUT_S = 5.0
UNLIMITED = 2**63 - 1

log = logging.getLogger("odradek.spark")


class OdradekDataSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "odradek"

    def schema(self) -> StructType:
        return source_schema(includes_headers(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        check_source_schema(schema, includes_headers(self.options))
        return BatchReader(parse_source_options(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        check_source_schema(schema, includes_headers(self.options))
        return StreamReader(parse_source_options(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if overwrite:
            raise InvalidOption("mode", "a topic cannot be overwritten; use .mode('append')")
        return BatchWriter(self._sink_options(schema), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return StreamWriter(self._sink_options(schema), schema)

    def _sink_options(self, schema: StructType) -> SinkOptions:
        options = parse_sink_options(self.options)
        check_sink_schema(schema, options.topic)
        return options


def _tasks(ranges: list[OffsetRange], options: SourceOptions) -> list[RangePartition]:
    pieces = split_ranges(ranges, options.min_partitions, options.max_records_per_partition)
    return [RangePartition(piece) for piece in pieces]


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        _warn(options)
        with borrow_cluster(options.properties.client) as cluster:
            return _tasks(Planner(options, cluster).batch_ranges(), options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_rows(partition, self._options, self._schema)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives as long as its query, beside the driver; what it remembers is only to save work."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema
        self._latest: Offsets = {}
        self._target: Offsets | None = None
        self._available_now = False
        self._last_trigger_ms = 0
        self._committed: Offsets = {}

    def initialOffset(self) -> dict[str, Any]:
        _warn(self._options)
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

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        with borrow_cluster(self._options.properties.client) as cluster:
            planner = Planner(self._options, cluster)
            if not start:
                return self._first_offset(planner, is_only_batch=isinstance(limit, ReadAllAvailable))
            begun = from_checkpoint(start)
            self._commit_to_group(cluster, begun)
            latest = self._latest_or_target(planner, begun)
            added = planner.new_partitions(latest.keys() - begun.keys())
        end = self._limited(begun, latest, limit) | added
        return start if end == begun or not end else to_checkpoint(end)

    def _first_offset(self, planner: Planner, *, is_only_batch: bool) -> dict[str, Any]:
        begin = planner.resolve(self._options.start, is_start=True)
        if is_only_batch and self._options.start_is_repeatable:
            return to_checkpoint(planner.latest(begin), WHOLE_MARK)
        return to_checkpoint(begin, START_MARK)

    def _latest_or_target(self, planner: Planner, begun: Offsets) -> Offsets:
        if self._target is not None:
            return self._target
        self._latest = planner.latest(planner.partitions(), known=begun)
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
        """Whether too few rows are waiting, and have not been for too long. AvailableNow waits for nothing."""
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

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if not start and START_MARK in end:
            return []
        if not start and WHOLE_MARK not in end:
            raise InvalidOption(
                "checkpointLocation",
                "the first batch of this query was begun by Spark's Kafka connector and never finished; "
                "run the query once more with format('kafka'), then change over",
            )
        options = self._options
        with borrow_cluster(options.properties.client) as cluster:
            planner, ends = Planner(options, cluster), from_checkpoint(end)
            begun = from_checkpoint(start) if start else self._begin_again(planner, ends)
            ranges = planner.stream_ranges(begun, ends)
        return _tasks(ranges, options)

    def _begin_again(self, planner: Planner, ends: Offsets) -> Offsets:
        begin = planner.resolve(self._options.start, is_start=True)
        return {key: begin[key] for key in begin.keys() & ends.keys()}

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


def _warn(options: SourceOptions) -> None:
    for warning in options.properties.warnings:
        log.warning("option 'kafka.%s'", warning)
