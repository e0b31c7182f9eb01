"""Messages of every version from one declaration.

A message is an ordinary dataclass that holds the fields of all its versions, as Kafka's own classes do. Each
field says in its annotation how it travels:

    name: Annotated[str | None, Wire("string", nullable_since=12)] = ""
    topic_id: Annotated[UUID, Wire("uuid", since=10)] = NO_TOPIC_ID

`read_message` and `write_message` compile, the first time a version is asked for, one plain Python function
per struct (fixed-width neighbours packed by one `struct` call). A field that a version does not have keeps
its default when read and is left out when written. Unknown tagged fields are skipped.

Records are not copied: they are a slice of the buffer that was read, a view if the buffer is a memoryview.

What comes from outside is never trusted: a length or count may not exceed the bytes that remain, and one
message may not hold more than `MAX_ELEMENTS` array elements. Whatever is wrong becomes a `ProtocolError`.

A large message takes long. `read_in_steps` and `write_in_steps` are generators that do the same work, and stop
every few elements, so that whoever runs them can do something else in between.
"""

from __future__ import annotations

import dataclasses
import struct
import typing
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Protocol, TypeVar
from uuid import UUID

from odradek.errors import ProtocolError

MAX_ELEMENTS = 2_000_000
MAX_TAGGED_FIELDS = 1_000
ELEMENTS_PER_STEP = 64
FOREVER = 32_767

Buffer = bytes | bytearray | memoryview


class Message(Protocol):
    """A top-level struct: what a request, an answer or a stored record is made of."""

    FLEXIBLE_SINCE: ClassVar[int]
    __dataclass_fields__: ClassVar[dict[str, Any]]


M = TypeVar("M", bound=Message)
Reader = Callable[[Buffer, int, int, list[int]], tuple[Any, int]]
Writer = Callable[[bytearray, Any], None]
T = TypeVar("T")
Steps = Generator[None, None, T]  # work that stops every few elements
SteppingReader = Callable[[Buffer, int, int, list[int]], Steps[tuple[Any, int]]]
SteppingWriter = Callable[[bytearray, Any], Steps[None]]


@dataclass(frozen=True, slots=True)
class Wire:
    """How one field travels. `type` is a primitive, `struct`, or either followed by `[]`."""

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


def read_message(message_type: type[M], version: int, buffer: Buffer, position: int = 0) -> tuple[M, int]:
    """Decode one message; answers it and the position after it."""
    reader = _reader(message_type, version, version >= message_type.FLEXIBLE_SINCE)
    try:
        return reader(buffer, position, len(buffer), [MAX_ELEMENTS])
    except MALFORMED as error:
        raise _unreadable(message_type, version, error) from None


def read_in_steps(
    message_type: type[M], version: int, buffer: Buffer, position: int, max_elements: int
) -> Steps[tuple[M, int]]:
    flexible = version >= message_type.FLEXIBLE_SINCE
    budget = [max_elements]
    try:
        if not _takes_steps(message_type, version):
            found: tuple[M, int] = _reader(message_type, version, flexible)(
                buffer, position, len(buffer), budget
            )
            return found
        return (
            yield from _stepping_reader(message_type, version, flexible)(
                buffer, position, len(buffer), budget
            )
        )
    except MALFORMED as error:
        raise _unreadable(message_type, version, error) from None


MALFORMED = (struct.error, IndexError, ValueError)


def _unreadable(message_type: type[Message], version: int, error: Exception) -> ProtocolError:
    return ProtocolError(f"cannot read {message_type.__name__} v{version}: {error}")


def write_message(message: Message, version: int, out: bytearray) -> None:
    """Append the message to `out`."""
    message_type = type(message)
    _writer(message_type, version, version >= message_type.FLEXIBLE_SINCE)(out, message)


def write_in_steps(message: Message, version: int, out: bytearray) -> Steps[None]:
    message_type = type(message)
    flexible = version >= message_type.FLEXIBLE_SINCE
    if _takes_steps(message_type, version):
        yield from _stepping_writer(message_type, version, flexible)(out, message)
    else:
        _writer(message_type, version, flexible)(out, message)


