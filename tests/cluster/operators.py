"""Operators change the cluster through any of its brokers, and write down what they were told.

Each operator has topics of its own, with names that nobody else uses, and does one thing at a time. What was
acknowledged must be committed by then, and is never undone. Of what was not answered, or answered with an error that
leaves it open, nobody knows: it may have happened, and may still happen.
"""

import asyncio
from random import Random
from typing import Any
from uuid import UUID

from odradek.errors import ErrorCode
from odradek.metadata.image import ConfigResource, MetadataImage, ResourceType
from odradek.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.cluster.chronicle import Chronicle
from tests.cluster.clusters import CONTROLLER_PORT, Cluster
from tests.simulation.connection import Disconnected, Violation

SETTING = "retention.ms"
SET = 0
# Nobody knows whether it has happened. INVALID_REPLICATION_FACTOR: there is no broker at the moment, but it may have
# been sent twice by the node that forwarded it.
IN_DOUBT = {
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.INVALID_REPLICATION_FACTOR,
}
PATIENCE_SECONDS = 12.0
STALE_SECONDS = 3.0  # after so long a leader without a majority has resigned, slow network and all


class TopicLedger:
    """One name, and what may have become of it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.id: UUID | None = None  # of the incarnation that was acknowledged last
        self.is_deleted = False  # which was acknowledged
        self.may_be_deleted = False
        self.is_in_doubt = False  # whether it was created
        self.value: str | None = None  # of the setting, acknowledged
        self.possible_values: set[str | None] = {None}

    @property
    def is_there(self) -> bool:
        return self.id is not None and not self.is_deleted and not self.may_be_deleted

    @property
    def is_plain(self) -> bool:
        """Every request about it has been acknowledged."""
        return not self.is_in_doubt and (self.is_deleted or not self.may_be_deleted)

    def check(self, node_id: int, image: MetadataImage) -> None:
        topic = image.topics.get(self.name)
        if self.is_there and (topic is None or topic.id != self.id):
            raise Violation(f"node {node_id} has {topic} for {self.name}, which was created as {self.id}")
        if self.is_deleted and topic is not None and topic.id == self.id:
            raise Violation(f"node {node_id} still has {self.name}, whose deletion was acknowledged")
        if self.is_there:
            settings = image.configs.get(ConfigResource(ResourceType.TOPIC, self.name), {})
            if settings.get(SETTING) not in self.possible_values:
                raise Violation(
                    f"node {node_id} has {SETTING}={settings.get(SETTING)} for {self.name}, which can only be "
                    f"{self.possible_values}"
                )


class Operator:
    def __init__(self, cluster: Cluster, chronicle: Chronicle, name: str, rng: Random) -> None:
        self._cluster = cluster
        self._chronicle = chronicle
        self.name = name
        self._rng = rng
        self._topics: dict[str, TopicLedger] = {}
        self._made = 0
        self.is_over = False
        self.acknowledged = 0
        self.in_doubt = 0
        self.refused_late = 0

    async def live(self) -> None:
        while not self.is_over:
            await asyncio.sleep(self._rng.random() * 0.15)
            brokers = [node_id for node_id in self._cluster.brokers if self._cluster.machines[node_id].is_on]
            if not brokers:
                continue
            node_id = self._rng.choice(brokers)
            try:
                await self._act(node_id)
            except Disconnected:
                await asyncio.sleep(self._rng.random() * 0.1)

    async def _act(self, node_id: int) -> None:
        there = [topic for topic in self._topics.values() if topic.is_there and not topic.is_in_doubt]
        gone = [topic for topic in self._topics.values() if topic.is_deleted and topic.is_plain]
        kind = self._rng.choices(["create", "remake", "delete", "alter"], [3, 1, 2, 3])[0]
        if kind == "remake" and gone:
            await self._create(node_id, self._rng.choice(gone).name)
        elif kind == "delete" and len(there) > 2:
            await self._delete(node_id, self._rng.choice(there))
        elif kind == "alter" and there:
            await self._alter(node_id, self._rng.choice(there))
        elif len(there) < 12:
            self._made += 1
            await self._create(node_id, f"{self.name}-{self._made}")

    async def _ask(self, node_id: int, request: Any) -> Any:
        machine = self._cluster.machines[node_id]
        connection = await self._cluster.world.connect(self.name, machine)
        try:
            return await connection.ask(request, None, PATIENCE_SECONDS)
        finally:
            connection.close()

    def _acknowledged(self) -> None:
        self.acknowledged += 1

    def _is_in_doubt(self, what: str, code: int) -> bool:
        if not code:
            return False
        if code not in IN_DOUBT:
            raise Violation(f"{what} was refused with {ErrorCode(code).name}")
        self.in_doubt += 1
        return True

    def _refused_by_a_former_controller(self, what: str) -> None:
        """One that does not know yet that it lost its lead may refuse, without writing anything, what it has not heard
        of, as Kafka's would. Shortly after an election only."""
        elected = self._chronicle.elected_at
        if not elected or elected[-1] < self._cluster.world.now() - STALE_SECONDS:
            raise Violation(f"{what} was refused, as if there were no such topic")
        self.refused_late += 1

    async def _create(self, node_id: int, name: str) -> None:
        topic = self._topics[name] = TopicLedger(name)
        topic.is_in_doubt = True
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name, 1 + (self._made % 2), 1)], timeout_ms=1_000
        )
        (created,) = (await self._ask(node_id, request)).topics
        if created.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:  # sent twice by the node that forwarded it
            return
        if self._is_in_doubt(f"creating {name}", created.error_code):
            return
        if self._chronicle.created.get(created.topic_id) != name:
            raise Violation(f"{name} was acknowledged as {created.topic_id}, but is not committed")
        topic.id, topic.is_in_doubt = created.topic_id, False
        self._acknowledged()

    async def _delete(self, node_id: int, topic: TopicLedger) -> None:
        """Delete it by its id: a request that comes late finds nothing any more."""
        assert topic.id is not None
        topic.may_be_deleted = True
        request = DeleteTopicsRequest(topics=[DeleteTopicState(None, topic.id)], timeout_ms=1_000)
        (deleted,) = (await self._ask(node_id, request)).responses
        if deleted.error_code == ErrorCode.UNKNOWN_TOPIC_ID and topic.id not in self._chronicle.deleted:
            self._refused_by_a_former_controller(f"deleting {topic.name}")
            return
        if deleted.error_code != ErrorCode.UNKNOWN_TOPIC_ID and self._is_in_doubt(
            f"deleting {topic.name}", deleted.error_code
        ):
            return
        if topic.id not in self._chronicle.deleted:
            raise Violation(
                f"{topic.name}, {topic.id}, was acknowledged as deleted, but that is not committed"
            )
        topic.is_deleted = True
        self._acknowledged()

    async def _alter(self, node_id: int, topic: TopicLedger) -> None:
        value = str(1_000_000_000 + self._rng.randrange(1_000_000))
        topic.possible_values.add(value)
        resource = AlterConfigsResource(2, topic.name, [AlterableConfig(SETTING, SET, value)])
        request = IncrementalAlterConfigsRequest([resource], validate_only=False)
        (altered,) = (await self._ask(node_id, request)).responses
        if altered.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._refused_by_a_former_controller(f"altering {topic.name}")
            return
        if self._is_in_doubt(f"altering {topic.name}", altered.error_code):
            return
        if (topic.name, SETTING, value) not in self._chronicle.configured:
            raise Violation(f"{SETTING}={value} of {topic.name} was acknowledged, but is not committed")
        doubtful = topic.possible_values - {topic.value, value}
        topic.value, topic.possible_values = value, {value} | doubtful
        self._acknowledged()

    def check(self, node_id: int, image: MetadataImage) -> None:
        for topic in self._topics.values():
            topic.check(node_id, image)


