"""Tests that a decision names exist."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`(?:tests/\w+/)?(test_\w+)(?:::(test_\w+))?`")
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("0*.md"))


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda path: path.stem[:4])
def test_the_tests_that_a_decision_names_exist(decision):
    files = {path.stem: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    for module, test in NAMED.findall(decision.read_text()):
        assert module in files, module
        assert f"def {test}" in files[module], f"{module}::{test}"
