"""Avro schemas from a registry that speaks Confluent's HTTP API, by the id that a value begins with: a zero byte, then
the id in four bytes.

A schema never changes, so each is asked for once. One that the registry does not give is asked for again after a while:
a page of fifty records must not wait for it fifty times.
"""

import io
import json
import time
import urllib.error
import urllib.request
from collections import OrderedDict
from typing import Any

MAGIC = 0
PREFIX_BYTES = 5
TIMEOUT_S = 3.0
MOST_KEPT = 200
FAILURE_KEPT_S = 30.0
MAX_SCHEMA_BYTES = 1024 * 1024


class NoSchema(Exception):
    """Why a value cannot be shown as Avro."""


class Schemas:
    def __init__(self, registry: str | None) -> None:
        self._registry = registry.rstrip("/") if registry else None
        self._kept: OrderedDict[int, Any] = OrderedDict()
        self._failed: dict[int, tuple[float, str]] = {}  # when, and why

    def decode(self, data: bytes) -> object:
        if len(data) < PREFIX_BYTES or data[0] != MAGIC:
            raise NoSchema("this is not Avro: it does not begin with the id of a schema")
        schema_id = int.from_bytes(data[1:PREFIX_BYTES], "big")
        schema = self._schema(schema_id)
        import fastavro

        try:
            return fastavro.schemaless_reader(io.BytesIO(data[PREFIX_BYTES:]), schema, None)
        except Exception as error:  # bytes of another producer: they may be anything
            raise NoSchema(f"the value does not fit schema {schema_id}: {type(error).__name__}") from None

    def _schema(self, schema_id: int) -> Any:
        if schema_id in self._kept:
            return self._kept[schema_id]
        if self._registry is None:
            raise NoSchema(
                f"schema {schema_id} is in a registry: start the console with --schema-registry URL"
            )
        failed_s, reason = self._failed.get(schema_id, (-FAILURE_KEPT_S, ""))
        if reason and time.monotonic() - failed_s < FAILURE_KEPT_S:
            raise NoSchema(reason)
        schema = self._ask(self._registry, schema_id)
        if len(self._kept) >= MOST_KEPT:
            self._kept.popitem(last=False)
        self._kept[schema_id] = schema
        return schema

    def _ask(self, registry: str, schema_id: int) -> Any:
        import fastavro

        try:
            with urllib.request.urlopen(f"{registry}/schemas/ids/{schema_id}", timeout=TIMEOUT_S) as response:
                text = json.loads(response.read(MAX_SCHEMA_BYTES))["schema"]
            return fastavro.parse_schema(json.loads(text))
        except urllib.error.HTTPError as error:
            reason = f"the registry has no schema {schema_id} ({error.code})"
        except Exception as error:
            reason = f"the registry did not give schema {schema_id}: {error}"
        if len(self._failed) >= MOST_KEPT:
            self._failed.clear()
        self._failed[schema_id] = (time.monotonic(), reason)
        raise NoSchema(reason)
