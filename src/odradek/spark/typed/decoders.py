"""A decoder for each value format: values to a typed column, and the bytes of those that are left to Spark."""

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import DataType, StructType

from odradek.spark.compiled import read_only
from odradek.spark.options import ValueOptions
from odradek.spark.typed import json_kernel, texts
from odradek.spark.typed.columns import Cells, Values, kept
from odradek.spark.typed.program import compile_schema
from odradek.spark.typed.times import offset_of_zone


class ValueDecoder(ABC):
    @abstractmethod
    def decode(self, values: Values, kind: Any, raw: Any) -> tuple[pa.Array, pa.Array]:
        """The typed column, of Arrow's type `kind`, and the undecided values, of `raw`. Each row has at most one."""


class JsonDecoder(ValueDecoder):
    def __init__(self, schema: StructType, time_zone: str | None) -> None:
        self._program, self._zone_s = compile_schema(schema), offset_of_zone(time_zone)

    def decode(self, values: Values, kind: Any, raw: Any) -> tuple[pa.Array, pa.Array]:
        program = self._program
        cells = Cells(program, values.rows, self._most_elements(values))
        json_kernel.decode_objects(
            read_only(values.data),
            read_only(values.ends),
            read_only(values.valid),
            cells.nodes,
            program.names,
            program.name_ends,
            self._zone_s,
            cells.cells,
            cells.present,
            cells.counts,
            cells.undecided,
        )
        return cells.array(values.data, 0, kind), kept(values, cells.undecided, raw)

    def _most_elements(self, values: Values) -> int:
        """An array has one element more than commas, so there are no more than commas and opening brackets."""
        if self._program.levels == 1:
            return 0
        return sum(int(np.count_nonzero(values.data == byte)) for byte in b",[{")


class TextDecoder(ValueDecoder):
    """UTF-8 is decided. Usually all values of a batch are, and then they become strings without a copy."""

    def decode(self, values: Values, kind: Any, raw: Any) -> tuple[pa.Array, pa.Array]:
        buffers = [pa.py_buffer(values.valid), pa.py_buffer(values.ends), pa.py_buffer(values.data)]
        found = pa.Array.from_buffers(raw, values.rows, buffers)
        try:
            return found.cast(kind), pa.nulls(values.rows, raw)
        except pa.ArrowInvalid:
            good = pa.array(texts.utf8_rows(read_only(values.data), read_only(values.ends)), pa.bool_())
            nothing = pa.scalar(None, raw)
            return pc.if_else(good, found, nothing).cast(kind), pc.if_else(good, nothing, found)


def value_decoder(options: ValueOptions, schema: DataType) -> ValueDecoder:
    if options.form == "text":
        return TextDecoder()
    assert isinstance(schema, StructType)
    return JsonDecoder(schema, options.time_zone)
