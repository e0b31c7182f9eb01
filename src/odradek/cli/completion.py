"""Completion in the shell: topics, groups, transactional ids and settings, from the cluster that the line so far names.

A shell waits while its user types, so if the cluster is not reachable there are just no suggestions, and names of a
moment ago are not asked for again (`completion_cache`).
"""

import os
from collections.abc import Callable, Iterable
from typing import Any

from odradek.cli.framework import Context

TIMEOUT_S = 2.0

Suggestions = list[Any]


def _cluster(context: Context) -> Any:
    from odradek.cli.access import Naming, named_cluster

    given = context.params
    root = context.find_root().params
    names = ("bootstrap_server", "command_config", "profile")
    return named_cluster(
        Naming(*(given.get(name) for name in names)), Naming(*(root.get(name) for name in names)), os.environ
    )


def _seen(context: Context, kind: str, incomplete: str, ask: Callable[[Any], Iterable[str]]) -> Suggestions:
    """Return the names that begin so: those of a moment ago, or else those that the cluster has now."""
    try:
        from odradek.cli import completion_cache as cache

        cluster = _cluster(context)
        file = cache.cache_file(kind, cluster.bootstrap, cluster.given, os.environ)
        found = [name for name in cache.read(file) if name.startswith(incomplete)]
        if not found:
            names = sorted(ask(cluster))
            cache.write(file, names)
            found = [name for name in names if name.startswith(incomplete)]
    except Exception:  # nothing may break the user's line
        return []
    return found


def _hurried(cluster: Any) -> Any:
    from dataclasses import replace

    return replace(cluster, given={**cluster.given, "request.timeout.ms": str(int(TIMEOUT_S * 1000))})


def complete_topics(context: Context, incomplete: str) -> Suggestions:
    def ask(cluster: Any) -> Iterable[str]:
        from odradek.admin.metadata import metadata

        return metadata(_hurried(cluster)).topics

    return _seen(context, "topics", incomplete, ask)


def complete_groups(context: Context, incomplete: str) -> Suggestions:
    def ask(cluster: Any) -> Iterable[str]:
        from odradek.admin.groups import group_names

        return group_names(_hurried(cluster))

    return _seen(context, "groups", incomplete, ask)


def complete_transactional_ids(context: Context, incomplete: str) -> Suggestions:
    def ask(cluster: Any) -> Iterable[str]:
        from odradek.admin.transactions import list_transactions
        from odradek.wire.messages.list_transactions import ListTransactionsRequest

        listed = list_transactions(_hurried(cluster), ListTransactionsRequest())
        return [each.transactional_id for each in listed]

    return _seen(context, "transactional ids", incomplete, ask)


def complete_topic_settings(incomplete: str) -> Suggestions:
    from odradek.config.topic_definitions import TOPIC_DEFINITIONS

    return suggest_settings(incomplete, TOPIC_DEFINITIONS)


def complete_settings(context: Context, incomplete: str) -> Suggestions:
    """Suggest settings of the kind of resource that the line names, or of brokers if it names none."""
    from odradek.config.broker_definitions import BROKER_DEFINITIONS
    from odradek.config.group import GROUP_DEFINITIONS
    from odradek.config.topic_definitions import TOPIC_DEFINITIONS

    tables = {"topic": TOPIC_DEFINITIONS, "group": GROUP_DEFINITIONS}
    kind = getattr(context.params.get("kind"), "value", context.params.get("kind"))
    return suggest_settings(incomplete, tables.get(str(kind), BROKER_DEFINITIONS))


def suggest_settings(incomplete: str, definitions: Any) -> Suggestions:
    """Suggest keys with their documentation; after `key=` the values, if there are few."""
    key, equals, value = incomplete.partition("=")
    if not equals:
        return [
            (name, item.documentation) for name, item in definitions.items() if name.startswith(incomplete)
        ]
    definition = definitions.get(key)
    return [f"{key}={one}" for one in _values(definition) if one.startswith(value)] if definition else []


def _values(definition: Any) -> list[str]:
    from odradek.config.definition import ConfigType

    if definition.type is ConfigType.BOOLEAN:
        return ["true", "false"]
    # one_of() and each_one_of() name the allowed values when they reject another one
    reason = None
    if definition.validator is not None and definition.type in (ConfigType.STRING, ConfigType.LIST):
        reason = definition.validator("?" if definition.type is ConfigType.STRING else ("?",))
    prefix = "must be one of "
    return reason.removeprefix(prefix).split(", ") if reason and reason.startswith(prefix) else []
