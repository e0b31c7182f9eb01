"""The client that operators use: topics come, go, and come again; their settings, partitions and records change."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from odradek.errors import ErrorCode
from odradek.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from odradek.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from odradek.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.wire.messages.metadata import MetadataRequest
from tests.simulation.connection import Disconnected, Violation
from tests.simulation.log_history import TopicHistory
from tests.simulation.play import NAMES, Client, Play
from tests.simulation.reader import BY_ID, by_topic, fetch_request, take_fetched

MAX_PARTITIONS = 3
TOPIC_RESOURCE, SET = 2, 0
REMADE = "topics remade under a waiting fetch"
LATE_SECONDS = 0.1  # after this, what was sent on a connection that was lost has arrived, or never will

CHANGES = [
    ("cleanup.policy", "compact"),
    ("cleanup.policy", "compact"),
    ("cleanup.policy", "delete"),
    ("cleanup.policy", "compact,delete"),
    ("internal.segment.bytes", "600"),
    ("internal.segment.bytes", "5000"),
    ("segment.ms", "20"),
    ("segment.ms", "100000"),
    ("retention.bytes", "3000"),
    ("retention.bytes", "-1"),
    ("compression.type", "gzip"),
    ("compression.type", "producer"),
    ("index.interval.bytes", "0"),
]
# It did not happen, as far as anybody can say: a disk is full, or there are no descriptors.
TROUBLE = {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.REQUEST_TIMED_OUT}


class Admin(Client):
    def __init__(self, play: Play, name: str) -> None:
        super().__init__(play, name)
        self._actions: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (4, self.create_one),
            (3, self.remake_one),
            (1, self.delete_one),
            (4, self.alter_one),
            (2, self.add_partitions),
            (4, self.delete_records),
        ]

    async def act(self) -> None:
        await self.pause(0.12)
        if REMADE not in self.play.counts and self.rng.random() < 0.3:
            await self.remake_one()
            return
        (action,) = self.rng.choices([do for _, do in self._actions], [weight for weight, _ in self._actions])
        await action()

    def _any_topic(self) -> TopicHistory | None:
        topics = self.play.topics()
        return self.rng.choice(topics) if topics else None

    async def prepare(self) -> None:
        """Make what the others need, on a node that has no faults yet."""
        for name in NAMES:
            await self._create(name)
        for _ in range(100):
            request = FindCoordinatorRequest(key_type=0, coordinator_keys=list(self.play.groups.groups))
            response = await self.ask(request, 4)
            if all(found.error_code == ErrorCode.NONE for found in response.coordinators):
                return
            await asyncio.sleep(0.01)
        raise Violation("there is no group coordinator")

    # --- what topics there are ---

    async def find(self, name: str) -> tuple[UUID, int] | None:
        """Ask Metadata for a topic, once nothing that was sent before can arrive any more."""
        while True:
            await asyncio.sleep(LATE_SECONDS)
            try:
                response = await self.ask(MetadataRequest(topics=None), 12)
            except Disconnected:
                continue
            for topic in response.topics:
                if topic.name == name:
                    return topic.topic_id, len(topic.partitions)
            return None

    async def create_one(self) -> None:
        missing = [name for name in NAMES if name not in self.play.logs.current]
        if missing:
            await self._create(self.rng.choice(missing))

    async def _create(self, name: str) -> None:
        count = self.rng.randint(1, 2)
        policy = "compact" if self.rng.random() < 0.4 else "delete"
        settings = {
            "internal.segment.bytes": str(self.rng.choice([600, 1_000, 5_000])),
            "file.delete.delay.ms": str(self.rng.choice([0, 50, 1_000])),
            "cleanup.policy": policy,
            "retention.ms": "-1",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": str(self.rng.choice([0, 100_000])),
            "index.interval.bytes": str(self.rng.choice([0, 100, 4096])),
        }
        configs = [CreatableTopicConfig(key, value) for key, value in settings.items()]
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name, count, 1, configs=configs)], timeout_ms=1_000
        )
        connection = await self.connection()
        sent = self.play.world.now()
        try:
            (created,) = (await connection.ask(request)).topics
            self._check_code(created)
            found = (created.topic_id, count) if not created.error_code else await self.find(name)
        except Disconnected:
            found = await self.find(name)
        if found is not None and found[0] not in self.play.logs.topics:
            topic = self.play.logs.created(name, found[0], sent, found[1])
            topic.policy = policy
            topic.may_be_compacted = policy == "compact"

    def _check_code(self, result: Any) -> None:
        if result.error_code and not (result.error_code in TROUBLE and self.play.machine.was_short_lately):
            raise Violation(f"the admin was answered with {ErrorCode(result.error_code).name}: {result}")

    async def delete_one(self) -> None:
        topic = self._any_topic()
        if topic is not None:
            await self._delete(topic)

    async def _delete(self, topic: TopicHistory) -> None:
        """Delete it by its id: a request that comes late finds nothing any more."""
        request = DeleteTopicsRequest(topics=[DeleteTopicState(None, topic.id)], timeout_ms=1_000)
        connection = await self.connection()
        self.play.logs.deleting(topic)
        forgotten = [group.deleting_topic(topic.name) for group in self.play.groups.groups.values()]
        try:
            (result,) = (await connection.ask(request)).responses
            self._check_code(result)
            found = await self.find(topic.name) if result.error_code else None
        except Disconnected:
            found = await self.find(topic.name)
        if found is not None:
            topic.is_stable = True
            for commit in forgotten:
                commit.is_refused = True
        else:
            self.play.logs.deleted(topic)
            for commit in forgotten:
                commit.acknowledged = commit.is_over = self.play.world.now()

    async def remake_one(self) -> None:
        """Delete and create at once, while somebody waits for its records."""
        topic = self._any_topic()
        if topic is None:
            return
        connection = await self.play.world.connect(f"{self.name}-waits", self.play.machine)
        asked = by_topic([(part, part.high_watermark, part.view()) for part in topic.partitions])
        waiting = connection.send(fetch_request(asked, True, 400, 1 << 20, min_bytes=1 << 20), BY_ID)
        await self.pause(0.02)
        was_waiting = not waiting.done() and connection.is_open
        await self._delete(topic)
        if topic.name not in self.play.logs.current:
            await self._create(topic.name)
            if was_waiting and topic.name in self.play.logs.current:
                self.play.count(REMADE)
        try:
            take_fetched(self.play, asked, True, await connection.until(waiting))
        finally:
            if connection.is_open:
                connection.close()

    # --- what they are like ---

    async def add_partitions(self) -> None:
        topic = self._any_topic()
        if topic is None or len(topic.partitions) >= MAX_PARTITIONS:
            return
        count = len(topic.partitions) + 1
        request = CreatePartitionsRequest([CreatePartitionsTopic(topic.name, count, None)], 1_000)
        try:
            (result,) = (await self.ask(request)).results
            self._check_code(result)
            found = (topic.id, count) if not result.error_code else await self.find(topic.name)
        except Disconnected:
            found = await self.find(topic.name)
        if found is not None and found[0] == topic.id:
            topic.grow(found[1])

    async def alter_one(self) -> None:
        topic = self._any_topic()
        if topic is None:
            return
        name, value = self.rng.choice(CHANGES)
        # What the new setting allows may begin before its response comes.
        topic.may_be_compacted |= value.startswith("compact")
        topic.may_be_deleted |= name == "retention.bytes" and value != "-1"
        resource = AlterConfigsResource(TOPIC_RESOURCE, topic.name, [AlterableConfig(name, SET, value)])
        if name == "cleanup.policy":
            topic.policy = ""  # nobody knows
        (result,) = (await self.ask(IncrementalAlterConfigsRequest([resource]))).responses
        self._check_code(result)
        if name == "cleanup.policy" and not result.error_code:
            topic.policy = value

    async def delete_records(self) -> None:
        partition = self.play.any_partition(self.rng)
        if partition is None:
            return
        topic = partition.topic
        offset = self.rng.randint(partition.start, max(partition.start, partition.high_watermark))
        wanted = [DeleteRecordsPartition(partition.index, offset)]
        connection = await self.connection()
        partition.deleting(offset)
        request = DeleteRecordsRequest([DeleteRecordsTopic(topic.name, wanted)], 1_000)
        (result,) = (await connection.ask(request)).topics[0].partitions
        if result.error_code == ErrorCode.POLICY_VIOLATION and topic.policy in ("compact", ""):
            return
        if result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self.play.check_unknown(topic, result.error_code)
            return
        self._check_code(result)
        if not result.error_code:
            self.play.count("deleted records")
            if result.low_watermark < offset:
                raise Violation(
                    f"{partition.name} starts at {result.low_watermark} after deleting up to {offset}"
                )
            partition.deleted(offset)
