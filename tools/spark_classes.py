"""Start Spark and use what most programs use, so that the JVM can write an archive of the classes that it has loaded.

A JVM that is started with the archive, as by `make test`, loads Spark in half the time:

    SPARK_SUBMIT_OPTS=-XX:ArchiveClassesAtExit=spark.jsa python tools/spark_classes.py
    SPARK_SUBMIT_OPTS=-XX:SharedArchiveFile=spark.jsa python my_program.py
"""

import tempfile

from pyspark.sql import SparkSession


def main() -> None:
    settings = {"spark.ui.enabled": "false", "spark.log.level": "OFF", "spark.sql.shuffle.partitions": "1"}
    spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
    spark.range(3).selectExpr("id", "to_json(struct(id)) AS value").groupBy("value").count().collect()
    with tempfile.TemporaryDirectory() as directory:
        stream = spark.readStream.format("rate").load().writeStream.format("noop")
        stream.option("checkpointLocation", directory).trigger(availableNow=True).start().awaitTermination(60)
        spark.range(3).write.parquet(f"{directory}/rows")
        spark.read.parquet(f"{directory}/rows").collect()
    jvm = spark.sparkContext._gateway.proc
    spark.stop()
    jvm.stdin.close()  # the JVM ends, and writes the archive
    jvm.wait(300)


if __name__ == "__main__":
    main()
