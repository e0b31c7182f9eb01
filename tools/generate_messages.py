"""Write src/odradek/wire/messages/ from the schemas that the kio package carries.

kio has one dataclass per struct and version; ours has one per struct, whose fields say in which versions they
travel (see odradek/wire/codec.py). Run it when kio learns a new Kafka release:

    python tools/generate_messages.py && ruff format src/odradek/wire/messages
"""

import dataclasses
import importlib
import types
import typing
import uuid
from pathlib import Path

from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

TARGET = Path(__file__).parent.parent / "src" / "odradek" / "wire" / "messages"
KEYS = {name: key for key, name in api_key_map.items()}
FOREVER = 32_767
# Written by hand, because kio does not have them: key, module, name, and versions (first, last, flexible).
HAND_WRITTEN = [(93, "get_replica_log_info", "GetReplicaLogInfo", 0, 0, 0)]

# kio gives times a type of their own; on the wire, and to us, they are integers.
WIRE_TYPES = {
    "error_code": "int16",
    "timedelta_i32": "int32",
    "timedelta_i64": "int64",
    "datetime_i64": "int64",
}
PYTHON_TYPES = {
    "bool": "bool",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "records": "bytes | memoryview",
    "uuid": "UUID",
}
DEFAULTS = {
    "bool": "False",
    "float64": "0.0",
    "string": '""',
    "bytes": 'b""',
    "records": 'b""',
    "uuid": "NO_TOPIC_ID",
}
# kio dropped the unit from these names of Kafka's.
TIMES_WITHOUT_UNIT = {"timedelta_i32", "timedelta_i64"}
RENAMED = {
    "log_append_time": "log_append_time_ms",
    "issue_timestamp": "issue_timestamp_ms",
    "expiry_timestamp": "expiry_timestamp_ms",
    "max_timestamp": "max_timestamp_ms",
    "transaction_start_time": "transaction_start_time_ms",
}

# Fields that Kafka does not have, with a tag that it skips.
OWN_FIELDS = {
    "BrokerHeartbeatRequest": [
        'is_full: Annotated[bool, Wire("bool", tag=10_000)] = False  # Odradek\'s own'
    ],
    "DescribeLogDirsResult": [
        'is_full: Annotated[bool, Wire("bool", since=2, tag=10_000)] = False  # Odradek\'s own',
        'damaged_logs: Annotated[int, Wire("int32", since=2, tag=10_001)] = 0  # Odradek\'s own',
    ],
}


class FieldInVersion(typing.NamedTuple):
    kind: str  # a primitive's name, or the name of a struct
    is_struct: bool
    is_array: bool
    nullable: bool
    tag: int | None
    default: object


class Struct:
    def __init__(self, name: str) -> None:
        self.name = name
        self.order: list[str] = []
        self.versions: dict[str, dict[int, FieldInVersion]] = {}

    def add(self, version: int, fields: list[tuple[str, FieldInVersion]]) -> None:
        position = 0
        for name, field in fields:
            if name in self.order:
                position = self.order.index(name) + 1
            else:
                self.order.insert(position, name)
                position += 1
            self.versions.setdefault(name, {})[version] = field


class Message:
    """One request, response or stored record over all its versions; `structs` in order of dependence."""

    def __init__(self, schema_name: str, entity: EntityType) -> None:
        self.versions: list[int] = []
        self.flexible_since = FOREVER
        self.structs: dict[str, Struct] = {}
        self.name = ""
        for version, types_by_entity in sorted(schema_name_map[schema_name].items()):
            if entity in types_by_entity:
                module, _, class_name = types_by_entity[entity].partition(":")
                top = getattr(importlib.import_module(module), class_name)
                self.name = class_name
                self.versions.append(version)
                if top.__flexible__:
                    self.flexible_since = min(self.flexible_since, version)
                self.add_struct(top, version)

    def add_struct(self, struct: type, version: int) -> None:
        hints = typing.get_type_hints(struct)
        fields = []
        for field in dataclasses.fields(struct):
            described = self.describe(field, hints[field.name], version)
            fields.append((field_name(field), described))
        self.structs.setdefault(struct.__name__, Struct(struct.__name__)).add(version, fields)

    def describe(self, field: dataclasses.Field, hint: object, version: int) -> FieldInVersion:
        nullable = False
        if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
            members = [member for member in typing.get_args(hint) if member is not type(None)]
            nullable, hint = True, members[0]
        is_array = typing.get_origin(hint) is tuple
        if is_array:
            hint = typing.get_args(hint)[0]
        kafka_type = field.metadata.get("kafka_type")
        if kafka_type is None:
            self.add_struct(hint, version)
        kind = kafka_type or hint.__name__
        if kind in ("uuid", "datetime_i64") and not is_array:
            nullable = False
        return FieldInVersion(
            kind, kafka_type is None, is_array, nullable, field.metadata.get("tag"), field.default
        )


