"""A standalone cluster of two workers, started here: source and sink on executors that are other processes."""

import contextlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

ENVIRON = {"PYSPARK_PYTHON": sys.executable, "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}

PROGRAM = """
import sys
from pyspark.sql import SparkSession
master, bootstrap, source, target, checkpoint = sys.argv[1:]
spark = (
    SparkSession.builder.master(master)
    .config("spark.ui.enabled", "false").config("spark.cores.max", "2")
    .config("spark.executor.cores", "1").config("spark.executor.memory", "512m")
    .config("spark.driver.host", "127.0.0.1").config("spark.log.level", "ERROR")
    .getOrCreate()
)
frame = (
    spark.readStream.format("odradek").option("kafka.bootstrap.servers", bootstrap)
    .option("subscribe", source).option("startingOffsets", "earliest").load()
)
query = (
    frame.select("key", "value").writeStream.format("odradek").option("kafka.bootstrap.servers", bootstrap)
    .option("topic", target).option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
)
query.awaitTermination()
rows = spark.read.format("odradek").option("kafka.bootstrap.servers", bootstrap).option("subscribe", target).load()
executors = spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1
print("rows", rows.count(), "executors", executors)
spark.stop()
"""


@contextlib.contextmanager
def cluster(directory: Path):
    """`spark-class` starts what start-master.sh would, which pip's PySpark does not bring."""
    import pyspark

    spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    environ = {**os.environ, **ENVIRON, "SPARK_DAEMON_MEMORY": "256m"}
    environ["SPARK_WORKER_DIR"] = str(directory / "work")
    processes = []

    def start(name: str, *arguments: str) -> Path:
        log = directory / f"{name}.log"
        command = [spark_class, *arguments]
        with log.open("w") as output:
            processes.append(subprocess.Popen(command, stdout=output, stderr=output, env=environ))
        return log

    def wait_for(log: Path, pattern: str) -> str:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            match = re.search(pattern, log.read_text())
            if match:
                return match[0]
            time.sleep(0.05)
        raise AssertionError(f"no {pattern!r} in:\n{log.read_text()[-3000:]}")

    try:
        master_log = start(
            "master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0",
            "--webui-port", "0",
        )  # fmt: skip
        address = wait_for(master_log, r"spark://127\.0\.0\.1:[1-9]\d*")
        for number in (1, 2):
            log = start(
                f"worker-{number}", "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores",
                "1", "--memory", "512m", "--webui-port", "0", address,
            )  # fmt: skip
            wait_for(log, "Successfully registered with master")
        yield address
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            process.wait(30)


@pytest.mark.timeout(400)
def test_topic_to_topic_on_two_workers(java, broker, topics, tmp_path):
    source, target = topics.create(partitions=4), topics.create(partitions=2)
    topics.fill(source, [b"%d" % number for number in range(2_000)], partition=lambda index: index % 4)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with cluster(tmp_path) as master:
        arguments = [master, broker.bootstrap, source, target, str(tmp_path / "checkpoint")]
        result = subprocess.run(
            [sys.executable, str(program), *arguments],
            capture_output=True,
            text=True,
            timeout=300,
            env={**os.environ, **ENVIRON},
        )
    assert "rows 2000 executors 2" in result.stdout, result.stderr[-3000:]
    values = sorted(int(message.value()) for message in topics.read(target, 2))
    assert values == list(range(2_000))
