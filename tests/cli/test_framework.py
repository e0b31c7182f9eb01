"""Commands from annotated functions: what becomes of types, defaults and limits."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import pytest

from odradek.cli.framework import Argument, ClickException, Context, Group, Option
from odradek.cli.main import main


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


def called_with(*arguments: str) -> dict[str, Any]:
    """Return what a command gets for its arguments."""
    got: dict[str, Any] = {}
    app = Group("Test.")

    @app.command("try-it")
    def try_it(
        context: Context,
        name: Annotated[str, Argument(metavar="NAME", help="A name.")],
        rest: Annotated[list[str] | None, Argument(metavar="[REST]...")] = None,
        file: Annotated[Path | None, Option("--file", metavar="FILE")] = None,
        count: Annotated[int | None, Option("--count", "-n", min=1, max=10)] = None,
        rate: Annotated[float, Option("--rate", min=0.5)] = 2.0,
        header: Annotated[list[str] | None, Option("--header")] = None,
        number: Annotated[list[int], Option("--number", min=0)] = [],  # noqa: B006 - read, not changed
        colour: Annotated[Colour, Option("--colour", help="Which.")] = Colour.RED,
        length: Annotated[int | None, Option("--length", parser=len)] = None,
        flag: Annotated[bool, Option("--flag")] = False,
        go: Annotated[bool, Option("--go/--stay")] = False,
    ) -> None:
        """Try it."""
        got.update(locals())

    app.click_group.main(["try-it", *arguments], standalone_mode=False)
    got.pop("context", None)
    got.pop("got", None)
    return got


def test_defaults() -> None:
    assert called_with("a") == {
        "name": "a",
        "rest": None,
        "file": None,
        "count": None,
        "rate": 2.0,
        "header": None,
        "number": [],
        "colour": Colour.RED,
        "length": None,
        "flag": False,
        "go": False,
    }


def test_values() -> None:
    got = called_with(
        *("a", "b", "c", "--file", "x", "-n", "10", "--rate", "0.5", "--header", "h", "--header", "i"),
        *("--number", "1", "--number", "2", "--colour", "blue", "--length", "four", "--flag", "--go"),
    )
    assert got == {
        "name": "a",
        "rest": ["b", "c"],
        "file": Path("x"),
        "count": 10,
        "rate": 0.5,
        "header": ["h", "i"],
        "number": [1, 2],
        "colour": Colour.BLUE,
        "length": 4,
        "flag": True,
        "go": True,
    }
    assert isinstance(got["colour"], Colour)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "Missing argument 'NAME'"),
        (("a", "--count", "0"), "0 is less than 1"),
        (("a", "--count", "11"), "11 is more than 10"),
        (("a", "--count", "x"), "'x' is not a whole number"),
        (("a", "--rate", "nan"), "nan is not a finite number"),
        (("a", "--number", "-1"), "-1 is less than 0"),
        (("a", "--colour", "green"), "'green' is not one of"),
        (("a", "--nothing"), "No such option"),
    ],
)
def test_bad_usage(arguments: tuple[str, ...], reason: str) -> None:
    with pytest.raises(ClickException) as error:
        called_with(*arguments)
    assert reason in error.value.format_message()
    assert error.value.exit_code == 2


def test_help_describes_arguments_and_options(capsys: pytest.CaptureFixture[str]) -> None:
    called_with("--help")
    text = capsys.readouterr().out
    assert "Usage: " in text
    assert "Arguments:\n  NAME  A name.\n" in text
    assert "-n, --count N" in text
    assert "[default: red]" in text


@pytest.mark.parametrize("command", [(), ("topic",), ("cluster",), ("transaction",), ("pipeline",)])
def test_summaries_of_commands_are_not_cut(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert main([*command, "--help"]) == 0
    assert "..." not in capsys.readouterr().out.partition("Commands:")[2]
