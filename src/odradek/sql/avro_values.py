"""Values in Avro as columns: a function of DuckDB that decodes them, by the kernel of `odradek.spark.typed`.

Few values are decoded in plain Python, because importing numba takes longer than that. A value that does not follow the
schema is null; if none of a sample does, the schema is the wrong one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from odradek.spark.typed.avro import AvroError, AvroSchema, Decoder, fetch_schema
from odradek.spark.typed.avro_arrow import arrow_type
from odradek.sql.columns import BadSchema, identifier

Decode = Callable[[Any], Any]  # a binary array to one of structs


@dataclass(frozen=True)
class AvroValues:
    """The schema that the values of a topic are written with. With a registry they begin with its header."""

    topic: str
    schema: str
    registry: str | None = None

    def fields(self, connection: duckdb.DuckDBPyConnection, sample: Any, *, is_small: bool) -> dict[str, str]:
        """An expression over `record` for each field, once the connection has the function `function`."""
        kind = arrow_type(AvroSchema(self.schema))
        self._check(sample)
        decode = self._plain_decoder(kind) if is_small else self._compiled_decoder(kind)
        connection.create_function(
            self.function,
            lambda values: self._decoded(decode, values),
            [duckdb.sqltype("BLOB")],
            duckdb.sqltype(_type_in_sql(connection, kind)),
            type="arrow",
            null_handling="special",
        )
        return {field.name: f"record.{identifier(field.name)}" for field in kind}

    @property
    def function(self) -> str:
        return f"values of {self.topic}"

    def _decoded(self, decode: Decode, values: Any) -> Any:
        try:
            return decode(pa.concat_arrays(values.chunks) if isinstance(values, pa.ChunkedArray) else values)
        except OSError as error:
            raise self._unreachable(error) from None

    def _unreachable(self, error: OSError) -> BadSchema:
        return BadSchema(f"the schema registry {self.registry} does not respond: {error}")

    def _decoder(self) -> Decoder:
        return Decoder(self.schema, "none" if self.registry is None else "registry", self.registry or "")

    def _check(self, sample: Any) -> None:
        decoder, reason = self._decoder(), None
        for value in sample:
            try:
                decoder.decode(value)
            except AvroError as error:
                reason = reason or error
            except OSError as error:
                raise self._unreachable(error) from None
            else:
                return
        if reason is not None:
            raise BadSchema(
                f"none of {len(sample)} values of {self.topic} can be read with its Avro schema: {reason}"
                + (
                    ". Values with a registry's header need --schema-registry"
                    if self.registry is None
                    else ""
                )
            )

    def _plain_decoder(self, kind: Any) -> Decode:
        decoder = self._decoder()

        def decoded(value: bytes | None) -> Any:
            if value is None:
                return None
            try:
                found = decoder.decode(value)
                pa.array([found], kind)
            except (AvroError, pa.ArrowException, OverflowError):
                return None
            return found

        return lambda values: pa.array([decoded(one) for one in values.to_pylist()], kind)

    def _compiled_decoder(self, kind: Any) -> Decode:
        from odradek.spark.typed.columns import Values
        from odradek.spark.typed.decoders import AvroDecoder

        framing = "none" if self.registry is None else "registry"
        decoder = AvroDecoder(self.schema, framing, self.registry or "")
        return lambda values: decoder.decode(Values.of(values), kind, pa.binary())[0]


def schema_in(file: str) -> str:
    try:
        text = Path(file).read_text()
        AvroSchema(text)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadSchema(f"the Avro schema {file} cannot be read: {reason}") from None
    except (AvroError, KeyError, TypeError) as error:
        raise BadSchema(f"{file} is no Avro schema that can be used: {error}") from None
    return text


def newest_schema(registry: str, topic: str) -> str | None:
    """The schema of a topic's values; None if the registry has none."""
    try:
        return fetch_schema(registry, f"subjects/{topic}-value/versions/latest")
    except AvroError:
        return None
    except (OSError, KeyError, ValueError) as error:
        raise BadSchema(
            f"the schema registry {registry} does not give the schema of {topic}: {error}"
        ) from None


def _type_in_sql(connection: duckdb.DuckDBPyConnection, kind: Any) -> str:
    """DuckDB says itself how it names a type of Arrow's."""
    connection.register("_kind", pa.table({"record": pa.array([], kind)}))
    ((found,),) = connection.sql("SELECT column_type FROM (DESCRIBE _kind)").fetchall()
    connection.unregister("_kind")
    return str(found)
