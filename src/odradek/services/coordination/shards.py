"""The coordinators of one kind on this broker: a shard for each partition of their internal topic that it leads.

A `coordinators.runner.Runner` runs each shard. This module routes requests to the shard of their key (a group, a
transactional id), and opens and closes shards with the partitions of the internal topic. `services.coordination.groups`
and `services.coordination.transactions` say what a coordinator of their kind is.

The topic is created when a client first looks for a coordinator. No failure is final: if the topic cannot be created,
the next client that asks tries again, and a partition whose log cannot be opened gets its shard once it can.
"""

import asyncio
import logging
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, Generic, NamedTuple, TypeVar

from odradek.apis.items import join
from odradek.coordinators.journal import Journal
from odradek.coordinators.routing import partition_of, split
from odradek.coordinators.runner import Runner
from odradek.coordinators.runtime import Coordinator, Effect, Shard, Token
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.image import NO_LEADER
from odradek.replication.leader import Leader
from odradek.replication.replica import Replica
from odradek.services.coordination.creation import InternalTopic, create_internal_topic
from odradek.serving.coordination import Amend, Coordinators, as_it_is
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.wire.codec import Steps
from odradek.wording import shown

log = logging.getLogger(__name__)

NO_VERSION = 0  # of what is no request on the wire

AnyCoordinator = TypeVar("AnyCoordinator", bound=Coordinator)


class RunningShard(NamedTuple, Generic[AnyCoordinator]):
    replica: Replica
    leader: Leader  # of its partition, for one epoch, like the shard
    runner: Runner[AnyCoordinator]


