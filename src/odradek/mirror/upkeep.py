"""The target's topics kept in step with the source's: created, given more partitions, their settings changed.

A copy has the settings that its source's topic has of its own, without those that say something about a cluster (how
many replicas must be in sync, which are throttled) or about the time of writing: a record is copied later than it was
written, and keeps its time. Settings that the user has named (`own_settings`) are the copy's own.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from odradek.admin.access import Access
from odradek.admin.failures import AdminError
from odradek.admin.metadata import Metadata, metadata
from odradek.admin.resources import RESOURCE_CODES, Kind
from odradek.admin.settings import alter_resource, describe_configs
from odradek.admin.topics import NewTopic, add_partitions, create_topics
from odradek.config.definition import ConfigSource
from odradek.mirror.file import MirrorSettings
from odradek.mirror.names import topics_to_copy
from odradek.model import TopicPartition

NOT_COPIED = frozenset(
    {
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
        "min.insync.replicas",
        "unclean.leader.election.enable",
        "message.timestamp.type",
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "remote.storage.enable",
        "local.retention.ms",
        "local.retention.bytes",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
    }
)


@dataclass(frozen=True)
class TopicFacts:
    partitions: int
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Changes:
    """What the target needs. By the names of copies."""

    create: Mapping[str, TopicFacts] = field(default_factory=dict)
    grow: Mapping[str, int] = field(default_factory=dict)
    alter: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.create or self.grow or self.alter)

    def told(self) -> list[str]:
        """A sentence each."""
        created = [
            f"create {name} with {_partitions(facts.partitions)}" for name, facts in self.create.items()
        ]
        grown = [f"give {name} {_partitions(count)}" for name, count in self.grow.items()]
        altered = [
            f"set {key}={value} of {name}" if value is not None else f"reset {key} of {name}"
            for name, changes in self.alter.items()
            for key, value in changes.items()
        ]
        return [*created, *grown, *altered]


def _partitions(count: int) -> str:
    return f"{count} partition{'' if count == 1 else 's'}"


def needed(
    wanted: Mapping[str, TopicFacts], present: Mapping[str, TopicFacts], own_settings: Collection[str]
) -> Changes:
    """Copies that have more partitions than their source keep them."""
    left_alone = NOT_COPIED | set(own_settings)
    copied = {
        name: {key: value for key, value in facts.settings.items() if key not in left_alone}
        for name, facts in wanted.items()
    }
    there = [name for name in wanted if name in present]
    return Changes(
        {
            name: TopicFacts(facts.partitions, copied[name])
            for name, facts in wanted.items()
            if name not in present
        },
        {
            name: wanted[name].partitions
            for name in there
            if wanted[name].partitions > present[name].partitions
        },
        {
            name: changes
            for name in there
            if (changes := _changes(copied[name], present[name].settings, left_alone))
        },
    )


def _changes(
    wanted: Mapping[str, str], present: Mapping[str, str], left_alone: Collection[str]
) -> dict[str, str | None]:
    changed: dict[str, str | None] = {
        key: value for key, value in sorted(wanted.items()) if present.get(key) != value
    }
    gone = sorted(key for key in present if key not in wanted and key not in left_alone)
    return changed | dict.fromkeys(gone)


class Upkeep:
    """Looks at both clusters, and changes the target. `problems` are what it could not do at the last look."""

    def __init__(self, settings: MirrorSettings, source: Access, target: Access) -> None:
        self._settings, self._source, self._target = settings, source, target
        self.problems: list[str] = []

    def look(self) -> tuple[dict[str, int], Changes]:
        """The source's topics that are copied, with their partitions; and what the target needs."""
        source, target = metadata(self._source), metadata(self._target)
        names = topics_to_copy(self._settings.direction, self._settings.topics, source.topics)
        copy_of = self._settings.direction.copy_of
        found = _facts(self._source, source, names)
        present = _facts(
            self._target, target, [copy_of(one) for one in names if copy_of(one) in target.topics]
        )
        wanted = {copy_of(name): facts for name, facts in found.items()}
        changes = needed(wanted, present, self._settings.own_settings)
        return {name: facts.partitions for name, facts in found.items()}, changes

    def missing(self, existing: Collection[str]) -> list[str]:
        """Topics that the file names, and the source does not have."""
        return sorted(set(self._settings.topics.names) - set(existing))

    def keep_in_step(self) -> list[TopicPartition]:
        """All partitions to copy."""
        topics, changes = self.look()
        self.problems = [
            *(f"{name}: the source has no such topic yet" for name in self.missing(topics)),
            *self.carry_out(changes),
        ]
        return [TopicPartition(name, number) for name, count in topics.items() for number in range(count)]

    def carry_out(self, changes: Changes) -> list[str]:
        """What could not be done; the rest is."""
        problems: list[str] = []
        factor = self._settings.replication_factor
        for name, facts in changes.create.items():
            new = NewTopic(name, facts.partitions, factor, facts.settings)
            outcome = create_topics(self._target, [new])[name]
            if outcome is not None:
                problems.append(f"cannot create {outcome}")
        for name, count in changes.grow.items():
            try:
                add_partitions(self._target, name, count)
            except AdminError as error:
                problems.append(f"cannot add partitions to {error}")
        for name, changed in changes.alter.items():
            try:
                alter_resource(self._target, Kind.TOPIC, name, changed)
            except AdminError as error:
                problems.append(f"cannot change settings of {name}: {error}")
        return problems


def _facts(cluster: Access, found: Metadata, names: list[str]) -> dict[str, TopicFacts]:
    if not names:
        return {}
    address = next(iter(found.brokers.values())).address
    settings = {
        result.resource_name: {
            one.name: one.value or ""
            for one in result.configs
            if one.config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG
        }
        for result in describe_configs(cluster, address, RESOURCE_CODES[Kind.TOPIC], names, [], is_brief=True)
    }
    return {name: TopicFacts(len(found.topics[name].partitions), settings.get(name, {})) for name in names}
