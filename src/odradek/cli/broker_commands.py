"""`up`, `broker`, `format` and `random-uuid` as click sees them: in lists of commands, completion, help and errors.

They parse their arguments with argparse (`command_parser`), so that a broker starts without click.
"""

import argparse
from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

from odradek.cli.completion import complete_settings
from odradek.cli.framework import CONTEXT_SETTINGS, Context, Exit, SummarizedCommand, message_of
from odradek.cli.logs import FORMATS, LEVELS

SUMMARIES = {
    "up": "Run a broker on this machine, until Ctrl-C.",
    "broker": "Run a broker as a service, from a settings file.",
    "format": "Format the data directory of a node, before its first start.",
    "random-uuid": "Print a new id, for a cluster or a directory.",
}
PATHS = {"DIR": click.Path(file_okay=False), "FILE": click.Path(dir_okay=False)}


class BrokerCommand(SummarizedCommand):
    """A command of `cli.up`, as click lists and completes it. `main` runs such commands without click, and is called
    again here where options are written before the name."""

    def __init__(self, name: str) -> None:
        super().__init__(name, help=SUMMARIES[name], add_help_option=False)

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing:
            self.params = _options_of(_parser_of(self.name or ""))
            return super().parse_args(ctx, args)
        ctx.args = list(args)
        return []

    def invoke(self, ctx: Context) -> None:
        from odradek.cli.main import main as turn_off

        raise Exit(turn_off([self.name or "", *ctx.args]))


def help_of(parser: argparse.ArgumentParser) -> str:
    return _context(parser).get_help() + "\n"


def refusal_of(parser: argparse.ArgumentParser, arguments: Sequence[str], message: str) -> str:
    """The text about arguments that argparse has refused: click's if it refuses them, too, else argparse's message."""
    context = _context(parser)
    try:
        context.command.parse_args(context, list(arguments))
    except click.UsageError as error:
        return message_of(error)
    return message_of(click.UsageError(message.replace("argument ", ""), context))


def _context(parser: argparse.ArgumentParser) -> Context:
    command = click.Command(
        None,
        help=parser.description,
        epilog=parser.epilog,
        params=_options_of(parser),
        context_settings=CONTEXT_SETTINGS,
    )
    return Context(command, info_name=parser.prog, **CONTEXT_SETTINGS)


def _parser_of(command: str) -> argparse.ArgumentParser:
    if command in ("format", "random-uuid"):
        from odradek.cli.format import PARSERS

        return PARSERS[command]()
    from odradek.cli.up_options import argument_parser

    return argument_parser(command)


def _options_of(parser: argparse.ArgumentParser) -> list[click.Parameter]:
    return [_option(one) for one in parser._actions if one.help != argparse.SUPPRESS and one.dest != "help"]


def _option(action: argparse.Action) -> click.Option:
    names = list(action.option_strings)
    if action.nargs == 0:
        return click.Option(names, is_flag=True, help=action.help)
    kind = PATHS.get(str(action.metavar)) or (_Value(action.type) if callable(action.type) else None)
    return click.Option(
        names,
        type=kind,
        metavar=str(action.metavar),
        multiple=isinstance(action.default, list),
        required=action.required,
        help=action.help,
        shell_complete=_COMPLETIONS.get(names[-1]),
    )


class _Value(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions only
    """A value that a function of the parser reads."""

    name = "value"

    def __init__(self, read: "argparse._ActionType") -> None:
        self._read = read

    def convert(self, value: str, param: click.Parameter | None, ctx: Context | None) -> object:
        assert callable(self._read)
        try:
            return self._read(value)
        except argparse.ArgumentTypeError as error:
            self.fail(str(error), param, ctx)


def _complete_setting(context: Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [
        CompletionItem(one[0], help=one[1]) if isinstance(one, tuple) else CompletionItem(one)
        for one in complete_settings(context, incomplete)
    ]


def _complete_level(context: Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(one) for one in LEVELS if one.startswith(incomplete)]


def _complete_format(context: Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(one) for one in FORMATS if one.startswith(incomplete)]


_COMPLETIONS = {"--set": _complete_setting, "--log-level": _complete_level, "--log-format": _complete_format}
