"""Read settings from Java properties files, TOML files, the environment and the command line.

Each reader returns a plain mapping from key to text. None of them knows which keys exist, except the
environment, whose names have lost their dots and are matched with the known keys.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from odradek.config.definition import ConfigError

ENVIRONMENT_PREFIX = "ODRADEK_"

_BREAKING = (
    "\t\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"  # what would end a line, or get lost at the start of a value
)
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class UnreadableSettings(ConfigError):
    """A settings file that does not exist, or is not one."""

    def __init__(self, path: Path, reason: str) -> None:
        Exception.__init__(self, f"the settings file {path} cannot be read: {reason}")
        self.name, self.value, self.reason = "the settings file", path, reason


def read_file(path: Path) -> dict[str, str]:
    """The settings of a file: TOML by its suffix, else Java properties."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise UnreadableSettings(path, (error.strerror or str(error)).lower()) from None
    except UnicodeDecodeError as error:
        raise UnreadableSettings(path, f"it is not text in UTF-8 ({error.reason})") from None
    try:
        if path.suffix != ".toml":
            return parse_properties(text)
        import tomllib

        return flatten_toml(tomllib.loads(text))
    except ValueError as error:
        raise UnreadableSettings(path, str(error)) from None


def parse_properties(text: str) -> dict[str, str]:
    """Java's properties syntax: comments, =, : or blank between key and value, continued lines, escapes."""
    settings = {}
    for line in _logical_lines(text):
        key, value = _split_property(line)
        settings[_unescape(key)] = _unescape(value)
    return settings


def format_properties(settings: Mapping[str, str]) -> str:
    """Text that `parse_properties` reads as these settings."""
    return "".join(f"{_escape(key, is_key=True)}={_escape(value)}\n" for key, value in settings.items())


def _escape(text: str, is_key: bool = False) -> str:
    special = "\\=:# !" if is_key else "\\"
    escaped = "".join(_escaped(character, special) for character in text)
    return f"\\{escaped}" if escaped[:1] == " " else escaped


def _escaped(character: str, special: str) -> str:
    if character in special:
        return f"\\{character}"
    return f"\\u{ord(character):04x}" if character in _BREAKING else character


def _logical_lines(text: str) -> Iterable[str]:
    pending = ""
    for line in text.splitlines():
        line = line.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        pending += line
        if _ends_with_open_backslash(pending):
            pending = pending[:-1]
            continue
        yield pending
        pending = ""
    if pending:
        yield pending


def _ends_with_open_backslash(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split_property(line: str) -> tuple[str, str]:
    """Key and value; the first =, : or blank that no backslash protects ends the key."""
    position = 0
    while position < len(line) and line[position] not in "=: \t\f":
        position += 2 if line[position] == "\\" else 1
    key, rest = line[:position], line[position:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return key, rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character == "\\" and position < len(text):
            character = text[position]
            position += 1
            if character == "u":
                character = _unicode_escape(text[position : position + 4])
                position += 4
            else:
                character = _ESCAPES.get(character, character)
        out.append(character)
    return "".join(out)


def _unicode_escape(digits: str) -> str:
    try:
        return chr(int(digits, 16))
    except ValueError:
        raise ValueError(f"\\u{digits} is not a character: four hexadecimal digits follow \\u") from None


def flatten_toml(table: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested tables as dotted keys; values as the text that a properties file would have."""
    settings = {}
    for name, value in table.items():
        if isinstance(value, dict):
            settings.update(flatten_toml(value, f"{prefix}{name}."))
        else:
            settings[prefix + name] = _toml_text(value)
    return settings


def _toml_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ",".join(map(_toml_text, value))
    return str(value)


def read_environment(environ: Mapping[str, str], keys: Iterable[str]) -> dict[str, str]:
    """ODRADEK_LOG_RETENTION_MS sets log.retention.ms; for an unknown name the dots are guessed."""
    named = {
        variable.removeprefix(ENVIRONMENT_PREFIX): value
        for variable, value in environ.items()
        if variable.startswith(ENVIRONMENT_PREFIX)
    }
    if not named:
        return {}
    known = {key.upper().replace(".", "_"): key for key in keys}
    return {known.get(name, name.lower().replace("_", ".")): value for name, value in named.items()}


def variable_of(key: str) -> str:
    """The variable of the environment that sets a key."""
    return ENVIRONMENT_PREFIX + key.upper().replace(".", "_")
