"""A seeded world of consumers that join, leave, pause, crash and come back, and coordinators that fail.

Clients behave as KIP-848 asks of them: they stop reading before they say so, start reading only what they
are given, and start over when they are fenced. Requests and responses get lost, appends fail, topics come, grow
and go.

After every event `check` looks at what must always hold:

* C1: no partition is held by two members, and the table of holders says the same;
* a client whose commits would be accepted reads only partitions that the coordinator holds for it, so
  partitions are never read, and committed, by two;
* a coordinator that loads the log, compacted or not, has exactly the state of the one before.

`converge` then lets the faults stop, and asks for C6: all that live share all that there is.
"""

import random
import re
from typing import Any
from uuid import UUID

from odradek.coordinators.consumer.assignment import Partitions
from odradek.coordinators.consumer.group import ConsumerGroup
from odradek.errors import ErrorCode, KafkaError
from odradek.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitionsInRequest,
)
from tests.coordinators.consumer.consumer_world import GROUP, World, snapshot
from tests.coordinators.virtual import logged_exceptions_raised

Held = set[tuple[UUID, int]]
REBALANCE_TIMEOUT_MS = 20_000
HEARTBEAT_INTERVAL_MS = 5_000
START_OVER = {
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
}


def flat(partitions: Partitions) -> Held:
    return {(topic, number) for topic, numbers in partitions.items() for number in numbers}


class SimClient:
    """`reads` is what it polls, `wants` what it was last given; it may take its time to get there."""

    def __init__(self, name: str, rng: random.Random, names: list[str], instance_id: str | None) -> None:
        self.member_id = name
        self.instance_id = instance_id
        self.subscription = self._any_subscription(rng, names)
        self.epoch = 0
        self.reads: Held = set()
        self.wants: Held = set()
        self.told: Held | None = None  # what the coordinator was last told of, for sure
        self.is_unsure = False  # a response was lost: say everything
        self.has_new_subscription = False
        self.paused_until_ms = 0

    @staticmethod
    def _any_subscription(rng: random.Random, names: list[str]) -> dict[str, Any]:
        if rng.random() < 0.3:
            return {
                "subscribed_topic_names": [],
                "subscribed_topic_regex": rng.choice(["t.*", "t[0-2]", "t3"]),
            }
        return {"subscribed_topic_names": rng.sample(names, rng.randint(1, 3)), "subscribed_topic_regex": ""}

    def resubscribe(self, rng: random.Random, names: list[str]) -> None:
        self.subscription = self._any_subscription(rng, names)
        self.has_new_subscription = True

    def is_subscribed_to(self, topic: str) -> bool:
        names, regex = (
            self.subscription["subscribed_topic_names"],
            self.subscription["subscribed_topic_regex"],
        )
        return topic in names or re.fullmatch(regex, topic) is not None

    def settle(self) -> None:
        """Stop reading what was taken away, then start reading what was given."""
        self.reads = set(self.wants)

    def request(self, member_epoch: int | None = None) -> ConsumerGroupHeartbeatRequest:
        epoch = self.epoch if member_epoch is None else member_epoch
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=self.member_id,
            member_epoch=epoch,
            instance_id=self.instance_id,
            topic_partitions=None,
        )
        if epoch < 0:
            return request
        is_full = epoch == 0 or self.is_unsure
        if is_full or self.told != self.reads:
            request.topic_partitions = self._reads_on_wire()
        if is_full or self.has_new_subscription:
            request.subscribed_topic_names = self.subscription["subscribed_topic_names"]
            request.subscribed_topic_regex = self.subscription["subscribed_topic_regex"]
        if is_full:
            request.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
        return request

    def _reads_on_wire(self) -> list[TopicPartitionsInRequest]:
        by_topic: dict[UUID, list[int]] = {}
        for topic, number in sorted(self.reads):
            by_topic.setdefault(topic, []).append(number)
        return [TopicPartitionsInRequest(topic, numbers) for topic, numbers in by_topic.items()]

    def start_over(self) -> None:
        self.epoch = 0
        self.reads, self.wants, self.told = set(), set(), None

    def take(self, sent: ConsumerGroupHeartbeatRequest, response: ConsumerGroupHeartbeatResponse) -> None:
        if response.error_code in START_OVER:
            self.start_over()
        elif response.error_code != ErrorCode.NONE:
            self.is_unsure = True
        else:
            self.epoch = response.member_epoch
            self.is_unsure = self.has_new_subscription = False
            if sent.topic_partitions is not None:
                self.told = {
                    (topic.topic_id, number) for topic in sent.topic_partitions for number in topic.partitions
                }
            if response.assignment is not None:
                self.wants = {
                    (topic.topic_id, number)
                    for topic in response.assignment.topic_partitions
                    for number in topic.partitions
                }


