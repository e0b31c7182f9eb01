"""The simulation again, with clients of the classic protocol among the others: groups change their type.

Old clients are eager: they stop reading, join, let their leader or the coordinator assign, sync, and read. As
topics have no ids in their protocol, what they read is compared by name.
"""

import random
from collections.abc import Iterable

from odradek.coordinators.classic.group import ClassicGroup
from odradek.coordinators.consumer.group import ConsumerGroup
from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.image import MetadataImage
from odradek.wire.codec import read_message
from odradek.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from odradek.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from odradek.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.coordinators.consumer.consumer_simulation import Simulation
from tests.coordinators.consumer.consumer_world import GROUP
from tests.coordinators.consumer.test_migration import assignment_bytes, with_version

Named = set[tuple[str, int]]
START_OVER = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}


def read_named(assignment: bytes) -> Named:
    if not assignment:
        return set()
    found, _ = read_message(ConsumerProtocolAssignment, 0, assignment, 2)
    return {(topic.topic, number) for topic in found.assigned_partitions for number in topic.partitions}


class OldSimClient:
    """`next_request` follows from `phase`; at most one is under way, and its response may take a while."""

    def __init__(self, topics: list[str]) -> None:
        self.topics = topics
        self.member_id = ""
        self.generation = -1
        self.reads: Named = set()
        self.phase = "join"
        self.token: int | None = None
        self.assignments: dict[str, dict[str, list[int]]] = {}
        self.assigned_from: dict[str, int] | None = None  # what a leader knew of topics; None: does not lead
        self.read_at = MetadataImage("")  # the topics as they were when it was last assigned some

    def next_request(self) -> tuple[object, int]:
        if self.phase == "join":
            self.reads = set()
            metadata = with_version(0, ConsumerProtocolSubscription(self.topics))
            protocols = [JoinGroupRequestProtocol("range", metadata)]
            return JoinGroupRequest(GROUP, 10_000, 20_000, self.member_id, None, "consumer", protocols), 7
        if self.phase == "sync":
            written = [
                SyncGroupRequestAssignment(member_id, assignment_bytes(topics))
                for member_id, topics in self.assignments.items()
            ]
            return SyncGroupRequest(GROUP, self.generation, self.member_id, assignments=written), 5
        return HeartbeatRequest(GROUP, self.generation, self.member_id), 4

    def rejoin(self) -> None:
        self.phase = "join"
        self.reads = set()

    def take(self, response: object, topics: dict[str, int]) -> None:
        if isinstance(response, JoinGroupResponse):
            self._joined(response, topics)
        elif (
            isinstance(response, SyncGroupResponse | HeartbeatResponse) and response.error_code in START_OVER
        ):
            self.member_id = ""
            self.rejoin()
        elif isinstance(response, SyncGroupResponse) and response.error_code == 0:
            self.reads = read_named(response.assignment)
            self.phase = "stable"
        elif isinstance(response, SyncGroupResponse | HeartbeatResponse) and response.error_code != 0:
            self.rejoin()

    def _joined(self, response: JoinGroupResponse, topics: dict[str, int]) -> None:
        if response.error_code in START_OVER:
            self.member_id = ""
        elif response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif response.error_code == 0:
            self.member_id, self.generation = response.member_id, response.generation_id
            self.phase = "sync"
            self.assignments, self.assigned_from = {}, None
            if response.leader == response.member_id:
                self.assigned_from = topics
                self.assignments = lead(response, topics)


def lead(response: JoinGroupResponse, topics: dict[str, int]) -> dict[str, dict[str, list[int]]]:
    """Each topic's partitions in turn among those who read it."""
    assignments: dict[str, dict[str, list[int]]] = {member.member_id: {} for member in response.members}
    reads = {
        member.member_id: read_message(ConsumerProtocolSubscription, 0, member.metadata, 2)[0].topics
        for member in response.members
    }
    for topic, count in topics.items():
        readers = sorted(member_id for member_id, names in reads.items() if topic in names)
        for number in range(count if readers else 0):
            assignments[readers[number % len(readers)]].setdefault(topic, []).append(number)
    return assignments


