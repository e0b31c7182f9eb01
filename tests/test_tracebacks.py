"""The suite itself: a test fails if a broker logs a traceback meanwhile, wherever that broker runs."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent

SUITE = """
import logging
import pytest
from odradek.testing import Broker
from tests.support import RunningBroker

TEXT = "Traceback (most recent call last):\\n"

def in_this_process():
    try:
        1 / 0
    except ZeroDivisionError:
        logging.getLogger("odradek.broker").exception("this is a bug")

def test_in_this_process():
    in_this_process()

def test_in_a_process_of_its_own(tmp_path):
    RunningBroker(tmp_path / "data", {})
    (tmp_path / "data.log").write_text(TEXT)

def test_in_one_of_odradek_testing():
    broker = Broker()
    broker._log_file.write_text(TEXT)
    broker.close()

@pytest.fixture(scope="module")
def shared():
    broker = Broker()
    yield broker
    broker._log_file.write_text(TEXT)
    broker.close()

@pytest.mark.plants_traceback
def test_planted():
    in_this_process()

def test_without_any(shared):
    pass
"""


def test_a_traceback_fails_the_test_that_caused_it(tmp_path: Path) -> None:
    suite = tmp_path / "test_suite.py"
    suite.write_text(SUITE)
    options = ["-p", "tests.conftest", "-p", "no:xdist", "-c", str(ROOT / "pyproject.toml"), "-rE", "-q"]
    command = [sys.executable, "-m", "pytest", *options, str(suite)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    # The failure comes with the end of the test, so that pytest calls it an error.
    failed = re.findall(r"^ERROR \S*::(\w+)", done.stdout, re.MULTILINE)
    assert set(failed) == {
        "test_in_this_process",
        "test_in_a_process_of_its_own",
        "test_in_one_of_odradek_testing",
        "test_without_any",  # the shared broker ended after it, with nobody left to fail
    }, done.stdout
    assert done.returncode == 1
