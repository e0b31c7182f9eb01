"""Consumers, a network, a log and a group coordinator in one thread, under a seeded scheduler.

The coordinator is the real one, and so are its runner and its partition; everything around them misbehaves.
Consumers join, leave, pause beyond their session, crash, and come back, some of them static. Requests and responses get
lost. Appends fail, the high watermark lags, the coordinator crashes (with whatever was not committed, or a part of
it), comes back by loading its log, sometimes compacted, sometimes only at a second attempt, and answers
COORDINATOR_LOAD_IN_PROGRESS meanwhile. In the last part of a run all faults stop and the group has to recover.

`Checker` holds the properties C1 to C6 of the safety design. It believes only what clients were told and what
the log holds, never the coordinator's own memory, and is asked after every event. Offsets are checked by what
they mean: a consumer commits what it has processed, so whatever is committed must have been processed.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from odradek.coordinators.group import GroupSettings
from odradek.coordinators.groups import GroupCoordinator
from odradek.coordinators.records import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, decode
from odradek.coordinators.runner import Runner
from odradek.coordinators.runtime import EncodedRecord, StateBatch
from odradek.errors import ErrorCode
from odradek.model import Caller
from odradek.replication.leader import Leader
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from odradek.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.coordinators.virtual import CoordinatorWorld, logged_exceptions_raised, sync
from tests.simulation.connection import Violation

GROUP = "readers"
TOPIC = "t"
PARTITIONS = range(5)
SESSION_MS = 6_000
REBALANCE_MS = 8_000
STEP_MS = 1_500
FAULTS_STOP_MS = 45_000
# C6: the rebalance timeout + 10 s; a crash just before needs its session to end first.
RECOVERED_MS = FAULTS_STOP_MS + SESSION_MS + REBALANCE_MS + 10_000


@dataclass
class Checker:
    """The promises so far; raises where a new fact contradicts them."""

    owners: dict[tuple[int, int], str] = field(default_factory=dict)  # (generation, partition) -> owner
    acknowledged: dict[int, int] = field(
        default_factory=dict
    )  # partition -> highest offset a client was told
    shown: dict[int, int] = field(default_factory=dict)  # partition -> highest offset that was fetched
    processed: dict[int, set[int]] = field(default_factory=lambda: {each: set() for each in PARTITIONS})
    heard_ms: dict[str, int] = field(default_factory=dict)  # member id -> when the coordinator heard of it
    departed: set[str] = field(default_factory=set)  # member ids that left
    replaced: set[str] = field(
        default_factory=set
    )  # member ids of static members that came back under others

    def generation_stored(self, value: GroupMetadataValue) -> None:
        """C1, in the log: the assignments of one generation are disjoint."""
        assigned = [partition for member in value.members for partition in member.assignment]
        if len(assigned) != len(set(assigned)):
            raise Violation(f"C1: generation {value.generation} gives a partition to two members")

    def assignment_told(
        self, generation: int, owner: str, partitions: bytes, stored: GroupMetadataValue
    ) -> None:
        """C1, as members hear it: what the log has for them, and nobody else's."""
        if generation == stored.generation:
            expected = _assignments(stored)
            if partitions != expected.get(owner):
                raise Violation(f"C1: {owner} is told {partitions!r}, the log has {expected}")
        for partition in partitions:
            other = self.owners.setdefault((generation, partition), owner)
            if other != owner:
                raise Violation(f"C1: {other} and {owner} own {partition} in generation {generation}")

    def commit_accepted(self, request: OffsetCommitRequest, stored: GroupMetadataValue, now_ms: int) -> None:
        """C2: only from a member of the generation that the log holds, within its session."""
        member_id, generation = request.member_id, request.generation_id_or_member_epoch
        if generation != stored.generation:
            raise Violation(f"C2: commit of generation {generation} accepted in {stored.generation}")
        if member_id not in {member.member_id for member in stored.members}:
            raise Violation(f"C2: commit of {member_id} accepted, which is no member")
        if member_id in self.departed | self.replaced:
            raise Violation(f"C2: commit of {member_id} accepted, which is gone")
        if now_ms - self.heard_ms[member_id] > SESSION_MS + STEP_MS:
            raise Violation(f"C2: commit of {member_id} accepted, whose session has ended")

    def offset_stored(self, partition: int, offset: int, before: int) -> None:
        """C3 and C5, in the log."""
        if offset < before:
            raise Violation(f"C3: offset of {partition} goes back from {before} to {offset}")
        missing = set(range(offset)) - self.processed[partition]
        if missing:
            raise Violation(f"C5: {partition} committed at {offset} without {missing}")

    def commit_told(self, partition: int, offset: int) -> None:
        self.acknowledged[partition] = max(self.acknowledged.get(partition, -1), offset)

    def offset_told(self, partition: int, offset: int, acknowledged_then: int) -> None:
        """C3 and C4, as clients see it: nothing that anyone was told is taken back, whatever crashed."""
        if offset < acknowledged_then:
            raise Violation(f"C4: {partition} was committed at {acknowledged_then} and is at {offset}")
        if offset < self.shown.get(partition, -1):
            raise Violation(f"C3: {partition} was seen at {self.shown[partition]} and is at {offset}")
        self.shown[partition] = offset


