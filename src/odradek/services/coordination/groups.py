"""The group coordinators of this broker, on the partitions of `__consumer_offsets` that it leads."""

import logging
from collections.abc import Callable
from dataclasses import fields
from uuid import UUID

from odradek.config.broker import BrokerConfig
from odradek.coordinators.consumer import plugin as consumer_groups
from odradek.coordinators.consumer.topics import TopicsNow
from odradek.coordinators.group import GroupSettings
from odradek.coordinators.groups import GroupCoordinator
from odradek.coordinators.offsets import EndTransaction
from odradek.coordinators.runner import Runner
from odradek.coordinators.runtime import Producer
from odradek.errors import ErrorCode
from odradek.metadata.delta import MetadataDelta
from odradek.model import OFFSETS_TOPIC
from odradek.services.coordination.creation import InternalTopic, factor_set
from odradek.services.coordination.shards import NO_VERSION, Shards
from odradek.serving import coordination
from odradek.serving.services import Services
from odradek.storage.producers.markers import Marker, TransactionEnd

log = logging.getLogger(__name__)

TYPES = (consumer_groups.plug_in,)  # the types of groups besides classic groups, which every coordinator has


class Groups(Shards[GroupCoordinator], coordination.Groups):
    def __init__(self, services: Services) -> None:
        super().__init__(services, offsets_topic(services.node.config), "group")
        self._topics = TopicsNow(services.cluster.image)
        self._settings = group_settings(services.node.config)
        self._open_shards()

    def _new_coordinator(self) -> GroupCoordinator:
        coordinator = GroupCoordinator(self._settings, self._services.node.rng)
        for plug_in in TYPES:
            plug_in(coordinator, self._topics)
        return coordinator

    def _before_loading(self, runner: Runner[GroupCoordinator]) -> None:
        runner.tell(self._forget_offsets_of_missing_topics)

    def end_transaction(self, index: int, end: TransactionEnd, done: Callable[[ErrorCode], None]) -> None:
        """Write the marker of a transaction that committed offsets to this partition."""
        shard = self._shard(index)
        if shard is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        event = EndTransaction(
            Producer(end.producer_id, end.producer_epoch),
            Marker(is_abort=not end.is_commit, coordinator_epoch=end.coordinator_epoch),
            end.transaction_version,
        )
        shard.runner.handle(event, NO_VERSION, self.caller, done)

    def _forget_offsets_of_missing_topics(self, coordinator: GroupCoordinator, now_ms: int) -> None:
        """The broker may have stopped after a topic was deleted, and perhaps created again, but before its offsets were
        removed."""

        def id_of(name: str) -> UUID | None:
            topic = self._services.cluster.image.topics.get(name)
            return topic.id if topic else None

        coordinator.forget_missing_topics(id_of, now_ms)

    def metadata_changed(self, delta: MetadataDelta) -> None:
        self._topics.publish(delta)
        super().metadata_changed(delta)
        deleted = {topic.name for topic in delta.deleted_topics}
        for shard in list(self._shards.values()) if deleted else ():
            try:
                shard.runner.tell(lambda coordinator, now_ms: coordinator.topics_deleted(deleted, now_ms))
            except Exception:
                log.exception(
                    "%s: cannot remove the offsets of deleted topics: this is a bug",
                    shard.replica.topic_partition,
                )


def offsets_topic(config: BrokerConfig) -> InternalTopic:
    return InternalTopic(
        OFFSETS_TOPIC,
        config["offsets.topic.num.partitions"],
        factor_set(config, "offsets.topic.replication.factor"),
        {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config["offsets.topic.segment.bytes"]),
        },
    )


def group_settings(config: BrokerConfig) -> GroupSettings:
    """The fields have Kafka's names, with underscores for dots."""
    return GroupSettings(
        **{field.name: config[field.name.replace("_", ".")] for field in fields(GroupSettings)}
    )
