"""A Spark program that writes exactly once and is killed: it waits for its orders, and dies at the step they name.

    python once_driver.py   (then a line of JSON on standard input: what to read, and where to die)

The plan is not deterministic, and has a Python function in it. The steps are those of the product's own writer; around
each stands one that may kill the JVM and this process, or stop both with SIGSTOP until the test lets them go on.
"""

import json
import os
import signal
import sys

from odradek.client.transactions import TransactionalProducer
from odradek.ledger import protocol as steps
from odradek.ledger.writer import CARRIED_OUT, Writer
from odradek.wire.messages.end_txn import EndTxnResponse

NAMES = {
    steps.Initialize: "initialize",
    steps.ReadLedger: "read the ledger",
    steps.Adopt: "adopt",
    steps.Send: "send",
    steps.Record: "record",
    steps.Commit: "commit",
}


class Plan:
    def __init__(self) -> None:
        self.moment, self.nth, self.jvm, self.stop = "never", 1, 0, False

    def passing(self, moment: str) -> None:
        if moment != self.moment:
            return
        self.nth -= 1
        if self.nth > 0:
            return
        self.moment = "passed"
        if self.stop:
            print("stopping", flush=True)
            os.kill(self.jvm, signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)
            return
        os.kill(self.jvm, signal.SIGKILL)
        os._exit(1)


plan = Plan()


def watch_steps() -> None:
    for step, name in NAMES.items():

        def watched(writer, batch, carry_out=CARRIED_OUT[step], name=name):
            plan.passing(f"before {name}")
            outcome = carry_out(writer, batch)
            plan.passing(f"after {name}")
            return outcome

        CARRIED_OUT[step] = watched
    send, write, connection = TransactionalProducer.send, Writer.write, TransactionalProducer._connection

    def watched_send(producer, records):
        send(producer, records)
        plan.passing("first produce")

    def watched_write(writer, *arguments):
        written = write(writer, *arguments)
        plan.passing("before Spark's commit")
        return written

    def watched_connection(producer):
        return Unanswered(connection(producer))

    TransactionalProducer.send, Writer.write = watched_send, watched_write
    TransactionalProducer._connection = watched_connection


class Unanswered:
    """A connection to the coordinator; EndTxn is sent, and its response not awaited, if that is the moment."""

    def __init__(self, connection) -> None:
        self._connection = connection

    def call(self, request, answer_type):
        self._connection.send(request, answer_type)
        if answer_type is EndTxnResponse:
            plan.passing("EndTxn sent")
        return self._connection.receive()


def shout(text: str) -> str:
    return text.upper()


def main() -> None:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    from odradek.spark import write_exactly_once

    settings = json.loads(os.environ["ODRADEK_SPARK_SETTINGS"])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    print("ready", flush=True)
    order = json.loads(sys.stdin.readline())
    plan.jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    plan.moment, plan.nth, plan.stop = order["moment"], order["nth"], order.get("stop", False)
    watch_steps()
    frame = spark.readStream.format("odradek").options(**order["source"]).load()
    if order.get("stateful"):
        frame = frame.groupBy("partition", "offset").count().selectExpr("*", "'v' AS value")
    frame = frame.repartition(order["tasks"])
    value = F.concat_ws("/", "partition", "offset", F.udf(shout)(F.lit("x")), F.rand())
    rows = frame.select(value.alias("value"))
    mode = "update" if order.get("stateful") else "append"
    writer = write_exactly_once(rows.writeStream.outputMode(mode), order["sink"])
    query = writer.option("checkpointLocation", order["checkpoint"]).trigger(availableNow=True).start()
    query.awaitTermination()
    print("finished", flush=True)


if __name__ == "__main__":
    main()
