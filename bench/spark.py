"""`make bench-spark`: our Spark source and sink against Spark's own Kafka connector, side by side.

One broker, one topic, one session, one run: 100-byte distinct values in four partitions, read with all seven
columns (CRC checked) into nothing and into a sum, batch and streaming, plain and lz4; written keyed with
acks=all; JSON values decoded to typed columns, by our source and by `from_json` behind Spark's. Every figure is the
median of five passes after three that warm up, and beside it the CPU that a million rows took, of Spark's JVM, its
Python workers and our broker: a busy machine changes the first, hardly the second. Then a pipeline of ten million
events, in turn with the same written by hand (`bench.pipeline`), and PostgreSQL as a sink (`bench.database`). Without
Maven Central there is nothing to compare with, and ours is printed alone.

    python -m bench.spark [--rows 5000000] [--broker odradek|kafka] [--only source,lz4,stream,typed,…]

Every pass is stored in results/spark.json, those that warm up apart, and the table of medians in spark.md. A run of
some parts only has a name of its own: `--only typed` writes spark-typed.json and spark-typed.md. The parts `lake` and
`database` write tables of their own instead, spark-lake.md and spark-database.md.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic

import odradek.spark
from bench import pipeline
from bench.database import database
from bench.lake import lake
from bench.measure import MB, Spread, machine_facts, ratio_of, spread_of
from bench.once import once, once_lines
from bench.report import number_text, spread_text
from bench.runner import RESULTS, Run
from odradek import __version__
from odradek.spark.environment import missing
from tools.peer.kafka import KAFKA_VERSION, KafkaPeer, PeerUnavailable
from tools.spark_jars import CONNECTOR_VERSION, connector_jars

WARM_UP_PASSES, MEASURED_PASSES = 3, 5
PARTITIONS = 4
VALUE_BYTES = 100
TUNED_SOURCE = {
    "kafka.max.poll.records": "50000",
    "kafka.max.partition.fetch.bytes": "16777216",
    "kafka.fetch.max.bytes": "67108864",
}
TUNED_SINK = {"kafka.linger.ms": "20", "kafka.batch.size": "1048576", "kafka.buffer.memory": "134217728"}
PARTS = (
    *("source", "lz4", "stream", "typed", "sink", "once", "lake", "database", "memory", "pipeline", "small"),
)
DEFAULT_ROWS = 5_000_000
EVENT = "id BIGINT, kind STRING, amount DOUBLE, at TIMESTAMP"
WIDE = ", ".join(f"f{number} {('BIGINT', 'STRING', 'DOUBLE')[number % 3]}" for number in range(50))
THREE_OF_WIDE = "f0 BIGINT, f20 DOUBLE, f40 STRING"
OURS, THEIRS, THEIRS_TUNED = "odradek", "jvm", "jvm-tuned"
MEMORY = "memory of a reader"
PIPELINE = "pipeline"
SMALL = "small batches"


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
    settings = {"spark.driver.memory": "3g", "spark.log.level": "ERROR"}
    if jars:
        settings["spark.jars"] = ",".join(map(str, jars))
    return odradek.spark.session("bench", master="local[2]", settings=settings)


class Figures(NamedTuple):
    million_rows_s: float
    cpu_s_million_rows: float


RATE, CPU = Figures._fields


def cpu_seconds() -> float:
    """Return the CPU time of all descendants of this process, those that have ended included."""
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


class Bench:
    def __init__(self, spark: Any, bootstrap: str, rows: int, run: Run) -> None:
        self.spark, self.bootstrap, self.rows, self.run = spark, bootstrap, rows, run
        self.servers = {"kafka.bootstrap.servers": bootstrap}
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._topics = 0

    def new_topic(self, partitions: int = PARTITIONS) -> str:
        self._topics += 1
        name = f"bench-{self._topics}"
        self._admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
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
        works = {OURS: work("odradek", {})}
        if THEIRS in self.run.systems:
            works |= {THEIRS: work("kafka", {}), THEIRS_TUNED: work("kafka", tuned)}
        self.run.workloads[title] = title
        for number in range(-WARM_UP_PASSES, MEASURED_PASSES):
            for system, one in works.items():
                numbers = measure(one, rows)._asdict()
                if number < 0:
                    self.run.warmings.append({"system": system, "workload": title, "numbers": numbers})
                else:
                    self.run.add(number, system, title, numbers)
        for line in lines_of(self.run, title):
            print(line, flush=True)

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

    def typed(self) -> None:
        """JSON to typed columns: events of four fields; objects of 50 fields of which three are used."""
        rows = self.rows // 2
        events = self.new_topic()
        self.write("odradek", pipeline.event_frame(self.spark, rows), events, {})
        self.compare("typed JSON, 4 fields", self.decoded(events, EVENT, "*"), rows, TUNED_SOURCE)
        rows = self.rows // 10
        wide = self.new_topic()
        self.write("odradek", wide_frame(self.spark, rows), wide, {})
        three = self.decoded(wide, THREE_OF_WIDE, "*")
        self.compare("typed JSON, 3 of 50 fields in the schema", three, rows, TUNED_SOURCE)
        used = self.decoded(wide, WIDE, "f0", "f20", "f40")
        self.compare("typed JSON, 50 fields, 3 used", used, rows, TUNED_SOURCE)

    def decoded(
        self, topic: str, schema: str, *used: str
    ) -> Callable[[str, dict[str, str]], Callable[[], None]]:
        def work(connector: str, options: dict[str, str]) -> Callable[[], None]:
            def run() -> None:
                reader = self.spark.read.format(connector).options(**self.servers, **options)
                reader = reader.option("subscribe", topic)
                if connector == "odradek":
                    frame = odradek.spark.load_typed(reader, "json", schema)
                else:
                    frame = reader.load().selectExpr(f"from_json(CAST(value AS STRING), '{schema}') AS value")
                chosen = frame.select(*(f"value.{name}" for name in used))
                chosen.write.format("noop").mode("overwrite").save()

            return run

        return work

    def sink(self) -> None:
        rows = self.rows // 5
        frame = self.values(rows).cache()
        frame.count()

        def written(connector: str, options: dict[str, str]) -> Callable[[], None]:
            topic = self.new_topic()
            return lambda: self.write(connector, frame, topic, options)

        self.compare("sink, keyed, acks=all", written, rows, TUNED_SINK)
        frame.unpersist()


def wide_frame(spark: Any, rows: int) -> Any:
    """Objects of 50 fields: numbers, strings and doubles in turn."""
    kinds = ("id + {0}", "concat('text of ', id % 1000, ' {0}')", "(id + {0}) / 7D")
    fields = ", ".join(f"'f{number}', {kinds[number % 3].format(number)}" for number in range(50))
    return spark.range(0, rows, 1, 4).selectExpr(f"to_json(named_struct({fields})) AS value")


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
    bench.run.workloads[MEMORY] = MEMORY
    peaks = {f"{rows:,} rows": worker_memory(bench, rows) / MB for rows in (1_000_000, 20_000_000)}
    bench.run.add(0, OURS, MEMORY, peaks)
    print(f"{MEMORY:32} {memory_text(peaks)}", flush=True)


def pipelines(bench: Bench, jars: list[Path], rounds: int) -> None:
    """Ours and the one written by hand in turn. Rows in the sinks are counted."""
    events = pipeline.EVENTS * bench.rows // DEFAULT_ROWS
    sources = {}
    for count in (pipeline.EVENTS_OF_START, events):
        sources[count] = bench.new_topic(pipeline.PARTITIONS)
        bench.write("odradek", pipeline.event_frame(bench.spark, count), sources[count], {})
    systems = {OURS: pipeline.run_ours}
    if jars:
        systems[THEIRS_TUNED] = lambda topics: pipeline.run_by_hand(topics, jars)
    for (
        work
    ) in systems.values():  # what is done once per machine: compiled kernels, the archive of Java's classes
        pipeline_run(bench, work, sources[pipeline.EVENTS_OF_START], pipeline.EVENTS_OF_START)
    title = f"{PIPELINE} of {events:,} events"
    bench.run.workloads[title] = title
    for number in range(rounds):
        for system, work in systems.items():
            start = pipeline_run(bench, work, sources[pipeline.EVENTS_OF_START], pipeline.EVENTS_OF_START)
            whole = pipeline_run(bench, work, sources[events], events)
            numbers = {
                RATE: events / 1e6 / whole["seconds"],
                CPU: (whole["cpu_s"] - start["cpu_s"]) / (events / 1e6),
                "start_s": start["seconds"],
                "start_cpu_s": start["cpu_s"],
                "memory_mb": whole["memory_mb"],
            }
            bench.run.add(number, system, title, numbers)
            print(f"    round {number + 1}, {system:10} {pipeline_text(numbers)}", flush=True)
    print("\n".join(pipeline_lines(bench.run, title)), flush=True)


def small_batches(bench: Bench, rounds: int) -> None:
    bench.run.workloads[SMALL] = SMALL
    for number in range(rounds):
        topics = pipeline.Topics(bench.bootstrap, *(bench.new_topic() for _ in range(3)))
        bench.run.add(number, OURS, SMALL, pipeline.run_small_batches(topics))
    print(small_text(bench.run), flush=True)


def small_text(run: Run) -> str:
    first, whole, large, revenue = (
        spread_text(spread(run, OURS, SMALL, figure))
        for figure in ("first_row_s", "event_to_row_ms", "batch_ms_large", "batch_ms_revenue")
    )
    return (
        f"First row of a pipeline after {first} s. A batch of one event: {large} ms to a topic, {revenue} ms in "
        f"windows to files (medians of each run's); from an event to its row {whole} ms"
    )


def pipeline_run(bench: Bench, work: Callable[[pipeline.Topics], Any], source: str, events: int) -> Any:
    topics = pipeline.Topics(bench.bootstrap, source, bench.new_topic(), bench.new_topic())
    took = work(topics)
    expected = events // pipeline.LARGE_SHARE, 0
    found = tuple(bench.read("odradek", topic, {}).count() for topic in (topics.sink, topics.dead))
    assert found == expected, f"rows were lost or repeated: {found} instead of {expected}"
    return took


def pipeline_text(numbers: dict[str, float]) -> str:
    return (
        f"{numbers[RATE]:.3f} M rows/s, {numbers[CPU]:.2f} s CPU/M after start, "
        f"start {numbers['start_s']:.1f} s and {numbers['start_cpu_s']:.1f} s CPU, {numbers['memory_mb']:,.0f} MB"
    )


def pipeline_lines(run: Run, title: str) -> Iterator[str]:
    """Medians and spreads of each system."""
    for system, facts in run.systems.items():
        if not run.values(system, title, RATE):
            continue
        rate, cpu, start, start_cpu, memory = (
            spread_text(spread(run, system, title, figure))
            for figure in (RATE, CPU, "start_s", "start_cpu_s", "memory_mb")
        )
        name = "odradek pipeline" if system == OURS else f"by hand, {facts['title']}"
        ours = "" if system == OURS else f"; ours: x{ratio(run, system, title).median:.2f} in rows a second"
        yield (
            f"{title}, {name}: {rate} M rows/s, {cpu} s CPU/M after start; start {start} s, {start_cpu} s CPU; "
            f"{memory} MB{ours}"
        )


def memory_text(peaks: dict[str, float]) -> str:
    few, many = peaks.values()
    each = ", ".join(f"{peak:.0f} MB at {rows}" for rows, peak in peaks.items())
    return f"{each} (x{many / few:.2f})"


# What is shown


def spread(run: Run, system: str, title: str, figure: str) -> Spread:
    return spread_of(list(run.values(system, title, figure).values()))


def ratio(run: Run, system: str, title: str) -> Spread:
    return ratio_of(run.values(OURS, title, RATE), run.values(system, title, RATE))


def lines_of(run: Run, title: str) -> Iterator[str]:
    for system in run.systems:
        rate, cpu = (spread(run, system, title, figure).median for figure in (RATE, CPU))
        label = title if system == OURS else f"    {run.systems[system]['title']}"
        ours = "" if system == OURS else f"   ours: x{ratio(run, system, title).median:.2f}"
        yield f"{label:32} {rate:6.2f} M rows/s  {cpu:5.2f} s CPU/M{ours}"


def markdown(run: Run) -> str:
    facts = ", ".join(f"{name} {value}" for name, value in run.machine.items())
    titles = [f"{facts['title']} {facts['version']}" for facts in run.systems.values()]
    others = [system for system in run.systems if system != OURS]
    titles += [f"Odradek / {run.systems[system]['title']}" for system in others]
    lines = [f"{facts}; passes {run.rounds}."]
    if compared := [
        title for title in run.workloads if run.values(OURS, title, RATE) and not title.startswith(PIPELINE)
    ]:
        lines += [
            "",
            "**Medians ± half their spread, M rows/s; below, seconds of CPU for a million rows**",
            "",
        ]
        lines += ["| | " + " | ".join(titles) + " |", "|---" * (len(titles) + 1) + "|"]
    for title in compared:
        cells = [_cell(run, system, title) for system in run.systems]
        ratios = [ratio(run, system, title) for system in others]
        cells += [f"{one.median:.2f} ({one.low:.2f}–{one.high:.2f})" for one in ratios]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    if delivered := once_lines(run):
        lines += ["", *delivered]
    for sample in run.samples:
        if sample["workload"] == MEMORY:
            lines += ["", f"{MEMORY.capitalize()}: {memory_text(sample['numbers'])}"]
    for title in run.workloads:
        if title.startswith(PIPELINE):
            lines += ["", *(f"- {line}" for line in pipeline_lines(run, title))]
    if SMALL in run.workloads:
        lines += ["", small_text(run)]
    return "\n".join([*lines, ""])


def _cell(run: Run, system: str, title: str) -> str:
    rate, cpu = (spread(run, system, title, figure) for figure in (RATE, CPU))
    return f"{spread_text(rate)}<br>{number_text(cpu.median)}"


def new_run(rows: int, broker: str, has_jvm_connector: bool, parts: set[str]) -> Run:
    import pyspark

    run = Run("spark", MEASURED_PASSES, rows / DEFAULT_ROWS, machine_facts(Path(tempfile.gettempdir())))
    if parts != set(PARTS):
        run.part = "".join(f"-{part}" for part in PARTS if part in parts)
    broker_version = __version__ if broker == "odradek" else KAFKA_VERSION
    run.machine |= {"pyspark": pyspark.__version__, "broker": f"{broker} {broker_version}"}
    run.machine |= {"rows": f"{rows:,} of {VALUE_BYTES} bytes, {PARTITIONS} partitions"}
    run.systems[OURS] = {"title": "Odradek", "version": __version__, "settings": {}}
    if has_jvm_connector:
        theirs = {"title": "JVM", "version": CONNECTOR_VERSION, "settings": {}}
        run.systems[THEIRS] = theirs
        run.systems[THEIRS_TUNED] = theirs | {"title": "JVM tuned", "settings": TUNED_SOURCE | TUNED_SINK}
    return run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=DEFAULT_ROWS)
    parser.add_argument("--broker", choices=("odradek", "kafka"), default="odradek")
    parser.add_argument("--only", type=parts_of, default=set(PARTS), help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--rounds", type=int, default=pipeline.ROUNDS, help="of the pipeline")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="DIR", help="default: bench/results")
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
    run = new_run(arguments.rows, arguments.broker, bool(jars), arguments.only)
    start_broker = {"odradek": odradek_broker, "kafka": kafka_broker}[arguments.broker]
    with tempfile.TemporaryDirectory() as directory, start_broker(Path(directory) / "data") as bootstrap:
        spark = session(jars)
        print(f"{arguments.rows:,} rows of {VALUE_BYTES} bytes, broker: {arguments.broker}", flush=True)
        bench = Bench(spark, bootstrap, arguments.rows, run)
        run_parts(bench, arguments.only, jars, arguments.rounds, arguments.results)
        spark.stop()
    if run.samples:
        run.store(arguments.results)
        (arguments.results / f"{run.name}.md").write_text(markdown(run))
    return 0


def parts_of(text: str) -> set[str]:
    parts = set(text.split(","))
    if unknown := parts - set(PARTS):
        raise argparse.ArgumentTypeError(f"there is no part {', '.join(sorted(unknown))}")
    return parts


def run_parts(bench: Bench, wanted: set[str], jars: list[Path], rounds: int, results: Path) -> None:
    results.mkdir(parents=True, exist_ok=True)
    if wanted & {"source", "stream"}:
        topic = bench.filled_topic(bench.rows)
        if "source" in wanted:
            bench.source(topic, "plain")
        if "stream" in wanted:
            bench.stream(topic)
    if "lz4" in wanted:
        topic = bench.filled_topic(bench.rows, **{"kafka.compression.type": "lz4"})
        bench.source(topic, "lz4")
    if "typed" in wanted:
        bench.typed()
    if "sink" in wanted:
        bench.sink()
    if "once" in wanted:
        once(bench)
    if "lake" in wanted:
        (results / "spark-lake.md").write_text("\n".join([*lake(bench), ""]))
    if "memory" in wanted:
        memory(bench)
    if "pipeline" in wanted:
        pipelines(bench, jars, rounds)
    if "database" in wanted:
        (results / "spark-database.md").write_text("\n".join([*database(bench), ""]))
    if "small" in wanted:
        small_batches(bench, rounds)


if __name__ == "__main__":
    sys.exit(main())
