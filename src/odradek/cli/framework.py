"""Commands from annotated functions, on click.

    app = Group(help="Create and list topics.")

    @app.command()
    def create(
        names: Annotated[list[str] | None, Argument(metavar="NAME...")] = None,
        partitions: Annotated[int | None, Option("--partitions", min=1, help="How many.")] = None,
    ) -> None:
        '''Create topics.'''

The type says what a value is: text, a number, a file, one of an enumeration, several of these (`list`), or a flag
(`bool`). A parameter of type `Context` gets click's. Typer does the same and more, but takes
several times as long to import, and a command should respond at once.
"""

import inspect
import math
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Union, get_args, get_origin

import click
from click import Abort, BadParameter, ClickException, Context, confirm
from click.exceptions import Exit
from click.shell_completion import CompletionItem

__all__ = [
    "Abort",
    "Argument",
    "BadParameter",
    "ClickException",
    "Context",
    "Exit",
    "Group",
    "Option",
    "SummarizedCommand",
    "confirm",
    "message_of",
]

CONTEXT_SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 110}

WHOLE_SENTENCE = 1000  # characters

Completer = Callable[..., Sequence[Any]]


class _Declaration:
    """The content of a parameter's annotation, besides its type."""

    def __init__(
        self,
        *names: str,
        help: str | None = None,
        metavar: str | None = None,
        hidden: bool = False,
        min: float | None = None,
        max: float | None = None,
        is_file: bool = False,
        parser: Callable[[str], Any] | None = None,
        complete: Completer | None = None,
    ) -> None:
        self.names, self.help, self.metavar, self.hidden = names, help, metavar, hidden
        self.min, self.max, self.is_file, self.parser, self.complete = min, max, is_file, parser, complete


class Option(_Declaration):
    pass


class Argument(_Declaration):
    pass


class Group:
    """Commands under one name. `default` is the command that is meant where none is named."""

    def __init__(self, help: str, default: str = "", **settings: Any) -> None:
        self.click_group = _Group(
            help=help, no_args_is_help=True, context_settings=CONTEXT_SETTINGS, **settings
        )
        self.click_group.default = default

    def command(self, name: str | None = None) -> Callable[[Callable[..., None]], Callable[..., None]]:
        def add(function: Callable[..., None]) -> Callable[..., None]:
            self.click_group.add_command(make_command(function, name or function.__name__))
            return function

        return add

    def options(self, function: Callable[..., None]) -> None:
        """The function that handles options before the command."""
        self.click_group.params, self.click_group.callback = _parameters(function)

    def add(self, other: "Group | click.Command", name: str) -> None:
        command = other.click_group if isinstance(other, Group) else other
        self.click_group.add_command(command, name)


class SummarizedCommand(click.Command):
    """A command whose first sentence is wrapped in a list of commands, where click would cut it."""

    def get_short_help_str(self, limit: int = 45) -> str:
        return super().get_short_help_str(WHOLE_SENTENCE)


class _Group(SummarizedCommand, click.Group):
    default = ""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        if self.default and args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = [self.default, *args]
        return super().parse_args(ctx, args)


class _Command(SummarizedCommand):
    """Shows help for arguments too, which click does not."""

    def format_options(self, ctx: Context, formatter: click.HelpFormatter) -> None:
        described = [
            (one.make_metavar(ctx), one.description)
            for one in self.params
            if isinstance(one, _DescribedArgument) and one.description
        ]
        if described:
            with formatter.section("Arguments"):
                formatter.write_dl(described)
        super().format_options(ctx, formatter)


class _DescribedArgument(click.Argument):
    def __init__(self, *names: Any, description: str | None = None, **attributes: Any) -> None:
        super().__init__(*names, **attributes)
        self.description = description


class _Number(click.ParamType):  # type: ignore[type-arg]  # generic in newer versions only
    """A number within limits, which help does not show: users need not read that a partition is below 2^31."""

    name = "N"

    def __init__(self, kind: type, least: float | None, most: float | None) -> None:
        self._kind, self._least, self._most = kind, least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: Context | None) -> Any:
        try:
            number = self._kind(value)
        except (ValueError, OverflowError):
            noun = "whole number" if self._kind is int else "number"
            self.fail(f"{value!r} is not a {noun}", param, ctx)
        if isinstance(number, float) and not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        if self._least is not None and number < self._least:
            self.fail(f"{value} is less than {self._least:g}", param, ctx)
        if self._most is not None and number > self._most:
            self.fail(f"{value} is more than {self._most}", param, ctx)
        return number


def make_command(function: Callable[..., None], name: str) -> click.Command:
    parameters, callback = _parameters(function)
    return _Command(
        name.strip("_"),
        help=function.__doc__,
        params=parameters,
        callback=callback,
        context_settings=CONTEXT_SETTINGS,
    )


