"""A group coordinator with a log in memory, a clock, and topics that come and go: the tests play on it.

Every record goes through its bytes. `reload` is what happens on fail-over: the log, compacted or not, is all
that is left.
"""

import itertools
import random
from functools import partial
from typing import Any
from uuid import UUID

from odradek.coordinators.consumer.group import ConsumerGroup
from odradek.coordinators.consumer.plugin import plug_in
from odradek.coordinators.consumer.topics import TopicsNow
from odradek.coordinators.group import GroupSettings
from odradek.coordinators.groups import GroupCoordinator
from odradek.coordinators.records import decode, encode
from odradek.coordinators.runtime import StateBatch
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.delta import MetadataDelta, TopicChange
from odradek.metadata.image import MetadataImage, Partition, Topic
from odradek.model import Caller
from odradek.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitionsInRequest,
)
from tests.coordinators.virtual import CoordinatorWorld

GROUP = "group"
PARTITION = Partition(0, 0, 0, (0,), (0,), (UUID(int=0),))


class World(CoordinatorWorld[GroupCoordinator]):
    def __init__(self, settings: GroupSettings | None = None, **topics: int) -> None:
        super().__init__(1_000)
        self.settings = settings or GroupSettings()
        self.last_records: list[Any] = []  # what the last event wrote
        self.topics = TopicsNow(MetadataImage("cluster"))
        self._topic_ids = itertools.count(100)
        self._tokens = itertools.count()
        self.responses: dict[int, Any] = {}
        for name, count in topics.items():
            self.create_topic(name, count)
        self.start()

    def new_coordinator(self) -> GroupCoordinator:
        coordinator = GroupCoordinator(self.settings, random.Random(next(self._tokens)))
        self.consumer_groups = plug_in(coordinator, self.topics)
        return coordinator

    def after_append(self, batch: StateBatch) -> None:
        self.last_records = [decode(key, value) for key, value in batch.records]

    # --- topics ---

    def create_topic(self, name: str, partition_count: int) -> None:
        topic = Topic(name, UUID(int=next(self._topic_ids)), dict.fromkeys(range(partition_count), PARTITION))
        self._publish(created=[topic])

    def grow_topic(self, name: str, partition_count: int) -> None:
        before = self.topics.image.topics[name]
        after = before._replace(partitions=dict.fromkeys(range(partition_count), PARTITION))
        indexes = tuple(range(len(before.partitions), partition_count))
        self._publish(changed=[TopicChange(before, after, indexes)])

    def delete_topic(self, name: str) -> None:
        self._publish(deleted=[self.topics.image.topics[name]])

    def _publish(
        self, created: list[Topic] = (), changed: list[TopicChange] = (), deleted: list[Topic] = ()
    ) -> None:
        before = self.topics.image
        gone = {topic.name for topic in deleted}
        topics = {name: topic for name, topic in before.topics.items() if name not in gone}
        topics.update((topic.name, topic) for topic in [*created, *(change.after for change in changed)])
        after = MetadataImage(
            "cluster", topics=topics, topics_by_id={topic.id: topic for topic in topics.values()}
        )
        nothing: frozenset[Any] = frozenset()
        self.topics.publish(
            MetadataDelta(
                before,
                after,
                tuple(created),
                tuple(changed),
                tuple(deleted),
                nothing,
                nothing,
                nothing,
                nothing,
            )
        )

    def id_of(self, name: str) -> UUID:
        return self.topics.image.topics[name].id

    # --- events ---

    def send(self, request: Any, version: int = 1, client_id: str = "client", host: str = "host") -> Any:
        """The response, if there is one at once; everything appended is committed at once."""
        return self.responses.pop(self.post(request, version, client_id, host), None)

    def post(self, request: Any, version: int, client_id: str = "client", host: str = "host") -> int:
        """Return the token under which the response will be in `responses`."""
        token = next(self._tokens)
        self.last_records = []
        caller = Caller(address=host, client_id=client_id)
        self.runner.handle(request, version, caller, partial(self.responses.__setitem__, token))
        return token

    def advance(self, duration_ms: int) -> None:
        """Let time pass, timer by timer."""
        self.host.run_for(duration_ms)

    def write(self, key: Any, value: Any) -> None:
        """A record that some other broker has written."""
        self.log.write(*encode(key, value))

    def reload(self, compact: bool = False) -> None:
        """Another broker takes over."""
        if compact:
            self.log.compact()
        self.runner.resign()
        self.start()

    # --- state ---

    @property
    def group(self) -> ConsumerGroup:
        group = self.coordinator.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    def record_kinds(self) -> list[str]:
        """Return what the last event wrote: the keys' names, a cross at tombstones."""
        return [
            type(key).__name__.removeprefix("ConsumerGroup").removesuffix("Key") + ("" if value else " ✗")
            for key, value in self.last_records
        ]

    def error_of_commit(self, member_id: str, epoch: int, version: int = 9) -> ErrorCode:
        group = self.coordinator.groups[GROUP]
        return error_of(lambda: group.check_offset_commit(member_id, None, epoch, version))

    def partitions(self, *named: str) -> dict[UUID, frozenset[int]]:
        """`"foo:0,1"` is partitions 0 and 1 of foo."""
        return {
            self.id_of(name): frozenset(map(int, numbers.split(",")))
            for name, numbers in (each.split(":") for each in named)
        }


