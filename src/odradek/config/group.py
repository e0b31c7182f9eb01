"""A group's configuration: its overrides over the broker's values, within the broker's limits.

Most keys of a group have a corresponding broker key, with `group.` before the name, and two more that set its
limits: `consumer.session.timeout.ms` overrides `group.consumer.session.timeout.ms`, between
`group.consumer.min.session.timeout.ms` and `group.consumer.max.session.timeout.ms`. Streams groups have none.
"""

import re
from collections.abc import Mapping
from typing import Any

from odradek.config.broker import BrokerConfig
from odradek.config.broker_definitions import BROKER_DEFINITIONS
from odradek.config.definition import (
    ConfigError,
    ConfigType,
    Definition,
    Importance,
    Scope,
    Validator,
    at_least,
    one_of,
)
from odradek.errors import ErrorCode, KafkaError

INT, STRING, BOOLEAN = ConfigType.INT, ConfigType.STRING, ConfigType.BOOLEAN

_DURATION = re.compile(r"by_duration:P.+", re.IGNORECASE)


def offset_reset(value: str) -> str | None:
    if value in ("latest", "earliest") or _DURATION.fullmatch(value):
        return None
    return "must be latest, earliest or by_duration:<ISO 8601 duration>"


def _group(
    name: str, type_: ConfigType, default: object, validator: Validator | None, documentation: str
) -> Definition:
    return Definition(name, type_, default, documentation, validator, Importance.MEDIUM, Scope.GROUP)


_DEFINITIONS = (
    _group("consumer.assignment.interval.ms", INT, 1000, at_least(0),
           "The minimum time between two assignments of a consumer group."),
    _group("consumer.heartbeat.interval.ms", INT, 5000, at_least(1),
           "How often a consumer group's members are told to send heartbeats."),
    _group("consumer.session.timeout.ms", INT, 45000, at_least(1),
           "Time without heartbeats after which a consumer group removes a member."),
    _group("share.assignment.interval.ms", INT, 1000, at_least(0),
           "The minimum time between two assignments of a share group."),
    _group("share.auto.offset.reset", STRING, "latest", offset_reset,
           "Where a share group starts to read a partition that it has not read before."),
    _group("share.delivery.count.limit", INT, 5, at_least(2),
           "How often a record is delivered before it is given up."),
    _group("share.heartbeat.interval.ms", INT, 5000, at_least(1),
           "How often a share group's members are told to send heartbeats."),
    _group("share.isolation.level", STRING, "read_uncommitted", one_of("read_uncommitted", "read_committed"),
           "Whether a share group sees the records of open and aborted transactions."),
    _group("share.partition.max.record.locks", INT, 2000, at_least(100),
           "Records of one partition that may be locked at one time."),
    _group("share.record.lock.duration.ms", INT, 30000, at_least(1000),
           "How long a record is locked for the member that fetched it."),
    _group("share.renew.acknowledge.enable", BOOLEAN, True, None,
           "Whether a member may renew its lock on a record."),
    _group("share.session.timeout.ms", INT, 45000, at_least(1),
           "Time without heartbeats after which a share group removes a member."),
)  # fmt: skip

GROUP_DEFINITIONS: dict[str, Definition] = {definition.name: definition for definition in _DEFINITIONS}


def broker_key(name: str) -> str | None:
    """The broker key that corresponds to a group's, if there is one."""
    return f"group.{name}" if f"group.{name}" in BROKER_DEFINITIONS else None


def group_values(overrides: Mapping[str, str], broker: BrokerConfig) -> dict[str, Any]:
    """The typed value of every group key. An override no longer allowed yields to the broker's value."""
    values = {}
    for name, definition in GROUP_DEFINITIONS.items():
        key = broker_key(name)
        values[name] = broker[key] if key else definition.default
        try:
            if name in overrides:
                values[name] = _parse(definition, overrides[name], broker)
        except ConfigError:
            continue
    return values


def check_group_overrides(overrides: Mapping[str, str], broker: BrokerConfig) -> None:
    """Refuse, with INVALID_CONFIG, values that a group cannot have."""
    for name, text in overrides.items():
        definition = GROUP_DEFINITIONS.get(name)
        if definition is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {name}")
        try:
            _parse(definition, text, broker)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
    values = group_values(overrides, broker)
    for kind in ("consumer", "share"):
        heartbeat, session = f"{kind}.heartbeat.interval.ms", f"{kind}.session.timeout.ms"
        if values[heartbeat] >= values[session]:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{heartbeat} must be less than {session}")


def _parse(definition: Definition, text: str, broker: BrokerConfig) -> Any:
    value = definition.parse(text)
    kind, _, rest = definition.name.partition(".")
    for limit, is_beyond in (("min", int.__lt__), ("max", int.__gt__)):
        key = f"group.{kind}.{limit}.{rest}"
        if key in BROKER_DEFINITIONS and is_beyond(value, broker[key]):
            raise ConfigError(definition.name, text, f"{key} is {broker[key]}")
    return value
