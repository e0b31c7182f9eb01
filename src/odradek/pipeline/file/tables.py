"""One table of a pipeline's file, read key by key; problems are collected, with their lines."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from odradek.pipeline.file.document import Document, Key
from odradek.pipeline.file.errors import PipelineError


class Table:
    """Keys that were not asked for are unknown: `finish` reports them, with the nearest known key."""

    def __init__(self, document: Document, key: Key, values: Any, problems: list[PipelineError]) -> None:
        self.document, self.key, self.problems = document, key, problems
        self._asked: set[str] = set()
        if not isinstance(values, dict):
            self.complain("", "this must be a table")
            values = {}
        self.values: dict[str, Any] = values

    def complain(self, name: str, problem: str) -> None:
        self.problems.append(self.document.error((*self.key, name) if name else self.key, problem))

    def inner(self, name: str) -> "Table":
        """The table within this one."""
        return Table(self.document, (*self.key, name), self.values.get(name), self.problems)

    def has(self, name: str) -> bool:
        self._asked.add(name)
        return name in self.values

    def text(self, name: str, default: str = "") -> str:
        return str(self._typed(name, str, "a string", default))

    def number(self, name: str, default: int | None = None, lowest: int = 1) -> int | None:
        value: int | None = self._typed(name, int, "a whole number", default)
        if value is not None and value < lowest:
            self.complain(name, f"{value} is less than {lowest}")
            return default
        return value

    def fraction(self, name: str, default: float) -> float:
        value = self._typed(name, (int, float), "a number from 0 to 1", default)
        if not 0 <= value <= 1:
            self.complain(name, f"{value} is not a number from 0 to 1")
            return default
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        return bool(self._typed(name, bool, "true or false", default))

    def choice(self, name: str, default: str, choices: Sequence[str]) -> str:
        value = self.text(name, default)
        if value not in choices:
            self.complain(name, f"'{value}' is not one of {', '.join(choices)}")
            return default
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """A string or a list of strings."""
        if not self.has(name):
            return ()
        value = self.values[name]
        found = [value] if isinstance(value, str) else value
        if not isinstance(found, list) or not all(isinstance(one, str) and one for one in found):
            self.complain(name, "this must be a string, or a list of strings")
            return ()
        return tuple(found)

    def settings(self, name: str) -> dict[str, str]:
        """A table of settings by dotted names, which TOML reads as tables within tables."""
        if not self.has(name):
            return {}
        value = self.values[name]
        if not isinstance(value, dict):
            self.complain(name, "this must be a table of settings")
            return {}
        return dict(flatten(value))

    def mapping(self, name: str) -> dict[str, Any]:
        if not self.has(name):
            return {}
        value = self.values[name]
        if not isinstance(value, dict):
            self.complain(name, "this must be a table")
            return {}
        return value

    def _typed(self, name: str, kind: type | tuple[type, ...], wanted: str, default: Any) -> Any:
        if not self.has(name):
            return default
        value = self.values[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            self.complain(name, f"this must be {wanted}")
            return default
        if value == "":
            self.complain(name, "this must not be empty")
            return default
        return value

    def finish(self) -> None:
        for name in self.values:
            if name not in self._asked:
                close = difflib.get_close_matches(name, self._asked, n=1)
                hint = (
                    f"did you mean '{close[0]}'?" if close else f"known are {', '.join(sorted(self._asked))}"
                )
                self.complain(name, f"there is no such key; {hint}")


def flatten(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    found = []
    for name, value in values.items():
        if isinstance(value, dict):
            found += flatten(value, f"{prefix}{name}.")
        else:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            found.append((f"{prefix}{name}", text))
    return found
