"""kill -9 of the driver's JVM, at 21 moments of a stream's life and at 8 of its first batch: nothing is lost.

One query from topic to topic goes through all of it: each run is killed at a moment drawn from a seed, and
the next one goes on from the checkpoint. While one run works the next one's JVM is already starting, which is
most of what a run costs; batches are tiny.

What must hold at the end: every row written to the source since the query first wrote down where it begins is
in the target, and a row is there more than once only if it was in the batch that a crash interrupted.
"""

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from odradek.model import TopicPartition
from odradek.spark.offsets import begun_in, from_checkpoint

HERE = Path(__file__).parent
SEED = 20261115
PARTITIONS = 2
ROWS_PER_RUN = 12
RUN_TIMEOUT_S = 300  # on a machine that is busy with other things

# The first two happen once in a query's life; the others are drawn.
FIRST_MOMENTS = ["start", "first partitions"]
MOMENTS = [
    "latestOffset",
    "partitions",
    "read",
    "read to the end",
    "write",
    "half written",
    "written",
    "commit",
]

# Moments in the first batch of a query that begins at the earliest offset, and never gets further here.
IN_THE_FIRST_BATCH = [(moment, 1) for moment in ("start", "first partitions", *MOMENTS[2:])]


def planned_crashes(rng: random.Random) -> list[tuple[str, int]]:
    """Every moment at least twice, in a random order; the counter says the how-manieth of its kind."""
    drawn = [(moment, rng.choice([1, 2])) for moment in MOMENTS * 2]
    drawn += [(rng.choice(MOMENTS), rng.choice([1, 2])) for _ in range(3)]
    rng.shuffle(drawn)
    return [(moment, 1) for moment in FIRST_MOMENTS] + drawn


class Run:
    """One life of the program."""

    program = "crash_driver.py"

    def __init__(self, directory: Path, settings: dict[str, str]) -> None:
        self._log = directory.with_suffix(".log").open("w")
        directory.mkdir()
        environ = {
            **os.environ,
            "ODRADEK_CRASH_PLAN": str(directory / "plan.json"),
            "ODRADEK_SPARK_SETTINGS": json.dumps(settings),
        }
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / self.program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environ,
            start_new_session=True,
        )

    def go(self, order: dict) -> bool:
        """Until it has died, or finished: which of the two."""
        assert self.process.stdout is not None and self.process.stdin is not None
        assert self.process.stdout.readline() == "ready\n", Path(self._log.name).read_text()[-3000:]
        self.tell(order)
        try:
            output, _ = self.process.communicate(timeout=RUN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            log = Path(self._log.name).read_text()[-3000:]
            raise AssertionError(f"it did not end within {RUN_TIMEOUT_S} s, with {order}: {log}") from None
        finally:
            self.end()
        return "finished" in output

    def tell(self, order: dict) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def end(self) -> None:
        """The workers of a dead driver end by themselves; this is for what a failed test leaves."""
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self._log.close()


def batch_in_flight(checkpoint: Path) -> set[tuple[int, int]]:
    """Origins of the rows of the batch that was begun and not finished, as the checkpoint tells."""
    offsets = {int(path.name): path for path in (checkpoint / "offsets").glob("[0-9]*")}
    commits = {int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")}
    if not offsets or max(offsets) in commits:
        return set()
    last = entry_of(checkpoint, max(offsets))
    end, start = from_checkpoint(last), begun_in(last) or {}
    if max(offsets) > 0:
        start |= from_checkpoint(entry_of(checkpoint, max(offsets) - 1))
    return {
        (partition.partition, offset)
        for partition in end
        for offset in range(start.get(partition, end[partition]), end[partition])
    }


def entry_of(checkpoint: Path, batch: int) -> dict[str, dict[str, int]]:
    return json.loads((checkpoint / "offsets" / str(batch)).read_text().splitlines()[-1])


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("start", "crashes"),
    [("latest", planned_crashes(random.Random(SEED))), ("earliest", IN_THE_FIRST_BATCH)],
    ids=["all its life", "first batch"],
)
def test_nothing_is_lost_and_only_the_batch_in_flight_is_repeated(
    java, broker, topics, session_settings, tmp_path, start, crashes
):
    source, target = topics.create(partitions=PARTITIONS), topics.create(partitions=PARTITIONS)
    checkpoint = tmp_path / "checkpoint"
    order = {
        "source": {
            "kafka.bootstrap.servers": broker.bootstrap,
            "subscribe": source,
            "startingOffsets": start,
            "maxOffsetsPerTrigger": str(ROWS_PER_RUN // 2),
        },
        "sink": {"kafka.bootstrap.servers": broker.bootstrap, "topic": target},
        "checkpoint": str(checkpoint),
    }
    settings = session_settings | {"spark.driver.memory": "512m"}
    written = 0

    def write_some() -> None:
        nonlocal written
        values = [b"%d" % number for number in range(written, written + ROWS_PER_RUN)]
        topics.fill(source, values, partition=lambda index: index % PARTITIONS)
        written += ROWS_PER_RUN

    write_some()  # before the query began, at 'latest' or 'earliest'
    may_repeat: set[tuple[int, int]] = set()
    upcoming = Run(tmp_path / "run-0", settings)
    try:
        for number, (moment, nth) in enumerate(crashes, 1):
            run, upcoming = upcoming, Run(tmp_path / f"run-{number}", settings)
            finished = run.go(order | {"moment": moment, "nth": nth})
            assert not finished, (
                f"run {number} was to die at its {moment} number {nth}, and did not get there"
            )
            may_repeat |= batch_in_flight(checkpoint)
            write_some()
        assert upcoming.go(order | {"moment": "never", "nth": 1})
    finally:
        upcoming.end()
    begin = begun_in(entry_of(checkpoint, 0))
    assert begin is not None
    wanted = {
        (partition, offset)
        for partition in range(PARTITIONS)
        for offset in range(begin[TopicPartition(source, partition)], written // PARTITIONS)
    }
    found = Counter(
        tuple(int(part) for part in dict(message.headers())["origin"].decode().split("/"))
        for message in topics.read(target, PARTITIONS)
    )
    assert wanted - found.keys() == set(), "rows that are missing"
    assert found.keys() - wanted == set(), "rows from before the query began"
    assert {origin for origin, count in found.items() if count > 1} <= may_repeat
