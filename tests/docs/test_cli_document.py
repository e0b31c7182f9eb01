"""docs/CLI.md beside the commands themselves: it names every command and option, and none that does not exist."""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from odradek.cli.app import MODULES, build_app
from odradek.cli.broker_commands import SUMMARIES, _options_of, _parser_of
from odradek.scripts.options import Parser
from odradek.scripts.running import SCRIPTS

DOCUMENT = (Path(__file__).parents[2] / "docs" / "CLI.md").read_text()
SECTIONS = re.split(r"^## ", DOCUMENT, flags=re.MULTILINE)[1:]
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
# Described once, for all commands.
EVERYWHERE = {
    "--help",
    "--json",
    "--bootstrap-server",
    "--profile",
    "--command-config",
    "--yes",
    "--topic",
    "--group",
    "--metrics-host",
}
IMPLIED = {"mirror run": "mirror FILE"}  # a group's command that is run without its name


def commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{path}{name} ")
        elif not command.hidden:
            yield f"{path}{name}", command


def long_names(parameters: list[click.Parameter]) -> set[str]:
    return {
        name
        for one in parameters
        if isinstance(one, click.Option) and not one.hidden
        for name in one.opts
        if name.startswith("--")
    }


ALL = {name: long_names(command.params) for name, command in commands(build_app(tuple(MODULES)))}
ALL.update({name: long_names(_options_of(_parser_of(name))) for name in SUMMARIES})


def section_of(command: str) -> str:
    """The sections whose headings name the command or its group."""
    first = command.split()[0]
    return "".join(one for one in SECTIONS if re.search(rf"`odradek {first}\b", one.partition("\n")[0]))


@pytest.mark.parametrize("command", sorted(ALL))
def test_a_command_and_its_options_are_described(command: str) -> None:
    section = section_of(command) or DOCUMENT
    name = IMPLIED.get(command, command)
    assert re.search(rf"\b{re.escape(name)}\b", section), f"{name} is missing"
    assert sorted(ALL[command] - EVERYWHERE - set(OPTION.findall(section))) == []


def test_every_option_of_the_document_exists() -> None:
    known = {option for options in ALL.values() for option in options} | EVERYWHERE | {"--version"}
    for script in SCRIPTS:
        module = __import__(f"odradek.scripts.{script.replace('-', '_')}", fromlist=["PARSER"])
        if isinstance(parser := getattr(module, "PARSER", None), Parser):
            known |= {f"--{name}" for name in parser.flags}
    assert sorted(set(OPTION.findall(DOCUMENT)) - known) == []
