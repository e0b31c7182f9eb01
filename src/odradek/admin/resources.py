"""The kinds of things that have settings, and where a value comes from."""

from enum import StrEnum

from odradek.config.definition import ConfigSource, ConfigType


class Kind(StrEnum):
    """The things that have settings; the values are what a user types."""

    TOPIC = "topic"
    BROKER = "broker"
    GROUP = "group"


RESOURCE_CODES = {Kind.TOPIC: 2, Kind.BROKER: 4, Kind.GROUP: 32}
SOURCE_NAMES = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: "topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "all brokers",
    ConfigSource.STATIC_BROKER_CONFIG: "start of the broker",
    ConfigSource.DEFAULT_CONFIG: "default",
    ConfigSource.DYNAMIC_GROUP_CONFIG: "group",
}


def source_name(code: int) -> str:
    return SOURCE_NAMES[ConfigSource(code)] if code in ConfigSource._value2member_map_ else "unknown"


def type_name(code: int) -> str:
    return ConfigType(code).name.lower() if code in ConfigType._value2member_map_ else "unknown"
