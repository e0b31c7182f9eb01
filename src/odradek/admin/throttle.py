"""Throttles of replication, as Kafka's reassignment tool sets them.

    leader.replication.throttled.rate, follower.replication.throttled.rate            of each broker that takes part
    leader.replication.throttled.replicas, follower.replication.throttled.replicas    of each topic that moves

Leaders throttle what they send from the replicas that a partition has, followers what they fetch for those that it
gets. So replication that has nothing to do with the move keeps its speed. Brokers go on throttling until the settings
are removed: a topic's other replicas would be slow for good.
"""

from collections.abc import Iterable, Mapping

from odradek.admin.access import Access
from odradek.admin.failures import check
from odradek.admin.layout import ClusterState
from odradek.admin.reassignment_plan import Move
from odradek.admin.requests import ask_any
from odradek.admin.resources import RESOURCE_CODES, Kind
from odradek.admin.settings import DELETE_CONFIG, SET_CONFIG, describe_configs
from odradek.config.definition import ConfigSource
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
OWN_SOURCES = (ConfigSource.DYNAMIC_BROKER_CONFIG, ConfigSource.DYNAMIC_TOPIC_CONFIG)

Resource = tuple[Kind, str]
Settings = Mapping[Resource, Mapping[str, str | None]]


def throttle(moves: Iterable[Move], bytes_per_second: int) -> Settings:
    """The settings that slow these moves down."""
    settings: dict[Resource, dict[str, str | None]] = {}
    replicas: dict[tuple[str, str], list[str]] = {}
    for move in moves:
        if not move.added:
            continue
        topic, partition = move.place
        replicas.setdefault((topic, LEADERS), []).extend(f"{partition}:{one}" for one in move.before)
        replicas.setdefault((topic, FOLLOWERS), []).extend(f"{partition}:{one}" for one in move.added)
        for broker in (*move.before, *move.added):
            settings[Kind.BROKER, str(broker)] = dict.fromkeys(RATES, str(bytes_per_second))
    for (topic, key), named in replicas.items():
        settings.setdefault((Kind.TOPIC, topic), {})[key] = ",".join(named)
    return settings


def without(settings: Settings) -> Settings:
    """The same settings, removed."""
    return {resource: dict.fromkeys(values) for resource, values in settings.items()}


def find_throttles(cluster: Access, state: ClusterState) -> Settings:
    """Find the throttles that are set now."""
    address = next(state.brokers[one].address for one in state.active)
    found: dict[Resource, dict[str, str | None]] = {}

    def look(kind: Kind, names: Iterable[str], keys: tuple[str, ...]) -> None:
        for result in describe_configs(cluster, address, RESOURCE_CODES[kind], names, keys):
            own = {one.name: one.value for one in result.configs if one.config_source in OWN_SOURCES}
            if own:
                found[kind, result.resource_name] = own

    for broker in state.active:  # each knows its own settings
        address = state.brokers[broker].address
        look(Kind.BROKER, [str(broker)], RATES)
    look(Kind.TOPIC, state.topics(), (LEADERS, FOLLOWERS))
    return found


def apply(cluster: Access, settings: Settings) -> None:
    resources = [
        AlterConfigsResource(
            RESOURCE_CODES[kind],
            name,
            [
                AlterableConfig(key, DELETE_CONFIG if value is None else SET_CONFIG, value)
                for key, value in values.items()
            ],
        )
        for (kind, name), values in settings.items()
    ]
    if not resources:
        return
    response = ask_any(cluster, IncrementalAlterConfigsRequest(resources), IncrementalAlterConfigsResponse)
    for one in response.responses:
        check(one.error_code, one.error_message, one.resource_name)