def field_name(field: dataclasses.Field) -> str:
    kind = field.metadata.get("kafka_type")
    if kind in TIMES_WITHOUT_UNIT and not field.name.endswith("_ms"):
        return field.name + "_ms"
    if kind == "datetime_i64":
        return RENAMED.get(field.name, field.name)
    return field.name


def version_range(versions: list[int], all_versions: list[int]) -> tuple[int, int]:
    """First and last; the last is open where it is the newest there is."""
    assert versions == [v for v in all_versions if versions[0] <= v <= versions[-1]], versions
    return versions[0], FOREVER if versions[-1] == all_versions[-1] else versions[-1]


def field_source(name: str, by_version: dict[int, FieldInVersion], all_versions: list[int]) -> str:
    newest = by_version[max(by_version)]
    kind = WIRE_TYPES.get(newest.kind, newest.kind)
    wire = [f'"{"struct" if newest.is_struct else kind}{"[]" if newest.is_array else ""}"']
    since, until = version_range(sorted(by_version), all_versions)
    if since > all_versions[0]:
        wire.append(f"since={since}")
    if until != FOREVER:
        wire.append(f"until={until}")
    nullable = sorted(version for version, field in by_version.items() if field.nullable)
    if nullable:
        first, last = version_range(nullable, sorted(by_version))
        wire.append(f"nullable_since={first if first > all_versions[0] else 0}")
        if last != FOREVER:
            wire.append(f"nullable_until={last}")
    tagged = sorted(version for version, field in by_version.items() if field.tag is not None)
    if tagged and newest.tag is not None:
        wire.append(f"tag={newest.tag}")
        if tagged[0] > since:
            wire.append(f"tag_since={tagged[0]}")
    python = newest.kind if newest.is_struct else PYTHON_TYPES.get(kind, "int")
    if newest.is_array:
        python = f"list[{python}]"
    if nullable:
        python += " | None"
    default = default_source(newest, kind, bool(nullable))
    return f"    {name}: Annotated[{python}, Wire({', '.join(wire)})] = {default}"


def default_source(field: FieldInVersion, kind: str, nullable: bool) -> str:
    value = field.default
    if field.is_array:
        return "None" if value is None and nullable else "field(default_factory=list)"
    if field.is_struct:
        return "None" if value is None and nullable else f"field(default_factory={struct_default(field)})"
    if value is dataclasses.MISSING or (value is None and not nullable):
        if field.kind == "datetime_i64" and value is None:
            return "-1"
        return DEFAULTS.get(kind, "0")
    if value is None:
        return "None"
    if isinstance(value, uuid.UUID):
        return "NO_TOPIC_ID"
    if field.kind.startswith("timedelta"):
        return str(round(value.total_seconds() * 1000))
    if kind == "string":
        return '"' + str(value) + '"'
    if isinstance(value, bool):
        return str(value)
    if kind == "float64":
        return str(float(value))
    return str(int(value)) if isinstance(value, int) else repr(value)


def struct_default(field: FieldInVersion) -> str:
    """A struct's default may differ from the defaults of its fields."""
    if dataclasses.is_dataclass(field.default) and not isinstance(field.default, type):
        values = ", ".join(
            f"{inner.name}={int(getattr(field.default, inner.name))}"
            for inner in dataclasses.fields(field.default)
            if isinstance(getattr(field.default, inner.name), int)
        )
        return f"lambda: {field.kind}({values})"
    return field.kind


