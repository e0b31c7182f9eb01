"""Print options with which Java starts Spark in half the time: an archive of its classes, as pipelines have one.

    SPARK_SUBMIT_OPTS="$(python tools/spark_classes.py)" python my_program.py

If there is no archive of programs like the tests yet, Spark is started here, and uses what most programs use, so that
Java can store one (`odradek.spark.class_archive` says where).
"""

import os
import tempfile

from pyspark.sql import SparkSession

from odradek.spark.class_archive import java_options

KIND = "tests"


def main() -> None:
    options = java_options(KIND, stores=True)
    if "ArchiveClassesAtExit" in options:
        store(options)
        options = java_options(KIND, stores=False)
    print(options)


def store(options: str) -> None:
    os.environ["SPARK_SUBMIT_OPTS"] = options
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
    del os.environ["SPARK_SUBMIT_OPTS"]


if __name__ == "__main__":
    main()
