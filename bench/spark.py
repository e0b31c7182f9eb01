"""`make bench-spark`: our Spark source and sink against Spark's own Kafka connector, side by side.

One broker, one topic, one session, one run: 100-byte distinct values in four partitions, read with all seven
columns (CRC checked) into nothing and into a sum, batch and streaming, plain and lz4; written keyed with
acks=all. Every figure is the median of five passes after three that warm up, and beside it the CPU that a
million rows took, of Spark's JVM, its Python workers and our broker: a busy machine changes the first, hardly
the second. Without Maven Central there is nothing to compare with, and ours is printed alone.

    python -m bench.spark [--rows 5000000] [--broker odradek|kafka] [--only source,lz4,stream,sink,memory]
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic
from tools.peer.kafka import KafkaPeer, PeerUnavailable
from tools.spark_jars import connector_jars

from odradek.spark.environment import missing

WARM_UP_PASSES, MEASURED_PASSES = 3, 5
PARTITIONS = 4
VALUE_BYTES = 100
TUNED_SOURCE = {
    "kafka.max.poll.records": "50000",
    "kafka.max.partition.fetch.bytes": "16777216",
    "kafka.fetch.max.bytes": "67108864",
}
TUNED_SINK = {"kafka.linger.ms": "20", "kafka.batch.size": "1048576", "kafka.buffer.memory": "134217728"}
PARTS = ("source", "lz4", "stream", "sink", "memory")


@contextlib.contextmanager
def odradek_broker(directory: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "odradek", "up", "--json", "--port", "0", "--data-dir", str(directory)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["bootstrap"]
    finally:
        process.terminate()
        process.wait(30)


@contextlib.contextmanager
def kafka_broker(directory: Path) -> Iterator[str]:
    with KafkaPeer() as peer:
        yield peer.bootstrap


def session(jars: list[Path]) -> Any:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("bench")
    settings: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "3g",
        "spark.log.level": "ERROR",
    }
    settings |= {"spark.driver.host": "127.0.0.1", "spark.ui.showConsoleProgress": "false"}
    if jars:
        settings["spark.jars"] = ",".join(map(str, jars))
    return builder.config(map=settings).getOrCreate()


class Figures(NamedTuple):
    rate: float  # millions of rows a second
    cpu: float  # seconds of CPU for a million rows

    def __str__(self) -> str:
        return f"{self.rate:6.2f} M rows/s  {self.cpu:5.2f} s CPU/M"


def cpu_seconds() -> float:
    """Of all processes that descend from this one, those that have ended included."""
    parents, times = {}, {}
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            fields = (directory / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        parents[int(directory.name)] = int(fields[1])
        times[int(directory.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    family = {os.getpid()}
    while found := {child for child, parent in parents.items() if parent in family} - family:
        family |= found
    return sum(times[one] for one in family - {os.getpid()})


def measure(work: Callable[[], None], rows: int) -> Figures:
    start, cpu_start = time.perf_counter(), cpu_seconds()
    work()
    seconds, cpu = time.perf_counter() - start, cpu_seconds() - cpu_start
    return Figures(rows / 1e6 / seconds, cpu / (rows / 1e6))


def median_of(passes: list[Figures]) -> Figures:
    return Figures(
        statistics.median(one.rate for one in passes), statistics.median(one.cpu for one in passes)
    )


class Bench:
    def __init__(self, spark: Any, bootstrap: str, rows: int, has_jvm_connector: bool) -> None:
        self.spark, self.bootstrap, self.rows = spark, bootstrap, rows
        self.has_jvm_connector = has_jvm_connector
        self.servers = {"kafka.bootstrap.servers": bootstrap}
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._topics = 0

    def new_topic(self) -> str:
        self._topics += 1
        name = f"bench-{self._topics}"
        self._admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
        return name

    def filled_topic(self, rows: int, **options: str) -> str:
        name = self.new_topic()
        self.write("odradek", self.values(rows), name, options)
        return name

    def values(self, rows: int) -> Any:
        """Distinct, keyed, of 100 bytes."""
        text = f"rpad(concat(id, '-', uuid()), {VALUE_BYTES}, 'x')"
        return self.spark.range(0, rows, 1, 4).selectExpr("CAST(id AS STRING) AS key", f"{text} AS value")

    def write(self, connector: str, frame: Any, topic: str, options: dict[str, str]) -> None:
        writer = frame.write.format(connector).options(**self.servers, **options).option("topic", topic)
        writer.mode("append").save()

    def read(self, connector: str, topic: str, options: dict[str, str]) -> Any:
        reader = self.spark.read.format(connector).options(**self.servers, **options)
        return reader.option("subscribe", topic).load()

    def compare(
        self,
        title: str,
        work: Callable[[str, dict[str, str]], Callable[[], None]],
        rows: int,
        tuned: dict[str, str],
    ) -> None:
        """The three take turns, so that whatever else the machine does slows them alike."""
        works = {title: work("odradek", {})}
        if self.has_jvm_connector:
            works |= {"    JVM": work("kafka", {}), "    JVM tuned": work("kafka", tuned)}
        passes: dict[str, list[Figures]] = {label: [] for label in works}
        for _ in range(WARM_UP_PASSES + MEASURED_PASSES):
            for label, one in works.items():
                passes[label].append(measure(one, rows))
        medians = {label: median_of(figures[WARM_UP_PASSES:]) for label, figures in passes.items()}
        for label, figures in medians.items():
            ratio = medians[title].rate / figures.rate
            print(f"{label:32} {figures}" + (f"   ours: x{ratio:.1f}" if label != title else ""), flush=True)

    def source(self, topic: str, label: str) -> None:
        def noop(connector: str, options: dict[str, str]) -> Callable[[], None]:
            return lambda: self.read(connector, topic, options).write.format("noop").mode("overwrite").save()

        def total(connector: str, options: dict[str, str]) -> Callable[[], None]:
            def work() -> None:
                frame = self.read(connector, topic, options).selectExpr("sum(length(value))")
                assert frame.collect()[0][0] == self.rows * VALUE_BYTES

            return work

        self.compare(f"source, {label}, to nothing", noop, self.rows, TUNED_SOURCE)
        self.compare(f"source, {label}, sum of lengths", total, self.rows, TUNED_SOURCE)

    def stream(self, topic: str) -> None:
        def drained(connector: str, options: dict[str, str]) -> Callable[[], None]:
            def work() -> None:
                checkpoint = tempfile.mkdtemp()
                reader = self.spark.readStream.format(connector).options(**self.servers, **options)
                frame = reader.option("subscribe", topic).option("startingOffsets", "earliest").load()
                writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
                writer.trigger(availableNow=True).start().awaitTermination()
                shutil.rmtree(checkpoint)

            return work

        self.compare("source, streaming, to nothing", drained, self.rows, TUNED_SOURCE)

    def sink(self) -> None:
        rows = self.rows // 5
        frame = self.values(rows).cache()
        frame.count()

        def written(connector: str, options: dict[str, str]) -> Callable[[], None]:
            topic = self.new_topic()
            return lambda: self.write(connector, frame, topic, options)

        self.compare("sink, keyed, acks=all", written, rows, TUNED_SINK)
        frame.unpersist()


def worker_memory(bench: Bench, rows: int) -> int:
    """The peak of the largest reader's resident memory, in bytes, asked of it in a process of its own."""
    topic = bench.filled_topic(rows)
    program = (
        "import resource, sys\n"
        "from odradek.spark.options import parse_source_options\n"
        "from odradek.spark.planning import Planner\n"
        "from odradek.spark.reading import RangePartition, read_rows\n"
        "from odradek.spark.schema import source_schema\n"
        "from odradek.client.cluster import borrow_cluster\n"
        "given = {'kafka.bootstrap.servers': sys.argv[1], 'subscribe': sys.argv[2]}\n"
        "options = parse_source_options(given, streaming=False)\n"
        "with borrow_cluster(options.properties.client) as cluster:\n"
        "    ranges = Planner(options, cluster).batch_ranges()\n"
        "rows = 0\n"
        "for one in ranges:\n"
        "    for batch in read_rows(RangePartition(one), options, source_schema(False)):\n"
        "        rows += batch.num_rows\n"
        "print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)\n"
    )
    output = subprocess.check_output([sys.executable, "-c", program, bench.bootstrap, topic], text=True)
    found, peak = map(int, output.split())
    assert found == rows
    return peak


