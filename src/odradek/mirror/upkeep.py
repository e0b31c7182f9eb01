"""The target's topics kept in step with the source's: created, given more partitions, their settings changed.

A copy has the settings that its source's topic has of its own, without those that say something about a cluster (how
many replicas must be in sync, which are throttled) or about the time of writing: a record is copied later than it was
written, and keeps its time. Settings that the user has named (`own_settings`) are the copy's own.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from odradek.admin.access import Access
from odradek.admin.failures import AdminError, Refused
from odradek.admin.metadata import Metadata, metadata
from odradek.admin.resources import RESOURCE_CODES, Kind
from odradek.admin.settings import alter_resource, ask_for_configs
from odradek.admin.topics import NewTopic, add_partitions, create_topics
from odradek.config.definition import ConfigSource
from odradek.errors import ErrorCode
from odradek.mirror.file import MirrorSettings
from odradek.mirror.names import topics_to_copy
from odradek.mirror.rights import explained
from odradek.model import TopicPartition
from odradek.wire.messages.describe_configs import DescribeConfigsResult

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
    """The changes that the target needs, by the names of copies."""

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


@dataclass(frozen=True)
class Look:
    """One look at the topics: what to copy, and what to change on the target. `problems` are sentences about topics
    that are left alone.
    """

    partitions: Mapping[str, int]  # of each topic of the source
    changes: Changes
    problems: list[str]


def all_partitions(topics: Mapping[str, int]) -> list[TopicPartition]:
    return [TopicPartition(name, number) for name, count in topics.items() for number in range(count)]


class Upkeep:
    """Looks at both clusters, and changes the target. `problems` are what it could not do at the last look."""

    def __init__(self, settings: MirrorSettings, source: Access, target: Access) -> None:
        self._settings, self._source, self._target = settings, source, target
        self.problems: list[str] = []

    def look(self) -> Look:
        """At both clusters. Raises AdminError if they are the same one: copies of copies would have no end."""
        source, target = metadata(self._source), metadata(self._target)
        self._check_different(source, target)
        direction, problems = self._settings.direction, list[str]()
        chosen = topics_to_copy(direction, self._settings.topics, source.topics)
        found = _facts(
            self._source, source, chosen, f"DESCRIBE_CONFIGS on the topic at {direction.source}", problems
        )
        there = [copy for name in found if (copy := direction.copy_of(name)) in target.topics]
        present = _facts(
            self._target, target, there, f"ALTER_CONFIGS on the topic at {direction.target}", problems
        )
        unknown = set(there) - set(present)
        wanted = {direction.copy_of(name): facts for name, facts in found.items()}
        known = {name: facts for name, facts in wanted.items() if name not in unknown}
        return Look(
            {name: len(source.topics[name].partitions) for name in chosen},
            needed(known, present, self._settings.own_settings),
            problems,
        )

    def topics(self) -> dict[str, int]:
        """The source's topics that are copied, with their partitions."""
        found = metadata(self._source).topics
        chosen = topics_to_copy(self._settings.direction, self._settings.topics, found)
        return {name: len(found[name].partitions) for name in chosen}

    def _check_different(self, source: Metadata, target: Metadata) -> None:
        if source.cluster_id is not None and source.cluster_id == target.cluster_id:
            names = self._settings.direction
            raise AdminError(
                f"{names.source} and {names.target} are the same cluster, {source.cluster_id}: a mirror needs two. "
                "Check their bootstrap.servers"
            )

    def missing(self, existing: Collection[str]) -> list[str]:
        """Topics that the file names, and the source does not have."""
        return sorted(set(self._settings.topics.names) - set(existing))

    def missing_told(self, existing: Collection[str]) -> list[str]:
        source = self._settings.source.name
        return [
            f"{source} has no topic {name} yet, or this user has no right to DESCRIBE it"
            for name in self.missing(existing)
        ]

    def keep_in_step(self) -> list[TopicPartition]:
        """All partitions to copy."""
        look = self.look()
        self.problems = [
            *self.missing_told(look.partitions),
            *look.problems,
            *self.carry_out(look.changes),
        ]
        return all_partitions(look.partitions)

    def carry_out(self, changes: Changes) -> list[str]:
        """Make the changes, and return what could not be done."""
        problems: list[str] = []
        factor = self._settings.replication_factor
        for name, facts in changes.create.items():
            new = NewTopic(name, facts.partitions, factor, facts.settings)
            outcome = create_topics(self._target, [new])[name]
            if outcome is not None:
                problems.append(f"cannot create {self._needs('CREATE', outcome)}")
        for name, count in changes.grow.items():
            try:
                add_partitions(self._target, name, count)
            except AdminError as error:
                problems.append(f"cannot add partitions to {self._needs('ALTER', error)}")
        for name, changed in changes.alter.items():
            try:
                alter_resource(self._target, Kind.TOPIC, name, changed)
            except AdminError as error:
                why = self._needs("ALTER_CONFIGS", error)
                problems.append(f"cannot change settings of {name}: {why}")
        return problems

    def _needs(self, operation: str, error: AdminError) -> str:
        if not isinstance(error, Refused):
            return str(error)
        return explained(error, f"{operation} on the topic at {self._settings.target.name}")


def _facts(
    cluster: Access, found: Metadata, names: list[str], right: str, problems: list[str]
) -> dict[str, TopicFacts]:
    """Return the facts of the topics whose settings can be read. Topics that were deleted meanwhile are left out."""
    if not names:
        return {}
    address = next(iter(found.brokers.values())).address
    facts: dict[str, TopicFacts] = {}
    for result in ask_for_configs(cluster, address, RESOURCE_CODES[Kind.TOPIC], names, [], is_brief=True):
        name, code = result.resource_name, ErrorCode(result.error_code)
        if code is ErrorCode.NONE:
            facts[name] = TopicFacts(len(found.topics[name].partitions), _own(result))
        elif code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            why = explained(Refused(code, None, name), right)
            problems.append(f"cannot read the settings of {why}")
    return facts


def _own(result: DescribeConfigsResult) -> dict[str, str]:
    """The settings that the topic has of its own."""
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG
    return {one.name: one.value or "" for one in result.configs if one.config_source == own}
