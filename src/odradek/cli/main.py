"""The entry point of the `odradek` command.

A broker should start fast and stay small, so its process must never import the command-line
framework or the Kafka client that the other commands use. So `odradek up` and `odradek broker`
branch off here, before any of it is imported, and so do the commands that format their directories.
"""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments[:1] in (["up"], ["broker"]):
        from odradek.cli.up import main as run_broker

        return run_broker(arguments[1:], arguments[0])
    if arguments[:1] in (["format"], ["random-uuid"]):
        from odradek.cli.format import COMMANDS

        return COMMANDS[arguments[0]](arguments[1:])
    from odradek.cli.app import main as run_client_command

    return run_client_command(arguments)
