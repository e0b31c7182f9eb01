r"""Choose the messages that `odradek consume --filter` prints.

    key=alice                 the key is this text
    value~^ERROR              the value matches this regular expression, anywhere in it
    header.source=web         a header of that name has this value
    value.$.user.id>100       the value is JSON, and the number at this path is larger
    value.$.items[0].sku=a-1  the same with an element of a list
    timeout                   no operator: the value contains this text

Operators: = != ~ !~ > >= < <=. A missing key, header or path equals nothing and matches nothing. Text is compared with
the JSON form of numbers, true, false and null; numbers are compared by value.
"""

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

Predicate = Callable[[Any], bool]

CONDITION = re.compile(
    r"(?P<field>key|value|header\.(?P<header>[^=!~<>]+?))(?:\.(?P<path>\$[^=!~<>]*))?(?P<operator>=|!=|!?~|>=?|<=?)(?P<text>.*)",
    re.DOTALL,
)
STEP = re.compile(r"\.(?P<name>[^.\[\]]+)|\[(?P<index>-?\d+)\]|\[(?P<quote>['\"])(?P<quoted>.*?)(?P=quote)\]")
MISSING = object()


def compile_filters(texts: Iterable[str]) -> Predicate:
    """A message passes if it passes every filter; ValueError for a text that is none."""
    conditions = [compile_filter(text) for text in texts]
    if len(conditions) == 1:
        return conditions[0]
    return lambda message: all(condition(message) for condition in conditions)


def needles_of(texts: Iterable[str]) -> list[bytes]:
    """Find bytes that are in every message that passes: whoever has many messages in one piece looks for them first."""
    return [needle for needle in map(_needle, texts) if needle]


def _needle(text: str) -> bytes | None:
    found = CONDITION.fullmatch(text)
    if found is None:
        return text.encode()
    if found["path"] is not None or found["operator"] not in ("=", "~"):
        return None
    wanted = found["text"]
    is_plain = wanted.isascii() and (found["operator"] == "=" or re.escape(wanted) == wanted)
    return wanted.encode() if is_plain else None


def compile_filter(text: str) -> Predicate:
    found = CONDITION.fullmatch(text)
    if found is None:
        wanted = text.encode()
        return lambda message: wanted in (message.value() or b"")
    fields = _fields(found["field"], found["header"])
    path = None if found["path"] is None else _steps(found["path"])
    holds = _comparison(found["operator"], found["text"])

    def passes(message: Any) -> bool:
        values = fields(message)
        if path is not None:
            values = [_at(path, value) for value in values]
        is_negative = found["operator"].startswith("!")
        outcomes = [holds(value) for value in values if value is not MISSING and value is not None]
        return all(outcomes) if is_negative else any(outcomes)

    return passes


def _fields(field: str, header: str | None) -> Callable[[Any], list[Any]]:
    if header is not None:
        return lambda message: [value for name, value in message.headers() or () if name == header]
    if field == "key":
        return lambda message: [message.key()]
    return lambda message: [message.value()]


def _steps(path: str) -> list[str | int]:
    """Split a path: `$.a[0]['b c']` is ["a", 0, "b c"]."""
    steps: list[str | int] = []
    position = 1
    while position < len(path):
        found = STEP.match(path, position)
        if found is None:
            raise ValueError(f"{path!r} is not a path: give one like $.user.id or $.items[0]")
        name = found["name"] if found["name"] is not None else found["quoted"]
        steps.append(int(found["index"]) if found["index"] is not None else name)
        position = found.end()
    return steps


def _at(steps: list[str | int], value: bytes | None) -> Any:
    """The value at a path, as text or a number; MISSING if there is none, or no JSON at all."""
    try:
        here: Any = json.loads(value) if value is not None else MISSING
        for step in steps:
            here = here[step]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return MISSING
    if isinstance(here, str) or here is MISSING:
        return here
    if isinstance(here, int | float) and not isinstance(here, bool):
        return here
    return json.dumps(here, ensure_ascii=False)


def _comparison(operator: str, text: str) -> Callable[[Any], bool]:
    if operator in ("~", "!~"):
        try:
            pattern = re.compile(text)
        except re.error as error:
            raise ValueError(f"{text!r} is not a regular expression: {error}") from None
        is_wanted = operator == "~"
        return lambda value: (pattern.search(_text(value)) is not None) is is_wanted
    if operator in ("=", "!="):
        is_equal, number = operator == "=", _number(text)
        return lambda value: _equals(value, text, number) is is_equal
    limit = _number(text)
    if limit is None:
        raise ValueError(f"{text!r} is not a number, and {operator} compares numbers")
    return lambda value: (number := _number(_text(value))) is not None and COMPARE[operator](number, limit)


COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": lambda value, limit: value > limit,
    ">=": lambda value, limit: value >= limit,
    "<": lambda value, limit: value < limit,
    "<=": lambda value, limit: value <= limit,
}


def _equals(value: Any, text: str, number: float | None) -> bool:
    if isinstance(value, int | float):
        return value == number
    return _text(value) == text


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