def drain(steps: Steps[T]) -> T:
    """All of it at once: for work that is known to be short."""
    try:
        while True:
            next(steps)
    except StopIteration as stop:
        result: T = stop.value
        return result


def encode(message: Message, version: int) -> bytearray:
    out = bytearray()
    write_message(message, version, out)
    return out


@cache
def field_of(struct_type: Any, name: str) -> Field:
    """How a field of this name travels, and which struct it holds, or holds a list of."""
    return next(field for field in _fields(struct_type) if field.name == name)


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits."""
    byte = buffer[position]
    if byte < 0x80:
        return byte, position + 1
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise ValueError("varint is longer than 5 bytes")
    if value > 0xFFFFFFFF:
        raise ValueError("varint is larger than 32 bits")
    return value, position


def write_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


# --- compiling ---

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
def _fields(struct_type: Any) -> list[Field]:
    hints = typing.get_type_hints(struct_type, include_extras=True)
    return [
        Field(field.name, wire, _struct_in(hints[field.name]), _default(field))
        for field in dataclasses.fields(struct_type)
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


class _Source:
    """A function being written: lines of Python and the names they refer to."""

    def __init__(self, header: str, in_steps: bool = False) -> None:
        self.in_steps = in_steps  # a generator, which yields every few elements
        self.lines = [header]
        self.names: dict[str, Any] = {"uvarint": read_uvarint, "write_uvarint": write_uvarint, "UUID": UUID}
        self.indent = 1

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    def name(self, value: Any) -> str:
        name = f"n{len(self.names)}"
        self.names[name] = value
        return name

    def step(self, every_element: bool) -> None:
        """At the end of a loop over elements, which `i` counts."""
        if self.in_steps:
            self.line("yield" if every_element else f"if i % {ELEMENTS_PER_STEP} == 0: yield")

    def compile(self, filename: str) -> Any:
        exec(compile("\n".join(self.lines), f"<{filename}>", "exec"), self.names)
        return self.names["function"]


def _runs(fields: list[Field]) -> list[list[Field]]:
    """Split into runs: neighbours of fixed width together, every other field alone."""
    runs: list[list[Field]] = []
    for field in fields:
        fixed = field.wire.type in FIXED_FORMATS
        if fixed and runs and runs[-1][-1].wire.type in FIXED_FORMATS:
            runs[-1].append(field)
        else:
            runs.append([field])
    return runs


def _packer(run: list[Field]) -> struct.Struct:
    return struct.Struct(">" + "".join(FIXED_FORMATS[field.wire.type] for field in run))


def _split(struct_type: Any, version: int) -> tuple[list[Field], list[Field]]:
    """The fields of this version: those in the body, and those that travel as tagged fields."""
    present = [field for field in _fields(struct_type) if field.wire.is_in(version)]
    tagged = [field for field in present if field.wire.is_tagged_in(version)]
    body = [field for field in present if not field.wire.is_tagged_in(version)]
    return body, sorted(tagged, key=lambda field: field.wire.tag or 0)


# --- readers ---


@cache
def _takes_steps(struct_type: Any, version: int) -> bool:
    """Whether it has arrays that are read and written element by element. (Tagged ones are small.)"""
    body, _ = _split(struct_type, version)
    return any(
        (field.is_array and field.element_type not in FIXED_FORMATS)
        or (field.element_type == "struct" and _takes_steps(field.struct_type, version))
        for field in body
    )


@cache
def _reader(struct_type: Any, version: int, flexible: bool) -> Reader:
    source = _compile_reader(_Source("def function(b, p, e, budget):"), struct_type, version, flexible)
    return typing.cast(Reader, source.compile(f"read {struct_type.__name__} v{version}"))


@cache
def _stepping_reader(struct_type: Any, version: int, flexible: bool) -> SteppingReader:
    source = _Source("def function(b, p, e, budget):", in_steps=True)
    _compile_reader(source, struct_type, version, flexible)
    return typing.cast(SteppingReader, source.compile(f"read {struct_type.__name__} v{version} in steps"))


def _compile_reader(source: _Source, struct_type: Any, version: int, flexible: bool) -> _Source:
    body, tagged = _split(struct_type, version)
    for run in _runs(body):
        if run[0].wire.type in FIXED_FORMATS:
            packer = _packer(run)
            source.line(
                f"{''.join(f'{field.name}_, ' for field in run)}= {source.name(packer.unpack_from)}(b, p)"
            )
            source.line(f"p += {packer.size}")
        else:
            _emit_read(source, run[0], version, flexible)
    if flexible:
        _emit_read_tags(source, tagged, version)
    present = {field.name for field in (*body, *tagged)}
    arguments = []
    for field in _fields(struct_type):
        if field.name in present:
            arguments.append(f"{field.name}_")
        else:
            arguments.append(_default_expression(source, field))
    source.line(f"return {source.name(struct_type)}({', '.join(arguments)}), p")
    return source


def _default_expression(source: _Source, field: Field) -> str:
    return "[]" if field.default == [] else source.name(field.default)


def _emit_read(source: _Source, field: Field, version: int, flexible: bool) -> None:
    target = f"{field.name}_"
    nullable = field.wire.is_nullable_in(version)
    if field.is_array:
        _emit_read_array(source, field, target, version, flexible, nullable)
    elif field.element_type == "struct":
        _emit_read_struct(source, field, target, version, flexible, nullable)
    else:
        _emit_read_primitive(source, field.element_type, target, flexible, nullable, field.name)


def _emit_read_struct(
    source: _Source, field: Field, target: str, version: int, flexible: bool, nullable: bool
) -> None:
    assert field.struct_type is not None
    if source.in_steps and _takes_steps(field.struct_type, version):
        read = f"yield from {source.name(_stepping_reader(field.struct_type, version, flexible))}"
    else:
        read = source.name(_reader(field.struct_type, version, flexible))
    if nullable:
        source.line("p += 1")
        source.line("if b[p - 1] > 127: " + f"{target} = None")
        source.line(f"else: {target}, p = {read}(b, p, e, budget)")
    else:
        source.line(f"{target}, p = {read}(b, p, e, budget)")


def _emit_read_length(source: _Source, width: str, flexible: bool) -> None:
    """Leaves the length in `n`, -1 for null."""
    if flexible:
        source.line("n = b[p]")
        source.line("if n < 128: p += 1")
        source.line("else: n, p = uvarint(b, p)")
        source.line("n -= 1")
    else:
        packer = struct.Struct(">" + width)
        source.line(f"n, = {source.name(packer.unpack_from)}(b, p)")
        source.line(f"p += {packer.size}")


def _emit_null(source: _Source, target: str, nullable: bool, name: str) -> None:
    source.line("if n < 0:")
    if nullable:
        source.line(f"    {target} = None")
    else:
        source.line(f"    raise ValueError('{name} is null')")


def _emit_read_primitive(
    source: _Source, kind: str, target: str, flexible: bool, nullable: bool, name: str
) -> None:
    if kind in FIXED_FORMATS:
        packer = struct.Struct(">" + FIXED_FORMATS[kind])
        source.line(f"{target}, = {source.name(packer.unpack_from)}(b, p)")
        source.line(f"p += {packer.size}")
    elif kind == "uuid":
        source.line("if p + 16 > e: raise ValueError('uuid beyond the end')")
        source.line(f"{target} = UUID(bytes=bytes(b[p:p + 16]))")
        source.line("p += 16")
    else:
        _emit_read_length(source, "h" if kind == "string" else "i", flexible)
        _emit_null(source, target, nullable, name)
        source.line("else:")
        source.line("    q = p + n")
        source.line(f"    if q > e: raise ValueError('{name} reaches beyond the end')")
        value = {"string": "str(b[p:q], 'utf-8')", "bytes": "bytes(b[p:q])", "records": "b[p:q]"}[kind]
        source.line(f"    {target} = {value}")
        source.line("    p = q")


def _emit_read_array(
    source: _Source, field: Field, target: str, version: int, flexible: bool, nullable: bool
) -> None:
    _emit_read_length(source, "i", flexible)
    _emit_null(source, target, nullable, field.name)
    source.line("else:")
    source.indent += 1
    source.line(f"if n > e - p: raise ValueError('{field.name} has more elements than bytes remain')")
    source.line("budget[0] -= n")
    source.line("if budget[0] < 0: raise ValueError('too many array elements')")
    kind = field.element_type
    if kind in FIXED_FORMATS:
        unpack, code = source.name(struct.unpack_from), FIXED_FORMATS[kind]
        source.line(f"{target} = list({unpack}('>%d{code}' % n, b, p))")
        source.line(f"p += n * {struct.calcsize('>' + code)}")
    else:
        source.line(f"{target} = []")
        source.line("for i in range(1, n + 1):" if source.in_steps else "for _ in range(n):")
        source.indent += 1
        element = field._replace(wire=dataclasses.replace(field.wire, type=kind))
        if kind == "struct":
            _emit_read_struct(source, element, "x", version, flexible, nullable=False)
        else:
            _emit_read_primitive(source, kind, "x", flexible, False, field.name)
        source.line(f"{target}.append(x)")
        source.step(every_element=kind == "struct" and _takes_steps(field.struct_type, version))
        source.indent -= 1
    source.indent -= 1


def _emit_read_tags(source: _Source, tagged: list[Field], version: int) -> None:
    in_steps, source.in_steps = source.in_steps, False
    for field in tagged:
        source.line(f"{field.name}_ = {_default_expression(source, field)}")
    source.line("tags = b[p]; p += 1")
    source.line("if tags:")
    source.indent += 1
    source.line("tags, p = uvarint(b, p - 1)")
    source.line(f"if tags > {MAX_TAGGED_FIELDS}: raise ValueError('too many tagged fields')")
    source.line("for _ in range(tags):")
    source.indent += 1
    source.line("tag, p = uvarint(b, p)")
    source.line("size, p = uvarint(b, p)")
    source.line("after = p + size")
    source.line("if after > e: raise ValueError('tagged field reaches beyond the end')")
    for field in tagged:
        source.line(f"if tag == {field.wire.tag}:")
        source.indent += 1
        _emit_read(source, field, version, True)
        source.indent -= 1
    source.line("p = after")
    source.indent -= 2
    source.in_steps = in_steps


# --- writers ---


@cache
def _writer(struct_type: Any, version: int, flexible: bool) -> Writer:
    source = _compile_writer(_Source("def function(o, v):"), struct_type, version, flexible)
    return typing.cast(Writer, source.compile(f"write {struct_type.__name__} v{version}"))


@cache
def _stepping_writer(struct_type: Any, version: int, flexible: bool) -> SteppingWriter:
    source = _compile_writer(_Source("def function(o, v):", in_steps=True), struct_type, version, flexible)
    return typing.cast(SteppingWriter, source.compile(f"write {struct_type.__name__} v{version} in steps"))


def _compile_writer(source: _Source, struct_type: Any, version: int, flexible: bool) -> _Source:
    body, tagged = _split(struct_type, version)
    for run in _runs(body):
        if run[0].wire.type in FIXED_FORMATS:
            values = ", ".join(f"v.{field.name}" for field in run)
            source.line(f"o += {source.name(_packer(run).pack)}({values})")
        else:
            _emit_write(source, run[0], f"v.{run[0].name}", version, flexible)
    if flexible:
        _emit_write_tags(source, tagged, version)
    source.line("return")
    return source


def _emit_write(source: _Source, field: Field, value: str, version: int, flexible: bool) -> None:
    nullable = field.wire.is_nullable_in(version)
    if field.is_array:
        _emit_write_array(source, field, value, version, flexible, nullable)
    elif field.element_type == "struct":
        _emit_write_struct(source, field, value, version, flexible, nullable)
    else:
        _emit_write_primitive(source, field.element_type, value, flexible, nullable)


def _emit_write_struct(
    source: _Source, field: Field, value: str, version: int, flexible: bool, nullable: bool
) -> None:
    assert field.struct_type is not None
    if source.in_steps and _takes_steps(field.struct_type, version):
        write = f"yield from {source.name(_stepping_writer(field.struct_type, version, flexible))}"
    else:
        write = source.name(_writer(field.struct_type, version, flexible))
    if nullable:
        source.line(f"if {value} is None: o.append(255)")
        source.line(f"else: o.append(1); {write}(o, {value})")
    else:
        source.line(f"{write}(o, {value})")


def _emit_write_length(source: _Source, width: str, flexible: bool) -> None:
    if flexible:
        source.line("n += 1")
        source.line("if n < 128: o.append(n)")
        source.line("else: write_uvarint(o, n)")
    else:
        source.line(f"o += {source.name(struct.Struct('>' + width).pack)}(n)")


def _emit_write_primitive(source: _Source, kind: str, value: str, flexible: bool, nullable: bool) -> None:
    if kind in FIXED_FORMATS:
        source.line(f"o += {source.name(struct.Struct('>' + FIXED_FORMATS[kind]).pack)}({value})")
        return
    if kind == "uuid":
        source.line(f"o += {value}.bytes")
        return
    source.line(f"x = {value}")
    if nullable:
        source.line("if x is None:")
        source.indent += 1
        source.line("n = -1")
        _emit_write_length(source, "h" if kind == "string" else "i", flexible)
        source.indent -= 1
        source.line("else:")
        source.indent += 1
    if kind == "string":
        source.line("x = x.encode()")
    source.line("n = len(x)")
    _emit_write_length(source, "h" if kind == "string" else "i", flexible)
    source.line("o += x")
    if nullable:
        source.indent -= 1


def _emit_write_array(
    source: _Source, field: Field, value: str, version: int, flexible: bool, nullable: bool
) -> None:
    source.line(f"elements = {value}")
    source.line("n = -1 if elements is None else len(elements)" if nullable else "n = len(elements)")
    _emit_write_length(source, "i", flexible)
    kind = field.element_type
    if kind in FIXED_FORMATS:
        source.line(f"if elements: o += {source.name(struct.pack)}(")
        source.line(f"    '>%d{FIXED_FORMATS[kind]}' % len(elements), *elements)")
        return
    if source.in_steps:
        source.line("for i, element in enumerate(elements or (), start=1):")
    else:
        source.line("for element in elements or ():")
    source.indent += 1
    element = field._replace(wire=dataclasses.replace(field.wire, type=kind))
    if kind == "struct":
        _emit_write_struct(source, element, "element", version, flexible, nullable=False)
    else:
        _emit_write_primitive(source, kind, "element", flexible, nullable=False)
    source.step(every_element=kind == "struct" and _takes_steps(field.struct_type, version))
    source.indent -= 1


def _emit_write_tags(source: _Source, tagged: list[Field], version: int) -> None:
    """Tagged fields that hold their default are left out."""
    if not tagged:
        source.line("o.append(0)")
        return
    in_steps, source.in_steps = source.in_steps, False
    source.line("count, outer, o = 0, o, bytearray()")
    for field in tagged:
        source.line(f"if v.{field.name} != {source.name(field.default)}:")
        source.indent += 1
        source.line("count, saved, o = count + 1, o, bytearray()")
        _emit_write(source, field, f"v.{field.name}", version, True)
        source.line(f"write_uvarint(saved, {field.wire.tag})")
        source.line("write_uvarint(saved, len(o))")
        source.line("saved += o; o = saved")
        source.indent -= 1
    source.line("write_uvarint(outer, count)")
    source.line("outer += o")
    source.in_steps = in_steps
