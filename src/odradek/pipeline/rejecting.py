"""Rows that a database refuses, found by halving the batch.

A batch goes to the database in one transaction, so a refused batch has left nothing there. If the refusal
is about a row (a constraint, a value out of range: SQLSTATE classes 22 and 23), each half is tried in its own
transaction, until single rows are left; those become dead letters. Other failures are handled by the run.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from odradek.pipeline.dead_letters import row_letters, write_letters
from odradek.pipeline.definition import JdbcSink, Pipeline, Sink
from odradek.pipeline.failures import ROW_REFUSED, refusal
from odradek.pipeline.sinks import without_metadata, write_jdbc

NUMBER = "__number"


def write_jdbc_rows(pipeline: Pipeline, sink: Sink, rows: DataFrame, place: str) -> int:
    """Write a batch; how many rows became dead letters. In files `place` names them."""
    assert isinstance(sink.target, JdbcSink)
    try:
        write_jdbc(sink.target, without_metadata(rows))
    except Exception as error:
        if pipeline.dead_letters is None or not ROW_REFUSED.search(str(error)):
            raise
        return _write_by_halves(pipeline, sink, sink.target, rows, place)
    return 0


def _write_by_halves(pipeline: Pipeline, sink: Sink, target: JdbcSink, rows: DataFrame, place: str) -> int:
    spark = rows.sparkSession
    found = rows.collect()
    numbered = (
        spark.createDataFrame(found, rows.schema)
        .coalesce(1)
        .withColumn(NUMBER, F.monotonically_increasing_id())
    )
    refused: dict[int, str] = {}

    def write(first: int, end: int) -> None:
        part = numbered.where((F.col(NUMBER) >= first) & (F.col(NUMBER) < end)).drop(NUMBER)
        try:
            write_jdbc(target, without_metadata(part))
        except Exception as error:
            if not ROW_REFUSED.search(str(error)):
                raise
            if end - first == 1:
                refused[first] = refusal(str(error))
                return
            middle = (first + end) // 2
            write(first, middle)
            write(middle, end)

    write(0, len(found))
    for number, reason in refused.items():
        row = numbered.where(F.col(NUMBER) == number).drop(NUMBER)
        letters = row_letters(row, pipeline, "sink", sink.name, F.lit(reason))
        write_letters(letters, pipeline, f"{place}-{number}")
    return len(refused)
