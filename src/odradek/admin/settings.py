"""Settings of topics, brokers and groups: described with their sources and documentation, and altered."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from odradek.admin.access import Access, Address
from odradek.admin.failures import AdminError, check
from odradek.admin.metadata import broker_addresses, metadata
from odradek.admin.places import is_internal
from odradek.admin.requests import ask
from odradek.admin.resources import RESOURCE_CODES, Kind, source_name, type_name
from odradek.admin.setting_names import check_deleted, guess
from odradek.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

SET_CONFIG, DELETE_CONFIG = 0, 1


@dataclass(frozen=True)
class SynonymView:
    name: str
    value: str | None
    source: str


@dataclass(frozen=True)
class SettingView:
    """A setting of a resource; its fields are those of the JSON output."""

    kind: str
    name: str
    key: str
    value: str | None  # None where it has none, or is hidden because it is sensitive
    source: str
    type: str
    read_only: bool
    sensitive: bool
    documentation: str | None
    synonyms: list[SynonymView]


def view_settings(cluster: Access, kind: Kind, name: str | None, keys: Sequence[str]) -> list[SettingView]:
    addresses = broker_addresses(cluster)
    results = []
    if kind is Kind.BROKER:
        for number in _brokers(name, addresses):
            results += describe_configs(cluster, addresses[number], RESOURCE_CODES[kind], [str(number)], keys)
    else:
        names = [name] if name else _all_names(cluster, kind)
        if names:
            anyone = next(iter(addresses.values()))
            results = describe_configs(cluster, anyone, RESOURCE_CODES[kind], names, keys)
    return [
        _view(kind, result.resource_name, entry)
        for result in results
        for entry in sorted(result.configs, key=lambda entry: entry.name)
    ]


def _brokers(name: str | None, addresses: Mapping[int, Address]) -> list[int]:
    if name is None:
        return sorted(addresses)
    if not name.isdecimal() or int(name) not in addresses:
        raise AdminError(f"no broker {name}: choose from {', '.join(map(str, sorted(addresses)))}")
    return [int(name)]


def _all_names(cluster: Access, kind: Kind) -> list[str]:
    if kind is Kind.TOPIC:
        return sorted(name for name in metadata(cluster).topics if not is_internal(name))
    from odradek.admin.groups import group_names

    return group_names(cluster)


def _view(kind: Kind, name: str, entry: DescribeConfigsResourceResult) -> SettingView:
    return SettingView(
        kind=kind.value,
        name=name,
        key=entry.name,
        value=entry.value,
        source=source_name(entry.config_source),
        type=type_name(entry.config_type),
        read_only=entry.read_only,
        sensitive=entry.is_sensitive,
        documentation=entry.documentation,
        synonyms=[
            SynonymView(other.name, other.value, source_name(other.source)) for other in entry.synonyms
        ],
    )


def alter_settings(
    cluster: Access, kind: Kind, name: str | None, changes: Mapping[str, str], deleted: Sequence[str] = ()
) -> None:
    """Change settings of a topic, a group or a broker, or without a name those of all brokers. Raises AdminError, with
    the name that the user may have meant, where the cluster refuses one."""
    resource = f"{kind.value} {name}" if name else "all brokers"
    if deleted:
        check_known(cluster, kind, name, deleted, resource)
    try:
        alter_resource(cluster, kind, name, {**changes, **dict.fromkeys(deleted)})
    except AdminError as error:
        said = str(error)
        advice = guess(said, changes, known_settings(kind))
        raise AdminError(f"{resource}: {said[:1].lower()}{said[1:]}{advice}") from None


def check_known(
    cluster: Access, kind: Kind, name: str | None, keys: Sequence[str], subject: str | None = None
) -> None:
    """Raise AdminError for a setting that the cluster does not know for this resource."""
    address = _address(cluster, kind, name)
    of_whom = name or str(next(iter(broker_addresses(cluster))))
    known = describe_configs(cluster, address, RESOURCE_CODES[kind], [of_whom], [])
    defaults = describe_configs(cluster, address, RESOURCE_CODES[kind], [""], []) if name is None else []
    check_deleted(
        subject or name or "", keys, [one.name for found in (*known, *defaults) for one in found.configs]
    )


def alter_resource(cluster: Access, kind: Kind, name: str | None, changes: Mapping[str, str | None]) -> None:
    """Set settings of one resource, or reset those to their defaults whose value is None. Raises Refused."""
    alter_configs(cluster, _address(cluster, kind, name), RESOURCE_CODES[kind], name or "", changes)


def _address(cluster: Access, kind: Kind, name: str | None) -> Address:
    """Choose the broker to ask: each knows its own settings; about others, any one will do."""
    addresses = broker_addresses(cluster)
    if kind is Kind.BROKER and name is not None:
        return addresses[_brokers(name, addresses)[0]]
    return next(iter(addresses.values()))


def known_settings(kind: Kind) -> Iterable[str]:
    from odradek.config.broker_definitions import BROKER_DEFINITIONS
    from odradek.config.group import GROUP_DEFINITIONS
    from odradek.config.topic_definitions import TOPIC_DEFINITIONS

    tables: dict[Kind, Iterable[str]] = {Kind.TOPIC: TOPIC_DEFINITIONS, Kind.GROUP: GROUP_DEFINITIONS}
    return tables.get(kind, BROKER_DEFINITIONS)


def unknown_to_brokers(names: Iterable[str]) -> dict[str, str]:
    """Names that brokers keep and ignore, with the reason: they accept any name, as Kafka's do, so a mistyped one would
    go unnoticed."""
    from odradek.config.broker import definition_of
    from odradek.config.broker_definitions import BROKER_DEFINITIONS
    from odradek.config.unsupported import unknown

    return {name: unknown(name, BROKER_DEFINITIONS) for name in names if definition_of(name) is None}


# Requests


def describe_configs(
    cluster: Access,
    address: Address,
    kind: int,
    names: Iterable[str],
    keys: Sequence[str],
    *,
    is_brief: bool = False,
) -> list[DescribeConfigsResult]:
    """Settings of resources of one kind, with synonyms and documentation unless only their values count."""
    results = ask_for_configs(cluster, address, kind, names, keys, is_brief=is_brief)
    for result in results:
        check(result.error_code, result.error_message, result.resource_name)
    return results


def ask_for_configs(
    cluster: Access,
    address: Address,
    kind: int,
    names: Iterable[str],
    keys: Sequence[str],
    *,
    is_brief: bool = False,
) -> list[DescribeConfigsResult]:
    """The same with the results that are errors."""
    resources = [DescribeConfigsResource(kind, name, list(keys) or None) for name in names]
    request = DescribeConfigsRequest(
        resources, include_synonyms=not is_brief, include_documentation=not is_brief
    )
    return ask(cluster, address, request, DescribeConfigsResponse).results


def alter_configs(
    cluster: Access, address: Address, kind: int, name: str, changes: Mapping[str, str | None]
) -> None:
    """Set settings of one resource, or reset those to their defaults whose value is None."""
    configs = [
        AlterableConfig(key, DELETE_CONFIG if value is None else SET_CONFIG, value)
        for key, value in changes.items()
    ]
    request = IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, configs)])
    (result,) = ask(cluster, address, request, IncrementalAlterConfigsResponse).responses
    check(result.error_code, result.error_message)
