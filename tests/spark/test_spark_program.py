"""What the user of a program reads: its own output, warnings with time and level, and one sentence when it fails."""

import os
import re
import subprocess
import sys
from pathlib import Path

import py4j
import pyspark

PROGRAM = Path(__file__).with_name("plain_program.py")
SENTENCE = (
    "could not describe topics t within 5 s: cannot connect to broker 127.0.0.1:1: [Errno 111] Connection refused. "
    "Check kafka.bootstrap.servers, and that the brokers are running"
)
WHERE_IMPORTED = """
import odradek.spark
spark = odradek.spark.session(master="local[1]")
imported = lambda _: [__import__("sys").executable, __import__("pyspark").__file__, __import__("py4j").__file__]
print(*spark.sparkContext.parallelize([0], 1).flatMap(imported).collect(), sep="\\n")"""


def test_a_program_started_without_activating_its_environment(java, broker, tmp_path):
    """Spark would look for the format with the `python3` of the path, which knows nothing of it."""
    (tmp_path / "bin").mkdir()
    other_python = tmp_path / "bin" / "python3"
    other_python.write_text("#!/bin/sh\necho this python knows nothing >&2; exit 1\n")
    other_python.chmod(0o755)
    environ = {name: os.environ[name] for name in ("HOME", "JAVA_HOME") if name in os.environ}
    environ["PATH"] = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    environ["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    result = subprocess.run(
        [sys.executable, str(PROGRAM), broker.bootstrap, str(tmp_path)],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert (result.returncode, result.stdout) == (1, "1\n"), result.stderr
    lines = [line for line in result.stderr.splitlines() if line]
    lines = [line for line in lines if not line.startswith(("NOTE: Picked up", "WARNING: Using incubator"))]
    time = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"
    warning = time + r" WARNING odradek\.spark: option 'kafka\.(\S+)' is ignored: .*"
    assert [match[1] for line in lines if (match := re.fullmatch(warning, line))] == ["acks", "linger.ms"]
    assert lines[0].endswith("the sink always writes with acks=all"), "nothing else before"
    failure = [line for line in lines if SENTENCE in line]
    assert re.match(
        r"org\.apache\.spark\.SparkException: .* latestOffset: odradek\.\S+TimedOut: ", failure[0]
    )
    assert lines[2].endswith("terminated with error") and lines[3] == failure[0], "first"
    assert lines[-1] == f"odradek: {SENTENCE}", "and last"
    assert "_describe" not in result.stderr, "no frames of ours"


def test_a_worker_of_our_session_is_this_python_with_its_own_pyspark(java):
    environ = {
        name: value for name, value in os.environ.items() if name not in ("PYSPARK_PYTHON", "SPARK_HOME")
    }
    environ["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    found = subprocess.check_output(
        [sys.executable, "-c", WHERE_IMPORTED], env=environ, text=True, timeout=280
    )
    assert found.splitlines() == [sys.executable, pyspark.__file__, py4j.__file__]
