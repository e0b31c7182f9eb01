"""kill -9 of the driver and its JVM at every step of a batch: every row is in the table once."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.lab import SETTINGS, Lab
from tests.pipeline.test_lake_sinks import SINKS, UPSERT, copy_of, ids, orders

HERE = Path(__file__).parent
ROWS = 4
APPENDS = [
    f"{when} {step}"
    for step in ("create", "write_files", "append", "compact", "write")
    for when in ("before", "after")
]
UPSERTS = ["before merge", "after merge", "after write"]


def life(path: Path, moment: str) -> int:
    """Its exit status; negative if it was killed."""
    environ = os.environ | {"ODRADEK_SPARK_SETTINGS": json.dumps(SETTINGS)}
    command = [sys.executable, str(HERE / "lake_driver.py"), str(path), moment]
    with (path.parent / "driver.log").open("a") as log:
        process = subprocess.run(
            command,
            env=environ,
            cwd=HERE.parents[1],
            stdout=log,
            stderr=log,
            start_new_session=True,
            timeout=300,
        )
    return process.returncode


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("form", SINKS)
def test_lake_appends_killed_at_every_step(java, lab: Lab, form: str):
    topic = lab.topic(1)
    pipeline = copy_of(lab, topic, SINKS[form])
    written = 0
    for moment in APPENDS:
        lab.fill(topic, orders(*range(written, written + ROWS)), 1)
        written += ROWS
        assert life(pipeline.document.path, moment) == -signal.SIGKILL, f"it did not get to {moment}"
    assert life(pipeline.document.path, "never") == 0
    assert ids(lab, form) == list(range(written)), (lab.directory / "driver.log").read_text()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_lake_upserts_killed_at_every_step(java, lab: Lab):
    """Rows that are older than those of the table come only if a batch is merged twice in another order."""
    topic = lab.topic(1)
    pipeline = copy_of(lab, topic, UPSERT.replace("delete_when", "# delete_when"))
    for number, moment in enumerate(UPSERTS):
        lab.fill(topic, [{"id": number, "item": "new"}, {"id": number - 1, "item": "changed"}], 1)
        assert life(pipeline.document.path, moment) == -signal.SIGKILL, f"it did not get to {moment}"
    assert life(pipeline.document.path, "never") == 0
    assert ids(lab, "delta") == [-1, 0, 1, 2]
