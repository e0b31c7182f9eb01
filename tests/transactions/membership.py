"""The consumer of a process that consumes, transforms and produces: a member of a group, of either kind.

Two transactional ids share a group, whose members take turns with the partition that it consumes (KIP-447). While its
process runs, a member is heard in the background. Between two transactions it polls, and only then it joins a
rebalance, or gives up what it no longer has. Of a process that stands still or has died nothing is heard: its session
ends, another member gets the partition, and whatever the zombie still sends as a member has to be refused.

A classic member may have an instance id (KIP-345), which its process's successor has too.
"""

import asyncio
from typing import Any
from uuid import UUID

from odradek.errors import ErrorCode
from odradek.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitionsInRequest,
)
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.cluster.traffic import ClusterClient
from tests.simulation.connection import Connection, Disconnected, Violation
from tests.simulation.members import AGAIN, REFUSED
from tests.simulation.play import REBALANCE_MS, SESSION_MS
from tests.transactions.play import CONSUMED, Owner, TransactionPlay

BEAT_SECONDS = 0.15
STILL_SECONDS = 1.3
OURS = b"ours"
REFUSED_OFFSETS = {
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
}


class Membership(ClusterClient):
    play: TransactionPlay

    def __init__(self, play: TransactionPlay, name: str, group: str, instance_id: str | None) -> None:
        super().__init__(play, name)
        self.group = group
        self.instance_id = instance_id
        # The identity with which it commits: the member that it was when it last had a place in the group.
        self.member_id = ""
        self.generation = -1  # or member epoch
        self._joins_as = ""
        self.owns = False  # what the group consumes
        self.is_still = False  # its process does nothing
        self.is_gone = False
        self._must_join = True
        self._coordinator: int | None = None

    async def connection(self) -> Connection:
        if self._coordinator is None:
            self._coordinator = await self.router.coordinator_of(self.group)
            if self._coordinator is None:
                raise Disconnected("no coordinator")
        try:
            return await self.router.connection_to(self._coordinator)
        except Disconnected:
            self._coordinator = None
            raise

    async def ask(self, request: Any, version: int | None = None) -> Any:
        """Another broker may be the coordinator the next time, if this one cannot say."""
        try:
            response = await super().ask(request, version)
        except Disconnected:
            self._coordinator = None
            raise
        if response.error_code in AGAIN:
            self._coordinator = None
        return response

    async def beat(self) -> None:
        """In the background, as long as its process runs."""
        while not (self.is_gone or self.play.is_over):
            await asyncio.sleep(BEAT_SECONDS)
            if not (self.is_still or self.is_gone or self._must_join):
                try:
                    await self._heartbeat()
                except Disconnected:
                    pass
        self.hang_up()

    async def stand_still(self) -> None:
        """Until another member has what it consumes, or for so long that its transaction may still be open."""
        self.play.count("members that stood still")
        self.is_still = True
        end = self.play.world.now() + STILL_SECONDS
        while self.play.world.now() < end:
            await asyncio.sleep(0.03)
            owner = self.play.owners.get(self.group)
            if owner is not None and owner.member_id != self.member_id:
                break
        self.is_still = False

    async def poll(self) -> bool:
        """True if it may consume."""
        try:
            await self._poll()
        except Disconnected:
            self.owns = False
        return self.owns

    def check_taken(self, owner: Owner | None, what: str, member_id: str, generation: int) -> None:
        """C2: what a member sent in this generation was taken. When it was sent, `owner` had the partition."""
        if owner is not None and owner.member_id != member_id and owner.generation > generation:
            raise Violation(f"C2: {what} was taken of {member_id} in generation {generation}, after {owner}")

    def _given(self, is_given: bool) -> None:
        self.owns = is_given
        known = self.play.owners.get(self.group)
        if is_given and (known is None or self.generation > known.generation):
            self.play.owners[self.group] = Owner(self.member_id, self.generation)
            self.play.count("times that a member was given what its group consumes")

    def _lost(self, code: int) -> None:
        if code not in REFUSED and code != ErrorCode.FENCED_INSTANCE_ID:
            raise Violation(f"a member of {self.group} was answered with {ErrorCode(code).name}")
        self._must_join = True
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self._joins_as = ""

    async def _poll(self) -> None:
        raise NotImplementedError

    async def _heartbeat(self) -> None:
        raise NotImplementedError


