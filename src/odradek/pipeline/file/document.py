"""A TOML file that knows on which line each of its keys is.

`tomllib` reads TOML and forgets positions. So the text is scanned a second time, by a scanner that knows
just enough of TOML to tell keys from values; it may be that simple because tomllib has already accepted the text.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odradek.pipeline.file.errors import PipelineError, Unreachable

Key = tuple[str | int, ...]

QUOTES = ('"""', "'''", '"', "'")


@dataclass(frozen=True)
class Document:
    """`lines` has the line of every key, `value_lines` the line where a string's text begins."""

    path: Path
    text: str
    values: dict[str, Any]
    lines: dict[Key, int]
    value_lines: dict[Key, int]

    def line(self, key: Key) -> int | None:
        """The line of a key, or of the nearest table around it."""
        while key and key not in self.lines:
            key = key[:-1]
        return self.lines.get(key)

    def error(self, key: Key, problem: str, line: int | None = None) -> PipelineError:
        return PipelineError(problem, self.path, line or self.line(key), dotted(key))

    def unreachable(self, key: Key, problem: str) -> Unreachable:
        return Unreachable(problem, self.path, self.line(key), dotted(key))


def dotted(key: Key) -> str:
    text = ""
    for part in key:
        if isinstance(part, int):
            text += f"[{part + 1}]"
        else:
            plain = part.replace("_", "").replace("-", "").isalnum()
            text += ("." if text else "") + (part if plain else f'"{part}"')
    return text


def read(path: Path, where_to_start: str = "'odradek pipeline init' writes one to start from") -> Document:
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise PipelineError(f"there is no such file; {where_to_start}", path) from None
    except UnicodeDecodeError as error:
        raise PipelineError(f"the file is not UTF-8: {error}", path) from None
    except OSError as error:
        raise PipelineError(f"cannot be read: {error.strerror or error}", path) from None
    return parse(path, text)


def parse(path: Path, text: str) -> Document:
    text = text.replace("\r\n", "\n")
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _not_toml(path, text, error) from None
    scanner = Scanner(text)
    scanner.scan()
    return Document(path, text, values, scanner.lines, scanner.value_lines)


def _not_toml(path: Path, text: str, error: tomllib.TOMLDecodeError) -> PipelineError:
    message, _, place = str(error).partition(" (at ")
    line = None
    if place.startswith("line "):
        line = int(place.removeprefix("line ").split(",")[0])
    elif place:
        line = text.count("\n") + 1
    return PipelineError(f"this is not TOML: {message[:1].lower()}{message[1:]}", path, line)


class Scanner:
    """Walks over valid TOML text, and notes where keys and values are."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.lines: dict[Key, int] = {}
        self.value_lines: dict[Key, int] = {}
        self._array_sizes: dict[Key, int] = {}

    def scan(self) -> None:
        table: Key = ()
        while self._skip_blank():
            if self.text.startswith("[[", self.at):
                table = self._array_entry(self._header("[[", "]]"))
            elif self.text[self.at] == "[":
                table = self._resolve(self._header("[", "]"))
                self._note(table)
            else:
                self._assignment(table)

    @property
    def _line(self) -> int:
        return self.text.count("\n", 0, self.at) + 1

    def _note(self, key: Key) -> None:
        for length in range(1, len(key) + 1):
            self.lines.setdefault(key[:length], self._line)

    def _header(self, begin: str, end: str) -> list[str]:
        self.at += len(begin)
        name = self._key_parts(end[0])
        self.at += len(end)
        return name

    def _resolve(self, name: list[str]) -> Key:
        """A table within an array of tables belongs to the array's newest entry."""
        key: Key = ()
        for part in name:
            key += (part,)
            if key in self._array_sizes:
                key += (self._array_sizes[key] - 1,)
        return key

    def _array_entry(self, name: list[str]) -> Key:
        array = (*self._resolve(name[:-1]), name[-1])
        number = self._array_sizes.get(array, 0)
        self._array_sizes[array] = number + 1
        key = (*array, number)
        self._note(key)
        return key

    def _assignment(self, table: Key) -> None:
        line_at = self.at
        key = (*table, *self._key_parts("="))
        end, self.at = self.at, line_at
        self._note(key)
        self.at = end + 1
        self._value(key)

    def _key_parts(self, end: str) -> list[str]:
        parts: list[str] = []
        while True:
            self._skip_spaces()
            character = self.text[self.at]
            if character == end:
                return parts
            if character == ".":
                self.at += 1
            elif character in "\"'":
                begin = self.at
                self._string(character)
                parts.append(tomllib.loads(f"key = {self.text[begin : self.at]}")["key"])
            else:
                begin = self.at
                while self.text[self.at] not in " \t.=]":
                    self.at += 1
                parts.append(self.text[begin : self.at])

    def _value(self, key: Key) -> None:
        self._skip_spaces()
        begin_line = self._line
        for quote in QUOTES:
            if self.text.startswith(quote, self.at):
                opens_a_line = len(quote) == 3 and self.text.startswith("\n", self.at + 3)
                self.value_lines[key] = begin_line + opens_a_line
                return self._string(quote)
        if self.text[self.at] == "[":
            return self._array(key)
        if self.text[self.at] == "{":
            return self._inline_table(key)
        while self.at < len(self.text) and self.text[self.at] not in "\n,]}#":
            self.at += 1
        return None

    def _string(self, quote: str) -> None:
        self.at += len(quote)
        while not self.text.startswith(quote, self.at):
            self.at += 2 if self.text[self.at] == "\\" and quote[0] == '"' else 1
        self.at += len(quote)
        while len(quote) == 3 and self.text.startswith(quote[0], self.at):  # quotes before the closing ones
            self.at += 1

    def _array(self, key: Key) -> None:
        for number in self._elements("]"):
            self.lines.setdefault((*key, number), self._line)
            self._value((*key, number))

    def _inline_table(self, key: Key) -> None:
        for _ in self._elements("}"):
            self._assignment(key)

    def _elements(self, end: str) -> Iterator[int]:
        self.at += 1
        number = 0
        while True:
            self._skip_blank()
            if self.text[self.at] == end:
                self.at += 1
                return
            if self.text[self.at] == ",":
                self.at += 1
                continue
            yield number
            number += 1

    def _skip_spaces(self) -> None:
        while self.text[self.at] in " \t":
            self.at += 1

    def _skip_blank(self) -> bool:
        """Skip white space, line ends and comments; returns whether anything is left."""
        while self.at < len(self.text):
            if self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif self.text[self.at] in " \t\r\n":
                self.at += 1
            else:
                return True
        return False
