"""The rows of a batch at the driver, as Arrow batches, for sinks that Spark's tasks cannot write.

Tasks compute all rows and make Arrow streams of them, which Spark keeps; then the driver fetches them one partition
after the other. So everything is computed before the first row is written, and the driver needs memory for one
partition.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

STREAM = "rows BINARY, row_count BIGINT"


class Gathered:
    """`count` is the number of rows."""

    def __init__(self, streams: "DataFrame") -> None:
        from pyspark.sql import functions as F

        self._streams = streams
        found = streams.agg(F.sum("row_count")).collect()[0][0]
        self.count = int(found or 0)

    def __iter__(self) -> Iterator["pa.RecordBatch"]:
        import pyarrow as pa

        if not self.count:
            return
        for one in self._streams.toLocalIterator(prefetchPartitions=True):
            with pa.ipc.open_stream(pa.BufferReader(bytes(one.rows))) as stream:
                yield from stream


@contextmanager
def gathered(frame: "DataFrame") -> Iterator[Gathered]:
    """Runs the plan, once."""
    streams = frame.mapInArrow(_as_streams, STREAM).persist()
    try:
        yield Gathered(streams)
    finally:
        streams.unpersist()


def _as_streams(batches: Iterator["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
    import pyarrow as pa

    for batch in batches:
        if batch.num_rows:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
            data = pa.array([sink.getvalue().to_pybytes()], pa.binary())
            yield pa.RecordBatch.from_arrays(
                [data, pa.array([batch.num_rows], pa.int64())], ["rows", "row_count"]
            )