@dataclass(eq=False)
class Consumer:
    """One client. It does one thing at a time: a request is under way, or it waits for its next step."""

    name: str
    instance: str | None
    world: World
    member_id: str = ""
    generation: int = -1
    is_settled: bool = False  # knows its partitions and where to read on
    positions: dict[int, int] = field(default_factory=dict)  # partition -> next offset
    alive: bool = True
    paused_until_ms: int = 0
    request_number: int = 0  # responses to earlier requests are stale
    fenced: bool = False
    topics: int = 1  # changes make its subscription new
    has_committed: bool = False  # in its last step; then a heartbeat is due

    # --- what it does on its own ---

    def step(self) -> None:
        """Process, then commit or send a heartbeat; before that, join."""
        rng = self.world.rng
        if not self.is_settled:
            self.join()
            return
        for partition in self.positions:
            for _ in range(rng.randrange(3)):
                self.world.checker.processed[partition].add(self.positions[partition])
                self.positions[partition] += 1
        self.has_committed = bool(self.positions) and not self.has_committed and rng.random() < 0.7
        if self.has_committed:
            self.commit(self.next_step)
        else:
            self.send(
                HeartbeatRequest(GROUP, self.generation, self.member_id, self.instance), self.on_heartbeat
            )

    def next_step(self) -> None:
        self.world.host.after(self.world.rng.randrange(STEP_MS // 2, STEP_MS), self.wake, self.request_number)

    def wake(self, request_number: int) -> None:
        if self.alive and request_number == self.request_number:
            self.world.when_awake(self, self.step)

    def send(self, request: Any, on_response: Callable[[Any], None], timeout_ms: int = 5_000) -> None:
        self.request_number += 1
        self.world.send(self, request, on_response, timeout_ms)

    def lose_partitions(self) -> None:
        self.is_settled, self.positions = False, {}

    def on_error(self, code: ErrorCode) -> None:
        """Do what every client does about an error: keep the id, lose it, or give up."""
        if code is ErrorCode.FENCED_INSTANCE_ID:
            self.alive, self.fenced = False, True
            return
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.lose_partitions()
        self.next_step()

    # --- joining ---

    def join(self) -> None:
        self.lose_partitions()
        request = JoinGroupRequest(
            GROUP,
            SESSION_MS,
            REBALANCE_MS,
            self.member_id,
            self.instance,
            "consumer",
            [JoinGroupRequestProtocol("range", bytes(self.topics))],
        )
        self.send(request, self.on_join, REBALANCE_MS + 5_000)

    def on_join(self, response: JoinGroupResponse) -> None:
        code = ErrorCode(response.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            self.join()
        elif code is not ErrorCode.NONE:
            self.on_error(code)
        else:
            self.member_id, self.generation = response.member_id, response.generation_id
            assignments = []
            if response.leader == self.member_id and not response.skip_assignment:
                assignments = _assign([member.member_id for member in response.members])
            request = SyncGroupRequest(GROUP, self.generation, self.member_id, self.instance)
            request.assignments = assignments
            self.send(request, self.on_sync, REBALANCE_MS + 5_000)

    def on_sync(self, response: SyncGroupResponse) -> None:
        code = ErrorCode(response.error_code)
        if code is not ErrorCode.NONE:
            self.on_error(code)
            return
        self.fetch_positions(response.assignment)

    def fetch_positions(self, partitions: bytes) -> None:
        topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(partitions))]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(GROUP, topics=topics)])
        self.send(request, self.on_positions)

    def on_positions(self, response: OffsetFetchResponse) -> None:
        (group,) = response.groups
        if group.error_code == ErrorCode.NONE:
            found = group.topics[0].partitions
            self.positions = {each.partition_index: max(each.committed_offset, 0) for each in found}
            self.is_settled = True
        self.next_step()

    # --- staying ---

    def on_heartbeat(self, response: Any) -> None:
        code = ErrorCode(response.error_code)
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            # It does what an eager consumer does: commit, give everything up, join.
            self.commit(self.join) if self.positions else self.join()
        elif code is ErrorCode.NONE:
            self.next_step()
        else:
            self.on_error(code)

    def commit(self, then: Callable[[], None]) -> None:
        partitions = [OffsetCommitRequestPartition(*each) for each in self.positions.items()]
        topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=partitions)]
        request = OffsetCommitRequest(GROUP, self.generation, self.member_id, self.instance, -1, topics)

        def on_commit(response: OffsetCommitResponse) -> None:
            code = ErrorCode(response.topics[0].partitions[0].error_code)
            if code is ErrorCode.NONE:
                then()
            elif code is ErrorCode.REBALANCE_IN_PROGRESS:
                self.join()
            else:
                self.on_error(code)

        self.send(request, on_commit)


