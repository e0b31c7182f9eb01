"""Makes this broker's logs what the metadata says they should be.

The image is the plan: topics, their partitions, their settings. A delta of it is acted on here: logs are created and
deleted, settings handed to the logs they concern. At start the whole image is the delta.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from odradek.broker.clock import wall_clock_ms
from odradek.config.broker import BrokerConfig
from odradek.config.topic import log_config, topic_rules, topic_values
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import MetadataImage, ResourceType, Topic
from odradek.metadata.image import Partition as Registration
from odradek.model import NO_TOPIC_ID, TopicPartition
from odradek.replication.partition import Partition
from odradek.replication.replicas import Replicas
from odradek.storage.config import LogConfig
from odradek.storage.log import Log
from odradek.storage.store import LogStore

log = logging.getLogger(__name__)


class LocalPartitions:
    def __init__(self, node_id: int, store: LogStore, replicas: Replicas, config: BrokerConfig) -> None:
        self._node_id = node_id
        self._store = store
        self._replicas = replicas
        self.config = config
        self._incomplete: set[str] = set()  # topics that lack a log which they should have here
        self.on_removed: list[Callable[[Partition], None]] = []

    # --- at start ---

    def log_config_for(self, image: MetadataImage) -> Callable[[str], LogConfig]:
        """What the store opens the logs of a topic with."""
        return lambda topic: log_config(topic_values(image.topic_overrides(topic), self.config))

    def open_all(self, image: MetadataImage) -> None:
        self._delete_strays(image)
        for topic in image.topics.values():
            self._open_topic(image, topic)

    def _delete_strays(self, image: MetadataImage) -> None:
        """Logs of topics that were deleted, or deleted and created anew, while we were not looking."""
        strays = []
        for topic_partition, found in self._store.logs.items():
            topic = image.topics.get(topic_partition.topic)
            if (
                topic is None
                or not _is_of(found, topic.id)
                or topic_partition.partition not in topic.partitions
            ):
                log.warning("%s is of no topic that exists, its log is deleted", topic_partition)
                strays.append(topic_partition)
        if strays:
            self._store.delete(strays, wall_clock_ms())

    # --- changes ---

    def apply(self, delta: MetadataDelta) -> None:
        for topic in delta.deleted_topics:
            self._close_topic(topic)
        for topic in delta.created_topics:
            self._open_topic(delta.after, topic)
        for change in delta.changed_topics:
            if change.before.id != change.after.id:
                self._close_topic(change.before)
            self._open_topic(delta.after, change.after)
        for resource in delta.changed_configs:
            if resource.type == ResourceType.TOPIC and resource.name in delta.after.topics:
                topic = delta.after.topics[resource.name]
                self._configure(topic, self._values(delta.after, topic))

    def reconfigure(self, image: MetadataImage, config: BrokerConfig) -> None:
        """The broker's own settings changed: the defaults of every topic may have."""
        self.config = config
        for topic in image.topics.values():
            self._configure(topic, self._values(image, topic))

    def _open_topic(self, image: MetadataImage, topic: Topic) -> None:
        values = self._values(image, topic)
        settings = log_config(values)
        for index, registration in topic.partitions.items():
            if self._node_id not in registration.replicas:
                continue
            partition = self._replicas.find(topic.name, index)
            if partition is not None:
                partition.leader_epoch = registration.leader_epoch
                continue
            try:
                self._open(TopicPartition(topic.name, index), topic, registration, settings)
            except (OSError, KafkaError) as error:
                log.error("%s-%d cannot be opened, trying again: %s", topic.name, index, error)
                self._incomplete.add(topic.name)
        self._configure(topic, values)

    def complete(self, image: MetadataImage) -> None:
        """Try again what could not be opened: the disk may have room by now."""
        names, self._incomplete = self._incomplete, set()
        for name in names & image.topics.keys():
            self._open_topic(image, image.topics[name])

    def _open(
        self, topic_partition: TopicPartition, topic: Topic, registration: Registration, settings: LogConfig
    ) -> None:
        found = self._store.get(topic_partition)
        if found is None:
            found = self._store.create(topic_partition, topic.id, settings, wall_clock_ms())
        elif found.topic_id == NO_TOPIC_ID:
            self._store.set_topic_id(found, topic.id)
        self._replicas.add(Partition(topic_partition, topic.id, found, registration.leader_epoch))

    def _values(self, image: MetadataImage, topic: Topic) -> dict[str, Any]:
        return topic_values(image.topic_overrides(topic.name), self.config)

    def _configure(self, topic: Topic, values: Mapping[str, Any]) -> None:
        """One object of settings for all partitions of a topic."""
        settings = log_config(values)
        rules = topic_rules(values, self.config["log.validate.records"])
        for index in topic.partitions:
            partition = self._replicas.find(topic.name, index)
            if partition is None:
                continue
            if partition.log.config != settings:
                partition.log.config = settings
            partition.rules = rules
            partition.min_insync_replicas = values["min.insync.replicas"]
            partition.sync_commit = self.config["log.sync.commit"] or settings.flush_messages == 1

    def _close_topic(self, topic: Topic) -> None:
        closed = []
        for index in topic.partitions:
            partition = self._replicas.remove(TopicPartition(topic.name, index))
            if partition is None:
                continue
            partition.close(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            for told in self.on_removed:
                told(partition)
            closed.append(partition.topic_partition)
        self._store.delete(closed, wall_clock_ms())


def _is_of(found: Log, topic_id: UUID) -> bool:
    return found.topic_id in (topic_id, NO_TOPIC_ID)
