"""Compiling the functions that read a struct.

In their source, `b` is the buffer, `p` the position in it and `e` its end; `budget` says how many more array
elements the message may have.
"""

from __future__ import annotations

import struct
import typing
from functools import cache
from typing import Any

from odradek.wire.schema import FIXED_FORMATS, Field, body_and_tagged, fields_of
from odradek.wire.source import Reader, Source, SteppingReader, packer_for, runs_of, takes_steps

MAX_TAGGED_FIELDS = 1_000


@cache
def reader_of(struct_type: Any, version: int, flexible: bool) -> Reader:
    source = _compile_reader(Source("def function(b, p, e, budget):"), struct_type, version, flexible)
    return typing.cast(Reader, source.compile(f"read {struct_type.__name__} v{version}"))


@cache
def stepping_reader_of(struct_type: Any, version: int, flexible: bool) -> SteppingReader:
    source = Source("def function(b, p, e, budget):", in_steps=True)
    _compile_reader(source, struct_type, version, flexible)
    return typing.cast(SteppingReader, source.compile(f"read {struct_type.__name__} v{version} in steps"))


def _compile_reader(source: Source, struct_type: Any, version: int, flexible: bool) -> Source:
    body, tagged = body_and_tagged(struct_type, version)
    for run in runs_of(body):
        if run[0].wire.type in FIXED_FORMATS:
            packer = packer_for(run)
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
    for field in fields_of(struct_type):
        if field.name in present:
            arguments.append(f"{field.name}_")
        else:
            arguments.append(_default_expression(source, field))
    source.line(f"return {source.name(struct_type)}({', '.join(arguments)}), p")
    return source


def _default_expression(source: Source, field: Field) -> str:
    return "[]" if field.default == [] else source.name(field.default)


def _emit_read(source: Source, field: Field, version: int, flexible: bool) -> None:
    target = f"{field.name}_"
    nullable = field.wire.is_nullable_in(version)
    if field.is_array:
        _emit_read_array(source, field, target, version, flexible, nullable)
    elif field.element_type == "struct":
        _emit_read_struct(source, field, target, version, flexible, nullable)
    else:
        _emit_read_primitive(source, field.element_type, target, flexible, nullable, field.name)


def _emit_read_struct(
    source: Source, field: Field, target: str, version: int, flexible: bool, nullable: bool
) -> None:
    assert field.struct_type is not None
    if source.in_steps and takes_steps(field.struct_type, version):
        read = f"yield from {source.name(stepping_reader_of(field.struct_type, version, flexible))}"
    else:
        read = source.name(reader_of(field.struct_type, version, flexible))
    if nullable:
        source.line("p += 1")
        source.line("if b[p - 1] > 127: " + f"{target} = None")
        source.line(f"else: {target}, p = {read}(b, p, e, budget)")
    else:
        source.line(f"{target}, p = {read}(b, p, e, budget)")


def _emit_read_length(source: Source, width: str, flexible: bool) -> None:
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


def _emit_null(source: Source, target: str, nullable: bool, name: str) -> None:
    source.line("if n < 0:")
    if nullable:
        source.line(f"    {target} = None")
    else:
        source.line(f"    raise ValueError('{name} is null')")


def _emit_read_primitive(
    source: Source, kind: str, target: str, flexible: bool, nullable: bool, name: str
) -> None:
    if kind in FIXED_FORMATS:
        packer = struct.Struct(">" + FIXED_FORMATS[kind])
        source.line(f"{target}, = {source.name(packer.unpack_from)}(b, p)")
        source.line(f"p += {packer.size}")
    elif kind == "uuid":
        source.line("if p + 16 > e: raise ValueError('uuid beyond the end')")
        source.line(f"{target} = uuid_of(bytes(b[p:p + 16]))")
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
    source: Source, field: Field, target: str, version: int, flexible: bool, nullable: bool
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
        element = field._replace(wire=field.wire._replace(type=kind))
        if kind == "struct":
            _emit_read_struct(source, element, "x", version, flexible, nullable=False)
        else:
            _emit_read_primitive(source, kind, "x", flexible, False, field.name)
        source.line(f"{target}.append(x)")
        source.step(every_element=kind == "struct" and takes_steps(field.struct_type, version))
        source.indent -= 1
    source.indent -= 1


def _emit_read_tags(source: Source, tagged: list[Field], version: int) -> None:
    in_steps, source.in_steps = source.in_steps, False
    for field in tagged:
        source.line(f"{field.name}_ = {_default_expression(source, field)}")
    source.line("tags = b[p]; p += 1")
    source.line("if tags:")
    source.indent += 1
    source.line("if tags > 127: tags, p = uvarint(b, p - 1)")
    source.line(f"if tags > {MAX_TAGGED_FIELDS}: raise ValueError('too many tagged fields')")
    source.line("for _ in range(tags):")
    source.indent += 1
    for name in ("tag", "size"):
        source.line(f"{name} = b[p]; p += 1")
        source.line(f"if {name} > 127: {name}, p = uvarint(b, p - 1)")
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
