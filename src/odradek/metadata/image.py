"""The cluster's metadata at one offset of the metadata log. Immutable.

Readers hold an image and need no lock; a writer makes the next one (`delta.py`), which shares everything unchanged with
its predecessor. A mapping in an image is never changed; `mapping.py` makes the next version of a large one.

Everything in an image must also be in its snapshot: a new field here needs a writer in `snapshot.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from odradek.acls.acl import Acl
from odradek.metadata.records import BrokerEndpoint, SupportedFeature
from odradek.security.credentials import SHA_512, ScramCredential

NO_LEADER = -1
NO_TIMESTAMP = -1
UNASSIGNED_DIRECTORY = UUID(int=0)
LOST_DIRECTORY = UUID(int=1)  # of a replica whose log is damaged, or whose broker came back without its disk
METADATA_VERSION_FEATURE = "metadata.version"


class ResourceType(IntEnum):
    """The kind of thing that a configuration belongs to."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    type: int
    name: str  # of a broker: its id, or empty for the default of all brokers


DEFAULT_BROKER = ConfigResource(ResourceType.BROKER, "")


class Partition(NamedTuple):
    leader: int  # NO_LEADER if there is none
    leader_epoch: int  # raised by every election
    partition_epoch: int  # raised by every change
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    directories: tuple[UUID, ...]  # of each replica
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = 0  # 1: the leader was elected uncleanly and has not recovered yet
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    def directory_of(self, replica: int) -> UUID:
        """The directory of this replica's log, if it is known."""
        if replica not in self.replicas or len(self.directories) != len(self.replicas):
            return UNASSIGNED_DIRECTORY
        return self.directories[self.replicas.index(replica)]

    def in_directory(self, replica: int, directory: UUID) -> Partition:
        """A copy with the log of a replica in another directory."""
        known = len(self.directories) == len(self.replicas)
        directories = self.directories if known else (UNASSIGNED_DIRECTORY,) * len(self.replicas)
        named = zip(self.replicas, directories, strict=True)
        return self._replace(directories=tuple(directory if who == replica else old for who, old in named))


def directory_for_new_logs(directories: Sequence[UUID]) -> UUID:
    """A broker with several directories chooses one itself, and reports it later."""
    return directories[0] if len(directories) == 1 else UNASSIGNED_DIRECTORY


class Topic(NamedTuple):
    name: str
    id: UUID
    partitions: Mapping[int, Partition]


class Broker(NamedTuple):
    id: int
    epoch: int
    incarnation_id: UUID
    endpoints: tuple[BrokerEndpoint, ...]
    rack: str | None
    is_fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[UUID, ...]
    features: tuple[SupportedFeature, ...] = ()
    cordoned: tuple[UUID, ...] | None = None  # directories that get no new logs; None: it has not said yet
    is_full: bool = (
        False  # its disk has no room: it leads, and is in sync, only where no other active replica is
    )

    @property
    def is_active(self) -> bool:
        """It may lead, and may get new replicas unless it is cordoned."""
        return not self.is_fenced and not self.in_controlled_shutdown

    @property
    def is_cordoned(self) -> bool:
        """It keeps what it has, and gets no new replicas (KIP-1066)."""
        return (
            bool(self.directories)
            and self.cordoned is not None
            and set(self.directories) <= set(self.cordoned)
        )

    def endpoint(self, listener_name: str) -> BrokerEndpoint | None:
        return next((item for item in self.endpoints if item.name == listener_name), None)


class Controller(NamedTuple):
    """A controller's registration."""

    id: int
    incarnation_id: UUID
    endpoints: tuple[BrokerEndpoint, ...]
    features: tuple[SupportedFeature, ...] = ()


def metric_name(topic_name: str) -> str:
    """Metrics write '.' as '_', so two topics with the same metric name must not exist."""
    return topic_name.replace(".", "_")


# A user, a client id, an address or a pair of them: (type, name) sorted, name None for the default.
QuotaKey = tuple[tuple[str, str | None], ...]


class ScramUser(NamedTuple):
    mechanism: int  # its code
    name: str


# A user whose stored key is random, so nobody can log in with it: it is the secret of the cluster's decoys
# (`security.decoys`), written with the first credential. Kafka has no record for such a thing.
DECOYS = ScramUser(SHA_512.code, "__decoys")


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """All that the metadata log says up to an offset. Immutable: the next one is another object."""

    cluster_id: str
    offset: int = -1  # of the last record that it includes
    epoch: int = -1  # of the controller that wrote it
    timestamp_ms: int = NO_TIMESTAMP  # when it was written
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)
    topics_by_id: Mapping[UUID, Topic] = field(default_factory=dict)
    # Topics with '.' or '_' in their names, by metric name: no others can collide.
    metric_names: Mapping[str, str] = field(default_factory=dict)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    quotas: Mapping[QuotaKey, Mapping[str, float]] = field(default_factory=dict)
    credentials: Mapping[ScramUser, ScramCredential] = field(default_factory=dict, repr=False)
    acls: Mapping[UUID, Acl] = field(default_factory=dict)
    acl_ids: Mapping[Acl, UUID] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    controllers: Mapping[int, Controller] = field(default_factory=dict)
    next_producer_id: int = 0

    def partition(self, topic_name: str, index: int) -> Partition | None:
        topic = self.topics.get(topic_name)
        return topic.partitions.get(index) if topic else None

    def topic_overrides(self, topic_name: str) -> Mapping[str, str]:
        """The topic's own settings."""
        return self.configs.get(ConfigResource(ResourceType.TOPIC, topic_name), {})

    def group_overrides(self, group_id: str) -> Mapping[str, str]:
        return self.configs.get(ConfigResource(ResourceType.GROUP, group_id), {})

    def broker_overrides(self, broker_id: int) -> Mapping[str, str]:
        """The dynamic settings of this broker; `default_broker_overrides` are those of all brokers."""
        return self.configs.get(ConfigResource(ResourceType.BROKER, str(broker_id)), {})

    @property
    def default_broker_overrides(self) -> Mapping[str, str]:
        return self.configs.get(DEFAULT_BROKER, {})

    def active_brokers(self) -> Iterable[Broker]:
        return (broker for broker in self.brokers.values() if broker.is_active)

    def full_brokers(self) -> frozenset[int]:
        """Return the brokers whose disks have no room."""
        return frozenset(broker.id for broker in self.brokers.values() if broker.is_full)
