"""`odradek config`: the settings of topics, brokers and groups, each with its value, source and documentation."""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Annotated, Any

from odradek.cli.access import REQUEST_TIMEOUT_S, Access, on_cluster
from odradek.cli.arguments import JsonOutput, key_value
from odradek.cli.completion import complete_groups, complete_settings, complete_topics
from odradek.cli.danger import Force, check_internal, is_internal
from odradek.cli.failures import CommandError
from odradek.cli.framework import Argument, BadParameter, Context, Group, Option
from odradek.cli.output import print_columns, print_json, print_line, warn
from odradek.cli.setting_names import check_deleted, guess
from odradek.config.definition import ConfigSource, ConfigType

app = Group(help="List, describe and alter settings of topics, brokers and groups.")

HIDDEN = "(hidden)"
INDENT = "    "


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


def complete_names(context: Context, incomplete: str) -> list[Any]:
    kind = getattr(context.params.get("kind"), "value", context.params.get("kind"))
    complete = {"topic": complete_topics, "group": complete_groups}.get(str(kind))
    return complete(context, incomplete) if complete else []


KindArgument = Annotated[Kind, Argument(metavar="topic|broker|group")]
NameArgument = Annotated[str | None, Argument(metavar="[NAME]", complete=complete_names)]


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


@app.command("list")
@on_cluster
def list_(
    cluster: Access,
    kind: KindArgument,
    name: NameArgument = None,
    all_: Annotated[bool, Option("--all", "-a", help="Defaults too.")] = False,
    as_json: JsonOutput = False,
) -> None:
    """List settings that are not defaults. Without a name, it lists those of all topics, brokers or groups."""
    views = [
        view
        for view in view_settings(cluster, kind, name, [])
        if all_ or view.source != SOURCE_NAMES[ConfigSource.DEFAULT_CONFIG]
    ]
    if as_json:
        print_json([asdict(view) for view in views])
        return
    rows = [(view.name, view.key, _shown(view), view.source) for view in views]
    print_columns((kind.value.upper(), "KEY", "VALUE", "SOURCE"), rows)


@app.command()
@on_cluster
def describe(
    cluster: Access,
    kind: KindArgument,
    name: NameArgument = None,
    keys: Annotated[
        list[str] | None,
        Argument(metavar="[KEY]...", complete=complete_settings),
    ] = None,
    as_json: JsonOutput = False,
) -> None:
    """Describe settings. It shows value, source, type and documentation of all settings, or of those named."""
    views = view_settings(cluster, kind, name, keys or [])
    if keys and (missing := set(keys).difference(view.key for view in views)):
        raise CommandError(
            f"a {kind.value} has no setting {min(missing)}{guess(min(missing), [min(missing)], _known_settings(kind))}"
        )
    if as_json:
        print_json([asdict(view) for view in views])
        return
    for view in views:
        print_line(f"{view.kind} {view.name}: {view.key} = {_shown(view)}")
        changeable = "read only" if view.read_only else "can be altered"
        print_line(f"{INDENT}from {view.source}, {view.type}, {changeable}")
        for other in view.synonyms[1:]:
            print_line(f"{INDENT}else {other.name} = {other.value} from {other.source}")
        for line in textwrap.wrap(view.documentation or "", width=100):
            print_line(f"{INDENT}{line}")


def _shown(view: SettingView) -> str:
    if view.sensitive:
        return HIDDEN
    return "" if view.value is None else view.value


def view_settings(cluster: Access, kind: Kind, name: str | None, keys: Sequence[str]) -> list[SettingView]:
    from odradek.cli.own_client import broker_addresses, describe_configs

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


def _brokers(name: str | None, addresses: Any) -> list[int]:
    if name is None:
        return sorted(addresses)
    if not name.isdecimal() or int(name) not in addresses:
        raise CommandError(f"no broker {name}: choose from {', '.join(map(str, sorted(addresses)))}")
    return [int(name)]


def _all_names(cluster: Access, kind: Kind) -> list[str]:
    if kind is Kind.TOPIC:
        return sorted(name for name in cluster.metadata().topics if not is_internal(name))
    listing = cluster.admin.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S).result(REQUEST_TIMEOUT_S)
    return sorted(found.group_id for found in listing.valid)


