"""The option parser of the scripts: what joptsimple accepts, and what it says of the rest."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from odradek.scripts.install import WouldOverwrite, install
from odradek.scripts.options import Exit, Flag, Parser
from odradek.scripts.running import SCRIPTS

Script = Callable[..., CompletedProcess[str]]

PARSER = Parser(
    "Does something.",
    [
        Flag("topic", "A topic.", "topic"),
        Flag("count", "How many.", "number", int, 7),
        Flag("state", "A state.", "String", is_optional=True),
        Flag("list", "List."),
        Flag("zookeeper", "Of old.", "hosts", is_unsupported=True),
    ],
)


@pytest.mark.parametrize("words", [("--topic", "a", "--list"), ("--list", "--topic=a")])
def test_a_value_follows_or_is_joined_by_an_equals_sign(words: tuple[str, ...]) -> None:
    given = PARSER.parse(words)
    assert (given.text("topic"), given.has("list"), given.number("count")) == ("a", True, 7)


def test_a_flag_may_be_repeated_and_a_value_may_be_negative_or_left_out() -> None:
    given = PARSER.parse(["--topic", "a", "--topic=b", "--count", "-3", "--state", "--list"])
    assert (given.values("topic"), given.number("count")) == (["a", "b"], -3)
    assert (given.has("state"), given.text("state")) == (True, None)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--nope",), "nope is not a recognized option"),
        (("--top", "a"), "top is not a recognized option"),
        (("-list",), "l is not a recognized option"),
        (("--topic",), "Option topic requires an argument"),
        (("--topic", "--list"), "Option topic requires an argument"),
        (("--count", "many"), "Cannot parse argument 'many' of option count"),
        (("--zookeeper", "x"), "Option --zookeeper is not supported by Odradek's scripts"),
    ],
)
def test_what_is_wrong_is_named_with_status_1(words: tuple[str, ...], reason: str) -> None:
    with pytest.raises(Exit) as told:
        PARSER.parse(words)
    assert (told.value.status, str(told.value).splitlines()[0]) == (1, reason)


def test_help_lists_every_flag() -> None:
    with pytest.raises(Exit) as told:
        PARSER.parse(["--help"])
    assert str(told.value).startswith("Does something.\nOption ")
    for name in ("--topic <topic>", "--state [String]", "--help", "--version", "(default: 7)"):
        assert name in str(told.value)


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_has_help(run: Script, name: str) -> None:
    result = run(name, "--help")
    assert "--help" in result.stdout + result.stderr
    assert result.returncode == (0 if name in ("metadata-quorum", "storage") else 1)  # as Kafka's


def test_installed_scripts_run(tmp_path: Path) -> None:
    files = install(tmp_path / "bin")
    assert [file.name for file in files] == [f"kafka-{name}.sh" for name in SCRIPTS]
    assert install(tmp_path / "bin") == files  # once more
    uuid = subprocess.run(
        [str(tmp_path / "bin/kafka-storage.sh"), "random-uuid"], capture_output=True, text=True
    )
    assert (uuid.returncode, len(uuid.stdout.strip())) == (0, 22)


def test_files_of_others_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "kafka-topics.sh").write_text("#!/bin/bash\nexec java\n")
    with pytest.raises(WouldOverwrite, match=r"kafka-topics.sh is there already"):
        install(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