def memory(bench: Bench) -> None:
    few, many = 1_000_000, 20_000_000
    small, large = worker_memory(bench, few), worker_memory(bench, many)
    print(
        f"{'memory of a reader':32} {small / 2**20:6.0f} MB at {few:,} rows, {large / 2**20:.0f} MB at {many:,} "
        f"(x{large / small:.2f})",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--broker", choices=("odradek", "kafka"), default="odradek")
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {', '.join(PARTS)}")
    arguments = parser.parse_args()
    reason = missing()
    if reason is not None:
        print(reason, file=sys.stderr)
        return 1
    try:
        jars = connector_jars()
    except PeerUnavailable as error:
        print(f"no JVM connector to compare with: {error}")
        jars = []
    wanted = set(arguments.only.split(","))
    start_broker = {"odradek": odradek_broker, "kafka": kafka_broker}[arguments.broker]
    with tempfile.TemporaryDirectory() as directory, start_broker(Path(directory) / "data") as bootstrap:
        spark = session(jars)
        bench = Bench(spark, bootstrap, arguments.rows, bool(jars))
        print(f"{arguments.rows:,} rows of {VALUE_BYTES} bytes, broker: {arguments.broker}", flush=True)
        if wanted & {"source", "stream"}:
            topic = bench.filled_topic(arguments.rows)
            if "source" in wanted:
                bench.source(topic, "plain")
            if "stream" in wanted:
                bench.stream(topic)
        if "lz4" in wanted:
            topic = bench.filled_topic(arguments.rows, **{"kafka.compression.type": "lz4"})
            bench.source(topic, "lz4")
        if "sink" in wanted:
            bench.sink()
        if "memory" in wanted:
            memory(bench)
        spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
