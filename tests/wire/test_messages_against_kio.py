"""Every message in every version, filled at random, is read and written by kio to the same bytes."""

import dataclasses
import importlib
import random
import string
import typing
import uuid

import pytest
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from odradek.metadata.records import OWN_TAG
from odradek.wire import codec
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from odradek.wire.schema import fields_of

ENTITIES = (EntityType.request, EntityType.response, EntityType.data)
CASES = [
    (schema, version, path)
    for schema, by_version in schema_name_map.items()
    for version, by_entity in by_version.items()
    for entity, path in by_entity.items()
    if entity in ENTITIES
]
INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint16": 16, "uint32": 32}


def random_primitive(rng: random.Random, kind: str, name: str) -> object:
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "float64":
        return float(rng.randrange(1000))
    if kind == "string":
        return "".join(rng.choices(string.ascii_letters + "é€", k=rng.choice([0, 3, 130])))
    if kind in ("bytes", "records"):
        return rng.randbytes(rng.choice([0, 5, 200]))
    if kind == "uuid":
        return uuid.UUID(bytes=rng.randbytes(16))
    if "error_code" in name:
        return rng.choice([-1, 0, 3, 107])
    return rng.randrange(2 ** (min(INTEGERS[kind], 40) - 1))


def random_struct(rng: random.Random, struct: type, version: int) -> object:
    values = {}
    for field in fields_of(struct):
        wire = field.wire
        if not wire.is_in(version) or is_own(wire):
            continue
        kind = field.element_type

        def element(kind: str = kind, field: codec.Field = field) -> object:
            if kind == "struct":
                return random_struct(rng, field.struct_type, version)
            return random_primitive(rng, kind, field.name)

        if wire.is_nullable_in(version) and not wire.is_tagged_in(version) and rng.random() < 0.2:
            values[field.name] = None
        elif field.is_array:
            values[field.name] = [element() for _ in range(rng.choice([0, 1, 3]))]
        else:
            values[field.name] = element()
    return struct(**values)


def is_own(wire: codec.Wire) -> bool:
    """Kafka does not have this field."""
    return wire.tag is not None and wire.tag >= OWN_TAG


def load(path: str) -> type:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize("schema", sorted({schema for schema, _, _ in CASES}))
def test_equal_bytes(schema: str) -> None:
    module = importlib.import_module(f"odradek.wire.messages.{schema}")
    rng = random.Random(schema)
    for version, path in [(version, path) for name, version, path in CASES if name == schema]:
        theirs = load(path)
        ours = getattr(module, theirs.__name__)
        assert (version >= ours.FLEXIBLE_SINCE) == theirs.__flexible__
        for _ in range(5):
            message = random_struct(rng, ours, version)
            encoded = bytes(codec.encode(message, version))
            decoded, size = entity_reader(theirs)(encoded, 0)
            assert size == len(encoded), (path, "kio reads less or more than was written")
            again = bytearray()
            entity_writer(theirs)(typing.cast(typing.Any, Sink(again)), decoded)
            assert bytes(again) == encoded, path
            back, end = codec.read_message(ours, version, encoded)
            assert end == len(encoded)
            assert back == message, path
            assert codec.drain(codec.read_in_steps(ours, version, encoded, 0, 1000)) == (message, end), path
            in_steps = bytearray()
            codec.drain(codec.write_in_steps(message, version, in_steps))
            assert in_steps == encoded, path


class Sink:
    def __init__(self, out: bytearray) -> None:
        self.out = out

    def write(self, data: bytes) -> None:
        self.out += data


def test_dataclasses_are_complete() -> None:
    """Every field of every struct says how it travels."""
    for schema, version, path in CASES:
        theirs = load(path)
        module = importlib.import_module(f"odradek.wire.messages.{schema}")
        ours = getattr(module, theirs.__name__)
        present = [field for field in fields_of(ours) if field.wire.is_in(version) and not is_own(field.wire)]
        assert len(present) == len(dataclasses.fields(theirs)), path


def test_fields_of_our_own_are_tagged_so_that_others_skip_them() -> None:
    request = BrokerHeartbeatRequest(broker_id=1, broker_epoch=2, current_metadata_offset=3, is_full=True)
    encoded = bytes(codec.encode(request, 2))
    assert codec.read_message(BrokerHeartbeatRequest, 2, encoded) == (request, len(encoded))
    without = bytes(codec.encode(dataclasses.replace(request, is_full=False), 2))
    tag = bytes([1, 0x90, 0x4E, 1, 1])  # one tagged field: 10,000, one byte long, true
    assert encoded == without[:-1] + tag
