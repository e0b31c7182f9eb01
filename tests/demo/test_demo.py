"""The demo as a process, as `make demo` starts it: what it shows, how it ends, and that nothing of it is left."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.spark.environment import missing
from tools.bookstore.drawing import money
from tools.bookstore.hour import play_hour

ROOT = Path(__file__).parent.parent.parent
SEED = 17
MARK = "ODRADEK_DEMO_TEST"
NO_JAVA = "Java is not installed, Spark needs 17 or newer: apt-get install openjdk-17-jre-headless"
GONE_TIMEOUT_S = 30.0
JAVA_TIMEOUT_S = 300.0
# Spark, Java and failing programs leave these on a screen.
NOISE = re.compile(r"WARN|ERROR|INFO|SLF4J|log4j|Traceback|Exception|\bat org\.|py4j|spark\.log|\x1b")


class DemoProcess:
    """The demo in a directory of its own. It and all it starts carry a mark in their environment."""

    def __init__(self, directory: Path, *, java: bool = True) -> None:
        self.mark = uuid.uuid4().hex
        environ = {**os.environ, MARK: self.mark}
        if not java:
            environ["PATH"] = str(directory)
            environ.pop("JAVA_HOME", None)
        command = [sys.executable, "tools/demo.py", "--directory", str(directory / "demo")]
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def finish(self) -> tuple[int, str, str]:
        """Exit status, standard output, standard error."""
        try:
            output, errors = self.process.communicate()
            return self.process.returncode, output, errors
        finally:
            self.process.terminate()  # if it is still there, it has processes of its own to end
            self.process.wait()

    def read_until(self, wanted: str) -> str:
        assert self.process.stdout is not None
        read = ""
        for line in self.process.stdout:
            read += line
            if wanted in line:
                return read
        raise AssertionError(f"the demo ended before it said {wanted!r}:\n{read}")

    def left_over(self) -> list[str]:
        """The command lines of processes with the mark. Spark's workers need a moment to see that Java is gone."""
        deadline = time.monotonic() + GONE_TIMEOUT_S
        while (found := marked(self.mark)) and time.monotonic() < deadline:
            time.sleep(0.2)
        return found


