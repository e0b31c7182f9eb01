"""Gives this broker the logs and roles that the metadata names.

The image is the plan: topics, their partitions, their settings. For every delta, logs are created and deleted here, and
settings are handed to the logs they concern. At start the whole image is the delta.

A delta says where to look, and the image what should be there, so acting on the same delta twice changes nothing.
Nothing here can fail the request that changed the metadata, which is committed by then. What cannot be done now (on a
full disk, say) is tried again at the next change, and every few seconds (`retry_failed`). A log only ever serves the
topic whose id it carries: a new topic gets its log only after that of a deleted topic of the same name is removed.

A partition that was moved to other brokers is closed here, and its log is deleted like that of a deleted topic. If it
comes back later, it begins with an empty log.

A topic exists once the metadata says so, and its partitions are served from then on. Their logs are created afterwards,
one in each turn of the event loop, or by the first append: creating a thousand partitions makes no request wait for
thousands of files, and clients cannot tell. Asking for a partition creates nothing: until it has a log, it is known to
be empty (`replication.unmade_log`).
"""

import logging
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import NamedTuple, cast
from uuid import UUID

from odradek.config.broker import BrokerConfig
from odradek.config.topic import log_config, throttled_partitions, topic_rules, topic_values
from odradek.errors import ErrorCode, KafkaError
from odradek.host.interface import Host
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import MetadataImage, Partition, ResourceType, Topic
from odradek.model import NO_TOPIC_ID, TopicPartition
from odradek.replication.replica import Replica
from odradek.replication.replicas import Replicas
from odradek.replication.settings import ReplicaSettings
from odradek.replication.unmade_log import UnmadeLog
from odradek.services.partitions.damaged_logs import is_to_be_copied_again
from odradek.storage.config import LogConfig
from odradek.storage.log.log import Log
from odradek.storage.store import LogStore

log = logging.getLogger(__name__)

# An append to a log that could not be created tries again, but not sooner than this after the last attempt.
REQUEST_RETRY_SECONDS = 1.0

Told = Callable[[Replica], None]


class TopicSettings(NamedTuple):
    """Shared by all partitions of a topic."""

    log: LogConfig
    replica: ReplicaSettings

    def apply(self, replica: Replica) -> None:
        if replica.log.config != self.log:
            replica.log.config = self.log
        if replica.settings != self.replica:
            replica.configure(self.replica)


class Unopened(NamedTuple):
    """A partition that should have a log here but has none yet."""

    topic_id: UUID
    registration: Partition
    has_failed: bool = False  # logged once, though it is tried again every few seconds


