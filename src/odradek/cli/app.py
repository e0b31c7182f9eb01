"""The client commands, put together, and the one place where their failures become an exit status.

0 done, 1 could not be done, 2 not understood, 130 interrupted. Only the module of the command that is run is imported:
a command should answer before its user has looked up.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated

import typer

from odradek import __version__
from odradek.cli.access import BootstrapServer, CommandConfig, Naming, ProfileName
from odradek.cli.failures import CommandError
from odradek.cli.output import discard_output, note, output_told

FAILED = 1
ROOT_OPTIONS_WITH_VALUE = ("-b", "--bootstrap-server", "--command-config", "--profile")
# Each module has an `app` with commands in it, or one function named as the command.
MODULES = ("cluster", "topic", "group", "config", "produce", "consume", "profile")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"odradek {__version__}")
        raise typer.Exit


def options(
    context: typer.Context,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    profile: ProfileName = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    context.obj = Naming(bootstrap_server, command_config, profile)


BROKER_COMMANDS = {
    "up": "Run a broker on this machine, until Ctrl-C.",
    "broker": "Run a broker as a service, from a settings file.",
}


def build_app(modules: Sequence[str]) -> typer.Typer:
    app = typer.Typer(
        name="odradek",
        help="A Kafka-compatible event-streaming platform that installs with pip.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # plain help: for pipes too, and nothing heavy is imported for a line of bad usage
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="Every command but 'up' and 'broker' works against any Kafka cluster: name it with -b, before or after "
        "the command, in ODRADEK_BOOTSTRAP_SERVER, or by a profile.",
    )
    app.callback()(options)
    for name, text in BROKER_COMMANDS.items():
        _add_broker_command(app, name, text)
    for name in modules:
        module = import_module(f"odradek.cli.{name}")
        if hasattr(module, "app"):
            app.add_typer(module.app, name=name)
        else:
            app.command(name)(getattr(module, name))
    return app


def _add_broker_command(app: typer.Typer, name: str, help_text: str) -> None:
    """For the list of commands, and for whoever writes options before them: `main` turns off to these earlier."""

    def run(context: typer.Context) -> None:
        from odradek.cli.up import main as run_broker

        raise typer.Exit(run_broker(context.args, name))

    settings = {"ignore_unknown_options": True, "allow_extra_args": True}
    app.command(name, help=help_text, add_help_option=False, context_settings=settings)(run)


def needed_modules(arguments: Sequence[str]) -> Sequence[str]:
    """The module of the command that the arguments name; all of them where that is not plain to see."""
    position = 0
    while position < len(arguments) and arguments[position] in ROOT_OPTIONS_WITH_VALUE:
        position += 2
    word = arguments[position] if position < len(arguments) else ""
    return (word,) if word in MODULES else MODULES


def main(arguments: Sequence[str]) -> int:
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115 - as long as the process
    if sys.stdout is None:
        note("error: standard output is closed")
        return FAILED
    output = sys.stdout
    try:
        with output_told():
            build_app(needed_modules(arguments))(list(arguments), prog_name="odradek")
    except CommandError as error:
        note(f"error: {error}")
        return FAILED
    except SystemExit as exit_:
        if (
            sys.stdout is not output
        ):  # Typer has met a closed pipe, and hides it: its reader has left, as `head` does
            discard_output()
            return 0
        return _flushed(exit_.code if isinstance(exit_.code, int) else FAILED)
    return 0


def _flushed(status: int) -> int:
    try:
        with output_told():
            pass
    except CommandError as error:
        note(f"error: {error}")
        return status or FAILED
    return status
