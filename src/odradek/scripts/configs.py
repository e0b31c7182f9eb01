"""kafka-configs.sh: describe and alter the configs of topics, brokers and groups, and quotas (`quota_configs`)."""

import re
from collections.abc import Sequence
from pathlib import Path

from odradek.admin.access import Access, read_settings
from odradek.admin.failures import AdminError
from odradek.admin.groups import group_names
from odradek.admin.metadata import broker_addresses, metadata
from odradek.admin.resources import RESOURCE_CODES, Kind
from odradek.admin.settings import alter_resource, describe_configs
from odradek.config.definition import ConfigSource
from odradek.scripts import quota_configs
from odradek.scripts.options import Exit, Flag, Given, Parser
from odradek.scripts.running import BOOTSTRAP, COMMAND_CONFIG, cluster_of, print_line, said
from odradek.wire.messages.describe_configs import DescribeConfigsResourceResult

KINDS = {"topics": Kind.TOPIC, "brokers": Kind.BROKER, "groups": Kind.GROUP}
OWN_SOURCES = {
    Kind.TOPIC: ConfigSource.DYNAMIC_TOPIC_CONFIG,
    Kind.BROKER: ConfigSource.DYNAMIC_BROKER_CONFIG,
    Kind.GROUP: ConfigSource.DYNAMIC_GROUP_CONFIG,
}
SHORT = {"topic": "topics", "broker": "brokers", "group": "groups"}
ENTITY_TYPES = (*KINDS, *quota_configs.TYPES)
ALL_BROKERS = ""
OUTSIDE_BRACKETS = r"(?=[^\]]*(?:\[|$))"
PARSER = Parser(
    "This tool helps to manipulate and describe entity config for a topic, client, user, broker, ip, "
    "client-metrics or group",
    [
        BOOTSTRAP,
        COMMAND_CONFIG,
        Flag("alter", "Alter the configuration for the entity."),
        Flag("describe", "List configs for the given entity."),
        Flag("all", "List all configs for the given entity, including static configs."),
        Flag("entity-type", "topics, brokers, groups, users, clients or ips.", "String"),
        Flag("entity-name", "Name of entity.", "String"),
        Flag("entity-default", "Default entity name for brokers, users, clients or ips."),
        Flag("add-config", "Key Value pairs of configs to add, such as k1=v1,k2=[v1,v2].", "String"),
        Flag("add-config-file", "Path to a properties file with configs to add.", "String"),
        Flag("delete-config", "Config keys to remove, such as k1,k2.", "String"),
        Flag("topic", "The topic's name.", "String"),
        Flag("broker", "The broker's ID.", "String"),
        Flag("broker-defaults", "The config defaults for all brokers."),
        Flag("group", "The group's ID.", "String"),
        Flag("user", "The user's principal name.", "String"),
        Flag("user-defaults", "The config defaults for all users."),
        Flag("client", "The client's ID.", "String"),
        Flag("client-defaults", "The config defaults for all clients."),
        Flag("ip", "The IP address.", "String"),
        Flag("ip-defaults", "The config defaults for all IPs."),
        *(
            Flag(name, "A kind of config that Odradek does not have.", argument, is_unsupported=True)
            for name, argument in (
                ("bootstrap-controller", "controller to connect to"),
                ("broker-logger", "String"),
                ("client-metrics", "String"),
            )
        ),
    ],
)


def main(arguments: Sequence[str]) -> int:
    given = PARSER.parse(arguments)
    if given.has("alter") == given.has("describe"):
        PARSER.fail("Command must include exactly one action: --describe, --alter")
    PARSER.require(given, "bootstrap-server")
    found = quota_configs.entities(given)
    try:
        if found is not None:
            quotas(cluster_of(given), given, found)
            return 0
        kind, name = entity(given)
        if given.has("describe"):
            describe(cluster_of(given), given, kind, name)
        else:
            alter(cluster_of(given), given, kind, name)
    except AdminError as error:
        raise Exit(
            1, f"Error while executing config command with args '{' '.join(arguments)}'\n{said(error)}"
        ) from None
    return 0


