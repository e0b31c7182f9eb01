"""Values of a topic in Avro: which schema they follow, and how a registry knows it.

The schema is the one that the file gives, or the registry's newest, or one that is made of the rows' columns. The
registry is asked by a check, and learns a schema only from a run (`will_run`), and only if that is asked for.
"""

import base64

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from odradek.pipeline.file.definition import AvroOutput, Pipeline, Sink
from odradek.pipeline.file.errors import PipelineError
from odradek.pipeline.kinds.schema_registry import RegisteredSchema, Registry, check_installed
from odradek.pipeline.rows.avro_output import encoded, fitted, schema_of
from odradek.spark.typed.avro import AvroError, AvroSchema


class AvroValues:
    def __init__(self, pipeline: Pipeline, sink: Sink, output: AvroOutput) -> None:
        self.pipeline, self.sink, self.output = pipeline, sink, output
        self.will_run = False
        self._columns: DataFrame | None = None  # as planned
        self._written = RegisteredSchema("", 0)

    def column(self, rows: DataFrame, refusal: str, deletes: Column | None) -> Column:
        """The encoded rows; those that meet `deletes` are null. `refusal` begins the error of a row that the schema
        does not take."""
        check_installed(self.pipeline, self.sink.key, self.output)
        self._columns = rows
        self._written = RegisteredSchema(self._text(rows), 0)
        if self.output.registry and self.will_run:
            self._written = self._registered(self._written.text)
        return encoded(self._wanted(rows, refusal), self._written.text, self._header, refusal, deletes)

    def _wanted(self, rows: DataFrame, refusal: str) -> list[Column]:
        """The columns as the schema wants them; those that it was made of are."""
        if not self._declared and self._written.text == self._text(rows):
            return [F.col(f"`{name}`") for name in rows.columns]
        return self._fitted(rows, self._written.text, refusal)

    @property
    def _header(self) -> bytes:
        return self._written.header if self.output.registry else b""

    def check(self) -> None:
        """`PipelineError` if the registry does not have the schema, or would not take it."""
        if not self.output.registry or self._columns is None:
            return
        if self._declared or self.output.registers:
            self._registry.check(self._text(self._columns))
        else:
            self._fitted(self._columns, self._registry.newest().text, "")

    def decoded(self, value: object) -> object:
        """A value as tests show it, text or base64, as the record that it is."""
        if isinstance(value, dict):
            data = base64.b64decode(value["base64"])
        elif isinstance(value, str):
            data = value.encode()
        else:
            return value
        return AvroSchema(self._written.text).decode(data[len(self._header) :])

    @property
    def _registry(self) -> Registry:
        return Registry(self.pipeline, self.sink.key, self.output)

    def _registered(self, text: str) -> RegisteredSchema:
        if self.output.registers:
            return self._registry.register(text)
        if not self._declared:
            return self._registry.newest()
        found = self._registry.find(text)
        if found is None:
            self._registry.check(text)  # which says what to do
        assert found is not None
        return found

    @property
    def _declared(self) -> str:
        if not self.output.schema_file:
            return self.output.schema
        try:
            return (self.pipeline.directory / self.output.schema_file).read_text()
        except OSError as error:
            problem = f"{self.output.schema_file} cannot be read: {error.strerror or error}"
            raise self._error("schema_file", problem) from None

    def _text(self, rows: DataFrame) -> str:
        try:
            return self._declared or schema_of(rows.schema, self.sink.name)
        except AvroError as error:
            raise self._error("from", str(error)) from None

    def _fitted(self, rows: DataFrame, text: str, refusal: str) -> list[Column]:
        try:
            return fitted(rows, text, refusal)
        except AvroError as error:
            raise self._error("schema_file" if self.output.schema_file else "schema", str(error)) from None

    def _error(self, key: str, problem: str) -> PipelineError:
        return self.pipeline.error((*self.sink.key, key), problem)
