"""Tests of what the user of a program reads: its own output, warnings with time and level, and one sentence when it
fails.
"""

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


def test_a_program_started_without_activating_its_environment(java, broker, tmp_path):
    """Spark would look for the format with the `python3` of the path, which knows nothing of it. Its workers are this
    Python, with PySpark as it is installed here."""
    (tmp_path / "bin").mkdir()
    other_python = tmp_path / "bin" / "python3"
    other_python.write_text("#!/bin/sh\necho this python knows nothing >&2; exit 1\n")
    other_python.chmod(0o755)
    kept = ("HOME", "JAVA_HOME", "SPARK_SUBMIT_OPTS")  # the last one makes Java start faster
    environ = {name: os.environ[name] for name in kept if name in os.environ}
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
    copied, *of_a_worker = result.stdout.splitlines()
    assert (result.returncode, copied) == (1, "1"), result.stderr
    assert of_a_worker == [sys.executable, pyspark.__file__, py4j.__file__]
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
