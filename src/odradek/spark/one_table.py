"""A topic with its history, as a batch: Spark's own scan of an archive's Parquet files, in union with the topic's tail.

Both sides are pinned when the table is made: a version of the archive, and the last stable offsets of the topic. So
each record is there once, however often the frame is computed, while archiving and merging go on. Spark reads only the
columns that are needed, and skips row groups by their statistics of `timestamp`, `offset` and `partition`. Where it has
no jar for the storage of the archive, our own reader scans it (`archive_scan`).
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from odradek.archive.describing import describe
from odradek.archive.layout import Snapshot
from odradek.archive.location import Location
from odradek.archive.planning import Topic, check_tail
from odradek.client.cluster import borrow_cluster
from odradek.spark.options import parse_source_options
from odradek.spark.schema import source_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OBJECT_STORAGE = {"s3://": "s3a://"}  # as Hadoop calls it


def table(
    spark: "SparkSession",
    archive: str,
    topic: str,
    options: Mapping[str, str] | None,
    storage: Mapping[str, str] | None,
) -> "DataFrame":
    from odradek.archive.tables import Table

    location = Location.of(archive, topic, storage)
    snapshot = Table.open(location).pinned()
    history = _history(spark, location, snapshot)
    if options is None:
        return history
    given = {
        "kafka.isolation.level": "read_committed",
        **options,
        "subscribe": topic,
        "includeHeaders": "true",
    }
    parsed = parse_source_options(given, streaming=False)
    with borrow_cluster(parsed.properties.client) as cluster:
        now = describe(cluster, topic)
    check_tail(now, snapshot)
    return history.unionByName(_tail(spark, given, now, snapshot))


def _history(spark: "SparkSession", location: Location, snapshot: Snapshot) -> "DataFrame":
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    schema = source_schema(include_headers=True)
    if location.local is None and not _reaches(spark, location.uri):
        return _scanned(spark, location, snapshot)
    paths = [_for_spark(location.absolute(file.path)) for file in snapshot.files]
    if not paths:
        return spark.createDataFrame([], schema)
    stored = StructType([field for field in schema.fields if field.name != "topic"])
    rows = spark.read.schema(stored).parquet(*paths).withColumn("topic", F.lit(snapshot.topic))
    return rows.select(*schema.fieldNames())


def _scanned(spark: "SparkSession", location: Location, snapshot: Snapshot) -> "DataFrame":
    from odradek.spark.archive_scan import NAME, PUSHDOWN, ArchiveSource, scan_options

    spark.dataSource.register(ArchiveSource)
    pushdown = (spark.conf.get(PUSHDOWN, "false") or "").lower() == "true"
    return spark.read.format(NAME).options(**scan_options(location, snapshot, pushdown=pushdown)).load()


def _reaches(spark: "SparkSession", uri: str) -> bool:
    """True if Spark has a file system for this storage. On Connect it is not asked."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        context: Any = spark.sparkContext
        files = context._jvm.org.apache.hadoop.fs.FileSystem
        files.getFileSystemClass(_for_spark(uri).partition("://")[0], context._jsc.hadoopConfiguration())
    except (Py4JError, PySparkException):
        return False
    return True


def _tail(spark: "SparkSession", given: Mapping[str, str], now: Topic, snapshot: Snapshot) -> "DataFrame":
    starts = {str(number): snapshot.ends.get(number, log.start) for number, log in now.logs.items()}
    ends = {str(number): max(log.stable, starts[str(number)]) for number, log in now.logs.items()}
    limits = {"startingOffsets": starts, "endingOffsets": ends}
    reader = spark.read.format("odradek").options(**given)
    return reader.options(**{name: json.dumps({now.name: found}) for name, found in limits.items()}).load()


def _for_spark(uri: str) -> str:
    for own, hadoops in OBJECT_STORAGE.items():
        if uri.startswith(own):
            return hadoops + uri.removeprefix(own)
    return uri
