"""The examples of the README, run as they stand against a real broker.

A `python` block must run; if it is a test, by pytest. In a `console` block, lines after `$ ` are commands for a
shell, and what follows is all they print. Other blocks are for people. Spark's example runs in
tests/spark/test_spark_docs.py, in the session that is there.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.pipeline.file.examples import example
from tests.support import RunningBroker, running_broker

README = Path(__file__).parent.parent / "README.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ADDRESS = "localhost:9092"


def blocks(language: str) -> list[str]:
    found = [text for kind, text in BLOCK.findall(README.read_text()) if kind == language]
    return [text for text in found if "spark" not in text]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("readme")) as broker:
        yield broker


def test_there_are_examples() -> None:
    assert blocks("python")
    assert blocks("console")


@pytest.mark.parametrize("block", [block for block in blocks("python") if "def test_" in block])
def test_tests(block: str, tmp_path: Path) -> None:
    (tmp_path / "test_readme_example.py").write_text(block)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(tmp_path)]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "1 passed" in result.stdout, result.stdout


@pytest.mark.parametrize("block", [block for block in blocks("python") if "def test_" not in block])
def test_python(broker: RunningBroker, block: str) -> None:
    code = block.replace(ADDRESS, broker.bootstrap)
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert result.stdout


@pytest.mark.parametrize("block", blocks("console"))
def test_console(broker: RunningBroker, block: str) -> None:
    environ = {**os.environ, "ODRADEK_BOOTSTRAP_SERVER": broker.bootstrap}
    environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environ['PATH']}"
    for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, expected = step.partition("\n")
        result = subprocess.run(
            command,
            shell=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            env=environ,
        )
        assert result.stdout == expected, command


# --- what a reader needs before a step ---


def test_the_pipeline_finds_its_topic() -> None:
    """The steps above have deleted the topic that the example reads."""
    (steps,) = [
        text for kind, text in BLOCK.findall(README.read_text()) if "pipeline run" in text and kind == "sh"
    ]
    lines = steps.splitlines()
    (topic,) = re.findall(r'^topic = "(\w+)"$', example("shop", "shop.toml", ADDRESS), re.MULTILINE)[:1]
    created = next(at for at, line in enumerate(lines) if line.startswith(f"odradek topic create {topic}"))
    assert created < next(at for at, line in enumerate(lines) if "pipeline run" in line)


def test_pytest_is_installed_before_it_is_used() -> None:
    text = README.read_text()
    assert text.index("pip install pytest") < text.index("def test_")


def test_no_hint_names_a_package_that_is_not_published() -> None:
    root = README.parent
    files = [README, *root.glob("docs/*.md"), *root.glob("examples/**/*.md"), *root.glob("src/**/*.py")]
    assert [str(file) for file in files if re.search(r"pip install '?odradek", file.read_text())] == []


def test_no_word_of_the_picture_is_under_its_box() -> None:
    picture = (README.parent / "docs" / "picture.svg").read_text()
    left = int(re.findall(r'<rect x="(\d+)" y="20"', picture)[0])
    for x, text in re.findall(r'<text x="(\d+)"[^>]*>([^<]+)</text>', picture):
        if int(x) < left:
            assert int(x) + 8.5 * len(text) < left, text  # pixels of a wide letter, at 14 px
