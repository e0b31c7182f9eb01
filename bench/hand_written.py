"""The pipeline of `bench.pipeline` as one would write it by hand: PySpark, Spark's own Kafka connector, `from_json`.

It is tuned: large fetches and batches, and one query writes both the large events and the records that cannot be
decoded, by a topic for each row. A second query sums per minute, as state and files need one of their own.

    python -m bench.hand_written BOOTSTRAP SOURCE SINK DEAD JARS
"""

import sys
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

SCHEMA = "id BIGINT, kind STRING, amount DOUBLE, at TIMESTAMP, _corrupt STRING"
JSON_OPTIONS = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
SOURCE = {
    "kafka.max.poll.records": "50000",
    "kafka.max.partition.fetch.bytes": "16777216",
    "kafka.fetch.max.bytes": "67108864",
    "startingOffsets": "earliest",
}
SINK = {"kafka.linger.ms": "20", "kafka.batch.size": "1048576", "kafka.buffer.memory": "134217728"}
SETTINGS = {
    "spark.driver.memory": "3g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.scheduler.mode": "FAIR",
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
}


def main(bootstrap: str, source: str, sink: str, dead: str, jars: str) -> None:
    builder = SparkSession.builder.master("local[2]").appName("by hand").config(map={**SETTINGS})
    spark = builder.config("spark.jars", jars).getOrCreate()
    servers = {"kafka.bootstrap.servers": bootstrap}
    records = spark.readStream.format("kafka").options(**servers, **SOURCE, subscribe=source).load()
    queries = [_topics(records, servers, sink, dead), _revenue(records)]
    for query in queries:
        query.awaitTermination()
    spark.stop()


def _parsed(records: Any) -> Any:
    value = F.col("value").cast("string")
    parsed = records.withColumn("row", F.from_json(value, SCHEMA, JSON_OPTIONS))
    missing = [F.col(f"row.{name}").isNull() for name in ("id", "kind", "amount", "at")]
    broken = F.col("row._corrupt").isNotNull()
    for one in missing:
        broken = broken | one
    return parsed.withColumn("broken", F.coalesce(broken, F.lit(True)))


def _topics(records: Any, servers: dict[str, str], sink: str, dead: str) -> Any:
    broken = F.col("broken")
    row = F.to_json(F.struct("row.id", "row.kind", "row.amount"))
    rows = (
        _parsed(records)
        .where(broken | (F.col("row.kind") == "large"))
        .select(
            F.when(broken, F.lit(dead)).otherwise(F.lit(sink)).alias("topic"),
            F.when(broken, F.col("key"))
            .otherwise(F.col("row.id").cast("string").cast("binary"))
            .alias("key"),
            F.when(broken, F.col("value")).otherwise(row.cast("binary")).alias("value"),
        )
    )
    writer = rows.writeStream.format("kafka").options(
        **servers, **SINK, checkpointLocation="checkpoint/topics"
    )
    return writer.trigger(availableNow=True).start()


def _revenue(records: Any) -> Any:
    rows = _parsed(records).where(~F.col("broken")).select("row.*").withWatermark("at", "1 minute")
    sums = rows.groupBy(F.window("at", "1 minute")).agg(
        F.count(F.lit(1)).alias("events"), F.sum("amount").alias("amount")
    )
    sums = sums.select(F.col("window.start").alias("minute"), "events", "amount")
    writer = sums.writeStream.format("parquet").option("path", "revenue")
    return writer.option("checkpointLocation", "checkpoint/revenue").trigger(availableNow=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
