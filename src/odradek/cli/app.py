"""The client commands, put together, and the one place where their failures become an exit status.

0 success, 1 failure, 2 bad usage, 130 interrupted. Only the module of the command that is run is imported, because a
command should respond at once.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module

import click

from odradek import __version__
from odradek.admin.failures import AdminError
from odradek.cli.access import BootstrapServer, CommandConfig, Naming, ProfileName
from odradek.cli.broker_commands import SUMMARIES, BrokerCommand
from odradek.cli.framework import Abort, ClickException, Context, Group, message_of
from odradek.cli.output import discard_output, note, output_told, print_line

FAILED = 1
INTERRUPTED = 130
COMPLETION_VARIABLE = "_ODRADEK_COMPLETE"
ROOT_OPTIONS_WITH_VALUE = ("-b", "--bootstrap-server", "--command-config", "--profile")
HELP = "A Kafka-compatible event-streaming platform that installs with pip."
EPILOG = (
    "All commands except 'up', 'broker', 'format', 'random-uuid' and 'certificates' work with any Kafka cluster: name "
    "it with -b, before or after the command, in ODRADEK_BOOTSTRAP_SERVER, or with a profile."
)
# Command and module; a module has an `app` with commands in it, or one function named as the command.
MODULES = {
    "topic": "topic",
    "produce": "produce",
    "consume": "consume",
    "group": "group",
    "transaction": "transaction",
    "ledger": "ledger",
    "config": "config",
    "cluster": "cluster",
    "quorum": "quorum",
    "user": "user",
    "acl": "acl",
    "quota": "quota",
    "certificates": "certificates",
    "console": "console",
    "pipeline": "pipeline",
    "archive": "archive",
    "replay": "replay",
    "sql": "sql",
    "mirror": "mirror",
    "profile": "profile",
    "scripts": "scripts",
    "completion": "completion_script",
}


def options(
    context: Context,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    profile: ProfileName = None,
) -> None:
    context.obj = Naming(bootstrap_server, command_config, profile)


def build_app(commands: Sequence[str]) -> click.Group:
    app = Group(HELP, name="odradek", epilog=EPILOG)
    app.options(options)
    app.click_group.params.append(_version_option())
    for name in SUMMARIES:
        app.add(BrokerCommand(name), name)
    for name in MODULES.keys() - set(commands):
        app.add(click.Command(name), name)  # in its place: nobody asks more of it than its name
    for name in commands:
        module = import_module(f"odradek.cli.{MODULES[name]}")
        if hasattr(module, "app"):
            app.add(module.app, name)
        else:
            app.command(name)(getattr(module, name))
    return app.click_group


def _version_option() -> click.Option:
    def show(context: Context, parameter: click.Parameter, is_wanted: bool) -> None:
        if is_wanted and not context.resilient_parsing:
            print_line(f"odradek {__version__}")
            context.exit()

    return click.Option(
        ["--version"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Print the version.",
    )


def needed_commands(arguments: Sequence[str]) -> Sequence[str]:
    """The command that the arguments name; all of them where that is not plain to see."""
    position = 0
    while position < len(arguments) and arguments[position] in ROOT_OPTIONS_WITH_VALUE:
        position += 2
    word = arguments[position] if position < len(arguments) else ""
    return (word,) if word in MODULES else tuple(MODULES)


def completed_words(environ: Mapping[str, str]) -> list[str]:
    """The words of the line that a shell wants completed, without ours and the one at the cursor."""
    import shlex

    try:
        words = shlex.split(environ.get("COMP_WORDS", ""))
    except ValueError:  # a quote is still open
        words = environ.get("COMP_WORDS", "").split()
    count = environ.get("COMP_CWORD", "")
    return words[1 : int(count)] if count.isdecimal() else words[1:]


def completed_commands(environ: Mapping[str, str]) -> Sequence[str]:
    """The commands whose modules a completion needs. Of the others, bash shows only the names."""
    words = completed_words(environ)
    if not words and environ[COMPLETION_VARIABLE].startswith("bash"):
        return ()
    return needed_commands(words)


def main(arguments: Sequence[str]) -> int:
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115 - as long as the process
    if sys.stdout is None:
        note("error: standard output is closed")
        return FAILED
    try:
        with output_told():
            return _run(arguments)
    except AdminError as error:
        note(f"error: {error}")
        return FAILED


def _run(arguments: Sequence[str]) -> int:
    output = sys.stdout
    is_completion = COMPLETION_VARIABLE in os.environ
    app = build_app(completed_commands(os.environ) if is_completion else needed_commands(arguments))
    try:
        status = app.main(
            list(arguments), prog_name="odradek", complete_var=COMPLETION_VARIABLE, standalone_mode=False
        )
        return status if isinstance(status, int) else 0
    except ClickException as error:
        note(message_of(error))
        return error.exit_code
    except Abort as abort:
        is_interrupt = isinstance(abort.__context__, KeyboardInterrupt)
        note("" if is_interrupt else "Aborted!")
        return INTERRUPTED if is_interrupt else FAILED
    except SystemExit as exit_:
        if sys.stdout is not output:  # click hides a closed pipe: the reader has exited, as `head` does
            discard_output()
            return 0
        return exit_.code if isinstance(exit_.code, int) else FAILED
