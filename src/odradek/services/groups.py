"""The group coordinators of this broker: one shard for each partition of `__consumer_offsets` that it leads.

Each shard is run by a `coordinators.runner.Runner`. Here requests find the shard of their group, and shards come and go
with the partitions of the internal topic.

That topic is created when a client first looks for a coordinator. Nothing that fails on the way is final: a topic that
cannot be created is tried again when the next client asks, and a partition whose log cannot be opened has its shard as
soon as it can.
"""

import asyncio
import logging
from contextlib import suppress
from dataclasses import fields
from typing import Any, NamedTuple
from uuid import UUID

from odradek.config.broker import BrokerConfig
from odradek.coordinators.consumer.plugin import plug_in
from odradek.coordinators.consumer.topics import TopicsNow
from odradek.coordinators.group import GroupSettings
from odradek.coordinators.groups import GroupCoordinator
from odradek.coordinators.journal import Journal
from odradek.coordinators.routing import merge, partition_of, split
from odradek.coordinators.runner import Runner
from odradek.coordinators.runtime import RequestContext, Shard
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import NO_LEADER
from odradek.model import OFFSETS_TOPIC
from odradek.replication.leader import Leader
from odradek.replication.replica import Replica
from odradek.requests.request import Request
from odradek.requests.services import Amend, Services, as_it_is
from odradek.services.creation import create_internal_topic
from odradek.wire.codec import Steps
from odradek.wording import shown

log = logging.getLogger(__name__)


class Groups:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._host = services.host
        self._topics = TopicsNow(services.image)
        self._settings = group_settings(services.config)
        self._shards: dict[int, RunningShard] = {}
        self._creating: asyncio.Task[str] | None = None
        self._not_created = ""  # why the internal topic could not be created, as last logged
        self._is_behind = False  # the last look at the partitions failed half-way
        self._open_shards()

    # --- which shard ---

    async def find(self, group_id: str) -> int:
        """The broker that coordinates a group; the internal topic is created if it is not there yet."""
        if OFFSETS_TOPIC not in self._services.image.topics:
            if self._creating is None:
                self._creating = self._host.create_task(self._create_topic())
            failure = await asyncio.shield(self._creating)
            if failure:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, failure)
        topic = self._services.image.topics.get(OFFSETS_TOPIC)
        index = partition_of(group_id, len(topic.partitions)) if topic else 0
        leader = topic.partitions[index].leader if topic else NO_LEADER
        if leader == NO_LEADER or (leader == self._services.node_id and self._shard(index) is None):
            reason = f"{OFFSETS_TOPIC}-{index} does not exist yet."
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, reason)
        return leader

    async def _create_topic(self) -> str:
        """Why it failed, or nothing: whoever asks next tries again."""
        config = self._services.config
        try:
            await create_internal_topic(
                self._services,
                OFFSETS_TOPIC,
                config["offsets.topic.num.partitions"],
                config["offsets.topic.replication.factor"],
                {
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(config["offsets.topic.segment.bytes"]),
                },
            )
        except Exception as error:
            reason = f"Cannot create {OFFSETS_TOPIC}: {error}"
            self._log_not_created(reason, error)
            return reason
        finally:
            self._creating = None
        self._not_created = ""
        return ""

    def _log_not_created(self, reason: str, error: Exception) -> None:
        """Once for each reason: clients ask again ten times a second."""
        if reason != self._not_created:
            self._not_created = reason
            is_expected = isinstance(error, (OSError, KafkaError))
            log.error(
                "groups are not available, and the next FindCoordinator tries again: %s",
                reason,
                exc_info=not is_expected,
            )

    @property
    def group_count(self) -> int:
        """Of those that this broker coordinates."""
        return sum(len(shard.runner.coordinator.groups) for shard in self._shards.values())

    @property
    def _partition_count(self) -> int:
        topic = self._services.image.topics.get(OFFSETS_TOPIC)
        return len(topic.partitions) if topic else 1

    # --- requests ---

    def handle(self, request: Request, message: Any, group_id: str, amend: Amend = as_it_is) -> None:
        """A request about one group."""
        request.subject = f"group {shown(group_id)}"
        token = request if amend is as_it_is else PartOfAnswer(Gathering(request, 1, amend), 0)
        self._submit(partition_of(group_id, self._partition_count), request, message, token)

    def handle_parts(
        self, request: Request, parts: list[Any], group_id: str, amend: Amend = as_it_is
    ) -> Steps[None]:
        """A request about one group, in parts that are handled one after the other."""
        request.subject = f"group {shown(group_id)}"
        shard = partition_of(group_id, self._partition_count)
        return self._gather(request, [(shard, part) for part in parts], amend)

    def handle_many(self, request: Request, message: Any, amend: Amend = as_it_is) -> Steps[None]:
        """A request about groups of any number of shards, answered when all have answered."""
        parts = yield from split(message, self._partition_count)
        yield from self._gather(request, parts or [(0, message)], amend)

    def handle_all(self, request: Request, message: Any) -> Steps[None]:
        """A request that every shard has something to say to."""
        return self._gather(request, [(shard, message) for shard in self._shards] or [(0, message)])

    def _gather(self, request: Request, parts: list[tuple[int, Any]], amend: Amend = as_it_is) -> Steps[None]:
        gathering = Gathering(request, len(parts), amend)
        for place, (index, part) in enumerate(parts):
            self._submit(index, request, part, PartOfAnswer(gathering, place))
            yield

    def _submit(self, index: int, request: Request, message: Any, token: Any) -> None:
        shard = self._shard(index)
        if shard is None:
            token.answer(self._nowhere(message, request.version))
        else:
            host = request.client_address.rpartition(":")[0]
            context = RequestContext(request.version, request.client_id or "", f"/{host}")
            shard.runner.handle(message, context, token)

    def _nowhere(self, message: Any, version: int) -> Any:
        """No shard here: an empty one knows what its answer looks like."""
        if OFFSETS_TOPIC in self._services.image.topics:
            return self._new_coordinator().refuse(message, ErrorCode.NOT_COORDINATOR)
        shard = Shard(self._new_coordinator())
        now_ms = self._host.steady_ms()
        shard.loaded(now_ms)
        effects = shard.handle(message, RequestContext(version), "nobody", now_ms)
        if effects.answers and effects.batch is None:
            return effects.answers[0][1]
        return shard.coordinator.refuse(message, ErrorCode.NOT_COORDINATOR)

    # --- shards come and go ---

    def _new_coordinator(self) -> GroupCoordinator:
        coordinator = GroupCoordinator(self._settings, self._services.rng)
        plug_in(coordinator, self._topics)
        return coordinator

    def _shard(self, index: int) -> "RunningShard | None":
        """None where this broker does not lead the partition."""
        if index not in self._shards and OFFSETS_TOPIC in self._services.image.topics:
            with suppress(KafkaError):  # another broker leads it, or its log cannot be opened now
                self.new_role(self._services.replicas.get(OFFSETS_TOPIC, index))
        return self._shards.get(index)

    def _open_shards(self) -> None:
        """Have a shard for every partition that the topic has now, and none of an earlier one of its name."""
        topic = self._services.image.topics.get(OFFSETS_TOPIC)
        for index, shard in list(self._shards.items()):
            if topic is None or shard.replica.topic_id != topic.id:
                del self._shards[index]
                shard.runner.resign(f"{OFFSETS_TOPIC} was deleted")
        for index in topic.partitions if topic else ():
            self._shard(index)

    def new_role(self, replica: Replica) -> None:
        """A shard lives as long as this broker leads its partition, in one epoch."""
        topic, index = replica.topic_partition
        if topic != OFFSETS_TOPIC:
            return
        present = self._shards.get(index)
        if present is not None and present.leader is replica.leader:
            return
        if present is not None:
            del self._shards[index]
            present.runner.resign("its partition has a new leader epoch")
        if replica.leader is not None:
            runner = Runner(Journal(replica.leader), self._new_coordinator, respond, self._host)
            self._shards[index] = RunningShard(replica, replica.leader, runner)
            runner.tell(self._forget_offsets_of_missing_topics)
            runner.begin_loading()

    def _forget_offsets_of_missing_topics(self, coordinator: GroupCoordinator, now_ms: int) -> None:
        """A topic may be deleted, and made again, and the broker stop before the offsets are gone."""

        def id_of(name: str) -> UUID | None:
            topic = self._services.image.topics.get(name)
            return topic.id if topic else None

        coordinator.forget_missing_topics(id_of, now_ms)

    def metadata_changed(self, delta: MetadataDelta) -> None:
        self._topics.publish(delta)
        if self._is_behind or names_topic(delta, OFFSETS_TOPIC):
            self._is_behind = True
            self._open_shards()
            self._is_behind = False
        deleted = {topic.name for topic in delta.deleted_topics}
        for shard in list(self._shards.values()) if deleted else ():
            try:
                shard.runner.tell(lambda coordinator, now_ms: coordinator.topics_deleted(deleted, now_ms))
            except Exception:
                log.exception(
                    "%s: cannot remove the offsets of deleted topics: this is a bug",
                    shard.replica.topic_partition,
                )

    def close(self) -> None:
        for shard in self._shards.values():
            shard.runner.resign("this broker is stopping", logging.DEBUG)


