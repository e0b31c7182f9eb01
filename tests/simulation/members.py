"""Members of groups, of both kinds: they join, share partitions, commit, leave or vanish, and commit all the same."""

import json
from typing import Any
from uuid import UUID

from odradek.errors import ErrorCode
from odradek.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitionsInRequest,
)
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.lives.members import code_of, commit_request
from tests.simulation.connection import Disconnected, Violation
from tests.simulation.group_history import Session
from tests.simulation.play import NAMES, REBALANCE_MS, SESSION_MS, Client, Play

LEAVE_EPOCH = -1

# The coordinator cannot do it now, and perhaps has done it.
AGAIN = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
# The member has to join again, or to hear what is new.
REFUSED = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
}


class Member(Client):
    """The common part of both kinds of members. `session` is None while it is no member."""

    GROUP: str

    def __init__(self, play: Play, name: str) -> None:
        super().__init__(play, name)
        self.group = play.groups.groups[self.GROUP]
        self.session: Session | None = None

    async def act(self) -> None:
        session = self.session
        try:
            await self._act()
        except Disconnected:
            if session is not None:
                session.last_lost = self.play.world.now()
            raise

    async def _act(self) -> None:
        if self.session is None:
            await self.join()
            return
        await self.pause(0.12)
        chance = self.rng.random()
        if chance < 0.04:
            await self.leave()
        elif chance < 0.07:
            self.session = None  # without a word
            self.hang_up()
        elif chance < 0.4:
            await self.commit(self.session)
        else:
            await self.heartbeat(self.session)

    async def join(self) -> None:
        raise NotImplementedError

    async def heartbeat(self, session: Session) -> None:
        raise NotImplementedError

    async def leave(self) -> None:
        raise NotImplementedError

    def newest_generation(self, session: Session) -> int:
        """Commits of an older one have to be refused."""
        raise NotImplementedError

    async def commit(self, session: Session) -> None:
        partition = self.play.any_partition(self.rng)
        if partition is None:
            return
        topic, index = partition.topic.name, partition.index
        offset = self.rng.randint(0, partition.high_watermark)
        self.play.count("commits")
        number = f"{self.group.name} {self.play.counts['commits']}"
        request = commit_request(self.group.name, session.member_id, session.generation, topic, index, offset)
        request.topics[0].partitions[0].committed_metadata = number
        connection = await self.connection()
        newest = self.newest_generation(session)
        commit = self.group.committing(topic, index, number, offset)
        code = code_of(await connection.ask(request, 9))
        if self.play.lives != session.left_in:
            session.has_left = False  # that somebody left is known to the memory of a coordinator alone
        if code == ErrorCode.NONE:
            self.group.committed(commit, session, newest)
        elif code in REFUSED:
            commit.is_refused = True
            self.refused(session, code)
        elif code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            commit.is_refused = True
            self.play.check_unknown(partition.topic, code)
        elif code not in AGAIN:
            raise Violation(f"a commit was answered with {ErrorCode(code).name}")

    def refused(self, session: Session, code: int) -> None:
        raise NotImplementedError

    def check_unknown(self, session: Session, code: int) -> None:
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.group.check_unknown(session)
            if self.session is session:
                self.session = None

    async def commit_though_it_left(self, session: Session) -> None:
        session.has_left = True
        self.session = None
        if self.rng.random() < 0.5:
            await self.commit(session)


