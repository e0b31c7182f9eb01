"""One configuration key: its name, type, default, allowed values and how it may be changed.

Values are text in transit (files, environment, requests, metadata records) and are used as typed values. A
`Definition` is the one place that turns the first into the second and back, with Kafka's rules of
parsing, so that every way to set a value accepts and refuses the same things.
"""

import re
from collections.abc import Callable
from enum import Enum, IntEnum
from typing import Any, NamedTuple

MAX_SHORT = 2**15 - 1
MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1
MAX_DOUBLE = float.fromhex("0x1.fffffffffffffp+1023")

_INTEGER = re.compile(r"[+-]?[0-9]+")
_COMMA = re.compile(r"\s*,\s*")


class ConfigType(IntEnum):
    """The codes by which DescribeConfigs names a type."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """The codes with which DescribeConfigs says where a value comes from."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_GROUP_CONFIG = 8


class Scope(Enum):
    """The ways in which a key may be changed while the broker runs."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"
    TOPIC = "topic"
    GROUP = "group"


class Importance(Enum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class ConfigError(Exception):
    """A value that its key does not accept; the message names key, value and what is allowed."""

    def __init__(self, name: str, value: object, reason: str) -> None:
        super().__init__(f"Invalid value {value} for configuration {name}: {reason}")
        self.name = name
        self.value = value
        self.reason = reason


# Returns the reason for refusing a typed value, or None if it is accepted.
Validator = Callable[[Any], str | None]


def at_least(minimum: float) -> Validator:
    def check(value: float) -> str | None:
        return None if value >= minimum else f"must be at least {minimum}"

    return check


def between(minimum: float, maximum: float) -> Validator:
    def check(value: float) -> str | None:
        if value < minimum:
            return f"must be at least {minimum}"
        return None if value <= maximum else f"must be at most {maximum}"

    return check


def one_of(*allowed: str) -> Validator:
    def check(value: str) -> str | None:
        return None if value in allowed else f"must be one of {', '.join(allowed)}"

    return check


def each_one_of(*allowed: str) -> Validator:
    check_one = one_of(*allowed)

    def check(value: tuple[str, ...]) -> str | None:
        return next((reason for item in value if (reason := check_one(item))), None)

    return check


class Definition(NamedTuple):
    name: str
    type: ConfigType
    default: Any  # typed, None where the key has none
    documentation: str
    validator: Validator | None = None
    importance: Importance = Importance.MEDIUM
    scope: Scope = Scope.READ_ONLY
    internal: bool = False  # accepted, but not shown by DescribeConfigs

    @property
    def is_sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def parse(self, text: str) -> Any:
        """The typed value of a text, or ConfigError."""
        try:
            value = _PARSERS[self.type](text.strip())
        except ValueError as error:
            raise ConfigError(self.name, self._shown(text), str(error)) from None
        reason = self.validator(value) if self.validator else None
        if reason:
            raise ConfigError(self.name, self._shown(text), reason)
        return value

    def _shown(self, text: str) -> str:
        return "[hidden]" if self.is_sensitive else text


# A table's row: name, type, default, validator, importance, scope, documentation.
Row = tuple[str, ConfigType, object, Validator | None, Importance, Scope, str]


def _parse_boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError("must be true or false")
    return lowered == "true"


def _integer_parser(type_name: str, maximum: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        # Stricter than int(): no underscores, no inner blanks; and the width of Java's type.
        value = int(text) if _INTEGER.fullmatch(text) else None
        if value is None or not -maximum - 1 <= value <= maximum:
            raise ValueError(f"must be a number of type {type_name}")
        return value

    return parse


def _parse_double(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError("must be a number of type DOUBLE") from None


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(_COMMA.split(text)) if text else ()


_PARSERS: dict[ConfigType, Callable[[str], Any]] = {
    ConfigType.BOOLEAN: _parse_boolean,
    ConfigType.STRING: str,
    ConfigType.INT: _integer_parser("INT", MAX_INT),
    ConfigType.SHORT: _integer_parser("SHORT", MAX_SHORT),
    ConfigType.LONG: _integer_parser("LONG", MAX_LONG),
    ConfigType.DOUBLE: _parse_double,
    ConfigType.LIST: _parse_list,
    ConfigType.CLASS: str,
    ConfigType.PASSWORD: str,
}


def to_text(value: Any) -> str | None:
    """A typed value as Kafka writes it; `parse` reads it back."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _double_to_text(value)
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def _double_to_text(value: float) -> str:
    """Java's spelling: 1.7976931348623157E308, where Python writes 1.7976931348623157e+308."""
    mantissa, _, exponent = repr(value).partition("e")
    return f"{mantissa}E{int(exponent)}" if exponent else mantissa