def marked(mark: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (path / "environ").read_bytes().split(b"\0"):
                found.append((path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue  # gone meanwhile, or somebody else's
    return found


def verdicts(output: str) -> dict[str, list[str]]:
    """The lines of the comparison: what was compared, and the two figures beside it."""
    lines = output.partition("the ledger  ")[2].partition("── Look further")[0].splitlines()
    rows = [re.split(r"\s{2,}", line.strip()) for line in lines if line.rstrip().endswith(("✓", "differs"))]
    return {row[0]: row[1:] for row in rows}


def assert_a_broker_died_and_came_back(output: str) -> None:
    (broker,) = re.findall(r"Meanwhile broker (\d) has died", output)
    assert re.search(r"killed with -9 when [\d,]+ of [\d,]+ events were acknowledged", output)
    assert re.search(r"^  cluster \S+: not healthy$", output, re.MULTILINE)
    assert re.search(rf"^ +{broker} +localhost:\d+ +rack-{broker} +fenced +0( +.*)?$", output, re.MULTILINE)
    assert f"Broker {broker} is back, has copied what it missed, and counts again" in output


def assert_it_tells_of_things_when_they_happen(output: str) -> None:
    lines = output.splitlines()
    (killed,) = [number for number, line in enumerate(lines) if "  kill -9 of broker" in line]
    (sent,) = [number for number, line in enumerate(lines) if "events sent and acknowledged" in line]
    (told,) = [number for number, line in enumerate(lines) if "Meanwhile broker" in line]
    assert killed < sent < told
    created = [line for line in lines if "odradek topic create bookstore-" in line]
    assert [line.strip(" $") for line in created] == [
        "odradek topic create bookstore-{security,books,orders,returns} --partitions 2"
    ]
    assert "never" not in output, "a broker that has just come is no fault"
    assert not re.search(r"\b0\.0 s", output)
    assert re.fullmatch(
        r"Every figure agrees: \d+ seconds, exit status 0\. The brokers are stopped, nothing is left running\.",
        lines[-1],
    )


@pytest.fixture
def spark() -> None:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture
def demo(tmp_path: Path) -> Callable[..., DemoProcess]:
    return lambda **options: DemoProcess(tmp_path, **options)


def test_without_java_the_part_before_spark_is_whole(demo: Callable[..., DemoProcess]) -> None:
    process = demo(java=False)
    status, output, errors = process.finish()
    assert (status, errors) == (0, ""), output
    assert output.splitlines().count(f"No pipeline: {NO_JAVA}") == 1
    records = play_hour(SEED).ledger.records
    assert verdicts(output) == {
        f"{topic}, {what}": [f"{count:,}", f"{count:,}", "✓"]
        for topic, count in records.items()
        for what in ("in order by key", "archived")
    }
    assert "reader: Welcome to the bookstore" in output
    assert_a_broker_died_and_came_back(output)
    assert_it_tells_of_things_when_they_happen(output)
    assert NOISE.search(output) is None
    assert process.left_over() == []


def test_it_leaves_nothing_behind_when_it_is_ended(demo: Callable[..., DemoProcess]) -> None:
    process = demo(java=False)
    process.read_until("listening on")
    assert any(" up --brokers 3 --port 0" in command for command in marked(process.mark))
    assert sum(" odradek broker " in command for command in marked(process.mark)) == 3
    process.process.send_signal(signal.SIGTERM)
    status, _, _ = process.finish()
    assert status == 128 + signal.SIGTERM
    assert process.left_over() == []


def test_a_directory_of_something_else_is_left_alone(
    tmp_path: Path, demo: Callable[..., DemoProcess]
) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "thesis.txt").write_text("ten years of work")
    status, output, _ = demo(java=False).finish()
    assert status == 1
    assert "holds something else than a demo" in output
    assert (tmp_path / "demo" / "thesis.txt").read_text() == "ten years of work"


def test_two_of_them_do_not_share_a_directory(demo: Callable[..., DemoProcess]) -> None:
    first = demo(java=False)
    first.read_until("listening on")
    status, output, _ = demo(java=False).finish()
    assert status == 1
    assert "another demo is running" in output
    assert first.finish()[0] == 0


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.timeout(1200)
def test_every_figure_agrees_with_the_ledger(tmp_path: Path, demo: Callable[..., DemoProcess]) -> None:
    process = demo()
    status, output, errors = process.finish()
    assert (status, errors) == (0, ""), output
    ledger = play_hour(SEED).ledger
    sales = f"{ledger.total.orders:,} for {money(ledger.total.cents)}"
    failures = sum(one.failures for one in ledger.suspicions)
    expected = {
        f"{topic}, {what}": f"{count:,}"
        for topic, count in ledger.records.items()
        for what in ("in order by key", "archived")
    } | {
        "revenue, minute by minute": sales,
        "suspicious logins": f"{len(ledger.suspicions)} with {failures} failures",
        "orders joined with their returns": f"{len(ledger.returns)} for {money(ledger.refunded_cents)}",
        "looks at each book": f"{ledger.looks.total():,}",
        "dead letters": "3",
    }
    assert verdicts(output) == {what: [figure, figure, "✓"] for what, figure in expected.items()}
    for one in ledger.suspicions:
        assert re.search(rf"{one.minute[-5:]} +{one.customer} +203\.0\.113\.\d+ +{one.failures} ", output)
    assert "field 'order_id' is missing" in output
    assert_a_broker_died_and_came_back(output)
    assert_it_tells_of_things_when_they_happen(output)
    assert NOISE.search(output) is None, NOISE.search(output)
    assert [line for line in output.splitlines() if len(line) > 100 and str(tmp_path) not in line] == []
    assert process.left_over() == []
    assert list((tmp_path / "demo" / "returned-orders" / "_delta_log").glob("*.json"))


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.timeout(1200)
def test_ended_while_spark_runs_it_leaves_nothing_behind(demo: Callable[..., DemoProcess]) -> None:
    process = demo()
    process.read_until("odradek pipeline run")
    deadline = time.monotonic() + JAVA_TIMEOUT_S
    while not any("java" in command for command in marked(process.mark)):
        assert time.monotonic() < deadline, "Java was not started"
        time.sleep(0.2)
    process.process.send_signal(signal.SIGTERM)
    status, _, _ = process.finish()
    assert status == 128 + signal.SIGTERM
    assert process.left_over() == []


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.timeout(600)
@pytest.mark.long
def test_the_tests_of_the_pipeline_file_pass() -> None:
    command = [sys.executable, "-m", "odradek", "pipeline", "test", "examples/bookstore.toml", "--json"]
    environ = {**os.environ, "ODRADEK_BOOTSTRAP_SERVER": "localhost:1"}  # no broker is asked
    result = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    outcomes = [json.loads(line) for line in result.stdout.splitlines()]
    assert [outcome["ok"] for outcome in outcomes] == [True] * 4
