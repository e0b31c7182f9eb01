"""The contents of DescribeConfigs: every key, its value, the source of the value and its synonyms.

The synonyms of a key are all places that give it a value, the strongest first. They follow Kafka's rule
exactly: if a key is set only under another name (log.retention.hours for retention.ms), the list
is empty and the source is the default, although the value is in force.

A broker keeps dynamic settings whose names it does not know, as Kafka's does. Nobody can tell whether such a value is a
secret, so only its name is shown.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from odradek.config.broker import BrokerConfig, definition_of
from odradek.config.broker_definitions import BROKER_DEFINITIONS
from odradek.config.definition import ConfigSource, ConfigType, Definition, Scope, to_text
from odradek.config.group import GROUP_DEFINITIONS, broker_key, group_values
from odradek.config.topic import topic_values
from odradek.config.topic_definitions import SYNONYMS, TOPIC_DEFINITIONS

# A broker key of such a family is described together with the others.
_FAMILIES = {
    name: tuple(other for other, _ in synonyms) for synonyms in SYNONYMS.values() for name, _ in synonyms
}


Layer = tuple[ConfigSource, Mapping[str, str]]


class Synonym(NamedTuple):
    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    name: str
    value: str | None  # None also where the key is sensitive
    source: ConfigSource
    is_sensitive: bool
    read_only: bool
    type: ConfigType
    documentation: str | None
    synonyms: tuple[Synonym, ...]


def describe_topic(
    overrides: Mapping[str, str], broker: BrokerConfig, keys: Iterable[str] | None = None
) -> list[ConfigEntry]:
    """Every topic key, or those named in `keys`."""
    wanted = set(keys) if keys else None
    entries = _topic_entries(broker)
    values = topic_values(overrides, broker) if overrides else {}
    return [
        _overridden(entry, values[entry.name]) if entry.name in overrides else entry
        for entry in entries
        if wanted is None or entry.name in wanted
    ]


def describe_group(
    overrides: Mapping[str, str], broker: BrokerConfig, keys: Iterable[str] | None = None
) -> list[ConfigEntry]:
    """Every group key, or those named in `keys`."""
    values = group_values(overrides, broker)
    entries = []
    for definition in _chosen(GROUP_DEFINITIONS, keys):
        name, text = definition.name, to_text(values[definition.name])
        key = broker_key(name)
        default = Synonym(name, to_text(definition.default), ConfigSource.DEFAULT_CONFIG)
        synonyms = _broker_synonyms(key, broker) if key else (default,)
        if name in overrides:
            synonyms = (Synonym(name, text, ConfigSource.DYNAMIC_GROUP_CONFIG), *synonyms)
        entries.append(_entry(definition, text, _source(synonyms), synonyms))
    return entries


def describe_broker(
    broker: BrokerConfig, keys: Iterable[str] | None = None, defaults: Mapping[str, Any] | None = None
) -> list[ConfigEntry]:
    """Every key of one broker, or those named in `keys`. `defaults`: values that stand for a default."""
    entries = (_broker_entry(definition, broker) for definition in _chosen(BROKER_DEFINITIONS, keys))
    known = [
        _with_default(entry, defaults[entry.name]) if defaults and entry.name in defaults else entry
        for entry in entries
    ]
    return known + _unknown_entries(broker.layers(), keys)


def _with_default(entry: ConfigEntry, default: Any) -> ConfigEntry:
    *set_ones, last = entry.synonyms
    synonyms = (*set_ones, last._replace(value=to_text(default)))
    return entry._replace(value=synonyms[0].value, synonyms=synonyms)


def describe_broker_defaults(broker: BrokerConfig, keys: Iterable[str] | None = None) -> list[ConfigEntry]:
    """The keys set for all brokers, which the empty resource name means."""
    wanted = set(keys) if keys else None
    entries = []
    for name, text in broker.dynamic_default.items():
        definition = definition_of(name)
        if definition and (wanted is None or name in wanted):
            source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
            value = _shown(definition, text)
            entries.append(_entry(definition, value, source, (Synonym(name, value, source),)))
    defaults = (ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG, broker.dynamic_default)
    return entries + _unknown_entries((defaults,), keys)


def _unknown_entries(layers: Iterable[Layer], keys: Iterable[str] | None) -> list[ConfigEntry]:
    """Settings without a definition, each with the layers that set it."""
    wanted = set(keys) if keys else None
    found: dict[str, list[Synonym]] = {}
    for source, layer in layers:
        for name in layer:
            if definition_of(name) is None and (wanted is None or name in wanted):
                found.setdefault(name, []).append(Synonym(name, None, source))
    return [
        ConfigEntry(name, None, synonyms[0].source, True, True, ConfigType.UNKNOWN, None, tuple(synonyms))
        for name, synonyms in found.items()
    ]


def _chosen(table: Mapping[str, Definition], keys: Iterable[str] | None) -> Iterator[Definition]:
    wanted = set(keys) if keys else None
    for name, definition in table.items():
        if not definition.internal and (wanted is None or name in wanted):
            yield definition


@lru_cache(maxsize=4)
def _topic_entries(broker: BrokerConfig) -> tuple[ConfigEntry, ...]:
    """The keys of a topic without settings: most have none, and CreateTopics describes every new topic."""
    values = broker.topic_defaults
    entries = []
    for definition in _chosen(TOPIC_DEFINITIONS, None):
        name = definition.name
        synonyms = _broker_synonyms(SYNONYMS[name][0][0], broker) if name in SYNONYMS else ()
        entries.append(_entry(definition, to_text(values[name]), _source(synonyms), synonyms))
    return tuple(entries)


def _overridden(entry: ConfigEntry, value: Any) -> ConfigEntry:
    text, source = to_text(value), ConfigSource.DYNAMIC_TOPIC_CONFIG
    synonyms = (Synonym(entry.name, text, source), *entry.synonyms)
    return entry._replace(value=text, source=source, synonyms=synonyms)


def _broker_entry(definition: Definition, broker: BrokerConfig) -> ConfigEntry:
    synonyms = _broker_synonyms(definition.name, broker)
    value = _shown(definition, to_text(broker[definition.name]))
    return _entry(definition, value, _source(synonyms), synonyms)


def _broker_synonyms(name: str, broker: BrokerConfig) -> tuple[Synonym, ...]:
    """All that sets `name` or its family, from where `name` itself first appears."""
    family = _FAMILIES.get(name, (name,))
    found = [
        Synonym(member, _shown(BROKER_DEFINITIONS[member], layer[member]), source)
        for source, layer in broker.layers()
        for member in family
        if member in layer
    ]
    for member in family:
        definition = BROKER_DEFINITIONS[member]
        if definition.default is not None:
            value = _shown(definition, to_text(definition.default))
            found.append(Synonym(member, value, ConfigSource.DEFAULT_CONFIG))
    start = next((position for position, item in enumerate(found) if item.name == name), len(found))
    return tuple(found[start:])


def _entry(
    definition: Definition, value: str | None, source: ConfigSource, synonyms: tuple[Synonym, ...]
) -> ConfigEntry:
    read_only = definition.scope is Scope.READ_ONLY
    return ConfigEntry(
        definition.name,
        value,
        source,
        definition.is_sensitive,
        read_only,
        definition.type,
        definition.documentation,
        synonyms,
    )


def _source(synonyms: tuple[Synonym, ...]) -> ConfigSource:
    return synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG


def _shown(definition: Definition, text: str | None) -> str | None:
    return None if definition.is_sensitive else text
