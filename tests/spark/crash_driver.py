"""A Spark program that is killed: it waits for its orders, runs a stream from topic to topic, and dies there.

    python crash_driver.py   (then a line of JSON on standard input: what to read, and where to die)

The place is a moment in a batch, counted: the third `read`, the first `commit`. The source and the sink are
those of the product; around each of their methods stands one that may send SIGKILL to the driver's JVM, from
whichever process it happens to run in.
"""

import json
import os
import signal
import sys
from pathlib import Path

from odradek.spark.source import OdradekDataSource, StreamReader
from odradek.spark.writing import StreamWriter

PLAN = "ODRADEK_CRASH_PLAN"


def passing(moment: str) -> None:
    """Called at every moment a crash may be planned for."""
    plan_file = Path(os.environ[PLAN])
    plan = json.loads(plan_file.read_text())
    if plan["moment"] != moment:
        return
    counter = plan_file.with_suffix(".count")
    with counter.open("ab") as file:
        file.write(b".")
    if counter.stat().st_size >= plan["nth"]:
        os.kill(plan["jvm"], signal.SIGKILL)
        os._exit(1)  # nothing more may happen here either


class CrashingReader(StreamReader):
    def latestOffset(self, start, limit):
        passing("latestOffset" if start else "start")
        return super().latestOffset(start, limit)

    def partitions(self, start, end):
        passing("partitions" if start else "first partitions")
        return super().partitions(start, end)

    def read(self, partition):
        passing("read")
        yield from super().read(partition)
        passing("read to the end")


class CrashingWriter(StreamWriter):
    def write(self, iterator):
        passing("write")
        message = super().write(self._watched(iterator))
        passing("written")
        return message

    def _watched(self, iterator):
        for batch in iterator:
            yield batch.slice(0, batch.num_rows // 2)
            passing("half written")
            yield batch.slice(batch.num_rows // 2)

    def commit(self, messages, batchId):
        passing("commit")


class CrashingSource(OdradekDataSource):
    @classmethod
    def name(cls):
        return "odradek-crashing"

    def streamReader(self, schema):
        reader = super().streamReader(schema)
        reader.__class__ = CrashingReader
        return reader

    def streamWriter(self, schema, overwrite):
        writer = super().streamWriter(schema, overwrite)
        writer.__class__ = CrashingWriter
        return writer


def main() -> None:
    from pyspark.sql import SparkSession

    settings = json.loads(os.environ["ODRADEK_SPARK_SETTINGS"])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    here = str(Path(__file__).parent)
    os.environ["PYTHONPATH"] = os.pathsep.join([here, os.environ.get("PYTHONPATH", "")])
    spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
    import crash_driver  # by its name, so that workers import it instead of being sent its code

    spark.dataSource.register(crash_driver.CrashingSource)
    print("ready", flush=True)
    order = json.loads(sys.stdin.readline())
    jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    Path(os.environ[PLAN]).write_text(
        json.dumps({"moment": order["moment"], "nth": order["nth"], "jvm": jvm})
    )
    reader = spark.readStream.format("odradek-crashing").options(**order["source"])
    frame = reader.load().selectExpr(
        "key",
        "value",
        "array(struct('origin' AS key, CAST(concat(partition, '/', offset) AS BINARY) AS value)) AS headers",
    )
    writer = frame.writeStream.format("odradek-crashing").options(**order["sink"])
    query = writer.option("checkpointLocation", order["checkpoint"]).trigger(availableNow=True).start()
    query.awaitTermination()
    print("finished", flush=True)


if __name__ == "__main__":
    main()