class Simulation:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(t0=self.rng.randint(1, 4), t1=self.rng.randint(1, 4))
        self.names = ["t0", "t1", "t2", "t3"]
        self.clients: list[SimClient] = []
        self.client_count = 0
        self.free_instances = ["i0", "i1"]
        self.moves = [
            *[self.beat] * 14,
            *[self.pass_time] * 4,
            *[self.arrive] * 2,
            self.leave,
            self.crash,
            self.pause,
            self.resubscribe,
            *[self.change_topics] * 2,
            self.fail_over,
        ]

    def run(self, event_count: int) -> None:
        with logged_exceptions_raised():
            self._run(event_count)

    def _run(self, event_count: int) -> None:
        for _ in range(event_count):
            self.rng.choice(self.moves)()
            self.check()
        self.converge()

    # --- events ---

    def arrive(self) -> None:
        if len(self.clients) < 5:
            instance_id = None
            if self.free_instances and self.rng.random() < 0.4:
                instance_id = self.free_instances.pop()
            self.client_count += 1
            self.clients.append(SimClient(f"c{self.client_count}", self.rng, self.names, instance_id))
            self.beat(self.clients[-1])

    def beat(self, client: SimClient | None = None) -> None:
        client = client or self._any_client()
        if client is None or client.paused_until_ms > self.world.now_ms:
            return
        if self.rng.random() < 0.7:
            client.settle()
        fate = self.rng.random()
        sent = client.request()
        if fate < 0.05:
            client.is_unsure = True  # never arrived
            return
        self.world.append_error = ErrorCode.NOT_ENOUGH_REPLICAS if fate < 0.08 else None
        response = self.world.send(sent)
        self.world.append_error = None
        if fate > 0.93:
            client.is_unsure = True  # its response never arrived
            return
        client.take(sent, response)

    def leave(self) -> None:
        client = self._any_client()
        if client is None or client.paused_until_ms > self.world.now_ms:
            return
        client.reads = set()
        epoch = -2 if client.instance_id is not None and self.rng.random() < 0.7 else -1
        self.world.send(client.request(epoch))
        self._gone(client)

    def crash(self) -> None:
        client = self._any_client()
        if client is not None:
            self._gone(client)

    def _gone(self, client: SimClient) -> None:
        self.clients.remove(client)
        if client.instance_id is not None:
            self.free_instances.append(client.instance_id)

    def pause(self) -> None:
        client = self._any_client()
        if client is not None:
            client.paused_until_ms = self.world.now_ms + self.rng.choice([10_000, 60_000])

    def pass_time(self) -> None:
        self.world.advance(self.rng.choice([100, 1_000, 5_000, 15_000]))

    def resubscribe(self) -> None:
        client = self._any_client()
        if client is not None:
            client.resubscribe(self.rng, self.names)

    def change_topics(self) -> None:
        name = self.rng.choice(self.names)
        topic = self.world.topics.image.topics.get(name)
        if topic is None:
            self.world.create_topic(name, self.rng.randint(1, 4))
        elif self.rng.random() < 0.6:
            self.world.grow_topic(name, len(topic.partitions) + 1)
        else:
            self.world.delete_topic(name)

    def fail_over(self) -> None:
        before = self._state()
        self.world.reload(compact=self.rng.random() < 0.5)
        assert self._state() == before, "the log does not say what the coordinator knew"

    def _any_client(self) -> SimClient | None:
        return self.rng.choice(self.clients) if self.clients else None

    # --- what must hold ---

    def _group(self) -> ConsumerGroup | None:
        group = self.world.coordinator.groups.get(GROUP)
        assert group is None or isinstance(group, ConsumerGroup)
        return group

    def _state(self) -> dict[str, Any]:
        group = self._group()
        return {} if group is None else snapshot(group)

    def check(self) -> None:
        group = self._group()
        if group is None:
            return
        holders: dict[tuple[UUID, int], str] = {}
        for member in group.members.values():
            for partition in [*flat(member.assigned), *flat(member.revoking)]:
                assert partition not in holders, "C1: held by two members"
                holders[partition] = member.member_id
        for (topic, number), member_id in holders.items():
            assert group.holder_of(topic, number) == member_id
        for client in self.clients:
            if self._may_commit(group, client):
                held = {partition for partition, holder in holders.items() if holder == client.member_id}
                assert client.reads <= held, "C1, C2: reads, and may commit, what is not its own"

    @staticmethod
    def _may_commit(group: ConsumerGroup, client: SimClient) -> bool:
        try:
            group.check_offset_commit(client.member_id, client.instance_id, client.epoch, 9)
        except KafkaError:
            return False
        return client.epoch > 0

    def converge(self) -> None:
        """C6: once faults stop, a session and a rebalance timeout are enough, and 10 s."""
        for client in self.clients:
            client.paused_until_ms = 0
            self.beat(client)
        self.change_topics()
        rounds = (45_000 + REBALANCE_TIMEOUT_MS + 10_000) // HEARTBEAT_INTERVAL_MS
        for _ in range(rounds):
            for client in self.clients:
                client.settle()
                sent = client.request()
                client.take(sent, self.world.send(sent))
            self.check()
            self.world.advance(HEARTBEAT_INTERVAL_MS)
        self._check_converged()

    def _check_converged(self) -> None:
        group = self._group()
        if group is None:
            return
        assert group.members.keys() == {client.member_id for client in self.clients}
        assert group.state_name == ("Stable" if self.clients else "Empty")
        image = self.world.topics.image
        read = [partition for client in self.clients for partition in client.reads]
        everything = {
            (topic.id, number)
            for topic in image.topics.values()
            if any(client.is_subscribed_to(topic.name) for client in self.clients)
            for number in topic.partitions
        }
        assert len(read) == len(set(read)) and set(read) == everything, "C6: not everything is read"
        for client in self.clients:
            assert client.reads == flat(group.targets.get(client.member_id, {}))