def message_of(error: ClickException) -> str:
    """Say what is wrong, after the usage of the command if the error is about that."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    message = f"error: {_without_label(error)}"
    if context is None:
        return message
    hint = f"Try '{context.command_path} --help' for help."
    return f"{context.get_usage()}\n{hint}\n\n{message}"


def _without_label(error: ClickException) -> str:
    """Return the message; click puts "Invalid value" before it, which says nothing where no parameter is named."""
    if isinstance(error, click.BadParameter) and error.param is None and error.param_hint is None:
        return error.message
    return error.format_message()


@dataclass(frozen=True)
class _Type:
    """The type of a value: this Python type, or several of them."""

    kind: Any
    is_list: bool
    is_optional: bool


def _type_of(annotation: Any) -> _Type:
    is_optional = False
    if get_origin(annotation) in (Union, types.UnionType):
        kinds = [one for one in get_args(annotation) if one is not types.NoneType]
        is_optional, annotation = True, kinds[0]
    if get_origin(annotation) is list:
        return _Type(get_args(annotation)[0], True, is_optional)
    return _Type(annotation, False, is_optional)


def _parameters(function: Callable[..., None]) -> tuple[list[click.Parameter], Callable[..., Any]]:
    """click's parameters for those of a function, and a callback that passes it the values in its own types."""
    built: list[click.Parameter] = []
    found: dict[str, _Type] = {}
    context_name = None
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.annotation is Context:
            context_name = name
            continue
        assert get_origin(parameter.annotation) is Annotated, name
        plain, declaration = get_args(parameter.annotation)
        found[name] = _type_of(plain)
        make = _option if isinstance(declaration, Option) else _argument
        built.append(make(name, parameter, found[name], declaration))

    def callback(**values: Any) -> Any:
        given = {name: _as_wanted(values[name], type_) for name, type_ in found.items()}
        if context_name is not None:
            given[context_name] = click.get_current_context()
        return function(**given)

    return built, callback


def _as_wanted(value: Any, type_: _Type) -> Any:
    if type_.is_list:
        return list(value) or (None if type_.is_optional else [])
    if value is not None and isinstance(type_.kind, type) and issubclass(type_.kind, Enum):
        return type_.kind(value)
    return value


def _click_type(type_: _Type, declaration: _Declaration) -> Any:
    kind = type_.kind
    if declaration.parser is not None:
        return click.types.FuncParamType(declaration.parser)
    if kind in (int, float):
        return _Number(kind, declaration.min, declaration.max)
    if kind is Path:
        return click.Path(exists=declaration.is_file, dir_okay=False, path_type=Path)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return click.Choice([member.value for member in kind])
    return kind


def _completion(complete: Completer | None) -> dict[str, Any]:
    if complete is None:
        return {}
    wants_context = len(inspect.signature(complete).parameters) > 1

    def shell_complete(context: Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        found = complete(context, incomplete) if wants_context else complete(incomplete)
        return [
            CompletionItem(one[0], help=one[1]) if isinstance(one, tuple) else CompletionItem(one)
            for one in found
        ]

    return {"shell_complete": shell_complete}


def _option(
    name: str, parameter: inspect.Parameter, type_: _Type, declaration: _Declaration
) -> click.Parameter:
    default = None if parameter.default is parameter.empty else parameter.default
    attributes: dict[str, Any] = {
        "help": declaration.help,
        "hidden": declaration.hidden,
        "required": parameter.default is parameter.empty,
        **_completion(declaration.complete),
    }
    if type_.kind is bool:
        return click.Option([name, *declaration.names], is_flag=True, default=default, **attributes)
    if isinstance(default, Enum):
        default = default.value
    if (
        not type_.is_list and default is not None
    ):  # to click, None would be a value: nothing would be required
        attributes |= {"default": default, "show_default": True}
    return click.Option(
        [name, *declaration.names],
        type=_click_type(type_, declaration),
        metavar=declaration.metavar or ("N" if type_.kind in (int, float) else None),
        multiple=type_.is_list,
        **attributes,
    )


def _argument(
    name: str, parameter: inspect.Parameter, type_: _Type, declaration: _Declaration
) -> click.Parameter:
    has_default = parameter.default not in (parameter.empty, None) and not type_.is_list
    return _DescribedArgument(
        [name],
        **({"default": parameter.default} if has_default else {}),
        type=_click_type(type_, declaration),
        metavar=declaration.metavar or name.upper(),
        nargs=-1 if type_.is_list else 1,
        required=parameter.default is parameter.empty,
        description=declaration.help,
        **_completion(declaration.complete),
    )
