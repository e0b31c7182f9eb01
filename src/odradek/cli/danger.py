"""Destructive commands need a confirmation: --yes or a yes at the terminal; and --force for internal topics."""

import sys
from collections.abc import Iterable
from typing import Annotated

from odradek.admin.places import is_internal
from odradek.cli import framework
from odradek.cli.command_parser import BAD_USAGE
from odradek.cli.failures import CommandError
from odradek.cli.framework import ClickException, Option

Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask.")]
Force = Annotated[bool, Option("--force", help="Allow it for internal topics such as __consumer_offsets.")]


class NoTerminal(ClickException):
    exit_code = BAD_USAGE


def confirm(question: str, yes: bool) -> None:
    """Continue only with --yes, or a yes at the terminal."""
    if yes:
        return
    if not sys.stdin or not sys.stdin.isatty():
        raise NoTerminal("there is no terminal to ask at: add --yes to proceed without asking")
    framework.confirm(question, abort=True, err=True)


def check_internal(topics: Iterable[str], force: bool) -> None:
    internal = [topic for topic in topics if is_internal(topic)]
    if internal and not force:
        raise CommandError(
            f"{', '.join(internal)}: the cluster keeps its own state in internal topics; "
            "add --force to do it anyway"
        )
