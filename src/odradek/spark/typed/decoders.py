"""A decoder for each value format: values to a typed column, and the bytes of those that are left to Spark."""

import json
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from odradek.spark.compiled import read_only
from odradek.spark.options import ValueOptions
from odradek.spark.typed import avro, avro_kernel, csv_kernel, json_kernel, texts
from odradek.spark.typed.avro import AvroSchema
from odradek.spark.typed.avro_program import compile_avro
from odradek.spark.typed.columns import Cells, Values, kept
from odradek.spark.typed.program import Program
from odradek.spark.typed.times import offset_of_zone

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


class ValueDecoder(ABC):
    @abstractmethod
    def decode(self, values: Values, kind: Any, raw: Any) -> tuple[pa.Array, pa.Array]:
        """The typed column, of Arrow's type `kind`, and the undecided values, of `raw`. Each row has at most one."""


class JsonDecoder(ValueDecoder):
    def __init__(self, program: Program, time_zone: str | None) -> None:
        self._program, self._zone_s = program, offset_of_zone(time_zone)

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


class CsvDecoder(ValueDecoder):
    def __init__(self, program: Program, time_zone: str | None) -> None:
        self._program, self._zone_s = program, offset_of_zone(time_zone)

    def decode(self, values: Values, kind: Any, raw: Any) -> tuple[pa.Array, pa.Array]:
        cells = Cells(self._program, values.rows, 0)
        csv_kernel.decode_lines(
            read_only(values.data),
            read_only(values.ends),
            read_only(values.valid),
            cells.nodes,
            self._zone_s,
            cells.cells,
            cells.present,
            cells.counts,
            cells.undecided,
        )
        return cells.array(values.data, 0, kind), kept(values, cells.undecided, raw)


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


class AvroDecoder(ValueDecoder):
    """Nothing is left to Spark, which has no Avro without a jar: our own decoder has the last word, and what it refuses
    is undecided. With a registry the kernel reads only what was written with the reader's own schema."""

    def __init__(self, schema: str, framing: str, registry: str) -> None:
        self._schema, self._program = AvroSchema(schema), compile_avro(AvroSchema(schema))
        self._judge = avro.Decoder(schema, framing, registry)
        self._framed, self._registry = framing == "registry", registry
        self._same: dict[int, bool] = {-1: False}  # whether a schema of the registry is the reader's, by id

    def decode(self, values: Values, kind: Any, raw: Any) -> tuple[pa.Array, pa.Array]:
        most = len(values.data) if self._program.levels > 1 else 0
        cells = Cells(self._program, values.rows, most)
        left = avro_kernel.decode_records(
            read_only(values.data),
            read_only(values.ends),
            read_only(values.valid),
            avro.FRAME_BYTES if self._framed else 0,
            read_only(self._readable(values)),
            cells.nodes,
            cells.cells,
            cells.present,
            cells.counts,
            most,
            cells.undecided,
        )
        typed = cells.array(values.data, 0, kind)
        if left:
            typed = self._judged(typed, values, cells.undecided, kind)
        return typed, kept(values, cells.undecided, raw)

    def _readable(self, values: Values) -> npt.NDArray[np.uint8]:
        if not self._framed:
            return np.ones(values.rows, np.uint8)
        ids = avro_kernel.schema_ids(read_only(values.data), read_only(values.ends))
        if not self._registry:
            return (ids >= 0).astype(np.uint8)
        found, places = np.unique(ids, return_inverse=True)
        return np.array([self._is_same(int(one)) for one in found], np.uint8)[places]

    def _is_same(self, schema_id: int) -> bool:
        if schema_id not in self._same:
            try:
                text = avro.fetch_schema(self._registry, f"schemas/ids/{schema_id}")
                self._same[schema_id] = json.loads(text) == self._schema.node
            except avro.AvroError:
                self._same[schema_id] = False
        return self._same[schema_id]

    def _judged(
        self, typed: pa.Array, values: Values, undecided: npt.NDArray[np.uint8], kind: Any
    ) -> pa.Array:
        """The column with the rows that our own decoder accepts; they are no longer undecided."""
        places, found = np.arange(values.rows), [typed]
        for row in np.flatnonzero(undecided):
            value = values.data[values.ends[row] : values.ends[row + 1]].tobytes()
            try:
                found.append(pa.array([self._judge.decode(value)], kind))
            except (avro.AvroError, pa.ArrowException, OverflowError):
                continue
            places[row] = values.rows + len(found) - 2
            undecided[row] = 0
        return pa.concat_arrays(found).take(pa.array(places))


def value_decoder(options: ValueOptions, schema: "DataType") -> ValueDecoder:
    if options.form == "text":
        return TextDecoder()
    if options.form == "avro":
        return AvroDecoder(options.schema, options.framing, options.registry)
    from pyspark.sql.types import StructType

    from odradek.spark.typed.spark_shapes import compile_schema

    assert isinstance(schema, StructType)
    chosen = CsvDecoder if options.form == "csv" else JsonDecoder
    return chosen(compile_schema(schema), options.time_zone)
