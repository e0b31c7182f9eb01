"""Applies records to an image: the next image, and the delta between the two.

`ImageBuilder` collects the changes to each mapping and applies them together (see `mapping.py`), so a record costs what
it changes, however large the image is. Records are facts that a controller has decided. One that does not fit the image
shows that log and image have diverged: that is a bug or damage, and never passes silently.

The delta names what differs between the two images. It does not name a topic that was created and deleted in between,
or a key that was set to its old value.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

from odradek.acls.acl import Acl
from odradek.metadata import records as r
from odradek.metadata.image import (
    NO_TIMESTAMP,
    Broker,
    ConfigResource,
    Controller,
    MetadataImage,
    Partition,
    QuotaKey,
    ResourceType,
    ScramUser,
    Topic,
    metric_name,
)
from odradek.metadata.mapping import GONE, Gone, with_changes
from odradek.security.credentials import ScramCredential

K = TypeVar("K")
V = TypeVar("V")


class MetadataCorrupt(Exception):
    """A record contradicts the records before it."""


class TopicChange(NamedTuple):
    before: Topic
    after: Topic
    indexes: tuple[int, ...]  # of the partitions that are new or changed; partitions are never removed

    def changed_partitions(self) -> dict[int, Partition]:
        """The new or changed partitions, as they are now."""
        return {index: self.after.partitions[index] for index in self.indexes}


class MetadataDelta(NamedTuple):
    """Two images, and what is different."""

    before: MetadataImage
    after: MetadataImage
    created_topics: tuple[Topic, ...]
    changed_topics: tuple[TopicChange, ...]
    deleted_topics: tuple[Topic, ...]
    changed_brokers: frozenset[int]  # registered, changed or unregistered
    changed_configs: frozenset[ConfigResource]
    changed_quotas: frozenset[QuotaKey]
    changed_features: frozenset[str]
    # The ids of all topics that were removed, also of those that were created in between.
    removed_topic_ids: frozenset[UUID] = frozenset()
    changed_acls: frozenset[UUID] = frozenset()  # created or removed


def apply_records(
    image: MetadataImage,
    records: Iterable[r.MetadataRecord],
    offset: int,
    epoch: int,
    timestamp_ms: int = NO_TIMESTAMP,
) -> tuple[MetadataImage, MetadataDelta]:
    """The image after these records, the last of which is at `offset`, and what they changed."""
    builder = ImageBuilder(image)
    for record in records:
        builder.replay(record)
    return builder.finish(offset, epoch, timestamp_ms)


def difference(before: MetadataImage, after: MetadataImage) -> MetadataDelta:
    """The delta between any two images, as when a snapshot replaces the log. It compares everything in both."""
    deleted = tuple(topic for key, topic in before.topics_by_id.items() if key not in after.topics_by_id)
    return MetadataDelta(
        before=before,
        after=after,
        created_topics=tuple(
            topic for key, topic in after.topics_by_id.items() if key not in before.topics_by_id
        ),
        changed_topics=tuple(_changed_topics(before, after)),
        deleted_topics=deleted,
        changed_brokers=_changed_keys(before.brokers, after.brokers),
        changed_configs=_changed_keys(before.configs, after.configs),
        changed_quotas=_changed_keys(before.quotas, after.quotas),
        changed_features=_changed_keys(before.features, after.features),
        removed_topic_ids=frozenset(topic.id for topic in deleted),
        changed_acls=_changed_keys(before.acls, after.acls),
    )


def _changed_topics(before: MetadataImage, after: MetadataImage) -> Iterator[TopicChange]:
    for key, topic in after.topics_by_id.items():
        earlier = before.topics_by_id.get(key)
        if earlier is not None and earlier is not topic:
            changed = sorted(_changed_keys(earlier.partitions, topic.partitions))
            if changed:
                yield TopicChange(earlier, topic, tuple(changed))


def _changed_keys(before: Mapping[K, V], after: Mapping[K, V]) -> frozenset[K]:
    return frozenset(key for key in {**before, **after} if before.get(key) != after.get(key))


class _Draft(Generic[K, V]):
    """A mapping and its changes, in the order in which keys were first touched."""

    def __init__(self, before: Mapping[K, V]) -> None:
        self._before = before
        self._changes: dict[K, V | Gone] = {}

    def get(self, key: K) -> V | None:
        value = self._changes.get(key)
        if value is None:
            return self._before.get(key)
        return None if value is GONE else value

    def put(self, key: K, value: V) -> None:
        self._changes[key] = value

    def remove(self, key: K) -> None:
        if self.get(key) is not None:
            self._changes[key] = GONE

    def finish(self) -> Mapping[K, V]:
        return with_changes(self._before, self._changes)

    def touched_keys(self) -> list[K]:
        return list(self._changes)

    def changed_keys(self) -> list[K]:
        return [key for key in self._changes if self._before.get(key) != self.get(key)]


def _set_key(draft: _Draft[K, Mapping[str, V]], owner: K, key: str, value: V | None) -> None:
    """Set or remove one of the owner's keys; an owner without keys is not kept."""
    settings = dict(draft.get(owner) or {})
    if value is None:
        settings.pop(key, None)
    else:
        settings[key] = value
    if settings:
        draft.put(owner, settings)
    else:
        draft.remove(owner)


