"""An archiving process that is killed with -9 at each step: every offset is in the table once, and in order."""

import signal
import subprocess
import sys

import pytest

from tests.archive.conftest import archived_offsets
from tests.archive.crash_driver import STEPS
from tests.archive.test_archive_broker import archiver


def killed_at(step: str, *arguments: str) -> bool:
    command = [sys.executable, "-m", "tests.archive.crash_driver", step, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


MERGING = [step for step in STEPS if "merge" in step]


@pytest.mark.parametrize(
    "steps", [[step for step in STEPS if step not in MERGING], pytest.param(MERGING, marks=pytest.mark.long)]
)
def test_killed_at_one_step_after_the_other(broker, topics, archive, steps):
    topic = topics.create(partitions=2)
    expected: dict[int, list[int]] = {0: [], 1: []}

    def fill() -> None:
        topics.fill(topic, [b"x", b"y"], lambda index: index)
        for offsets in expected.values():
            offsets.append(len(offsets))

    for step in steps:
        fill()
        if step in MERGING:
            archive_without_merging(broker, archive, topic, fill)
        assert killed_at(step, broker.bootstrap, topic, str(archive)), f"it never came to: {step}"
        if (archive / topic / "_delta_log" / "00000000000000000000.json").exists():
            found = archived_offsets(archive, topic)
            assert all(expected[number][: len(rows)] == rows for number, rows in found.items()), step
    archiver(broker, archive, topic).run_once()
    assert archived_offsets(archive, topic) == expected


def archive_without_merging(broker, archive, topic, fill) -> None:
    """Until there is something to merge."""
    from odradek.archive.planning import plan_merges

    while True:
        one = archiver(broker, archive, topic)
        work, table = one._archiver(topic)
        work.round()
        fill()
        if plan_merges(table.snapshot().files):
            return
