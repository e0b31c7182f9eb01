"""Values decoded by a kernel and by Spark's `from_json` or `from_csv`, to be compared."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType

from odradek.spark.options import ValueOptions
from odradek.spark.typed import settling
from odradek.spark.typed.columns import Values
from odradek.spark.typed.decoders import value_decoder

SCALARS = {
    "v_string": "STRING",
    "v_boolean": "BOOLEAN",
    "v_tinyint": "TINYINT",
    "v_smallint": "SMALLINT",
    "v_int": "INT",
    "v_bigint": "BIGINT",
    "v_float": "FLOAT",
    "v_double": "DOUBLE",
    "v_decimal": "DECIMAL(10,2)",
    "v_whole": "DECIMAL(5,0)",
    "v_wide": "DECIMAL(38,10)",
    "v_date": "DATE",
    "v_timestamp": "TIMESTAMP",
    "v_local": "TIMESTAMP_NTZ",
    "v_binary": "BINARY",
}
FLAT = ", ".join(f"{name} {kind}" for name, kind in SCALARS.items())
ARRAYS = ", ".join(f"a{name} ARRAY<{kind}>" for name, kind in SCALARS.items())
MAPS = ", ".join(f"m{name} MAP<STRING, {kind}>" for name, kind in SCALARS.items())
NESTED = (
    "inner STRUCT<x: INT, deep: STRUCT<y: STRING, z: ARRAY<BIGINT>>>, "
    "rows ARRAY<STRUCT<q: STRING, n: ARRAY<ARRAY<INT>>, m: MAP<STRING, ARRAY<STRUCT<d: DATE>>>>>"
)
SCHEMA = f"{FLAT}, {ARRAYS}, {MAPS}, s STRUCT<{FLAT}>, {NESTED}"


def values_of(documents: Sequence[bytes | None]) -> Values:
    valid = np.packbits([document is not None for document in documents], bitorder="little")
    parts = [document or b"" for document in documents]
    ends = np.cumsum([0, *map(len, parts)]).astype(np.int32)
    return Values(np.frombuffer(b"".join(parts), np.uint8), ends, valid)


def by_kernel(
    documents: Sequence[bytes | None], schema: StructType, zone: str | None, form: str = "json"
) -> tuple[pa.Array, pa.Array]:
    kind = to_arrow_type(schema, timezone="UTC")
    decoder = value_decoder(ValueOptions(form, time_zone=zone), schema)
    typed, undecided = decoder.decode(values_of(documents), kind, pa.binary())
    typed.validate(full=True)
    return typed, undecided


def by_spark(spark, documents: Sequence[bytes | None], schema: StructType, zone: str, form: str) -> pa.Array:
    from pyspark.sql import functions as F

    frame = spark.createDataFrame(pa.table({"value": pa.array(documents, pa.binary())}))
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        row = settling.by_spark(form, F.col("value").cast("string"), schema)
        found = frame.select(row.alias("row")).toArrow()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    return found.column("row").combine_chunks()


def differences(
    spark, documents: Sequence[bytes | None], ddl: str, zone: str = "UTC", form: str = "json"
) -> tuple[int, list]:
    """Return how many rows the kernel decided, and those that Spark decodes differently."""
    schema = StructType.fromDDL(ddl)
    typed, undecided = by_kernel(documents, schema, zone, form)
    expected = by_spark(spark, documents, schema, zone, form).cast(typed.type)
    assert undecided.to_pylist() == [
        document if found is not None else None
        for document, found in zip(documents, undecided.to_pylist(), strict=True)
    ], "the bytes of undecided values are kept as they are"
    is_decided = [one is None for one in undecided.to_pylist()]
    wrong = [
        (document, mine, theirs)
        for document, decided, mine, theirs in zip(documents, is_decided, typed, expected, strict=True)
        if decided and not _same(mine, theirs)
    ]
    return sum(is_decided), wrong


def _same(mine: pa.Scalar, theirs: pa.Scalar) -> bool:
    return bool(mine.equals(theirs)) and str(mine) == str(theirs)  # -0.0 equals 0.0
