"""Options as Kafka's scripts take them: `--flag value` or `--flag=value`, repeated flags, no abbreviations.

Kafka uses joptsimple, and reads of it what others write: "x is not a recognized option", "Missing required argument".
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from textwrap import wrap
from typing import NoReturn

from odradek import __version__

FAILED = 1
NAME_WIDTH, HELP_WIDTH = 40, 60
UNSUPPORTED = "not supported by Odradek's scripts"


class Exit(Exception):
    """Ends a script with this status; the message, if there is one, goes to standard error."""

    def __init__(self, status: int, message: str = "") -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Flag:
    name: str
    help: str
    argument: str | None = None  # what it is called in help; None if the flag takes none
    type: Callable[[str], object] = str
    default: object = None
    is_optional: bool = False  # the argument may be left out
    is_unsupported: bool = False


@dataclass
class Given:
    """The options of the command line."""

    flags: dict[str, Flag]
    found: dict[str, list[object]] = field(default_factory=dict)
    rest: list[str] = field(default_factory=list)
    order: list[str] = field(default_factory=list)  # the flags, one after the other

    def has(self, name: str) -> bool:
        return name in self.found

    def values(self, name: str) -> list[str]:
        return [str(one) for one in self.found.get(name, []) if one is not None]

    def text(self, name: str) -> str | None:
        values = self.values(name)
        return values[-1] if values else self._default(name)

    def number(self, name: str) -> int | None:
        text = self.text(name)
        return None if text is None else int(text)

    def _default(self, name: str) -> str | None:
        default = self.flags[name].default
        return None if default is None else str(default)


class Parser:
    """The flags of one script, and what `--help` says about it."""

    def __init__(self, description: str, flags: Iterable[Flag]) -> None:
        self.description = description
        own = [Flag("help", "Print usage information."), Flag("version", "Display version.")]
        self.flags = {flag.name: flag for flag in (*flags, *own)}

    def parse(self, arguments: Sequence[str]) -> Given:
        """Raises Exit for --help and --version, as for a flag that is not known or not supported."""
        given = Given(self.flags)
        position = 0
        while position < len(arguments):
            word = arguments[position]
            position += 1
            if not word.startswith("-") or word == "-":
                given.rest.append(word)
                continue
            name, equals, value = word.lstrip("-").partition("=")
            flag = self._flag(word, name)
            given.order.append(name)
            if flag.argument is None:
                given.found.setdefault(name, [])
                continue
            if not equals:
                follows = position < len(arguments) and not _is_flag(arguments[position])
                if not follows and not flag.is_optional:
                    self.fail(f"Option {name} requires an argument")
                value = arguments[position] if follows else ""
                position += follows
                if not follows:
                    given.found.setdefault(name, []).append(None)
                    continue
            given.found.setdefault(name, []).append(self._converted(flag, value))
        self._help_or_version(given)
        for name in given.found:
            if self.flags[name].is_unsupported:
                raise Exit(FAILED, f"Option --{name} is {UNSUPPORTED}")
        return given

    def _flag(self, word: str, name: str) -> Flag:
        if not word.startswith("--") or name not in self.flags:
            self.fail(f"{name if word.startswith('--') else name[:1]} is not a recognized option")
        return self.flags[name]

    def _converted(self, flag: Flag, value: str) -> object:
        try:
            return flag.type(value)
        except ValueError:
            self.fail(f"Cannot parse argument '{value}' of option {flag.name}")

    def _help_or_version(self, given: Given) -> None:
        if given.has("help"):
            self.fail(self.description)
        if given.has("version"):
            sys.stdout.write(f"{__version__} (Odradek)\n")
            raise Exit(0)

    def require(self, given: Given, *names: str) -> None:
        for name in names:
            if not given.has(name):
                self.fail(f'Missing required argument "[{name}]"')

    def exclude(self, given: Given, name: str, *others: str) -> None:
        """Refuse options that cannot be used together."""
        for other in others:
            if given.has(name) and given.has(other):
                self.fail(f'Option "[{name}]" can\'t be used with option "[{other}]"')

    def fail(self, message: str) -> NoReturn:
        """The message and the usage, to standard error."""
        raise Exit(FAILED, f"{message}\n{self.usage()}")

    def usage(self) -> str:
        lines = [f"{'Option':<{NAME_WIDTH}} Description", f"{'------':<{NAME_WIDTH}} -----------"]
        for flag in sorted(self.flags.values(), key=lambda one: one.name):
            text = flag.help + (f" Note: {UNSUPPORTED}." if flag.is_unsupported else "")
            if flag.default is not None:
                text += f" (default: {flag.default})"
            described = wrap(text, HELP_WIDTH) or [""]
            lines.append(f"{_shown(flag):<{NAME_WIDTH}} {described[0]}")
            lines += [f"{'':<{NAME_WIDTH}} {line}" for line in described[1:]]
        return "\n".join(lines)


def _is_flag(word: str) -> bool:
    """True for a flag; a negative number is a value."""
    return word.startswith("--") or (word.startswith("-") and len(word) > 1 and not word[1:2].isdigit())


def _shown(flag: Flag) -> str:
    if flag.argument is None:
        return f"--{flag.name}"
    return f"--{flag.name} [{flag.argument}]" if flag.is_optional else f"--{flag.name} <{flag.argument}>"