def entity(given: Given) -> tuple[str, str | None]:
    """The kind of thing, as Kafka calls it, and its name: empty for all brokers, None for each of them."""
    types = [given.text("entity-type")] if given.has("entity-type") else []
    types += [long for short, long in SHORT.items() if given.has(short)]
    types += ["brokers"] if given.has("broker-defaults") else []
    if len(types) != 1:
        PARSER.fail("Exactly one entity type must be specified with --entity-type")
    kind = types[0] or ""
    if kind not in KINDS:
        raise Exit(
            1,
            f"Entity type {kind} is not supported by Odradek's scripts: choose from {', '.join(ENTITY_TYPES)}",
        )
    names = [given.text(one) for one in ("entity-name", *SHORT) if given.has(one)]
    if given.has("entity-default") or given.has("broker-defaults"):
        if kind != "brokers":
            raise Exit(1, f"--entity-default must not be specified with --entity-type {kind}")
        names.append(ALL_BROKERS)
    if len(names) > 1:
        PARSER.fail("An entity must be named once")
    if given.has("alter"):
        if not names:
            raise Exit(1, "An entity name must be specified for every entity type")
        check_changes(given)
    name = names[0] if names else None
    if kind == "brokers" and name and not name.isdecimal():
        raise Exit(1, f"The entity name for {kind} must be a valid integer broker id, found: {name}")
    return kind, name


def check_changes(given: Given) -> None:
    if not any(map(given.has, ("add-config", "add-config-file", "delete-config"))):
        raise Exit(
            1,
            "At least one of --add-config, --add-config-file, or --delete-config must be specified with --alter",
        )
    PARSER.exclude(given, "add-config", "add-config-file")


def quotas(cluster: Access, given: Given, found: quota_configs.Entities) -> None:
    """Describe or alter quotas."""
    if given.has("describe"):
        quota_configs.describe(cluster, found)
        return
    check_changes(given)
    quota_configs.alter(cluster, found, added_configs(given), deleted_configs(given))


def deleted_configs(given: Given) -> list[str]:
    return [one.strip() for text in given.values("delete-config") for one in text.split(",")]


def describe(cluster: Access, given: Given, kind: str, name: str | None) -> None:
    for one in [name] if name is not None else every(cluster, kind):
        if one == ALL_BROKERS:
            print_line(f"Default configs for {kind} in the cluster are:")
        else:
            how = "All" if given.has("all") else "Dynamic"
            print_line(f"{how} configs for {kind[:-1]} {one} are:")
        for entry in settings(cluster, KINDS[kind], one, given.has("all")):
            print_line(line_of(entry))


def every(cluster: Access, kind: str) -> list[str]:
    if kind == "brokers":
        return [*map(str, sorted(broker_addresses(cluster))), ALL_BROKERS]
    return sorted(metadata(cluster).topics) if kind == "topics" else group_names(cluster)


def settings(cluster: Access, kind: Kind, name: str, is_all: bool) -> list[DescribeConfigsResourceResult]:
    addresses = broker_addresses(cluster)
    address = addresses.get(int(name) if kind is Kind.BROKER and name else -1) or next(
        iter(addresses.values())
    )
    (result,) = describe_configs(cluster, address, RESOURCE_CODES[kind], [name], [])
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG if name == ALL_BROKERS else OWN_SOURCES[kind]
    return sorted(
        (one for one in result.configs if is_all or one.config_source == source), key=lambda one: one.name
    )


def line_of(entry: DescribeConfigsResourceResult) -> str:
    synonyms = ", ".join(
        f"{ConfigSource(one.source).name}:{one.name}={_value(one.value)}" for one in entry.synonyms
    )
    return f"  {entry.name}={_value(entry.value)} sensitive={str(entry.is_sensitive).lower()} synonyms={{{synonyms}}}"


def _value(value: str | None) -> str:
    return "null" if value is None else value


def alter(cluster: Access, given: Given, kind: str, name: str | None) -> None:
    added = added_configs(given)
    deleted = deleted_configs(given)
    known = (
        {one.name for one in settings(cluster, KINDS[kind], name or "", is_all=True)} if deleted else set()
    )
    if invalid := [one for one in deleted if one not in known]:
        raise Exit(1, f"Invalid config(s): {','.join(invalid)}")
    alter_resource(cluster, KINDS[kind], name or None, {**added, **dict.fromkeys(deleted)})
    if name:
        print_line(f"Completed updating config for {kind[:-1]} {name}.")
    else:
        print_line(f"Completed updating default config for {kind} in the cluster.")


def added_configs(given: Given) -> dict[str, str]:
    """Read `k1=v1,k2=[v1,v2]`: brackets keep commas in a value together."""
    file = given.text("add-config-file")
    found = read_settings(Path(file)) if file else {}
    text = given.text("add-config")
    for item in re.split("," + OUTSIDE_BRACKETS, text) if text else ():
        key, equals, value = item.partition("=")
        if not equals:
            raise Exit(1, 'Invalid entity config: all configs to be added must be in the format "key=val".')
        found[key.strip()] = re.sub(r"\[?\]?", "", value).strip()
    return found
