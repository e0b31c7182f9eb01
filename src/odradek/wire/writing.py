"""Compiling the functions that write a struct: `o` is what they append to, `v` the struct."""

from __future__ import annotations

import struct
import typing
from functools import cache
from typing import Any

from odradek.wire.schema import FIXED_FORMATS, Field, body_and_tagged
from odradek.wire.source import Source, SteppingWriter, Writer, packer_for, runs_of, takes_steps


@cache
def writer_of(struct_type: Any, version: int, flexible: bool) -> Writer:
    source = _compile_writer(Source("def function(o, v):"), struct_type, version, flexible)
    return typing.cast(Writer, source.compile(f"write {struct_type.__name__} v{version}"))


@cache
def stepping_writer_of(struct_type: Any, version: int, flexible: bool) -> SteppingWriter:
    source = _compile_writer(Source("def function(o, v):", in_steps=True), struct_type, version, flexible)
    return typing.cast(SteppingWriter, source.compile(f"write {struct_type.__name__} v{version} in steps"))


def _compile_writer(source: Source, struct_type: Any, version: int, flexible: bool) -> Source:
    body, tagged = body_and_tagged(struct_type, version)
    for run in runs_of(body):
        if run[0].wire.type in FIXED_FORMATS:
            values = ", ".join(f"v.{field.name}" for field in run)
            source.line(f"o += {source.name(packer_for(run).pack)}({values})")
        else:
            _emit_write(source, run[0], f"v.{run[0].name}", version, flexible)
    if flexible:
        _emit_write_tags(source, tagged, version)
    source.line("return")
    return source


def _emit_write(source: Source, field: Field, value: str, version: int, flexible: bool) -> None:
    nullable = field.wire.is_nullable_in(version)
    if field.is_array:
        _emit_write_array(source, field, value, version, flexible, nullable)
    elif field.element_type == "struct":
        _emit_write_struct(source, field, value, version, flexible, nullable)
    else:
        _emit_write_primitive(source, field.element_type, value, flexible, nullable)


def _emit_write_struct(
    source: Source, field: Field, value: str, version: int, flexible: bool, nullable: bool
) -> None:
    assert field.struct_type is not None
    if source.in_steps and takes_steps(field.struct_type, version):
        write = f"yield from {source.name(stepping_writer_of(field.struct_type, version, flexible))}"
    else:
        write = source.name(writer_of(field.struct_type, version, flexible))
    if nullable:
        source.line(f"if {value} is None: o.append(255)")
        source.line(f"else: o.append(1); {write}(o, {value})")
    else:
        source.line(f"{write}(o, {value})")


def _emit_write_length(source: Source, width: str, flexible: bool) -> None:
    if flexible:
        source.line("n += 1")
        source.line("if n < 128: o.append(n)")
        source.line("else: write_uvarint(o, n)")
    else:
        source.line(f"o += {source.name(struct.Struct('>' + width).pack)}(n)")


def _emit_write_primitive(source: Source, kind: str, value: str, flexible: bool, nullable: bool) -> None:
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
    source: Source, field: Field, value: str, version: int, flexible: bool, nullable: bool
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
    element = field._replace(wire=field.wire._replace(type=kind))
    if kind == "struct":
        _emit_write_struct(source, element, "element", version, flexible, nullable=False)
    else:
        _emit_write_primitive(source, kind, "element", flexible, nullable=False)
    source.step(every_element=kind == "struct" and takes_steps(field.struct_type, version))
    source.indent -= 1


def _emit_write_tags(source: Source, tagged: list[Field], version: int) -> None:
    """Tagged fields with their default value are left out."""
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