class Shards(Coordinators, Generic[AnyCoordinator]):
    """`noun` is what a key names, as log lines call it."""

    def __init__(self, services: Services, topic: InternalTopic, noun: str) -> None:
        self._services = services
        self._host = services.node.host
        self.caller = services.node.caller
        self._topic = topic
        self._noun = noun
        self._shards: dict[int, RunningShard[AnyCoordinator]] = {}
        self._creating: asyncio.Task[str] | None = None
        self._not_created = ""  # the reason last logged for not creating the internal topic
        self._is_behind = False  # the last `_open_shards` failed half-way

    # --- of each kind ---

    def _new_coordinator(self) -> AnyCoordinator:
        raise NotImplementedError

    def _before_loading(self, runner: Runner[AnyCoordinator]) -> None:
        """A shard is about to be loaded: tell it what it should do first."""

    def _perform(self, leader: Leader, runner: Runner[AnyCoordinator], effect: Effect) -> None:
        """Begin to carry out an effect of the coordinator that `leader` has, and tell `runner` what became of it."""
        raise NotImplementedError

    # --- which shard ---

    @property
    def _topic_exists(self) -> bool:
        return self._topic.name in self._services.cluster.image.topics

    @property
    def _partition_count(self) -> int:
        topic = self._services.cluster.image.topics.get(self._topic.name)
        return len(topic.partitions) if topic else 1

    def partition_for(self, key: str) -> int:
        """The partition of the internal topic that has the shard of this key."""
        return partition_of(key, self._partition_count)

    @property
    def key_count(self) -> int:
        """The number of keys (groups, transactional ids) that this broker coordinates."""
        return sum(len(shard.runner.coordinator) for shard in self._shards.values())

    async def find(self, key: str) -> int:
        """The broker that coordinates this. Creates the internal topic if it does not exist yet."""
        name = self._topic.name
        if not self._topic_exists:
            if self._creating is None:
                self._creating = self._host.create_task(self._create_topic())
            failure = await asyncio.shield(self._creating)
            if failure:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, failure)
        topic = self._services.cluster.image.topics.get(name)
        index = partition_of(key, len(topic.partitions)) if topic else 0
        leader = topic.partitions[index].leader if topic else NO_LEADER
        if leader == NO_LEADER or (leader == self._services.node.id and self._shard(index) is None):
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{name}-{index} does not exist yet.")
        return leader

    async def _create_topic(self) -> str:
        """Returns why it failed; empty if it did not. The next FindCoordinator tries again."""
        try:
            await create_internal_topic(self._services, self._topic)
        except Exception as error:
            reason = f"Cannot create {self._topic.name}: {error}"
            self._log_not_created(reason, error)
            return reason
        finally:
            self._creating = None
        self._not_created = ""
        return ""

    def _log_not_created(self, reason: str, error: Exception) -> None:
        """Log each reason once: clients ask again ten times a second."""
        if reason != self._not_created:
            self._not_created = reason
            is_expected = isinstance(error, (OSError, KafkaError))
            log.error(
                "%ss are not available, and the next FindCoordinator tries again: %s",
                self._noun,
                reason,
                exc_info=not is_expected,
            )

    # --- requests ---

    def handle(self, request: Request, message: Any, key: str, amend: Amend = as_it_is) -> None:
        """A request about one group or transactional id."""
        request.subject = subject_of(self._noun, key)
        self._submit(self.partition_for(key), request, message, amended(request, amend))

    def handle_parts(
        self, request: Request, parts: list[Any], key: str, amend: Amend = as_it_is
    ) -> Steps[None]:
        """The same, in parts that are handled in order."""
        request.subject = subject_of(self._noun, key)
        shard = self.partition_for(key)
        return self._gather(request, [(shard, part) for part in parts], amend)

    def handle_many(self, request: Request, message: Any, amend: Amend = as_it_is) -> Steps[None]:
        """A request about keys of several shards, answered when all of them have answered."""
        parts = yield from split(message, self._partition_count)
        yield from self._gather(request, parts or [(0, message)], amend)

    def handle_all(self, request: Request, message: Any, amend: Amend = as_it_is) -> Steps[None]:
        """A request that every shard has something to say to. Where there is none, an empty one responds."""
        parts = [(index, message) for index in self._shards]
        if parts:
            yield from self._gather(request, parts, amend)
        else:
            amended(request, amend)(self._of_nothing(message, request.version))

    def _gather(self, request: Request, parts: list[tuple[int, Any]], amend: Amend = as_it_is) -> Steps[None]:
        gathering = Gathering(amended(request, amend), len(parts))
        for place, (index, part) in enumerate(parts):
            self._submit(index, request, part, partial(gathering.add, place))
            yield

    def _submit(self, index: int, request: Request, message: Any, token: Token) -> None:
        shard = self._shard(index)
        if shard is None:
            token(self._nowhere(message, request.version))
        else:
            shard.runner.handle(message, request.version, request.caller, token)

    def _nowhere(self, message: Any, version: int) -> Any:
        """The response if there is no shard here: that of an empty one, or NOT_COORDINATOR."""
        if self._topic_exists:
            return self._new_coordinator().refuse(message, ErrorCode.NOT_COORDINATOR)
        return self._of_nothing(message, version)

    def _of_nothing(self, message: Any, version: int) -> Any:
        """Return the response of a shard that has nothing, and cannot write."""
        shard = Shard(self._new_coordinator())
        now_ms = self._host.steady_ms()
        shard.loaded(now_ms)
        ready = shard.handle(message, version, self.caller, nobody, now_ms)
        if ready.responses:
            return ready.responses[0][1]
        return shard.coordinator.refuse(message, ErrorCode.NOT_COORDINATOR)

    # --- shards come and go ---

    def _shard(self, index: int) -> RunningShard[AnyCoordinator] | None:
        """The shard of a partition; None if this broker does not lead the partition."""
        if index not in self._shards and self._topic_exists:
            with suppress(KafkaError):  # another broker leads it, or its log cannot be opened now
                self.new_role(self._services.partitions.replicas.get(self._topic.name, index))
        return self._shards.get(index)

    def _open_shards(self) -> None:
        """Open a shard for every partition of the topic, and close those of a deleted topic of the same name."""
        topic = self._services.cluster.image.topics.get(self._topic.name)
        for index, shard in list(self._shards.items()):
            if topic is None or shard.replica.topic_id != topic.id:
                del self._shards[index]
                shard.runner.resign(f"{self._topic.name} was deleted")
        for index in topic.partitions if topic else ():
            self._shard(index)

    def new_role(self, replica: Replica) -> None:
        """A shard lives while this broker leads its partition, for one leader epoch."""
        topic, index = replica.topic_partition
        if topic != self._topic.name:
            return
        present = self._shards.get(index)
        if present is not None and present.leader is replica.leader:
            return
        if present is not None:
            del self._shards[index]
            present.runner.resign("its partition has a new leader epoch")
        if replica.leader is not None:
            self._open(index, replica, replica.leader)

    def removed(self, replica: Replica) -> None:
        """The partition was moved to other brokers. (If its topic was deleted, `metadata_changed` closes the shard.)"""
        topic, index = replica.topic_partition
        present = self._shards.get(index)
        if (
            present is not None
            and present.replica is replica
            and self._services.cluster.image.partition(topic, index)
        ):
            del self._shards[index]
            present.runner.resign("its partition was moved to other brokers")

    def _open(self, index: int, replica: Replica, leader: Leader) -> None:
        runner = Runner(Journal(leader), self._new_coordinator, self._host, partial(self._perform, leader))
        self._shards[index] = RunningShard(replica, leader, runner)
        self._before_loading(runner)
        runner.begin_loading()

    def metadata_changed(self, delta: MetadataDelta) -> None:
        if self._is_behind or names_topic(delta, self._topic.name):
            self._is_behind = True
            self._open_shards()
            self._is_behind = False

    def close(self) -> None:
        for shard in self._shards.values():
            shard.runner.resign("this broker is stopping", logging.DEBUG)


@lru_cache(1024)
def subject_of(noun: str, key: str) -> str:
    """The subject of a log line. It is cached, because the same keys come again and again."""
    return f"{noun} {shown(key)}"


def names_topic(delta: MetadataDelta, name: str) -> bool:
    changed = (change.after for change in delta.changed_topics)
    return any(topic.name == name for topic in (*delta.created_topics, *delta.deleted_topics, *changed))


def amended(request: Request, amend: Amend) -> Token:
    """The exit of a request whose response is changed before it is sent."""
    if amend is as_it_is:
        return request.answer
    return lambda response: request.answer(amend(response))


def nobody(response: Any) -> None:
    """Waits for no response."""


class Gathering:
    """Merges the responses of several shards into one."""

    def __init__(self, respond: Token, count: int) -> None:
        self._respond = respond
        self._missing = count
        self._responses: list[Any] = [None] * count

    def add(self, place: int, response: Any) -> None:
        self._responses[place] = response
        self._missing -= 1
        if self._missing == 0:
            self._respond(join(self._responses))
