"""Functions for a pipeline's transforms, as a user would write them beside the file."""

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def priced(orders: DataFrame, books: DataFrame) -> DataFrame:
    joined = orders.join(books, orders["id"] == books["BOOK"], "left")
    return joined.select(orders["id"], F.col("TITLE").alias("title"), shouted(F.col("TITLE")).alias("loud"))


def titled(orders: DataFrame, books: DataFrame) -> DataFrame:
    joined = orders.join(books, orders["id"] % 2 == books["BOOK"])
    return joined.select(
        "id", F.col("TITLE").alias("title"), F.col("_partition").alias("p"), F.col("_offset").alias("o")
    )


@F.udf("string")
def shouted(title: str | None) -> str | None:
    if title == "fail":
        raise ValueError("this title cannot be shouted")
    return None if title is None else title.upper()


def same(orders: DataFrame) -> DataFrame:
    return orders


def not_a_frame(orders: DataFrame) -> int:
    return 5


def broken(orders: DataFrame) -> DataFrame:
    return orders.select("no_such_column")


@F.udf("bigint")
def doubled(number: int) -> int:
    if number == 13:
        raise ValueError("13 is unlucky")
    return number * 2


def lucky_batch(orders: pa.RecordBatch) -> pa.RecordBatch:
    """A function of Arrow batches."""
    if pc.any(pc.equal(orders["id"], 13)).as_py():
        raise ValueError("13 is unlucky")
    return pa.record_batch({"id": orders["id"], "twice": pc.multiply(orders["id"], 2)})


def lucky(orders: DataFrame) -> DataFrame:
    return orders.select("id", doubled("id").alias("twice"))
