"""Without a JVM of one's own: Spark Connect, and pipelines, which run on it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # a short life does not pay for thorough compilation

PROGRAM = """
import sys
from pyspark.sql import SparkSession
bootstrap, source, target, checkpoint = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false").getOrCreate()
frame = (
    spark.readStream.format("odradek").option("kafka.bootstrap.servers", bootstrap)
    .option("subscribe", source).option("startingOffsets", "earliest").load()
)
query = (
    frame.select("key", "value").writeStream.format("odradek").option("kafka.bootstrap.servers", bootstrap)
    .option("topic", target).option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
)
query.awaitTermination()
frame = spark.read.format("odradek").option("kafka.bootstrap.servers", bootstrap).option("subscribe", target)
print("type", type(spark).__module__, "rows", frame.load().count())
spark.stop()
"""

PIPELINE = """
name: tour
catalog: spark_catalog
database: default
storage: {storage}
libraries:
  - glob:
      include: definitions/**
"""

DEFINITIONS = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
BROKER = {bootstrap!r}

@dp.table
def events():
    reader = spark.readStream.format("odradek").option("kafka.bootstrap.servers", BROKER)
    return reader.option("subscribe", {source!r}).option("startingOffsets", "earliest").load()

dp.create_sink(
    "back", "odradek", {{"kafka.bootstrap.servers": BROKER, "topic": {target!r}}}
)

@dp.append_flow(target="back")
def copy():
    return spark.readStream.table("events").select("key", "value")
"""


@pytest.fixture
def environ() -> dict[str, str]:
    quick = "SPARK_SUBMIT_OPTS"  # makes Java start faster
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith("SPARK_") or name == quick
    }
    return clean | {"PYSPARK_PYTHON": sys.executable, "JDK_JAVA_OPTIONS": QUICK_JVM}


def filled(topics) -> tuple[str, str]:
    source, target = topics.create(partitions=2), topics.create(partitions=2)
    topics.fill(source, [b"%d" % number for number in range(100)], partition=lambda index: index % 2)
    return source, target


@pytest.mark.timeout(300)
def test_spark_connect(java, broker, topics, tmp_path: Path, environ):
    pytest.importorskip("grpc")
    source, target = filled(topics)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    arguments = [broker.bootstrap, source, target, str(tmp_path / "checkpoint")]
    result = subprocess.run(
        [sys.executable, str(program), *arguments], capture_output=True, text=True, timeout=280, env=environ
    )
    assert "type pyspark.sql.connect.session rows 100" in result.stdout, result.stderr[-3000:]


@pytest.mark.timeout(300)
def test_spark_pipelines(java, broker, topics, tmp_path: Path, environ):
    pytest.importorskip("grpc")
    source, target = filled(topics)
    (tmp_path / "definitions").mkdir()
    (tmp_path / "spark-pipeline.yml").write_text(PIPELINE.format(storage=f"file://{tmp_path / 'storage'}"))
    text = DEFINITIONS.format(bootstrap=broker.bootstrap, source=source, target=target)
    (tmp_path / "definitions" / "flows.py").write_text(text)
    command = [str(Path(sys.executable).with_name("spark-pipelines")), "run"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280, env=environ)
    assert result.returncode == 0, (result.stdout + result.stderr)[-3000:]
    values = sorted(int(message.value()) for message in topics.read(target, 2))
    assert values == list(range(100))
