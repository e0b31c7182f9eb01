"""Makes this broker's logs what the metadata says they should be.

The image is the plan: topics, their partitions, their settings. A delta of it is acted on here: logs are created and
deleted, settings handed to the logs they concern. At start the whole image is the delta.

A topic exists once the metadata says so. Its logs are created afterwards, one in each turn of the event loop, or
when a request names one: whoever creates a thousand partitions does not wait for thousands of files, nor does
anybody else, and no request to a partition can tell.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from odradek.broker.clock import wall_clock_ms
from odradek.config.broker import BrokerConfig
from odradek.config.topic import log_config, topic_rules, topic_values
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import MetadataImage, ResourceType, Topic
from odradek.model import NO_TOPIC_ID, TopicPartition
from odradek.records.validation import TopicRules
from odradek.replication.partition import Partition
from odradek.replication.replicas import Replicas
from odradek.storage.config import LogConfig
from odradek.storage.log import Log
from odradek.storage.store import LogStore

log = logging.getLogger(__name__)


class TopicSettings(NamedTuple):
    """One object of each for all partitions of a topic."""

    log: LogConfig
    rules: TopicRules
    min_insync_replicas: int
    sync_commit: bool

    def apply(self, partition: Partition) -> None:
        if partition.log.config != self.log:
            partition.log.config = self.log
        partition.rules = self.rules
        partition.min_insync_replicas = self.min_insync_replicas
        partition.sync_commit = self.sync_commit


class Unopened(NamedTuple):
    """A partition that should be here, and is not yet."""

    topic_id: UUID
    leader_epoch: int


class LocalPartitions:
    def __init__(
        self,
        node_id: int,
        store: LogStore,
        replicas: Replicas,
        config: BrokerConfig,
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        self._node_id = node_id
        self._store = store
        self._replicas = replicas
        self._call_soon = call_soon
        self.config = config
        self._settings: dict[str, TopicSettings] = {}
        self._unopened: dict[TopicPartition, Unopened] = {}
        self._failed: dict[TopicPartition, Unopened] = {}  # could not be opened, and will be tried again
        self._is_scheduled = False  # the next one is about to be opened
        self.on_removed: list[Callable[[Partition], None]] = []
        replicas.open_missing = self._open_missing

    # --- at start ---

    def log_config_for(self, image: MetadataImage) -> Callable[[str], LogConfig]:
        """What the store opens the logs of a topic with."""
        return lambda topic: log_config(topic_values(image.topic_overrides(topic), self.config))

    def expected_in(self, image: MetadataImage) -> Callable[[TopicPartition, UUID], bool]:
        """Which logs the store opens. One without an id is taken for the topic's: a crash came before its first sync.
        All others are of topics that were deleted, and perhaps created again, just before a crash."""

        def is_expected(topic_partition: TopicPartition, topic_id: UUID) -> bool:
            topic = image.topics.get(topic_partition.topic)
            return (
                topic is not None
                and topic_id in (topic.id, NO_TOPIC_ID)
                and topic_partition.partition in topic.partitions
            )

        return is_expected

    def open_all(self, image: MetadataImage) -> None:
        for topic in image.topics.values():
            self._plan_topic(image, topic)
        for name in [name for name in self._unopened if name in self._store.logs]:
            self._open(name)
        self._open_soon()

    # --- changes ---

    def apply(self, delta: MetadataDelta) -> None:
        for topic in delta.deleted_topics:
            self._close_topic(topic)
        for topic in delta.created_topics:
            self._plan_topic(delta.after, topic)
        for change in delta.changed_topics:
            if change.before.id != change.after.id:
                self._close_topic(change.before)
            self._plan_topic(delta.after, change.after)
        for resource in delta.changed_configs:
            if resource.type == ResourceType.TOPIC and resource.name in delta.after.topics:
                self._configure(delta.after, delta.after.topics[resource.name])
        self._open_soon()

    def reconfigure(self, image: MetadataImage, config: BrokerConfig) -> None:
        """The broker's own settings changed: the defaults of every topic may have."""
        self.config = config
        for topic in image.topics.values():
            self._configure(image, topic)

    def _plan_topic(self, image: MetadataImage, topic: Topic) -> None:
        self._configure(image, topic)
        for index, registration in topic.partitions.items():
            if self._node_id not in registration.replicas:
                continue
            partition = self._replicas.opened(topic.name, index)
            if partition is not None:
                partition.become_leader(registration.leader_epoch)
            else:
                name = TopicPartition(topic.name, index)
                self._failed.pop(name, None)
                self._unopened[name] = Unopened(topic.id, registration.leader_epoch)

    def _configure(self, image: MetadataImage, topic: Topic) -> None:
        values = topic_values(image.topic_overrides(topic.name), self.config)
        log_settings = log_config(values)
        settings = self._settings[topic.name] = TopicSettings(
            log=log_settings,
            rules=topic_rules(values, self.config["log.validate.records"]),
            min_insync_replicas=values["min.insync.replicas"],
            sync_commit=self.config["log.sync.commit"] or log_settings.flush_messages == 1,
        )
        for index in topic.partitions:
            partition = self._replicas.opened(topic.name, index)
            if partition is not None:
                settings.apply(partition)

    # --- opening ---

    def _open_soon(self) -> None:
        if self._unopened and not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._open_next)

    def _open_next(self) -> None:
        self._is_scheduled = False
        if self._unopened:
            self._open(next(iter(self._unopened)))
            self._open_soon()

    def _open_missing(self, topic: str, index: int) -> Partition | None:
        """A request names a partition that is not open: it is, if it should be."""
        name = TopicPartition(topic, index)
        return self._open(name) if name in self._unopened else None

    def retry_failed(self) -> None:
        """Try again what could not be opened: the disk may have room by now."""
        self._unopened |= self._failed
        self._failed.clear()
        self._open_soon()

    def stop_opening(self) -> None:
        """What is not open yet will be created at the next start."""
        self._unopened.clear()

    def _open(self, name: TopicPartition) -> Partition | None:
        plan = self._unopened.pop(name)
        settings = self._settings[name.topic]
        try:
            opened = self._open_log(name, plan.topic_id, settings.log)
        except (OSError, KafkaError) as error:
            log.error("%s cannot be opened, trying again: %s", name, error)
            self._failed[name] = plan
            return None
        partition = Partition(name, plan.topic_id, opened, plan.leader_epoch)
        settings.apply(partition)
        self._replicas.add(partition)
        return partition

    def _open_log(self, name: TopicPartition, topic_id: UUID, settings: LogConfig) -> Log:
        found = self._store.get(name)
        if found is None:
            return self._store.create(name, topic_id, settings, wall_clock_ms())
        if found.topic_id == NO_TOPIC_ID:
            self._store.set_topic_id(found, topic_id)
        return found

    def _close_topic(self, topic: Topic) -> None:
        closed = []
        del self._settings[topic.name]
        for index in topic.partitions:
            name = TopicPartition(topic.name, index)
            self._unopened.pop(name, None)
            self._failed.pop(name, None)
            partition = self._replicas.remove(name)
            if partition is None:
                continue
            partition.close(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            for told in self.on_removed:
                told(partition)
            closed.append(partition.topic_partition)
        self._store.delete(closed, wall_clock_ms())
