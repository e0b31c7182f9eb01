"""Orders from a topic: a table of all, a table of totals, and the large ones to another topic."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()
BROKER = os.environ.get("ODRADEK_BOOTSTRAP_SERVER", "localhost:9092")


@dp.table
def orders() -> DataFrame:
    reader = spark.readStream.format("odradek").option("kafka.bootstrap.servers", BROKER)
    records = reader.option("subscribe", "orders").option("startingOffsets", "earliest").load()
    row = F.from_json(F.col("value").cast("string"), "id BIGINT, amount DOUBLE")
    return records.select(row.alias("row")).select("row.*")


@dp.materialized_view
def totals() -> DataFrame:
    return spark.read.table("orders").agg(F.count("*").alias("orders"), F.sum("amount").alias("amount"))


dp.create_sink("large_orders", "odradek", {"kafka.bootstrap.servers": BROKER, "topic": "large-orders"})


@dp.append_flow(target="large_orders")
def large() -> DataFrame:
    rows = spark.readStream.table("orders").where("amount >= 100")
    return rows.select(F.col("id").cast("string").alias("key"), F.to_json(F.struct("*")).alias("value"))
