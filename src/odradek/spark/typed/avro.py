"""Avro's binary encoding, decoded in Python: Spark's own decoder is in a jar that pip does not install.

A schema is compiled to a function that reads one value from bytes. Records become dicts, which Arrow turns into
Spark's structs. A union must be of null and one other type; that is a column that may be null.

With a registry's header a value starts with a zero byte and the four bytes of its schema's id. The schema that
wrote it is then fetched from the registry, and its fields are matched with the reader's by name; fields that the writer
did not have get the reader's default.
"""

import base64
import json
import struct
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

Reader = Callable[[bytes, int], tuple[Any, int]]

FRAME_BYTES = 5
REGISTRY_TIMEOUT_S = 10
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_DAY = date(1970, 1, 1)
SPARK_TYPES = {
    "boolean": "BOOLEAN",
    "int": "INT",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bytes": "BINARY",
    "string": "STRING",
    "enum": "STRING",
    "fixed": "BINARY",
}
LOGICAL_TYPES: dict[tuple[str, str | None], str] = {
    ("int", "date"): "DATE",
    ("long", "timestamp-millis"): "TIMESTAMP",
    ("long", "timestamp-micros"): "TIMESTAMP",
    ("string", "uuid"): "STRING",
}


class AvroError(ValueError):
    """A schema that cannot be used, or bytes that do not follow theirs."""


class AvroSchema:
    """A parsed schema: its Spark columns, and how to read a value."""

    def __init__(self, text: str) -> None:
        try:
            self.node = json.loads(text)
        except ValueError as error:
            raise AvroError(f"the Avro schema is not JSON: {error}") from None
        self._names: dict[str, Any] = {}
        self._readers: dict[str, Reader] = {}
        if not isinstance(self.node, dict) or self.node.get("type") != "record":
            raise AvroError("the Avro schema must be a record")
        self.ddl = self._columns(self.node)
        self._names.clear()
        self.read = self._compile(self.node)

    def decode(self, data: bytes) -> dict[str, Any]:
        try:
            value, end = self.read(data, 0)
        except (IndexError, struct.error):
            raise AvroError("the value ends too early for its schema") from None
        except (UnicodeDecodeError, OverflowError) as error:
            raise AvroError(f"the value does not follow its schema: {error}") from None
        if end != len(data):
            raise AvroError(f"{len(data) - end} bytes follow after the value")
        assert isinstance(value, dict)
        return value

    def adapt(self, value: dict[str, Any]) -> dict[str, Any]:
        """A record of another schema as one of this: fields by name, defaults for those it lacks."""
        return _adapted(self.node, value)

    # Types

    def _columns(self, record: Any) -> str:
        return ", ".join(
            f"`{field['name']}` {self._spark_type(field['type'])}{'' if _is_nullable(field['type']) else ' NOT NULL'}"
            for field in record["fields"]
        )

    def _spark_type(self, node: Any) -> str:
        node = self._named(node)
        kind, logical = _kind(node), node.get("logicalType") if isinstance(node, dict) else None
        if kind == "union":
            return self._spark_type(_other_than_null(node))
        if logical == "decimal":
            return f"DECIMAL({node['precision']},{node.get('scale', 0)})"
        if (kind, logical) in LOGICAL_TYPES:
            return LOGICAL_TYPES[kind, logical]
        if kind == "record":
            fields = (f"`{field['name']}`: {self._spark_type(field['type'])}" for field in node["fields"])
            return f"STRUCT<{', '.join(fields)}>"
        if kind == "array":
            return f"ARRAY<{self._spark_type(node['items'])}>"
        if kind == "map":
            return f"MAP<STRING, {self._spark_type(node['values'])}>"
        if kind not in SPARK_TYPES:
            raise AvroError(f"the Avro type {kind!r} is not supported")
        return SPARK_TYPES[kind]

    def _named(self, node: Any) -> Any:
        """Named types may be used again by their name."""
        if isinstance(node, dict) and "name" in node:
            self._names[node["name"]] = node
        if isinstance(node, str) and node in self._names:
            return self._names[node]
        return node

    # Readers

    def _compile(self, node: Any) -> Reader:
        node = self._named(node)
        kind = _kind(node)
        if kind == "record":
            return self._record(node)
        if kind == "union":
            return _union([self._compile(one) for one in node])
        if kind == "array":
            return _blocks(self._compile(node["items"]), keyed=False)
        if kind == "map":
            return _blocks(self._compile(node["values"]), keyed=True)
        if kind == "enum":
            return _enum(node["symbols"])
        if kind == "fixed":
            return _logical(node, _fixed(node["size"]))
        if kind not in PRIMITIVES:
            raise AvroError(f"the Avro type {kind!r} is not supported")
        return _logical(node, PRIMITIVES[kind])

    def _record(self, node: Any) -> Reader:
        fields: list[tuple[str, Reader]] = []
        for field in node["fields"]:
            fields.append((field["name"], self._compile(field["type"])))

        def read(data: bytes, at: int) -> tuple[Any, int]:
            row = {}
            for name, reader in fields:
                row[name], at = reader(data, at)
            return row, at

        return read


def _kind(node: Any) -> str:
    if isinstance(node, list):
        return "union"
    return str(node["type"]) if isinstance(node, dict) else str(node)


def _is_nullable(node: Any) -> bool:
    return isinstance(node, list) and "null" in node


def _other_than_null(union: list[Any]) -> Any:
    others = [one for one in union if one != "null"]
    if len(others) != 1:
        raise AvroError("a union must be of null and one other type")
    return others[0]