class ImageBuilder:
    def __init__(self, image: MetadataImage) -> None:
        self._before = image
        self._brokers = _Draft(image.brokers)
        self._topics = _Draft(image.topics_by_id)
        self._names = _Draft(image.topics)
        self._metric_names = _Draft(image.metric_names)
        self._configs = _Draft(image.configs)
        self._quotas = _Draft(image.quotas)
        self._credentials = _Draft(image.credentials)
        self._acls = _Draft(image.acls)
        self._acl_ids = _Draft(image.acl_ids)
        self._features = _Draft(image.features)
        self._controllers = _Draft(image.controllers)
        self._partitions: dict[UUID, _Draft[int, Partition]] = {}  # of topics that change here
        self._next_producer_id = image.next_producer_id

    def replay(self, record: r.MetadataRecord) -> None:
        _REPLAY[type(record)](self, record)

    def finish(self, offset: int, epoch: int, timestamp_ms: int) -> tuple[MetadataImage, MetadataDelta]:
        changed_partitions = self._finish_topics()
        after = replace(
            self._before,
            offset=offset,
            epoch=epoch,
            timestamp_ms=timestamp_ms,
            brokers=self._brokers.finish(),
            topics=self._names.finish(),
            topics_by_id=self._topics.finish(),
            metric_names=self._metric_names.finish(),
            configs=self._configs.finish(),
            quotas=self._quotas.finish(),
            credentials=self._credentials.finish(),
            acls=self._acls.finish(),
            acl_ids=self._acl_ids.finish(),
            features=self._features.finish(),
            controllers=self._controllers.finish(),
            next_producer_id=self._next_producer_id,
        )
        return after, self._delta(after, changed_partitions)

    def _finish_topics(self) -> dict[UUID, tuple[int, ...]]:
        """Put the changed partitions into their topics. Returns their indexes, by topic."""
        changed_partitions = {}
        for topic_id, partitions in self._partitions.items():
            changed = partitions.changed_keys()
            if changed:
                changed_partitions[topic_id] = tuple(changed)
                self._put_topic(self._topic(topic_id)._replace(partitions=partitions.finish()))
        return changed_partitions

    def _delta(
        self, after: MetadataImage, changed_partitions: Mapping[UUID, tuple[int, ...]]
    ) -> MetadataDelta:
        """Without comparing topics, which would cost as much as they have partitions."""
        before = self._before.topics_by_id
        touched = self._topics.touched_keys()
        return MetadataDelta(
            before=self._before,
            after=after,
            created_topics=tuple(
                after.topics_by_id[key] for key in touched if key not in before and key in after.topics_by_id
            ),
            changed_topics=tuple(
                TopicChange(before[key], after.topics_by_id[key], indexes)
                for key, indexes in changed_partitions.items()
                if key in before
            ),
            deleted_topics=tuple(
                before[key] for key in touched if key in before and key not in after.topics_by_id
            ),
            changed_brokers=frozenset(self._brokers.changed_keys()),
            changed_configs=frozenset(self._configs.changed_keys()),
            changed_quotas=frozenset(self._quotas.changed_keys()),
            changed_features=frozenset(self._features.changed_keys()),
            removed_topic_ids=frozenset(key for key in touched if key not in after.topics_by_id),
            changed_acls=frozenset(self._acls.changed_keys()),
        )

    # Topics and partitions

    def _put_topic(self, topic: Topic) -> None:
        self._topics.put(topic.id, topic)
        self._names.put(topic.name, topic)

    def _replay_topic(self, record: r.TopicRecord) -> None:
        if self._names.get(record.name) is not None or self._topics.get(record.topic_id) is not None:
            raise MetadataCorrupt(f"topic {record.name} ({record.topic_id}) is created a second time")
        self._put_topic(Topic(record.name, record.topic_id, {}))
        if "." in record.name or "_" in record.name:
            self._metric_names.put(metric_name(record.name), record.name)

    def _replay_remove_topic(self, record: r.RemoveTopicRecord) -> None:
        topic = self._topic(record.topic_id)
        self._topics.remove(topic.id)
        self._names.remove(topic.name)
        self._metric_names.remove(metric_name(topic.name))
        self._configs.remove(ConfigResource(ResourceType.TOPIC, topic.name))
        self._partitions.pop(topic.id, None)

    def _replay_partition(self, record: r.PartitionRecord) -> None:
        partition = Partition(
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            isr=tuple(record.isr),
            replicas=tuple(record.replicas),
            directories=tuple(record.directories),
            adding_replicas=tuple(record.adding_replicas),
            removing_replicas=tuple(record.removing_replicas),
            leader_recovery_state=record.leader_recovery_state,
            eligible_leader_replicas=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
        )
        self._partitions_of(record.topic_id).put(record.partition_id, partition)

    def _replay_partition_change(self, record: r.PartitionChangeRecord) -> None:
        partitions = self._partitions_of(record.topic_id)
        partition = partitions.get(record.partition_id)
        if partition is None:
            raise MetadataCorrupt(f"there is no partition {record.partition_id} of {record.topic_id}")
        changes: dict[str, Any] = {"partition_epoch": partition.partition_epoch + 1}
        for name in CHANGEABLE_LISTS:
            value = getattr(record, name)
            if value is not None:
                changes[name] = tuple(value)
        if record.leader != r.NO_LEADER_CHANGE:
            changes["leader"] = record.leader
            changes["leader_epoch"] = partition.leader_epoch + 1
        if record.leader_recovery_state != -1:
            changes["leader_recovery_state"] = record.leader_recovery_state
        partitions.put(record.partition_id, partition._replace(**changes))

    def _topic(self, topic_id: UUID) -> Topic:
        topic = self._topics.get(topic_id)
        if topic is None:
            raise MetadataCorrupt(f"there is no topic {topic_id}")
        return topic

    def _partitions_of(self, topic_id: UUID) -> _Draft[int, Partition]:
        partitions = self._partitions.get(topic_id)
        if partitions is None:
            partitions = self._partitions[topic_id] = _Draft(self._topic(topic_id).partitions)
        return partitions

    # Brokers

    def _replay_register_broker(self, record: r.RegisterBrokerRecord) -> None:
        broker = Broker(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=tuple(record.end_points),
            rack=record.rack,
            is_fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            directories=tuple(record.log_dirs),
            features=tuple(record.features),
            cordoned=None if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
            is_full=record.is_full,
        )
        self._brokers.put(broker.id, broker)

    def _replay_unregister_broker(self, record: r.UnregisterBrokerRecord) -> None:
        self._broker(record.broker_id, record.broker_epoch)
        self._brokers.remove(record.broker_id)

    def _replay_fence_broker(self, record: r.FenceBrokerRecord) -> None:
        self._brokers.put(record.id, self._broker(record.id, record.epoch)._replace(is_fenced=True))

    def _replay_unfence_broker(self, record: r.UnfenceBrokerRecord) -> None:
        self._brokers.put(record.id, self._broker(record.id, record.epoch)._replace(is_fenced=False))

    def _replay_broker_change(self, record: r.BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record.broker_id, record.broker_epoch)
        if record.fenced:
            broker = broker._replace(is_fenced=record.fenced == 1)
        if record.in_controlled_shutdown:
            broker = broker._replace(in_controlled_shutdown=True)
        if record.log_dirs:
            broker = broker._replace(directories=tuple(record.log_dirs))
        if record.cordoned_log_dirs is not None:
            broker = broker._replace(cordoned=tuple(record.cordoned_log_dirs))
        if record.full:
            broker = broker._replace(is_full=record.full == 1)
        self._brokers.put(broker.id, broker)

    def _replay_register_controller(self, record: r.RegisterControllerRecord) -> None:
        controller = Controller(
            id=record.controller_id,
            incarnation_id=record.incarnation_id,
            endpoints=tuple(record.end_points),
            features=tuple(record.features),
        )
        self._controllers.put(controller.id, controller)

    def _broker(self, broker_id: int, epoch: int) -> Broker:
        broker = self._brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            raise MetadataCorrupt(f"there is no broker {broker_id} of epoch {epoch}")
        return broker

    # All else

    def _replay_config(self, record: r.ConfigRecord) -> None:
        resource = ConfigResource(record.resource_type, record.resource_name)
        _set_key(self._configs, resource, record.name, record.value)

    def _replay_client_quota(self, record: r.ClientQuotaRecord) -> None:
        entity = tuple(sorted((item.entity_type, item.entity_name) for item in record.entity))
        _set_key(self._quotas, entity, record.key, None if record.remove else record.value)

    def _replay_credential(self, record: r.UserScramCredentialRecord) -> None:
        credential = ScramCredential(record.salt, record.stored_key, record.server_key, record.iterations)
        self._credentials.put(ScramUser(record.mechanism, record.name), credential)

    def _replay_remove_credential(self, record: r.RemoveUserScramCredentialRecord) -> None:
        user = ScramUser(record.mechanism, record.name)
        if self._credentials.get(user) is None:
            raise MetadataCorrupt(f"there is no SCRAM credential of {record.name!r} to remove")
        self._credentials.remove(user)

    def _replay_feature_level(self, record: r.FeatureLevelRecord) -> None:
        if record.feature_level == 0:
            self._features.remove(record.name)
        else:
            self._features.put(record.name, record.feature_level)

    def _replay_acl(self, record: r.AccessControlEntryRecord) -> None:
        acl = acl_of(record)
        self._acls.put(record.id, acl)
        self._acl_ids.put(acl, record.id)

    def _replay_remove_acl(self, record: r.RemoveAccessControlEntryRecord) -> None:
        acl = self._acls.get(record.id)
        if acl is None:
            raise MetadataCorrupt(f"there is no ACL {record.id}")
        self._acls.remove(record.id)
        self._acl_ids.remove(acl)

    def _replay_producer_ids(self, record: r.ProducerIdsRecord) -> None:
        if record.next_producer_id <= self._next_producer_id:
            raise MetadataCorrupt(f"producer ids from {record.next_producer_id} on were already allocated")
        self._next_producer_id = record.next_producer_id

    def _replay_nothing(self, record: r.MetadataRecord) -> None:
        """A record that does not change the image."""


