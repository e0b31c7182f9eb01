"""The examples and recipes of docs/TESTING.md, run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent.parent / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RECIPES = sorted((DOCS / "recipes").glob("test_with_*.py"))
CLUSTER_RECIPES = sorted((DOCS / "recipes").glob("test_cluster_*.py"))


SLOW_BROKER = """
import pytest

@pytest.fixture(autouse=True)
def slow_groups(odradek_broker):
    odradek_broker.faults.delay("SyncGroup", 0.2, times=None)
"""
ENDLESS_TEST = """
import threading

def test_a_client_that_never_comes_back():
    threading.Event().wait()
"""


def run(*arguments: str, directory: Path, patience_s: float = 270) -> str:
    """All that a Python program prints. One that hangs is ended, and what it printed says so."""
    with (directory / "output").open("w+") as output:
        command = [sys.executable, *arguments]
        process = subprocess.Popen(command, cwd=directory, stdout=output, stderr=subprocess.STDOUT)
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        output.seek(0)
        printed = output.read()
    return printed if process.returncode >= 0 else f"{printed}\nended after {patience_s:g} s: {command}"


def run_pytest(*arguments: str, directory: Path, hang_s: float = 120) -> str:
    """A test that takes longer than `hang_s` ends all of them, and shows where each of its threads was."""
    options = ["-v", "-p", "no:cacheprovider", "--rootdir", str(directory)]
    options += ["-o", f"faulthandler_timeout={hang_s}", "-o", "faulthandler_exit_on_timeout=true"]
    return run("-m", "pytest", *options, *arguments, directory=directory)


def test_the_examples_run(tmp_path: Path) -> None:
    plain, *with_pytest = BLOCK.findall((DOCS / "TESTING.md").read_text())
    assert "up at localhost:" in run("-c", plain, directory=tmp_path)
    for number, block in enumerate(with_pytest):
        (tmp_path / f"test_example_{number}.py").write_text(block)
    printed = run_pytest(directory=tmp_path)
    assert "5 passed" in printed, printed


@pytest.mark.parametrize("recipe", CLUSTER_RECIPES, ids=lambda path: path.stem)
def test_the_recipes_for_clusters_run(recipe: Path, tmp_path: Path) -> None:
    printed = run_pytest(str(recipe), directory=tmp_path)
    assert "4 passed" in printed, printed


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_the_recipes_run(recipe: Path, tmp_path: Path) -> None:
    printed = run_pytest(str(recipe), directory=tmp_path)
    assert "11 passed" in printed, printed


@pytest.mark.parametrize(
    "recipe",
    [RECIPES[0], *(pytest.param(recipe, marks=pytest.mark.long) for recipe in RECIPES[1:])],
    ids=lambda path: path.stem,
)
def test_the_recipes_with_groups_run_where_joining_is_slow(recipe: Path, tmp_path: Path) -> None:
    """A member has not joined when its poll ends, as on a busy machine."""
    (tmp_path / "slow_broker.py").write_text(SLOW_BROKER)
    chosen = ["-p", "slow_broker", "-k", "twice or rebalance or poison"]
    printed = run_pytest(*chosen, str(recipe), directory=tmp_path)
    assert "3 passed" in printed, printed


def test_a_recipe_that_hangs_fails_with_its_name_and_where_it_was(tmp_path: Path) -> None:
    (tmp_path / "test_endless.py").write_text(ENDLESS_TEST)
    printed = run_pytest("test_endless.py", directory=tmp_path, hang_s=1)
    assert "test_endless.py::test_a_client_that_never_comes_back" in printed
    assert "line 5 in test_a_client_that_never_comes_back" in printed, printed


def test_a_program_that_hangs_shows_what_it_printed(tmp_path: Path) -> None:
    program = "import threading; print('so far', flush=True); threading.Event().wait()"
    printed = run("-c", program, directory=tmp_path, patience_s=3)
    assert "ended after 3 s" in printed


def test_every_client_has_every_recipe() -> None:
    recipes = {path.stem: re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE) for path in RECIPES}
    assert len(recipes) == 3
    assert len({tuple(names) for names in recipes.values()}) == 1, recipes
