"""The parser of commands that must start fast: argparse, with help and errors that look like those of all commands.

The other commands are made with click, which a broker does not import (`main` says why). So click describes these
commands too, but it is imported only when someone asks for help, or must be told what is wrong.
"""

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn

BAD_USAGE = 2
WIDTH = 80  # for what argparse formats itself; without one, each option would ask how wide the terminal is


class CommandParser(argparse.ArgumentParser):
    def __init__(self, command: str, description: str, epilog: str = "") -> None:
        super().__init__(
            f"odradek {command}",
            description=description,
            epilog=epilog,
            formatter_class=partial(argparse.HelpFormatter, width=WIDTH),
            allow_abbrev=False,
        )
        self._given: list[str] = []

    def parse_args(self, args: Sequence[str], namespace: Any = None) -> Any:  # type: ignore[override]
        self._given = list(args)
        return super().parse_args(args, namespace)

    def format_help(self) -> str:
        from odradek.cli.broker_commands import help_of

        return help_of(self)

    def error(self, message: str) -> NoReturn:
        from odradek.cli.broker_commands import refusal_of

        self.exit(BAD_USAGE, f"{refusal_of(self, self._given, message)}\n")