def error_of(check: Any) -> ErrorCode:
    try:
        check()
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def snapshot(group: ConsumerGroup) -> dict[str, Any]:
    """Everything durable, and everything derived from it."""
    memory = ("topics_version", "rebalancing_since_ms")
    return {name: value for name, value in vars(group).items() if name not in memory}


class Client:
    """One consumer: it sends what it is told to, and remembers its id, its epoch and its partitions."""

    def __init__(self, world: World, member_id: str, *topics: str, **fields: Any) -> None:
        self.world = world
        self.member_id = member_id
        self.epoch = 0
        self.owned: dict[UUID, frozenset[int]] = {}
        self.fields = {"subscribed_topic_names": list(topics), "rebalance_timeout_ms": 60_000, **fields}

    def join(self, **changes: Any) -> ConsumerGroupHeartbeatResponse:
        self.epoch = 0
        self.owned = {}
        return self._send(topic_partitions=[], **{**self.fields, **changes})

    def full(self) -> ConsumerGroupHeartbeatResponse:
        """Say everything again, as after a request whose response was lost."""
        return self._send(topic_partitions=self.owned_on_wire(), **self.fields)

    def beat(self, **changes: Any) -> ConsumerGroupHeartbeatResponse:
        """Nothing but what is named has changed."""
        return self._send(**{"topic_partitions": None, **changes})

    def acknowledge(self) -> ConsumerGroupHeartbeatResponse:
        """Read what was last assigned, and say so."""
        return self._send(topic_partitions=self.owned_on_wire())

    def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        self.epoch = epoch
        return self._send(topic_partitions=None)

    def owned_on_wire(self) -> list[TopicPartitionsInRequest]:
        return [TopicPartitionsInRequest(topic, sorted(numbers)) for topic, numbers in self.owned.items()]

    def _send(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        instance_id = fields.pop("instance_id", self.fields.get("instance_id"))
        response = self.world.send(
            ConsumerGroupHeartbeatRequest(
                group_id=GROUP,
                member_id=self.member_id,
                member_epoch=self.epoch,
                instance_id=instance_id,
                **fields,
            )
        )
        if response is not None and response.error_code == 0:
            self.take(response)
        return response

    def take(self, response: ConsumerGroupHeartbeatResponse) -> None:
        self.member_id = response.member_id or self.member_id
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.owned = {
                topic.topic_id: frozenset(topic.partitions) for topic in response.assignment.topic_partitions
            }
