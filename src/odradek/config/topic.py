"""A topic's configuration: its overrides over the broker's values, checked, and in the shapes that use it.

The caller keeps the results of `log_config` and `topic_rules` as long as neither the topic's overrides nor
the broker's configuration change: none of this is meant for the path of a request.
"""

from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any, NoReturn

from odradek.config.broker import BrokerConfig
from odradek.config.definition import MAX_INT, ConfigError
from odradek.config.topic_definitions import TOPIC_DEFINITIONS, contradiction
from odradek.errors import ErrorCode, KafkaError
from odradek.records.compression import Codec
from odradek.records.record import TimestampType
from odradek.records.validation import TopicRules
from odradek.storage.config import LogConfig


def topic_values(overrides: Mapping[str, str], broker: BrokerConfig) -> dict[str, Any]:
    """The typed value of every topic key. An override that no longer parses yields to the broker's value."""
    values = dict(broker.topic_defaults)
    for name, text in overrides.items():
        definition = TOPIC_DEFINITIONS.get(name)
        if definition:
            try:
                values[name] = definition.parse(text)
            except ConfigError:
                continue
    return values


def check_topic_overrides(overrides: Mapping[str, str | None], broker: BrokerConfig) -> None:
    """Refuse, with INVALID_CONFIG, values that a topic cannot have."""
    missing = [name for name, text in overrides.items() if text is None]
    if missing:
        _refuse(f"no value given for topic config: {','.join(missing)}")
    values = dict(broker.topic_defaults)
    for name, text in overrides.items():
        definition = TOPIC_DEFINITIONS.get(name)
        if not definition:
            _refuse(f"Unknown topic config name: {name}")
        try:
            values[name] = definition.parse(text or "")
        except ConfigError as error:
            _refuse(str(error))
    reason = contradiction(values)
    if reason:
        _refuse(reason)


def _refuse(message: str) -> NoReturn:
    raise KafkaError(ErrorCode.INVALID_CONFIG, message)


# LogConfig names its fields after the topic keys, except the cleanup policy, which it splits in two.
_LOG_CONFIG_KEYS = {
    field.name: key
    for field in fields(LogConfig)
    if (key := field.name.replace("_", ".")) in TOPIC_DEFINITIONS
}


def log_config(values: Mapping[str, Any]) -> LogConfig:
    """Translate a topic's values (see `topic_values`) for its logs."""
    settings = {field: values[key] for field, key in _LOG_CONFIG_KEYS.items()}
    settings["segment_bytes"] = values["internal.segment.bytes"] or values["segment.bytes"]
    policy = values["cleanup.policy"]
    return LogConfig(**settings, compact="compact" in policy, delete="delete" in policy)


_CODECS: dict[str, Codec | None] = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
_TIMESTAMP_TYPES = {
    "CreateTime": TimestampType.CREATE_TIME,
    "LogAppendTime": TimestampType.LOG_APPEND_TIME,
}


def topic_rules(values: Mapping[str, Any], full_validation: bool) -> TopicRules:
    """Translate a topic's values for Produce; `full_validation` is the broker's log.validate.records."""
    return TopicRules(
        message_timestamp_type=_TIMESTAMP_TYPES[values["message.timestamp.type"]],
        timestamp_before_max_ms=values["message.timestamp.before.max.ms"],
        timestamp_after_max_ms=values["message.timestamp.after.max.ms"],
        compression_type=_CODECS[values["compression.type"]],
        compression_level=_compression_level(values),
        compact="compact" in values["cleanup.policy"],
        max_message_bytes=values["max.message.bytes"],
        full_validation=full_validation,
    )


ALL_PARTITIONS = range(MAX_INT + 1)


def throttled_partitions(listed: tuple[str, ...], broker_id: int) -> Collection[int]:
    """Return the partitions of which this broker's replica is in a list of throttled replicas."""
    if "*" in listed:
        return ALL_PARTITIONS
    replicas = (item.split(":") for item in listed if item)
    return frozenset(int(partition) for partition, broker in replicas if int(broker) == broker_id)


def _compression_level(values: Mapping[str, Any]) -> int | None:
    """Only three codecs have levels; gzip's -1 means the codec's own default."""
    level: int | None = values.get(f"compression.{values['compression.type']}.level")
    return None if level == -1 and values["compression.type"] == "gzip" else level