def struct_source(struct: Struct, message: Message, api_key: int | None) -> str:
    lines = ["@wire_struct", f"class {struct.name}:"]
    if struct.name == message.name:
        if api_key is not None:
            lines.append(f"    API_KEY: ClassVar[int] = {api_key}")
        lines.append(f"    MIN_VERSION: ClassVar[int] = {message.versions[0]}")
        lines.append(f"    MAX_VERSION: ClassVar[int] = {message.versions[-1]}")
        lines.append(f"    FLEXIBLE_SINCE: ClassVar[int] = {message.flexible_since}")
        lines.append("")
    lines += [field_source(name, struct.versions[name], message.versions) for name in struct.order]
    lines += [f"    {own}" for own in OWN_FIELDS.get(struct.name, [])]
    if len(lines) == 2:
        lines.append("    pass")
    return "\n".join(lines)


def module_source(messages: list[Message], api_key: int | None) -> str:
    body = []
    for message in messages:
        body += [struct_source(struct, message, api_key) for struct in message.structs.values()]
    text = "\n\n\n".join(body)
    imports = ["from dataclasses import field"] if "field(" in text else []
    imports.append("from typing import Annotated, ClassVar")
    if "Annotated[" not in text:
        imports[-1] = "from typing import ClassVar"
    if "UUID" in text:
        imports.append("from uuid import UUID")
    imports.append("")
    if "NO_TOPIC_ID" in text:
        imports.append("from odradek.model import NO_TOPIC_ID")
    imports.append("from odradek.wire.codec import " + ("Wire, " if "Wire(" in text else "") + "wire_struct")
    title = " and ".join(message.name for message in messages)
    header = f'"""{title}. Generated by tools/generate_messages.py; do not edit."""'
    return "\n".join([header, "", *imports]) + "\n\n\n" + text + "\n"


def rename_clashes(request: Message, response: Message) -> None:
    clash = set(request.structs) & set(response.structs)
    for message, suffix in ((request, "InRequest"), (response, "InResponse")):
        for name in clash:
            message.structs[name].name += suffix
            for struct in message.structs.values():
                for by_version in struct.versions.values():
                    for version, field in by_version.items():
                        if field.kind == name:
                            by_version[version] = field._replace(kind=name + suffix)


def order_structs(message: Message) -> None:
    """Structs before those that hold them."""
    done: dict[str, Struct] = {}

    def visit(key: str) -> None:
        struct = message.structs[key]
        for by_version in struct.versions.values():
            for field in by_version.values():
                inner = next((k for k, s in message.structs.items() if s.name == field.kind), None)
                if field.is_struct and inner and inner not in done:
                    visit(inner)
        done[key] = struct

    for key in list(message.structs):
        if key not in done:
            visit(key)
    message.structs = done


def index_source(apis: list[tuple[int, str, Message, Message]]) -> str:
    rows = [
        f'    {key}: Schema({key}, "{name}", "{request.name.removesuffix("Request")}", '
        f"{request.versions[0]}, {request.versions[-1]}, {request.flexible_since}),"
        for key, name, request, _ in apis
    ]
    rows += [
        f'    {key}: Schema({key}, "{module}", "{name}", {first}, {last}, {flexible}),'
        for key, module, name, first, last, flexible in HAND_WRITTEN
    ]
    return "\n".join(
        [
            '"""Every API by its key. Generated by tools/generate_messages.py; do not edit."""',
            "",
            "from typing import NamedTuple",
            "",
            "",
            "class Schema(NamedTuple):",
            "    key: int",
            "    module: str",
            "    name: str",
            "    min_version: int",
            "    max_version: int",
            "    flexible_since: int",
            "",
            "",
            "SCHEMAS = {",
            *rows,
            "}",
            "",
        ]
    )


def main() -> None:
    apis = []
    for schema_name, by_version in schema_name_map.items():
        entities = {entity for types_by_entity in by_version.values() for entity in types_by_entity}
        if entities <= {EntityType.header}:
            continue
        api_key = KEYS.get(schema_name) if EntityType.request in entities else None
        messages = [
            Message(schema_name, entity)
            for entity in (EntityType.request, EntityType.response, EntityType.data)
            if entity in entities
        ]
        if len(messages) == 2:
            rename_clashes(*messages)
            assert api_key is not None
            apis.append((api_key, schema_name, *messages))
        for message in messages:
            order_structs(message)
        (TARGET / f"{schema_name}.py").write_text(module_source(messages, api_key))
    (TARGET / "index.py").write_text(index_source(sorted(apis)))
    (TARGET / "__init__.py").write_text('"""The messages of Kafka\'s protocol, one module per API."""\n')


if __name__ == "__main__":
    main()