def _assignments(generation: GroupMetadataValue) -> dict[str, bytes]:
    """Return the assignments by owner: a static member keeps its part when it comes back under another id."""
    return {member.group_instance_id or member.member_id: member.assignment for member in generation.members}


def _assign(member_ids: list[str]) -> list[SyncGroupRequestAssignment]:
    ordered = sorted(member_ids)
    return [
        SyncGroupRequestAssignment(member_id, bytes(PARTITIONS[position :: len(ordered)]))
        for position, member_id in enumerate(ordered)
    ]


class World(CoordinatorWorld[GroupCoordinator]):
    """The scheduler, the network and the broker around the coordinator."""

    def __init__(self, seed: int) -> None:
        super().__init__(0)
        self.rng = Random(seed)
        self.checker = Checker()
        self.log.on_read = self.maybe_fail_to_read
        self.batches: list[tuple[int, list[EncodedRecord]]] = []  # (end offset, records), by batch
        self.stored = GroupMetadataValue()  # the last generation in the log
        self.offsets: dict[int, int] = {}  # the last offsets in the log
        self.open: dict[int, tuple[Consumer, Any, Callable[[Any], None], int, dict[int, int]]] = {}
        self.arrivals_ms: dict[Consumer, int] = {}  # one connection keeps the order
        self.is_up = False
        self.handling: Any = None  # the request that the coordinator decides on
        self.settings = GroupSettings(group_initial_rebalance_delay_ms=self.rng.choice((0, 3_000)))
        self.lossy = self.rng.choice((0.0, 0.02, 0.05))
        self.failing = self.rng.choice((0.0, 0.03))
        self.lags_ms: tuple[int, ...] = self.rng.choice(((0, 5, 50, 400), (50, 400, 2_500)))
        self.log.batches_in_a_piece = self.rng.choice((5, 50))
        self.consumers: list[Consumer] = []
        self.names = 0
        self.token = 0

    # --- running ---

    def run(self) -> None:
        self.start_coordinator()
        for _ in range(self.rng.randrange(2, 5)):
            self.spawn(self.rng.choice((None, None, f"static-{self.names}")))
        self.host.after(2_000, self.fault)
        self.host.after(0, self.watch, Consumer("watcher", None, self, alive=False))
        self.until(FAULTS_STOP_MS)
        self.heal()
        self.until(RECOVERED_MS)
        self.check_recovered()

    def until(self, end_ms: int) -> None:
        try:
            with logged_exceptions_raised():
                self.host.run_until(end_ms, self.check_state)
        except Violation:
            raise
        except Exception as error:
            raise Violation(f"the coordinator raised {error!r}") from error

    def when_awake(self, consumer: Consumer, event: Callable[[], None]) -> None:
        """A paused process does nothing, then goes on as if nothing had happened."""
        if not consumer.alive:
            return
        if consumer.paused_until_ms > self.now_ms:
            delay_ms = consumer.paused_until_ms - self.now_ms
            self.host.after(delay_ms, self.go_on, consumer, consumer.request_number, event)
        else:
            event()

    def go_on(self, consumer: Consumer, request_number: int, event: Callable[[], None]) -> None:
        """Unless it was told meanwhile to do something else: it does one thing at a time."""
        if request_number == consumer.request_number:
            self.when_awake(consumer, event)

    def spawn(self, instance: str | None) -> None:
        self.names += 1
        consumer = Consumer(f"c{self.names}", instance, self)
        self.consumers.append(consumer)
        self.host.after(self.rng.randrange(500), consumer.wake, 0)

    def watch(self, watcher: Consumer) -> None:
        """A tool that shows the group's offsets over and over; only the checker looks at them."""
        topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=list(PARTITIONS))]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(GROUP, topics=topics)])
        self.arrive(watcher, request, lambda response: None, 0)
        self.host.after(self.rng.randrange(200, 2_000), self.watch, watcher)

    # --- the network ---

    def send(
        self, consumer: Consumer, request: Any, on_response: Callable[[Any], None], timeout_ms: int
    ) -> None:
        number = consumer.request_number
        arrival_ms = max(self.now_ms + self.rng.randrange(1, 50), self.arrivals_ms.get(consumer, 0))
        self.arrivals_ms[consumer] = arrival_ms
        if self.rng.random() >= self.lossy:
            self.host.after(arrival_ms - self.now_ms, self.arrive, consumer, request, on_response, number)
        self.host.after(timeout_ms, self.time_out, consumer, number)

    def time_out(self, consumer: Consumer, number: int) -> None:
        if consumer.alive and number == consumer.request_number:
            consumer.request_number += 1
            self.when_awake(consumer, lambda: consumer.on_error(ErrorCode.NETWORK_EXCEPTION))

    def arrive(
        self, consumer: Consumer, request: Any, on_response: Callable[[Any], None], number: int
    ) -> None:
        if not self.is_up:
            return
        self.token += 1
        self.open[self.token] = (consumer, request, on_response, number, dict(self.checker.acknowledged))
        caller = Caller(address="10.0.0.1:1", client_id=consumer.name)
        self.handling = request
        self.runner.handle(request, 9, caller, partial(self.respond, self.token))
        self.handling = None
        if getattr(request, "member_id", ""):
            self.checker.heard_ms[request.member_id] = self.now_ms

    def respond(self, token: Any, response: Any) -> None:
        if not self.is_up:
            return
        consumer, request, on_response, number, acknowledged = self.open.pop(token)
        self.observe(request, response, acknowledged)
        if self.rng.random() >= self.lossy:
            self.host.after(self.rng.randrange(1, 50), self.answer, consumer, on_response, number, response)

    def answer(
        self, consumer: Consumer, on_response: Callable[[Any], None], number: int, response: Any
    ) -> None:
        if consumer.alive and number == consumer.request_number:
            consumer.request_number += 1
            self.when_awake(consumer, lambda: on_response(response))

    def observe(self, request: Any, response: Any, acknowledged: dict[int, int]) -> None:
        """A response has left the coordinator: from now on it is a promise, whether it arrives or not."""
        checker = self.checker
        if isinstance(response, OffsetCommitResponse):
            for partition, result in zip(
                request.topics[0].partitions, response.topics[0].partitions, strict=True
            ):
                if result.error_code == ErrorCode.NONE:
                    checker.commit_told(partition.partition_index, partition.committed_offset)
        elif isinstance(response, OffsetFetchResponse) and response.groups[0].error_code == ErrorCode.NONE:
            for each in response.groups[0].topics[0].partitions:
                partition = each.partition_index
                checker.offset_told(partition, each.committed_offset, acknowledged.get(partition, -1))
        elif isinstance(response, JoinGroupResponse) and response.error_code == ErrorCode.NONE:
            checker.heard_ms[response.member_id] = self.now_ms
        elif isinstance(response, SyncGroupResponse):
            checker.heard_ms[request.member_id] = self.now_ms
            if response.error_code == ErrorCode.NONE:
                owner = request.group_instance_id or request.member_id
                checker.assignment_told(request.generation_id, owner, response.assignment, self.stored)
        elif isinstance(request, LeaveGroupRequest) and response.error_code == ErrorCode.NONE:
            checker.departed.update(
                member.member_id for member in response.members if member.error_code == ErrorCode.NONE
            )

    # --- the broker ---

    def new_coordinator(self) -> GroupCoordinator:
        return GroupCoordinator(self.settings, self.rng)

    def start_coordinator(self) -> None:
        """Clients find it before it has begun to load."""
        if self.rng.random() < 0.5:
            self.log.compact()
        self.take_over()
        self.is_up = True
        self.runner.tell(self.loaded)
        self.host.after(self.rng.randrange(1, 300), self.begin_loading, self.runner)

    def begin_loading(self, runner: Runner[GroupCoordinator]) -> None:
        if self.is_up and runner is self.runner:
            runner.begin_loading()

    def maybe_fail_to_read(self) -> None:
        if self.rng.random() < self.failing:
            raise OSError(errno.EMFILE, "too many open files")

    def loaded(self, coordinator: GroupCoordinator, now_ms: int) -> None:
        """Every session begins anew."""
        self.checker.heard_ms = dict.fromkeys(self.checker.heard_ms, now_ms)

    def before_append(self, batch: StateBatch) -> None:
        if isinstance(self.handling, OffsetCommitRequest):
            self.checker.commit_accepted(self.handling, self.stored, self.now_ms)
        self.partition.has_enough_replicas = self.rng.random() >= self.failing

    def after_append(self, batch: StateBatch) -> None:
        self.batches.append((self.log.end_offset, batch.records))
        self.check_records(batch.records)

    def appended(self) -> None:
        delay_ms = self.rng.choice(self.lags_ms)
        self.host.after(delay_ms, self.advance_high_watermark, self.partition, self.log.end_offset)

    def advance_high_watermark(self, partition: Leader, offset: int) -> None:
        if self.is_up and partition is self.partition:
            sync(partition, offset)

    def crash_coordinator(self) -> None:
        if not self.is_up:
            return
        if self.rng.random() < 0.5:
            self.hand_over()
        self.is_up = False
        self.runner.resign()  # what it still says reaches nobody
        self.open.clear()
        self.lose_records(self.partition.high_watermark)
        self.host.after(self.rng.randrange(100, 3_000), self.start_coordinator)

    def hand_over(self) -> None:
        """In good order: everyone who waits hears of it."""
        self.runner.resign()
        if self.open:
            raise Violation(f"{len(self.open)} requests were never answered")

    def lose_records(self, committed: int) -> None:
        """Keep a part of the log that has all that was committed."""
        ends = [committed, *(end for end, _ in self.batches if end > committed)]
        surviving = self.rng.choice(ends)
        self.log.truncate(surviving)
        kept = [(end, records) for end, records in self.batches if end <= surviving]
        self.batches = kept
        self.stored = GroupMetadataValue()
        self.offsets.clear()
        self.checker.replaced.clear()
        for _, records in kept:
            self.check_records(records)

    # --- faults ---

    def fault(self) -> None:
        if self.now_ms >= FAULTS_STOP_MS - 1:
            return
        self.host.after(self.rng.randrange(1_000, 9_000), self.fault)
        living = [consumer for consumer in self.consumers if consumer.alive]
        kinds = ["spawn", "crash coordinator"]
        if living:
            kinds += ["pause", "pause", "crash", "leave", "resubscribe", "come back"]
        kind = self.rng.choice(kinds)
        consumer = self.rng.choice(living) if living else None
        if kind == "crash coordinator":
            self.crash_coordinator()
        elif kind == "spawn" or consumer is None:
            if len(living) < 5:
                self.spawn(self.rng.choice((None, f"static-{self.names}")))
        elif kind == "pause":
            consumer.paused_until_ms = self.now_ms + self.rng.randrange(500, 15_000)
        elif kind == "crash":
            consumer.alive = False
        elif kind == "come back":
            # A static one under its old name; without a crash first, the old process lives on as a zombie.
            consumer.alive = consumer.instance is not None and self.rng.random() < 0.5
            self.spawn(consumer.instance)
        elif kind == "resubscribe":
            consumer.topics += 1
            consumer.request_number += 1
            self.when_awake(consumer, consumer.join)
        else:
            self.leave(consumer)

    def leave(self, consumer: Consumer) -> None:
        request = LeaveGroupRequest(GROUP, [MemberIdentity(consumer.member_id, consumer.instance)])
        consumer.send(request, lambda response: None)
        consumer.alive = False

    def heal(self) -> None:
        """No more faults: everyone who is left gets a chance to recover, except two of the same name."""
        self.lossy = self.failing = 0.0
        self.lags_ms = (0, 5, 50, 400)
        instances = [consumer.instance for consumer in self.consumers if consumer.alive]
        for consumer in self.consumers:
            consumer.paused_until_ms = min(consumer.paused_until_ms, self.now_ms)
            if consumer.instance is not None and instances.count(consumer.instance) > 1:
                consumer.alive = False
        if not any(consumer.alive for consumer in self.consumers):
            self.spawn(None)

    # --- checks ---

    def check_records(self, records: list[EncodedRecord]) -> None:
        """Every record of the log is compared with what the log held before."""
        for encoded_key, encoded_value in records:
            key, value = decode(encoded_key, encoded_value) or (None, None)
            if isinstance(key, GroupMetadataKey) and value is not None:
                self.checker.generation_stored(value)
                self.note_takeover(value)
                self.stored = value
            elif isinstance(key, OffsetCommitKey):
                offset = value.offset if value is not None else -1
                self.checker.offset_stored(key.partition, offset, self.offsets.get(key.partition, -1))
                self.offsets[key.partition] = offset

    def note_takeover(self, value: GroupMetadataValue) -> None:
        """Within one generation, a member id that makes room for another of its instance is gone, and nobody's
        assignment changes."""
        if self.stored.generation == value.generation:
            if _assignments(self.stored) != _assignments(value):
                raise Violation(f"C1: assignments change within generation {value.generation}")
            now = {member.member_id for member in value.members}
            self.checker.replaced.update({member.member_id for member in self.stored.members} - now)

    def check_state(self) -> None:
        """After every event: what waits is counted right, and nothing waits in a state that has no waiting."""
        if not self.is_up:
            return
        group: Any = self.runner.coordinator.groups.get(GROUP)
        if group is None:
            return
        waiting = syncing = 0
        for member in group.members.values():
            waiting += member.join_token is not None
            syncing += member.sync_token is not None
        if waiting != group.awaiting_join:
            raise Violation(f"{group.awaiting_join} joins are counted, {waiting} wait")
        if waiting and group.state_name != "PreparingRebalance":
            raise Violation(f"a join waits in {group.state_name}")
        if syncing and group.state_name != "CompletingRebalance":
            raise Violation(f"a sync waits in {group.state_name}")
        if group.is_empty != (not group.members) and group.state_name != "PreparingRebalance":
            raise Violation(f"{group.state_name} with {len(group.members)} members")

    def check_recovered(self) -> None:
        """C6: those who live own everything, and no request was left without a response."""
        living = [consumer for consumer in self.consumers if consumer.alive]
        if any(consumer.fenced for consumer in living):
            raise Violation("C6: a living member is fenced")
        owned = sorted(partition for consumer in living for partition in consumer.positions)
        if owned != list(PARTITIONS):
            raise Violation(f"C6: living members own {owned}")
        stored = {member.member_id for member in self.stored.members}
        if stored != {consumer.member_id for consumer in living}:
            raise Violation(f"C6: the group has {stored}")
        unanswered = [token for token in self.open if token < self.token - 20]
        if unanswered:
            raise Violation(f"{len(unanswered)} requests were never answered")


def run(seed: int) -> World:
    world = World(seed)
    world.run()
    return world