class ClassicMember(Member):
    GROUP = "classic"

    def newest_generation(self, session: Session) -> int:
        return self.group.generation

    async def join(self, member_id: str = "") -> None:
        while not self.play.is_over:
            request = JoinGroupRequest(
                self.group.name,
                SESSION_MS,
                REBALANCE_MS,
                member_id,
                None,
                "consumer",
                [JoinGroupRequestProtocol("range", b"")],
            )
            joined = await self.ask(request, 9)
            code = joined.error_code
            if code == ErrorCode.MEMBER_ID_REQUIRED:
                member_id = joined.member_id
            elif code == ErrorCode.NONE:
                await self._sync(joined)
                return
            elif code == ErrorCode.UNKNOWN_MEMBER_ID:
                if self.session is not None:
                    self.check_unknown(self.session, code)
                return
            elif code in AGAIN:
                await self.pause(0.03)
            elif code != ErrorCode.REBALANCE_IN_PROGRESS:
                raise Violation(f"JoinGroup was answered with {ErrorCode(code).name}")

    async def _sync(self, joined: Any) -> None:
        shares = [
            SyncGroupRequestAssignment(member.member_id, share)
            for member, share in zip(joined.members, self._shares(len(joined.members)), strict=True)
        ]
        request = SyncGroupRequest(
            self.group.name,
            joined.generation_id,
            joined.member_id,
            None,
            "consumer",
            "range",
            shares,
        )
        sent = self.play.world.now()
        synced = await self.ask(request, 5)
        if synced.error_code == ErrorCode.NONE:
            if self.session is None or self.session.member_id != joined.member_id:
                self.session = Session(joined.member_id)
            self.session.generation = joined.generation_id
            self.group.assigned(
                self.session,
                joined.generation_id,
                [tuple(place) for place in json.loads(synced.assignment or b"[]")],
            )
            self.group.heard(self.session, sent)
        elif synced.error_code not in REFUSED | AGAIN:
            raise Violation(f"SyncGroup was answered with {ErrorCode(synced.error_code).name}")

    def _shares(self, count: int) -> list[bytes]:
        """The shares that a leader gives out, who alone knows of the others."""
        places = [
            (topic.name, partition.index) for topic in self.play.topics() for partition in topic.partitions
        ]
        return [json.dumps(places[at::count]).encode() for at in range(count)]

    async def heartbeat(self, session: Session) -> None:
        sent = self.play.world.now()
        request = HeartbeatRequest(self.group.name, session.generation, session.member_id)
        code = (await self.ask(request, 4)).error_code
        if code == ErrorCode.NONE:
            self.group.heard(session, sent)
        elif code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
            await self.join(session.member_id)
        elif code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.check_unknown(session, code)
        elif code not in AGAIN:
            raise Violation(f"Heartbeat was answered with {ErrorCode(code).name}")

    def refused(self, session: Session, code: int) -> None:
        self.check_unknown(session, code)

    async def leave(self) -> None:
        assert self.session is not None
        session = self.session
        session.may_have_left, session.left_in = True, self.play.lives
        request = LeaveGroupRequest(self.group.name, [MemberIdentity(session.member_id)])
        response = await self.ask_last(request, 5)
        if response is not None and response.error_code == ErrorCode.NONE:
            await self.commit_though_it_left(session)

    async def ask_last(self, request: Any, version: int) -> Any:
        """It may be that it was heard, or not: either way this is no member any more."""
        try:
            return await self.ask(request, version)
        except Disconnected:
            self.session = None
            return None


class ConsumerMember(ClassicMember):
    """A member of a group of KIP-848: the coordinator assigns, a heartbeat says everything."""

    GROUP = "consumer"

    def __init__(self, play: Play, name: str) -> None:
        super().__init__(play, name)
        self._owned: dict[UUID, list[int]] = {}

    def newest_generation(self, session: Session) -> int:
        return -1  # members are in epochs of their own

    async def join(self, member_id: str = "") -> None:
        session = Session(member_id or str(UUID(int=self.rng.getrandbits(128), version=4)), 0)
        self._owned = {}
        await self._beat(
            session,
            ConsumerGroupHeartbeatRequest(
                self.group.name,
                session.member_id,
                0,
                rebalance_timeout_ms=REBALANCE_MS,
                subscribed_topic_names=NAMES,
                topic_partitions=[],
            ),
        )

    async def heartbeat(self, session: Session) -> None:
        """After a response was lost, or was an error, everything is said again, so that the coordinator does so too."""
        owned = [TopicPartitionsInRequest(topic, indexes) for topic, indexes in self._owned.items()]
        request = ConsumerGroupHeartbeatRequest(
            self.group.name, session.member_id, session.generation, topic_partitions=owned
        )
        if session.last_lost > session.last_heard:
            request.rebalance_timeout_ms = REBALANCE_MS
            request.subscribed_topic_names = NAMES
        await self._beat(session, request)

    async def _beat(self, session: Session, request: ConsumerGroupHeartbeatRequest) -> None:
        sent = self.play.world.now()
        response = await self.ask(request, 1)
        code = response.error_code
        if code == ErrorCode.NONE:
            self.session = session
            session.generation = response.member_epoch
            self.group.heard(session, sent)
            if response.assignment is not None:
                self._owned = {
                    topic.topic_id: list(topic.partitions) for topic in response.assignment.topic_partitions
                }
            self.group.assigned(
                session,
                session.generation,
                [(topic, index) for topic, indexes in self._owned.items() for index in indexes],
            )
        elif code in REFUSED:
            self.refused(session, code)
        elif code in AGAIN:
            session.last_lost = self.play.world.now()  # what it may have been told before
            await self.pause(0.03)
        else:
            raise Violation(f"ConsumerGroupHeartbeat was answered with {ErrorCode(code).name}")

    def refused(self, session: Session, code: int) -> None:
        self.check_unknown(session, code)
        if code == ErrorCode.FENCED_MEMBER_EPOCH:
            self.session = None

    async def leave(self) -> None:
        assert self.session is not None
        session = self.session
        session.may_have_left, session.left_in = True, self.play.lives
        request = ConsumerGroupHeartbeatRequest(self.group.name, session.member_id, LEAVE_EPOCH)
        response = await self.ask_last(request, 1)
        if response is not None and response.error_code == ErrorCode.NONE:
            await self.commit_though_it_left(session)
