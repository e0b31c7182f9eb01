"""The Arrow type of an Avro schema's values: the one that Spark's columns for them (`AvroSchema.ddl`) have in Arrow."""

from typing import Any

import pyarrow as pa

from odradek.spark.typed.avro import AvroSchema

TYPES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
LOGICAL_TYPES: dict[tuple[str, str | None], Any] = {
    ("int", "date"): pa.date32(),
    ("long", "timestamp-millis"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
}


def arrow_type(schema: AvroSchema) -> Any:
    return _type_of(schema.node, {})


def _type_of(node: Any, names: dict[str, Any]) -> Any:
    """`names`: the types that have a name, which later ones use."""
    if isinstance(node, list):
        (node,) = (one for one in node if one != "null")  # or `AvroSchema` has refused it
    if not isinstance(node, dict):
        return names.get(node) or TYPES[node]
    found = _type_of_object(node, names)
    if "name" in node:
        names[node["name"]] = found
    return found


def _type_of_object(node: dict[str, Any], names: dict[str, Any]) -> Any:
    kind, logical = node["type"], node.get("logicalType")
    if kind == "record":
        return pa.struct([pa.field(one["name"], _type_of(one["type"], names)) for one in node["fields"]])
    if kind == "array":
        return pa.list_(_type_of(node["items"], names))
    if kind == "map":
        return pa.map_(pa.string(), _type_of(node["values"], names))
    if logical == "decimal":
        return pa.decimal128(node["precision"], node.get("scale", 0))
    return LOGICAL_TYPES.get((kind, logical)) or TYPES[kind]
