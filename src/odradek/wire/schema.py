"""The encoding of a message's fields, as its dataclass declares it. See `codec.py`."""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

__all__ = [
    "FIXED_FORMATS",
    "FOREVER",
    "Buffer",
    "Field",
    "Message",
    "Wire",
    "body_and_tagged",
    "field_of",
    "fields_of",
    "wire_struct",
]

FOREVER = 32_767

Buffer = bytes | bytearray | memoryview

FIXED_FORMATS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
}


if TYPE_CHECKING:
    from dataclasses import dataclass as wire_struct
else:

    def wire_struct(cls: type) -> type:
        """`dataclass(slots=True)` in a fraction of the time, because a broker defines many messages when it starts: all
        share one `__eq__` and one `__repr__`, the docstring is not rendered from the signature, and `__init__` is
        compiled with the first instance, which many never have."""
        cls.__doc__ = cls.__doc__ or cls.__name__
        cls.__init__ = _init_first
        cls.__eq__ = _equal
        cls.__hash__ = None
        cls.__repr__ = _show
        return dataclass(slots=True, init=False, eq=False, repr=False)(cls)


def _init_first(self: Any, *values: Any, **named: Any) -> None:
    struct_type: Any = type(self)
    struct_type.__init__ = _compile_init(struct_type)
    struct_type.__init__(self, *values, **named)


def _compile_init(struct_type: Any) -> Any:
    """Compile an initializer as `dataclass` would: a field may have a default, or a function that makes one."""
    names: dict[str, Any] = {"MISSING": dataclasses.MISSING}
    parameters, lines = ["self"], ["pass"]
    for field in dataclasses.fields(struct_type):
        name, value = field.name, field.name
        if field.default_factory is not dataclasses.MISSING:
            names[f"new_{name}"] = field.default_factory
            parameters.append(f"{name}=MISSING")
            value = f"new_{name}() if {name} is MISSING else {name}"
        elif field.default is not dataclasses.MISSING:
            names[f"default_{name}"] = field.default
            parameters.append(f"{name}=default_{name}")
        else:
            parameters.append(name)
        lines.append(f"self.{name} = {value}")
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(lines), names)
    return names["__init__"]


def _values(struct: Any) -> tuple[Any, ...]:
    return tuple(getattr(struct, name) for name in struct.__slots__)


def _equal(self: Any, other: object) -> bool:
    return _values(self) == _values(other) if other.__class__ is self.__class__ else NotImplemented


def _show(self: Any) -> str:
    fields = zip(self.__slots__, _values(self), strict=True)
    return f"{self.__class__.__qualname__}({', '.join(f'{name}={value!r}' for name, value in fields)})"


class Message(Protocol):
    """A top-level struct: a request, a response or a stored record."""

    FLEXIBLE_SINCE: ClassVar[int]
    __dataclass_fields__: ClassVar[dict[str, Any]]


class Wire(typing.NamedTuple):
    """The encoding of one field. `type` is a primitive, `struct`, or either followed by `[]`."""

    type: str
    since: int = 0
    until: int = FOREVER
    nullable_since: int = FOREVER + 1
    nullable_until: int = FOREVER
    tag: int | None = None
    tag_since: int = 0

    def is_in(self, version: int) -> bool:
        return self.since <= version <= self.until

    def is_nullable_in(self, version: int) -> bool:
        return self.nullable_since <= version <= self.nullable_until

    def is_tagged_in(self, version: int) -> bool:
        return self.tag is not None and version >= self.tag_since


class Field(typing.NamedTuple):
    name: str
    wire: Wire
    struct_type: Any
    default: Any

    @property
    def is_array(self) -> bool:
        return self.wire.type.endswith("[]")

    @property
    def element_type(self) -> str:
        return self.wire.type.removesuffix("[]")


@cache
def fields_of(struct_type: Any) -> list[Field]:
    fields = dataclasses.fields(struct_type)
    hints: dict[str, Any] = {field.name: field.type for field in fields}
    if any(
        isinstance(hint, str) for hint in hints.values()
    ):  # in a module with `from __future__ import annotations`
        hints = typing.get_type_hints(struct_type, include_extras=True)
    return [
        Field(
            field.name,
            wire,
            _struct_in(hints[field.name]) if wire.type.startswith("struct") else None,
            _default(field),
        )
        for field in fields
        for wire in hints[field.name].__metadata__
    ]


def _struct_in(hint: Any) -> type[Any] | None:
    """The dataclass inside Annotated[list[X] | None, …], if there is one."""
    if dataclasses.is_dataclass(hint):
        return typing.cast(type[Any], hint)
    return next(filter(None, map(_struct_in, typing.get_args(hint))), None)


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


@cache
def field_of(struct_type: Any, name: str) -> Field:
    """Return the encoding of the field of this name, and the struct that it contains, or a list of."""
    return next(field for field in fields_of(struct_type) if field.name == name)


def body_and_tagged(struct_type: Any, version: int) -> tuple[list[Field], list[Field]]:
    """The fields of this version: those in the body, and the tagged fields."""
    present = [field for field in fields_of(struct_type) if field.wire.is_in(version)]
    tagged = [field for field in present if field.wire.is_tagged_in(version)]
    body = [field for field in present if not field.wire.is_tagged_in(version)]
    return body, sorted(tagged, key=lambda field: field.wire.tag or 0)
