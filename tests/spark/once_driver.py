"""A Spark program that writes exactly once, and meets with an accident at the step that its orders name.

    python once_driver.py   (then lines of JSON on standard input: each orders a query, until it is finished or failed)

The plan is not deterministic, and has a Python function in it. The steps are those of the product's own writer; around
each stands one that carries out what was ordered:

    lose the JVM       kill -9; Python goes on, as far as it can
    lose Python        kill -9 of this process; its JVM ends by itself
    stop               SIGSTOP of both, until the test lets them go on
    lose an executor, lose all executors
    ask                say so, and go on once the test has answered

Rows come from Spark's generator of numbers: one batch for each query that starts, besides the one that it has to run
again. Our own source, which `test_spark_crash` kills, would start four more processes of Python each time.
"""

import json
import os
import signal
import sys
import threading
import time
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
        self.moment, self.nth, self.jvm, self.action = "never", 1, 0, "ask"
        self.writing: threading.Thread | None = None  # what goes on without a JVM

    def passing(self, moment: str) -> None:
        if moment != self.moment:
            return
        self.nth -= 1
        if self.nth > 0:
            return
        self.moment = "passed"
        ACTIONS[self.action](self.jvm)


def lose_the_jvm(jvm: int) -> None:
    plan.writing = threading.current_thread()
    os.kill(jvm, signal.SIGKILL)


def lose_python(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


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
    """Return the executors that a driver with the master local-cluster[…] has started."""
    return [child for child in children_of(jvm) if EXECUTOR in command_of(child)]


def command_of(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""  # it has just ended


def children_of(process: int) -> list[int]:
    found = []
    for path in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            found += [int(child) for child in path.read_text().split()]
        except (FileNotFoundError, ProcessLookupError):
            pass  # a thread that has just ended
    return found


def ask(_: int) -> None:
    print("asking", flush=True)
    sys.stdin.readline()


EXECUTOR = b"CoarseGrainedExecutorBackend"
ACTIONS = {
    "lose the JVM": lose_the_jvm,
    "lose Python": lose_python,
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

    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", order["rows"]).load()
    frame = numbers.selectExpr("value % 2 AS partition", "value div 2 AS offset")
    if order.get("stateful"):
        frame = frame.groupBy("partition").count()
    what = "count" if order.get("stateful") else "offset"
    frame = frame.repartition(order["tasks"])
    value = F.concat_ws("/", "partition", what, F.udf(shout)(F.lit("x")), F.rand())
    writer = frame.select(value.alias("value")).writeStream
    writer = writer.outputMode("update" if order.get("stateful") else "append")
    if order.get("second sink"):
        return writer.foreachBatch(both(order["sink"], order["second sink"]))
    return write_exactly_once(writer, order["sink"])


def run(spark, order) -> str:
    """Run, and return how it ended."""
    from odradek.spark import blobs, exactly_once
    from odradek.spark.failures import sentence_of

    plan.moment, plan.nth, plan.action = order["moment"], order["nth"], order["action"]
    if order.get("rows stay in executors"):
        exactly_once.FIRST_INLINE_BYTES, blobs.ROUND_BYTES = 0, 1
        wait_for_executors(spark, order["rows stay in executors"])
    writer = query_of(spark, order).option("checkpointLocation", order["checkpoint"])
    try:
        writer.trigger(availableNow=True).start().awaitTermination()
        return "finished"
    except Exception as error:
        return f"failed: {sentence_of(error) or error}"


def wait_for_executors(spark, count: int) -> None:
    """Wait until those that were lost are replaced."""
    tracker = spark.sparkContext._jsc.sc().statusTracker()
    deadline = time.monotonic() + 120
    while len(tracker.getExecutorInfos()) < count + 1 or len(executors_of(plan.jvm)) < count:
        assert time.monotonic() < deadline, "executors were not replaced"
        time.sleep(0.1)


def main() -> None:
    from pyspark.sql import SparkSession

    settings = json.loads(os.environ["ODRADEK_SPARK_SETTINGS"])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    plan.jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()
    watch_steps()
    print("ready", flush=True)
    for line in iter(sys.stdin.readline, ""):
        print(run(spark, json.loads(line)), flush=True)
        if plan.writing is not None:
            plan.writing.join()
            break


if __name__ == "__main__":
    main()