def acl_of(record: r.AccessControlEntryRecord) -> Acl:
    return Acl(
        record.resource_type,
        record.resource_name,
        record.pattern_type,
        record.principal,
        record.host,
        record.operation,
        record.permission_type,
    )


CHANGEABLE_LISTS = (
    "isr",
    "replicas",
    "adding_replicas",
    "removing_replicas",
    "directories",
    "eligible_leader_replicas",
    "last_known_elr",
)

# Readers of the log handle transactions, so only records that are in effect arrive here.
_REPLAY: dict[type[r.MetadataRecord], Callable[[ImageBuilder, Any], None]] = {
    r.RegisterBrokerRecord: ImageBuilder._replay_register_broker,
    r.UnregisterBrokerRecord: ImageBuilder._replay_unregister_broker,
    r.TopicRecord: ImageBuilder._replay_topic,
    r.PartitionRecord: ImageBuilder._replay_partition,
    r.ConfigRecord: ImageBuilder._replay_config,
    r.PartitionChangeRecord: ImageBuilder._replay_partition_change,
    r.FenceBrokerRecord: ImageBuilder._replay_fence_broker,
    r.UnfenceBrokerRecord: ImageBuilder._replay_unfence_broker,
    r.RemoveTopicRecord: ImageBuilder._replay_remove_topic,
    r.FeatureLevelRecord: ImageBuilder._replay_feature_level,
    r.UserScramCredentialRecord: ImageBuilder._replay_credential,
    r.RemoveUserScramCredentialRecord: ImageBuilder._replay_remove_credential,
    r.ClientQuotaRecord: ImageBuilder._replay_client_quota,
    r.ProducerIdsRecord: ImageBuilder._replay_producer_ids,
    r.BrokerRegistrationChangeRecord: ImageBuilder._replay_broker_change,
    r.RegisterControllerRecord: ImageBuilder._replay_register_controller,
    r.AccessControlEntryRecord: ImageBuilder._replay_acl,
    r.RemoveAccessControlEntryRecord: ImageBuilder._replay_remove_acl,
    r.NoOpRecord: ImageBuilder._replay_nothing,
    r.BeginTransactionRecord: ImageBuilder._replay_nothing,
    r.EndTransactionRecord: ImageBuilder._replay_nothing,
    r.AbortTransactionRecord: ImageBuilder._replay_nothing,
}