class ClassicMembership(Membership):
    async def _poll(self) -> None:
        if not self._must_join:
            return
        self.owns = False
        request = JoinGroupRequest(
            self.group,
            SESSION_MS,
            REBALANCE_MS,
            self._joins_as,
            self.instance_id,
            "consumer",
            [JoinGroupRequestProtocol("range", b"")],
        )
        joined = await self.ask(request, 9)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._joins_as = joined.member_id
        elif joined.error_code == ErrorCode.NONE:
            await self._sync(joined)
        elif joined.error_code not in AGAIN:
            self._lost(joined.error_code)

    async def _sync(self, joined: Any) -> None:
        """The leader gives the partition to anybody."""
        members = [member.member_id for member in joined.members]
        shares = []
        if members:
            shares = [SyncGroupRequestAssignment(member_id, b"") for member_id in members]
            self.rng.choice(shares).assignment = OURS
        request = SyncGroupRequest(
            self.group, joined.generation_id, joined.member_id, self.instance_id, "consumer", "range", shares
        )
        self._joins_as = self.member_id = joined.member_id
        self.generation = joined.generation_id
        synced = await self.ask(request, 5)
        if synced.error_code == ErrorCode.NONE:
            self._must_join = False
            self._given(bytes(synced.assignment or b"") == OURS)
        elif synced.error_code not in AGAIN:
            self._lost(synced.error_code)

    async def _heartbeat(self) -> None:
        request = HeartbeatRequest(self.group, self.generation, self.member_id, self.instance_id)
        member_id = self.member_id
        code = (await self.ask(request, 4)).error_code
        if code and code not in AGAIN and member_id == self.member_id:
            self._lost(code)


class ConsumerMembership(Membership):
    """A member of a group of KIP-848. The consumed topic has two partitions, of which either member gets one."""

    def __init__(self, play: TransactionPlay, name: str, group: str, instance_id: str | None) -> None:
        super().__init__(play, name, group, None)
        self._assigned: dict[UUID, list[int]] = {}

    async def _poll(self) -> None:
        """Says what it has from now on: what was assigned to it, and nothing else."""
        request = ConsumerGroupHeartbeatRequest(self.group, self.member_id, self.generation)
        if self._must_join:
            self.member_id = str(UUID(int=self.rng.getrandbits(128), version=4))
            self.generation, self.owns, self._assigned = 0, False, {}
            request = ConsumerGroupHeartbeatRequest(
                self.group,
                self.member_id,
                0,
                rebalance_timeout_ms=REBALANCE_MS,
                subscribed_topic_names=[CONSUMED[0]],
            )
        request.topic_partitions = [TopicPartitionsInRequest(*each) for each in self._assigned.items()]
        kept = dict(self._assigned)
        if await self._send(request):
            self._must_join = False
            has_kept = any(CONSUMED[1] in indexes for indexes in kept.values())
            has_now = any(CONSUMED[1] in indexes for indexes in self._assigned.values())
            self._given(has_now and (has_kept or kept == {}))
        else:
            self.owns = False

    async def _heartbeat(self) -> None:
        await self._send(ConsumerGroupHeartbeatRequest(self.group, self.member_id, self.generation))

    async def _send(self, request: ConsumerGroupHeartbeatRequest) -> bool:
        response = await self.ask(request, 1)
        if request.member_id != self.member_id:
            return False
        if response.error_code == ErrorCode.NONE:
            self.generation = response.member_epoch
            if response.assignment is not None:
                self._assigned = {
                    topic.topic_id: list(topic.partitions) for topic in response.assignment.topic_partitions
                }
            return True
        if response.error_code not in AGAIN:
            self._lost(response.error_code)
        return False
