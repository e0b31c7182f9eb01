"""A Spark program that writes exactly once, and meets with an accident at the step that its orders name.

    python once_driver.py   (then a line of JSON on standard input: its orders)

The plan is not deterministic, and has a Python function in it. The steps are those of the product's own writer; around
each stands one that carries out what was ordered: "die" (with the JVM), "stop" (both, with SIGSTOP, until the test lets
them go on), "lose an executor" or "lose all executors", or "ask" (say so, and go on once the test has answered).
"""

import json
import os
import signal
import sys
from pathlib import Path

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
        self.moment, self.nth, self.jvm, self.action = "never", 1, 0, "die"

    def passing(self, moment: str) -> None:
        if moment != self.moment:
            return
        self.nth -= 1
        if self.nth > 0:
            return
        self.moment = "passed"
        ACTIONS[self.action](self.jvm)


def die(jvm: int) -> None:
    os.kill(jvm, signal.SIGKILL)
    os._exit(1)


def stop(jvm: int) -> None:
    print("stopping", flush=True)
    os.kill(jvm, signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGSTOP)


def lose_an_executor(jvm: int) -> None:
    lose(executors_of(jvm)[:1])


def lose_all_executors(jvm: int) -> None:
    lose(executors_of(jvm))


def lose(executors: list[int]) -> None:
    for executor in executors:
        os.kill(executor, signal.SIGKILL)
    print(f"lost {len(executors)}", flush=True)


def executors_of(jvm: int) -> list[int]:
    """Those that a driver with the master local-cluster[…] has started."""
    return [child for child in children_of(jvm) if EXECUTOR in Path(f"/proc/{child}/cmdline").read_bytes()]


def children_of(process: int) -> list[int]:
    found = (path.read_text() for path in Path(f"/proc/{process}/task").glob("*/children"))
    return [int(child) for text in found for child in text.split()]


def ask(_: int) -> None:
    print("asking", flush=True)
    sys.stdin.readline()


EXECUTOR = b"CoarseGrainedExecutorBackend"
ACTIONS = {
    "die": die,
    "stop": stop,
    "lose an executor": lose_an_executor,
    "lose all executors": lose_all_executors,
    "ask": ask,
}
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

    def call(self, request, response_type):
        self._connection.send(request, response_type)
        if response_type is EndTxnResponse:
            plan.passing("EndTxn sent")
        return self._connection.receive()


def shout(text: str) -> str:
    return text.upper()


def both(first, second):
    """A user's own function of batches, with two sinks."""
    from odradek.spark import write_once

    def write(batch, number):
        query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        write_once(batch, first, id=f"{query} first {number}")
        write_once(batch, second, id=f"{query} second {number}")

    return write


def query_of(spark, order):
    from pyspark.sql import functions as F

    from odradek.spark import write_exactly_once

    frame = spark.readStream.format("odradek").options(**order["source"]).load()
    if order.get("stateful"):
        frame = frame.groupBy("partition", "offset").count().selectExpr("*", "'v' AS value")
    frame = frame.repartition(order["tasks"])
    value = F.concat_ws("/", "partition", "offset", F.udf(shout)(F.lit("x")), F.rand())
    writer = frame.select(value.alias("value")).writeStream
    writer = writer.outputMode("update" if order.get("stateful") else "append")
    if order.get("second sink"):
        return writer.foreachBatch(both(order["sink"], order["second sink"]))
    return write_exactly_once(writer, order["sink"])


def main() -> None:
    from pyspark.sql import SparkSession

    from odradek.spark import blobs, exactly_once
    from odradek.spark.failures import sentence_of

    settings = json.loads(os.environ["ODRADEK_SPARK_SETTINGS"])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    print("ready", flush=True)
    order = json.loads(sys.stdin.readline())
    plan.jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    plan.moment, plan.nth, plan.action = order["moment"], order["nth"], order.get("action", "die")
    if order.get("rows stay in executors"):
        exactly_once.FIRST_INLINE_BYTES, blobs.ROUND_BYTES = 0, 1
    watch_steps()
    writer = query_of(spark, order).option("checkpointLocation", order["checkpoint"])
    try:
        writer.trigger(availableNow=True).start().awaitTermination()
        print("finished", flush=True)
    except Exception as error:
        print(f"failed: {sentence_of(error) or error}", flush=True)


if __name__ == "__main__":
    main()