class MigrationSimulation(Simulation):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.old_clients: list[OldSimClient] = []
        self.topic_names = dict[object, str]()  # of every topic there ever was, by id
        self.moves.remove(self.arrive)
        self.moves += [
            *[self.old_step] * 18,
            *[self.old_arrive] * 2,
            self.old_leave,
            self.old_crash,
            self.leave,
        ]

    # --- events ---

    def old_arrive(self) -> None:
        if len(self.old_clients) < 3:
            self.old_clients.append(OldSimClient(self.rng.sample(self.names, self.rng.randint(1, 3))))

    def old_step(self, client: OldSimClient | None = None) -> None:
        client = client or self._any_old_client(self.rng)
        if client is None:
            return
        if client.token is None:
            if client.assigned_from not in (None, self._topic_counts()):
                client.rejoin()  # a leader looks after its topics
            client.token = self.world.post(*client.next_request())
        if client.token in self.world.responses:
            response = self.world.responses.pop(client.token)
            client.token = None
            client.take(response, self._topic_counts())
            if isinstance(response, SyncGroupResponse):
                client.read_at = self.world.topics.image

    def old_leave(self) -> None:
        client = self._any_old_client(self.rng)
        if client is not None and client.token is None:
            leaving = LeaveGroupRequest(GROUP, [MemberIdentity(client.member_id)])
            self.world.send(leaving, 5)
            self.old_clients.remove(client)

    def old_crash(self) -> None:
        client = self._any_old_client(self.rng)
        if client is not None:
            self.old_clients.remove(client)

    def _any_old_client(self, rng: random.Random) -> OldSimClient | None:
        return rng.choice(self.old_clients) if self.old_clients else None

    def _topic_counts(self) -> dict[str, int]:
        topics = self.world.topics.image.topics
        return {name: len(topics[name].partitions) for name in sorted(topics)}

    # --- what must hold ---

    def _group(self) -> ConsumerGroup | None:
        group = self.world.coordinator.groups.get(GROUP)
        return group if isinstance(group, ConsumerGroup) else None

    def fail_over(self) -> None:
        # A timer that is due changes a group's type, before or after: let it.
        self.world.advance(0)
        super().fail_over()

    def check(self) -> None:
        super().check()
        self.topic_names.update((topic.id, name) for name, topic in self.world.topics.image.topics.items())
        for client in self.old_clients:
            held = self._held_by(client)
            assert held is None or self._existing_of(client) <= held, (
                "an old client reads, and may commit, what is not its own"
            )

    def _existing_of(self, client: OldSimClient) -> Named:
        """Return what exists: who reads a topic that was deleted, or made anew, reads nothing."""
        before, now = client.read_at.topics, self.world.topics.image.topics
        return {
            (name, number)
            for name, number in client.reads
            if name in before and name in now and before[name].id == now[name].id
        }

    def _held_by(self, client: OldSimClient) -> Named | None:
        """None where its commits would be refused."""
        group = self.world.coordinator.groups.get(GROUP)
        if group is None or client.generation < 0:
            return None
        try:
            group.check_offset_commit(client.member_id, None, client.generation, 8)
        except KafkaError:
            return None
        if isinstance(group, ClassicGroup):
            return read_named(group.members[client.member_id].assignment)
        assert isinstance(group, ConsumerGroup)
        member = group.members[client.member_id]
        return {
            (self.topic_names[topic], number)
            for partitions in (member.assigned, member.revoking)
            for topic, numbers in partitions.items()
            for number in numbers
        }

    def converge(self) -> None:
        for client in self.clients:
            client.paused_until_ms = 0
        for _ in range(40):
            for client in self.clients:
                client.settle()
                sent = client.request()
                client.take(sent, self.world.send(sent))
            for old in self.old_clients:
                for _ in range(3):
                    self.old_step(old)
            self.check()
            self.world.advance(5_000)
        self._check_converged()

    def _check_converged(self) -> None:
        group = self.world.coordinator.groups.get(GROUP)
        if group is None:
            return
        expected = ConsumerGroup if self.clients else ClassicGroup
        assert isinstance(group, expected) or not self.old_clients + self.clients, "the type fits the members"
        assert group.state_name in ("Stable", "Empty")
        read = [*self._read_by_new(), *(each for old in self.old_clients for each in old.reads)]
        assert len(read) == len(set(read)), "C1"
        assert set(read) == {
            (name, number)
            for name, count in self._topic_counts().items()
            if any(client.is_subscribed_to(name) for client in self.clients)
            or any(name in old.topics for old in self.old_clients)
            for number in range(count)
        }, "C6: not everything is read"

    def _read_by_new(self) -> Iterable[tuple[str, int]]:
        return (
            (self.topic_names[topic], number) for client in self.clients for topic, number in client.reads
        )
