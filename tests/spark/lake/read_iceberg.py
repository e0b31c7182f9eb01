"""Prints the rows of an Iceberg table as JSON, a row a line, by Iceberg's own connector. It has a PySpark of its own.

python read_iceberg.py JARS METADATA [CONDITION]
"""

import sys

from pyspark.sql import SparkSession


def main() -> None:
    jars, metadata, *conditions = sys.argv[1:]
    settings = {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
    }
    spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
    rows = spark.read.format("iceberg").load(metadata)
    for condition in conditions:
        rows = rows.where(condition)
    for line in rows.toJSON().collect():
        print(line)
    spark.stop()


if __name__ == "__main__":
    main()