class LocalPartitions:
    def __init__(
        self,
        node_id: int,
        host: Host,
        store: LogStore,
        config: BrokerConfig,
        appended: Told,
        on_new_role: Told,
        on_removed: Told,
        is_registered: Callable[[MetadataImage], bool],
    ) -> None:
        """`appended` is called for every append to any of the logs, and has it synced. `on_new_role` is called when a
        replica leads or follows in a new epoch, `on_removed` when it is deleted.

        `is_registered` says whether an image has the registration of this process. Until it has, the partitions that
        this broker leads are those of an earlier process, whose log may have been longer. Registering begins new leader
        epochs."""
        self._node_id = node_id
        self._host = host
        self._store = store
        self._appended = appended
        self.replicas = self._replicas = Replicas(self._begin_missing)
        self.config = config
        self._image = MetadataImage("")
        self._settings: dict[str, TopicSettings] = {}
        self._unopened: dict[TopicPartition, Unopened] = {}
        self._failed: dict[TopicPartition, Unopened] = {}  # could not be opened, and will be tried again
        self._doomed: dict[TopicPartition, Log] = {}  # of deleted or moved partitions, and not removed yet
        self._unsettled: dict[UUID, Topic] = {}  # topics whose changes failed, and will be tried again
        self._is_scheduled = False  # the next one is about to be opened
        self._next_attempt = 0.0  # no append retries a failed log before this time
        self._on_new_role = on_new_role
        self._on_removed = on_removed
        self._is_registered = is_registered

    # --- at start ---

    def log_config_for(self, image: MetadataImage) -> Callable[[str], LogConfig]:
        """The settings with which the store opens the logs of a topic."""
        return lambda topic: log_config(topic_values(image.topic_overrides(topic), self.config))

    def expected_in(self, image: MetadataImage) -> Callable[[TopicPartition, UUID], bool]:
        """Which logs the store opens, or creates again if they have no id and no records. All others belong to topics
        that were deleted, and perhaps created again, just before a crash, or to partitions that were moved to other
        brokers while this one was down."""

        def is_expected(topic_partition: TopicPartition, topic_id: UUID) -> bool:
            topic = image.topics.get(topic_partition.topic)
            if topic is None or topic_id not in (topic.id, NO_TOPIC_ID):
                return False
            registration = topic.partitions.get(topic_partition.partition)
            return registration is not None and self._node_id in registration.replicas

        return is_expected

    def open_all(self, image: MetadataImage) -> None:
        self._image = image
        for topic in image.topics.values():
            self._plan_topic(topic)
        for name in [name for name in self._unopened if name in self._store.logs]:
            self._open(name)
        self._open_soon()

    # --- changes ---

    def apply(self, delta: MetadataDelta) -> None:
        image = self._image = delta.after
        configured = [
            image.topics[resource.name]
            for resource in sorted(delta.changed_configs)
            if resource.type == ResourceType.TOPIC and resource.name in image.topics
        ]
        self._settle((*self._unsettled.values(), *delta.deleted_topics, *delta.created_topics))
        failed = self._failed_indexes()
        for change in delta.changed_topics:
            indexes = (*change.indexes, *failed.get(change.after.id, ()))
            self._act(change.after, partial(self._plan_partitions, indexes=indexes))
        for topic in configured:
            self._act(topic, self._configure)
            self._act(topic, partial(self._plan_partitions, indexes=failed.get(topic.id, ())))
        self._remove_doomed()
        self._open_soon()

    def reconfigure(self, config: BrokerConfig) -> None:
        """The broker's settings changed, and with them perhaps the defaults of every topic."""
        self.config = config
        self._settle(self._image.topics.values())
        self._open_soon()

    def retry_failed(self) -> None:
        """Try again what could not be done: the disk may have room by now."""
        self._unopened |= self._failed
        self._failed.clear()
        self._settle(list(self._unsettled.values()))
        for name, damaged in list(self._store.marked.items()):
            topic = self._image.topics_by_id.get(damaged.topic_id)
            if topic is not None:
                self._act(topic, partial(self._plan_partitions, indexes=[name.partition]))
        self._remove_doomed()
        self._open_soon()

    def _settle(self, topics: Iterable[Topic]) -> None:
        """Bring these topics in line with the image. If one fails, the others are still done."""
        for topic in {topic.id: topic for topic in topics}.values():
            if self._act(topic, self._plan_topic):
                self._unsettled.pop(topic.id, None)

    def _act(self, topic: Topic, act: Callable[[Topic], None]) -> bool:
        """Apply a change to one topic. If that fails, the whole topic is settled later."""
        try:
            now = self._image.topics_by_id.get(topic.id)
            if now is None:
                self._close_topic(topic)
            else:
                act(now)
            return True
        except Exception:
            self._unsettled[topic.id] = topic
            log.exception(
                "cannot apply the metadata to topic %s yet: this is a bug; trying again", topic.name
            )
            return False

    def _plan_topic(self, topic: Topic) -> None:
        self._configure(topic)
        self._plan_partitions(topic, topic.partitions)

    def _plan_partitions(self, topic: Topic, indexes: Iterable[int]) -> None:
        for index in indexes:
            registration = topic.partitions[index]
            if self._node_id not in registration.replicas:
                self._close_partition(topic, index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                continue
            name = TopicPartition(topic.name, index)
            if name in self._store.marked:
                self._maybe_copy_again(topic, name, registration)
            replica = self._present(topic, index)
            if replica is not None:
                self._give_role(replica, registration)
            if replica is None or is_unmade(replica):
                self._failed.pop(name, None)
                self._unopened[name] = Unopened(topic.id, registration)

    def _maybe_copy_again(self, topic: Topic, name: TopicPartition, registration: Partition) -> None:
        """Throw a damaged log away: a new one follows the leader. Not before the metadata says that nobody needs it."""
        if is_to_be_copied_again(self._store, name, registration, self._node_id) and name not in self._doomed:
            log.warning("copying %s again from broker %d: its log is damaged", name, registration.leader)
            self._close_partition(topic, name.partition, ErrorCode.KAFKA_STORAGE_ERROR)

    def _give_role(self, replica: Replica, registration: Partition) -> None:
        if registration.leader == self._node_id and not self._is_registered(self._image):
            return
        if replica.take_role(self._node_id, registration, self._host.steady_ms()):
            _tell(self._on_new_role, replica)
        if replica.log.missing_until and self._is_in_sync(registration):
            self._store.miss_nothing(replica.log)  # it has what it had lost, or nobody has

    def _is_in_sync(self, registration: Partition) -> bool:
        """True if this process is in the ISR, and not only an earlier one of this node."""
        return self._node_id in registration.isr and self._is_registered(self._image)

    def _failed_indexes(self) -> dict[UUID, list[int]]:
        """The partitions that could not be opened, by topic: a change to the topic retries them."""
        indexes: dict[UUID, list[int]] = {}
        for name, plan in self._failed.items():
            indexes.setdefault(plan.topic_id, []).append(name.partition)
        return indexes

    def _configure(self, topic: Topic) -> None:
        values = topic_values(self._image.topic_overrides(topic.name), self.config)
        log_settings = log_config(values)
        settings = self._settings[topic.name] = TopicSettings(
            log_settings,
            ReplicaSettings(
                rules=topic_rules(values, self.config["log.validate.records"]),
                min_insync_replicas=values["min.insync.replicas"],
                sync_commit=self.config["log.sync.commit"] or log_settings.flush_messages == 1,
                throttled_as_leader=self._throttled(values["leader.replication.throttled.replicas"]),
                throttled_as_follower=self._throttled(values["follower.replication.throttled.replicas"]),
            ),
        )
        for index in topic.partitions:
            replica = self._present(topic, index)
            if replica is not None:
                settings.apply(replica)

    def _throttled(self, listed: tuple[str, ...]) -> Collection[int]:
        return throttled_partitions(listed, self._node_id) if listed else ()

    def _present(self, topic: Topic, index: int) -> Replica | None:
        """The replica, unless it belongs to an earlier topic of the same name."""
        replica = self._replicas.present(topic.name, index)
        return replica if replica is not None and replica.topic_id == topic.id else None

    # --- deleting ---

    def _close_topic(self, topic: Topic) -> None:
        if topic.name not in self._image.topics:
            self._settings.pop(topic.name, None)
        for index in topic.partitions:
            self._close_partition(topic, index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _close_partition(self, topic: Topic, index: int, error: ErrorCode) -> None:
        """Its log is deleted. `error` is for the requests that wait for it."""
        name = TopicPartition(topic.name, index)
        for plans in (self._unopened, self._failed):
            if name in plans and plans[name].topic_id == topic.id:
                del plans[name]
        found = self._store.get(name)
        if found is not None and found.topic_id == topic.id:
            self._doomed[name] = found
        replica = self._present(topic, index)
        if replica is not None:
            if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                log.info("deleting the log of %s: the partition was moved to other brokers", name)
            self._replicas.remove(name)
            replica.close(error)
            _tell(self._on_removed, replica)

    def _remove_doomed(self) -> None:
        failure: OSError | None = None
        try:
            self._store.delete(self._still_doomed(), self._host.now_ms())
        except OSError as error:
            failure = error
        left = ", ".join(map(str, self._still_doomed()))
        if failure is not None:
            left = left or "none, but a crash may bring some back"
            log.error(
                "cannot remove all logs of deleted or moved partitions, trying again: %s. Left: %s",
                failure,
                left,
            )

    def _still_doomed(self) -> list[TopicPartition]:
        """Without those that were removed: a log of a new topic of that name may be in their place."""
        self._doomed = {name: found for name, found in self._doomed.items() if self._store.get(name) is found}
        return list(self._doomed)

    # --- opening ---

    def _open_soon(self) -> None:
        if self._unopened and not self._is_scheduled:
            self._is_scheduled = True
            self._host.call_soon(self._open_next)

    def _open_next(self) -> None:
        self._is_scheduled = False
        if self._unopened:
            self._open(next(iter(self._unopened)))
            self._open_soon()

    def _begin_missing(self, topic: str, index: int) -> Replica | None:
        """A request names a partition whose log does not exist yet: serve it as an empty one."""
        name = TopicPartition(topic, index)
        plan = self._unopened.get(name) or self._failed.get(name)
        if plan is None:
            if self._image.partition(topic, index) is not None:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return None
        found = self._store.get(name)
        if found is not None and found.topic_id == plan.topic_id:  # it has records, but could not be opened
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The log of {name} could not be opened")
        make = partial(self._make_for_append, name)
        unmade = cast(Log, UnmadeLog(name, self._settings[topic].log, make))
        return self._begin(name, plan, unmade)

    def _make_for_append(self, name: TopicPartition) -> Log:
        """Create the log now, for an append, instead of when its turn comes."""
        if name in self._failed and self._host.monotonic() >= self._next_attempt:
            self._unopened[name] = self._failed.pop(name)
        replica = self._open(name) if name in self._unopened else None
        if replica is None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The log of {name} cannot be created")
        return replica.log

    def stop_opening(self) -> None:
        """Open no more; what is not open yet is created at the next start."""
        self._unopened.clear()
        self._failed.clear()

    def _open(self, name: TopicPartition) -> Replica | None:
        """Create the log, or take the one that was found at start, and serve it. None if that fails."""
        plan = self._unopened.pop(name)
        replica = self._replicas.present(*name)
        try:
            opened = self._open_log(name, plan.topic_id, self._settings[name.topic].log)
            if replica is not None and replica.topic_id == plan.topic_id:
                replica.use_log(opened)
            else:
                replica = self._begin(name, plan, opened)
        except Exception as error:
            self._failed[name] = plan._replace(has_failed=True)
            self._next_attempt = self._host.monotonic() + REQUEST_RETRY_SECONDS
            if not plan.has_failed:
                is_expected = isinstance(error, (OSError, KafkaError))
                log.error(
                    "the log of %s cannot be opened, trying again: %s", name, error, exc_info=not is_expected
                )
            return None
        if plan.has_failed:
            log.info("opened the log of %s, which could not be opened before", name)
        return replica

    def _begin(self, name: TopicPartition, plan: Unopened, opened: Log) -> Replica:
        replica = Replica(
            name,
            plan.topic_id,
            opened,
            self._settings[name.topic].replica,
            high_watermark=self._store.high_watermarks.get(name, 0),
            appended=self._appended,
        )
        self._settings[name.topic].apply(replica)
        self._replicas.add(replica)
        self._give_role(replica, plan.registration)
        if opened.failed:  # as when a sync fails later
            replica.close(ErrorCode.KAFKA_STORAGE_ERROR)
        return replica

    def _open_log(self, name: TopicPartition, topic_id: UUID, settings: LogConfig) -> Log:
        found = self._store.get(name)
        if found is not None and found is self._doomed.get(name):
            self._store.delete([name], self._host.now_ms())
            found = None
        if found is None:
            return self._store.create(name, topic_id, settings, self._host.now_ms())
        if found.topic_id != topic_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_TOPIC_ID, f"its log belongs to topic {found.topic_id}, not {topic_id}"
            )
        return found


def _tell(told: Told, replica: Replica) -> None:
    """A listener that fails must not affect other partitions."""
    try:
        told(replica)
    except Exception:
        log.exception(
            "a listener failed when %s was opened, removed or changed its role: this is a bug",
            replica.topic_partition,
        )


def is_unmade(replica: Replica) -> bool:
    return isinstance(replica.log, UnmadeLog)