def names_topic(delta: MetadataDelta, name: str) -> bool:
    changed = (change.after for change in delta.changed_topics)
    return any(topic.name == name for topic in (*delta.created_topics, *delta.deleted_topics, *changed))


class RunningShard(NamedTuple):
    replica: Replica
    leader: Leader  # of its journal: of one epoch, like the shard
    runner: Runner[GroupCoordinator]


class Gathering:
    """One answer out of those of several shards."""

    def __init__(self, request: Request, count: int, amend: Amend) -> None:
        self._request = request
        self._missing = count
        self._amend = amend
        self._answers: list[Any] = [None] * count

    def add(self, place: int, answer: Any) -> None:
        self._answers[place] = answer
        self._missing -= 1
        if self._missing == 0:
            merged = merge(self._answers) if len(self._answers) > 1 else self._answers[0]
            self._request.answer(self._amend(merged))


class PartOfAnswer:
    """What one shard knows a gathered request by."""

    def __init__(self, gathering: Gathering, place: int) -> None:
        self._gathering = gathering
        self._place = place

    def answer(self, message: Any) -> None:
        self._gathering.add(self._place, message)


def respond(token: Any, response: Any) -> None:
    """A token is the request itself, or the part of it that one shard answers."""
    token.answer(response)


def group_settings(config: BrokerConfig) -> GroupSettings:
    """The settings carry Kafka's names with underscores for dots."""
    return GroupSettings(
        **{field.name: config[field.name.replace("_", ".")] for field in fields(GroupSettings)}
    )