def _long(data: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (result >> 1) ^ -(result & 1), at
        shift += 7
        if shift > 63:
            raise AvroError("a number is longer than 64 bits")


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _long(data, at)
    if size < 0 or at + size > len(data):
        raise AvroError("the value ends too early for its schema")
    return data[at : at + size], at + size


def _string(data: bytes, at: int) -> tuple[str, int]:
    found, at = _bytes(data, at)
    return found.decode(), at


def _fixed(size: int) -> Reader:
    def read(data: bytes, at: int) -> tuple[bytes, int]:
        if at + size > len(data):
            raise AvroError("the value ends too early for its schema")
        return data[at : at + size], at + size

    return read


def _unpacked(form: str) -> Reader:
    packed = struct.Struct(form)

    def read(data: bytes, at: int) -> tuple[float, int]:
        return packed.unpack_from(data, at)[0], at + packed.size

    return read


def _boolean(data: bytes, at: int) -> tuple[bool, int]:
    if data[at] > 1:
        raise AvroError(f"{data[at]} is not a boolean")
    return data[at] == 1, at + 1


PRIMITIVES: dict[str, Reader] = {
    "null": lambda data, at: (None, at),
    "boolean": _boolean,
    "int": _long,
    "long": _long,
    "float": _unpacked("<f"),
    "double": _unpacked("<d"),
    "bytes": _bytes,
    "string": _string,
}


def _enum(symbols: list[str]) -> Reader:
    def read(data: bytes, at: int) -> tuple[str, int]:
        number, at = _long(data, at)
        if not 0 <= number < len(symbols):
            raise AvroError(f"{number} is not an index into the symbols of the enum")
        return symbols[number], at

    return read


def _union(readers: list[Reader]) -> Reader:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        number, at = _long(data, at)
        if not 0 <= number < len(readers):
            raise AvroError(f"{number} is not an index into the types of the union")
        return readers[number](data, at)

    return read


def _blocks(reader: Reader, *, keyed: bool) -> Reader:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        found: list[Any] = []
        while True:
            count, at = _long(data, at)
            if count == 0:
                return found, at
            if count < 0:
                count, (_, at) = -count, _long(data, at)
            if count > len(data) - at and count > len(data):  # an entry of no bytes is not worth a bomb
                raise AvroError("the value ends too early for its schema")
            for _ in range(count):
                if keyed:
                    name, at = _string(data, at)
                    value, at = reader(data, at)
                    found.append((name, value))
                else:
                    value, at = reader(data, at)
                    found.append(value)

    return read


def _logical(node: Any, reader: Reader) -> Reader:
    logical = node.get("logicalType") if isinstance(node, dict) else None
    convert = _conversion(node, logical)
    if convert is None:
        return reader

    def read(data: bytes, at: int) -> tuple[Any, int]:
        value, at = reader(data, at)
        return convert(value), at

    return read


def _conversion(node: Any, logical: str | None) -> Callable[[Any], Any] | None:
    if logical == "date":
        return lambda days: EPOCH_DAY + timedelta(days=days)
    if logical == "timestamp-millis":
        return lambda value: EPOCH + timedelta(milliseconds=value)
    if logical == "timestamp-micros":
        return lambda value: EPOCH + timedelta(microseconds=value)
    if logical == "decimal":
        scale = node.get("scale", 0)
        return lambda value: Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale)
    return None


def _adapted(record: Any, value: dict[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for field in record["fields"]:
        name, node = field["name"], field["type"]
        if name not in value:
            if "default" not in field:
                raise AvroError(f"the record has no field {name!r}, and the schema has no default for it")
            row[name] = field["default"]
            continue
        inner = _other_than_null(node) if isinstance(node, list) and "null" in node else node
        found = value[name]
        if isinstance(inner, dict) and inner.get("type") == "record" and isinstance(found, dict):
            found = _adapted(inner, found)
        elif inner in ("float", "double") and isinstance(found, int):
            found = float(found)
        row[name] = found
    return row


class Decoder:
    """Values of one source, in the process that decodes them; schemas of the registry are fetched once."""

    def __init__(self, schema: str, framing: str, registry: str) -> None:
        self._schema = AvroSchema(schema)
        self._framed, self._registry = framing == "registry", registry
        self._writers: dict[int, AvroSchema] = {}

    def decode(self, data: bytes) -> dict[str, Any]:
        if not self._framed:
            return self._schema.decode(data)
        if len(data) < FRAME_BYTES or data[0] != 0:
            raise AvroError("the value does not start with a registry's header, a zero byte and a schema id")
        body = data[FRAME_BYTES:]
        if not self._registry:
            return self._schema.decode(body)
        schema_id = int.from_bytes(data[1:FRAME_BYTES], "big")
        if schema_id not in self._writers:
            self._writers[schema_id] = AvroSchema(fetch_schema(self._registry, f"schemas/ids/{schema_id}"))
        return self._schema.adapt(self._writers[schema_id].decode(body))


def fetch_schema(registry: str, path: str) -> str:
    """The schema from a registry, whose URL may have a user and a password. `OSError` if it cannot be reached, which is
    worth a retry."""
    base, headers = with_login(registry.rstrip("/"))
    try:
        with urllib.request.urlopen(
            urllib.request.Request(f"{base}/{path}", headers=headers), timeout=REGISTRY_TIMEOUT_S
        ) as response:
            return str(json.load(response)["schema"])
    except urllib.error.HTTPError as error:
        if error.code == 404:
            raise AvroError(f"the registry has no {path}") from None
        raise


def with_login(url: str) -> tuple[str, dict[str, str]]:
    """The URL without user and password, and the header that has them."""
    parts = urllib.parse.urlsplit(url)
    login, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, {}
    encoded = base64.b64encode(urllib.parse.unquote(login).encode()).decode()
    return parts._replace(netloc=host).geturl(), {"Authorization": f"Basic {encoded}"}