class Prober:
    """Asks controllers, one by one, for what only the active one may decide."""

    def __init__(self, cluster: Cluster, chronicle: Chronicle, rng: Random) -> None:
        self._cluster = cluster
        self._chronicle = chronicle
        self._rng = rng
        self.is_over = False
        self.refused = 0
        self.answered = 0

    async def live(self) -> None:
        while not self.is_over:
            await asyncio.sleep(self._rng.random() * 0.3)
            node_id = self._rng.choice(self._cluster.controllers)
            if self._cluster.machines[node_id].is_on:
                try:
                    await self._probe(node_id)
                except Disconnected:
                    pass

    async def _probe(self, node_id: int) -> None:
        """A topic without a name: refused without a record, so nothing but the check keeps a follower from it."""
        world = self._cluster.world
        connection = await world.connect("prober", self._cluster.machines[node_id], CONTROLLER_PORT)
        sent = world.now()
        request = CreateTopicsRequest(topics=[CreatableTopic("", 1, 1)], timeout_ms=1_000)
        try:
            (response,) = (await connection.ask(request, None, PATIENCE_SECONDS)).topics
        finally:
            connection.close()
        if response.error_code == ErrorCode.NOT_CONTROLLER:
            self.refused += 1
            return
        self.answered += 1
        if not self._chronicle.was_controller_since(node_id, sent):
            raise Violation(
                f"node {node_id} answered {ErrorCode(response.error_code).name} as the controller, which it was not"
            )