def _view(kind: Kind, name: str, entry: Any) -> SettingView:
    return SettingView(
        kind=kind.value,
        name=name,
        key=entry.name,
        value=entry.value,
        source=_source(entry.config_source),
        type=_type(entry.config_type),
        read_only=entry.read_only,
        sensitive=entry.is_sensitive,
        documentation=entry.documentation,
        synonyms=[SynonymView(other.name, other.value, _source(other.source)) for other in entry.synonyms],
    )


def _source(code: int) -> str:
    return SOURCE_NAMES[ConfigSource(code)] if code in ConfigSource._value2member_map_ else "unknown"


def _type(code: int) -> str:
    return ConfigType(code).name.lower() if code in ConfigType._value2member_map_ else "unknown"


@app.command()
@on_cluster
def alter(
    cluster: Access,
    kind: KindArgument,
    name: NameArgument = None,
    set_: Annotated[
        list[str] | None,
        Option("--set", metavar="KEY=VALUE", help="A new value; repeatable.", complete=complete_settings),
    ] = None,
    delete: Annotated[
        list[str] | None,
        Option(
            "--delete",
            metavar="KEY",
            help="A setting to reset to its default; repeatable.",
            complete=complete_settings,
        ),
    ] = None,
    force: Force = False,
    as_json: JsonOutput = False,
) -> None:
    """Change settings of a topic, a group or a broker. Without a name, those of all brokers are changed."""
    if not set_ and not delete:
        raise BadParameter("nothing to change: give --set or --delete")
    if name is None and kind is not Kind.BROKER:
        raise BadParameter(f"name a {kind.value}", param_hint="NAME")
    if kind is Kind.TOPIC:
        check_internal([name or ""], force)
    from odradek.cli.own_client import alter_configs, broker_addresses, describe_configs

    changes = dict(map(key_value, set_ or ()))
    addresses = broker_addresses(cluster)
    is_one_broker = kind is Kind.BROKER and name is not None
    address = addresses[_brokers(name, addresses)[0]] if is_one_broker else next(iter(addresses.values()))
    resource = f"{kind.value} {name}" if name else "all brokers"
    if delete:
        of_whom = name or str(next(iter(addresses)))
        known = describe_configs(cluster, address, RESOURCE_CODES[kind], [of_whom], [])
        defaults = describe_configs(cluster, address, RESOURCE_CODES[kind], [""], []) if name is None else []
        check_deleted(resource, delete, [one.name for found in (*known, *defaults) for one in found.configs])
    try:
        alter_configs(
            cluster, address, RESOURCE_CODES[kind], name or "", changes | dict.fromkeys(delete or ())
        )
    except CommandError as error:
        hint = guess(str(error), changes, _known_settings(kind))
        raise CommandError(f"{resource}: {error}{hint}") from None
    if as_json:
        print_json(
            {"kind": kind.value, "name": name, "set": changes, "deleted": delete or [], "altered": True}
        )
    else:
        print_line(f"Altered {resource}.")
    if kind is Kind.BROKER:
        _warn_of_unknown(changes)


def _known_settings(kind: Kind) -> Iterable[str]:
    from odradek.config.broker_definitions import BROKER_DEFINITIONS
    from odradek.config.group import GROUP_DEFINITIONS
    from odradek.config.topic_definitions import TOPIC_DEFINITIONS

    tables: dict[Kind, Iterable[str]] = {Kind.TOPIC: TOPIC_DEFINITIONS, Kind.GROUP: GROUP_DEFINITIONS}
    return tables.get(kind, BROKER_DEFINITIONS)


def _warn_of_unknown(names: Iterable[str]) -> None:
    """Brokers accept any name, as Kafka's do, so a mistyped one would go unnoticed."""
    from odradek.config.broker import definition_of
    from odradek.config.broker_definitions import BROKER_DEFINITIONS
    from odradek.config.unsupported import unknown

    for name in names:
        if definition_of(name) is None:
            warn(f"the brokers keep {name}, and ignore it: {unknown(name, BROKER_DEFINITIONS)}")
