"""`odradek completion`: the script that makes a shell complete our commands."""

import os
from enum import StrEnum
from typing import Annotated

import click
from click.shell_completion import get_completion_class

from odradek.cli.framework import Argument
from odradek.cli.output import print_line

VARIABLE = "_ODRADEK_COMPLETE"


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[
        Shell | None, Argument(metavar="[bash|zsh|fish]", help="The shell (default: that of $SHELL).")
    ] = None,
) -> None:
    """Teach your shell to complete. It prints a script for commands, topics, groups and settings.

    For bash: odradek completion bash >> ~/.bashrc
    """
    name = shell.value if shell else os.path.basename(os.environ.get("SHELL", "bash"))
    kind = get_completion_class(name)
    if kind is None:
        raise click.BadParameter(f"{name} is not one of {', '.join(Shell)}", param_hint="SHELL")
    root = click.get_current_context().find_root().command
    print_line(kind(root, {}, "odradek", VARIABLE).source())
