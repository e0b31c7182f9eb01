"""Bugs that are planted in the product are found, each in a process of its own: by its simulation, or by a script."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.planting.due import changed_paths, is_due
from tests.planting.loading import by_module
from tests.planting.suites import BUGS, SUITES

DOCS = Path(__file__).parents[2] / "docs" / "SIMULATION.md"
CHANGED = changed_paths()


def parameters() -> list[object]:
    due = {name: [pytest.mark.due] if is_due(*BUGS[name], CHANGED) else [] for name in BUGS}
    return [pytest.param(name, marks=marks) for name, marks in due.items()]


@pytest.mark.planted
@pytest.mark.parametrize("name", parameters())
def test_a_planted_bug_is_found(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.planting", name], capture_output=True, text=True, timeout=290
    )
    print(done.stdout)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_can_still_be_planted(name: str) -> None:
    by_module(BUGS[name][1].changes)


def test_names_of_bugs_are_unique() -> None:
    assert len(BUGS) == sum(len(suite.planted) for suite in SUITES)


def test_every_scenario_has_a_bug_that_it_catches() -> None:
    from tests.simulation import test_scenarios
    from tests.simulation.planted import SCRIPTED

    scripts = sorted(name for name in vars(test_scenarios) if name.startswith("test_"))
    wanted = [bug.script.partition("::")[2] for bug in SCRIPTED]
    assert [name[: len("test_16_")] for name in scripts] == wanted


def test_the_docs_list_every_bug() -> None:
    cells = {
        cell.strip()
        for line in DOCS.read_text().splitlines()
        if line.startswith("|")
        for cell in line.split("|")
    }
    assert [bug.bug for _, bug in BUGS.values() if bug.bug not in cells] == []
