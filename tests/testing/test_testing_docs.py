"""The examples and recipes of docs/TESTING.md, run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parent.parent.parent / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RECIPES = sorted((DOCS / "recipes").glob("test_*.py"))


def run(*arguments: str, directory: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=240)


def test_the_examples_run(tmp_path: Path) -> None:
    plain, *with_pytest = BLOCK.findall((DOCS / "TESTING.md").read_text())
    assert "up at localhost:" in run("-c", plain, directory=tmp_path).stdout
    for number, block in enumerate(with_pytest):
        (tmp_path / f"test_example_{number}.py").write_text(block)
    result = run("-m", "pytest", "-p", "no:cacheprovider", directory=tmp_path)
    assert "3 passed" in result.stdout, result.stdout


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.stem)
def test_the_recipes_run(recipe: Path, tmp_path: Path) -> None:
    result = run(
        "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(recipe), directory=tmp_path
    )
    assert "11 passed" in result.stdout, result.stdout


def test_every_client_has_every_recipe() -> None:
    recipes = {path.stem: re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE) for path in RECIPES}
    assert len(recipes) == 3
    assert len({tuple(names) for names in recipes.values()}) == 1, recipes
