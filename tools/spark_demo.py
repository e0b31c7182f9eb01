"""The demo's second half: a Spark query over the events of a topic, and a stream back into another topic.

    python tools/spark_demo.py BOOTSTRAP TOPIC ROWS

ROWS is how many events were sent; everything that is read is counted against it. Where Spark cannot run, one
line says what is missing, and that is no failure: the first half stands by itself.
"""

import os
import sys
import tempfile
from typing import Any

from odradek.spark.environment import missing

TARGET = "orders-by-customer"


def start_session() -> Any:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    settings |= {"spark.sql.shuffle.partitions": "2", "spark.driver.host": "127.0.0.1"}
    return SparkSession.builder.master("local[2]").appName("odradek demo").config(map=settings).getOrCreate()


def query_events(spark: Any, bootstrap: str, topic: str) -> int:
    """Orders and their worth by customer, as a table; how many rows there were."""
    reader = spark.read.format("odradek").option("kafka.bootstrap.servers", bootstrap)
    events = reader.option("subscribe", topic).load()
    orders = events.selectExpr(
        "CAST(key AS STRING) AS customer",
        "CAST(get_json_object(CAST(value AS STRING), '$.price') AS INT) AS price",
    )
    orders.groupBy("customer").agg({"*": "count", "price": "sum"}).orderBy("customer").show()
    return int(events.count())


def stream_back(spark: Any, bootstrap: str, topic: str, checkpoint: str) -> int:
    """Every event to another topic, as a stream that ends when all is read; how many arrived there."""
    servers = {"kafka.bootstrap.servers": bootstrap}
    reader = spark.readStream.format("odradek").options(**servers).option("subscribe", topic)
    frame = reader.option("startingOffsets", "earliest").option("commitGroup", "spark-demo").load()
    writer = frame.select("key", "value").writeStream.format("odradek").options(**servers)
    writer = writer.option("topic", TARGET).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
    return int(spark.read.format("odradek").options(**servers).option("subscribe", TARGET).load().count())


def main(bootstrap: str, topic: str, rows: int) -> int:
    reason = missing()
    if reason is not None:
        print(f"\nThe tour would go on with Spark. {reason}")
        return 0
    print(
        f"\n# the same events as a Spark DataFrame: spark.read.format('odradek').option('subscribe', '{topic}')"
    )
    spark = start_session()
    try:
        read = query_events(spark, bootstrap, topic)
        print(f"# and a stream back into a topic: writeStream.format('odradek').option('topic', '{TARGET}')")
        with tempfile.TemporaryDirectory() as checkpoint:
            written = stream_back(spark, bootstrap, topic, checkpoint)
    finally:
        spark.stop()
    print(f"{rows} events were sent, Spark read {read} and wrote {written} back")
    return 0 if rows == read == written else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
