"""Bugs that are planted in the product are caught, each in a process of its own: by the scripts, and by the simulation
with the checkers that it always has."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.mutation import CannotPlant, Mutation, plant
from tests.simulation.planted import SCRIPTED, SIMULATED
from tests.simulation.run import run_seed, run_seeds

DOCS = Path(__file__).parents[2] / "docs" / "SIMULATION.md"


def run_planted(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.simulation.planted", *arguments],
        capture_output=True,
        text=True,
        timeout=280,
    )


@pytest.mark.parametrize("name", [planted.script for planted in SCRIPTED])
def test_a_script_fails_when_its_bug_is_put_back(name: str) -> None:
    done = run_planted(name)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


def test_every_script_has_a_bug_that_it_catches() -> None:
    from tests.simulation import test_scenarios

    scripts = sorted(name for name in vars(test_scenarios) if name.startswith("test_"))
    assert [name[: len("test_16")] for name in scripts] == [planted.script for planted in SCRIPTED]


@pytest.mark.parametrize("name", [planted.name for planted in SIMULATED])
def test_the_simulation_finds_a_planted_bug(name: str) -> None:
    done = run_planted(name)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"


def test_the_product_as_it_is_passes_the_seeds_that_catch_bugs() -> None:
    for outcome in run_seeds({planted.seed: None for planted in SIMULATED}):
        assert outcome.failure is None, outcome.explain(run_seed)


def test_the_docs_list_every_bug_and_its_seed() -> None:
    rows = [line for line in DOCS.read_text().splitlines() if line.startswith("|")]
    scripted = [row for row in rows if row[2:4].isdigit()]
    assert [(f"test_{row[2:4]}", row.split(" | ")[1].removesuffix(" |")) for row in scripted] == [
        (planted.script, planted.bug) for planted in SCRIPTED
    ]
    listed = {tuple(row[2:].split(" | ")[:2]) for row in rows}
    assert {(planted.bug, str(planted.seed)) for planted in SIMULATED} <= listed


# --- the mechanism ---


def test_a_text_that_is_not_there_once_cannot_be_changed() -> None:
    assert Mutation("m", "b", "x").apply("abc") == "axc"
    for source in ("ac", "abcb"):
        with pytest.raises(CannotPlant, match="not once"):
            Mutation("m", "b", "x").apply(source)


def test_bugs_are_planted_in_a_fresh_process_only() -> None:
    import odradek.errors  # noqa: F401

    with pytest.raises(CannotPlant, match="imported already"):
        plant([])


def test_a_bug_that_does_not_fit_any_more_is_reported_and_not_taken_for_caught() -> None:
    code = (
        "from tests.simulation.mutation import Mutation, plant\n"
        "plant([Mutation('storage.log.log', 'no such text', '')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "CannotPlant" in done.stderr
