"""A member of the group that shares the work of a mirror, by Kafka's classic protocol with a type of its own.

While the group rebalances, everybody goes on with what it has: whoever gets a partition fences the one that had it. So
a rebalance stops nobody who keeps his partitions.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from odradek.admin.failures import AdminError
from odradek.client.cluster import GROUP, Cluster, Node
from odradek.client.connection import ConnectionLost
from odradek.client.deadline import TimedOut
from odradek.errors import ErrorCode, KafkaError
from odradek.mirror import sharing
from odradek.model import TopicPartition
from odradek.wire.codec import Message
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

PROTOCOL_TYPE, PROTOCOL = "odradek-mirror", "sticky"
SESSION_S, REBALANCE_S, HEARTBEAT_S = 10.0, 20.0, 1.0
PAUSE_S = 1.0
REJOIN = (
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.MEMBER_ID_REQUIRED,
)

Response = TypeVar("Response", bound=Message)

log = logging.getLogger("odradek.mirror")


@dataclass(frozen=True)
class Assignment:
    partitions: Sequence[TopicPartition]
    is_leader: bool


class Member:
    """`run` is for a thread of its own; `wanted` and `take` are called on it. `wanted` lists all partitions, and is
    asked of the leader alone."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        wanted: Callable[[], Sequence[TopicPartition]],
        take: Callable[[Assignment], None],
    ) -> None:
        self._cluster, self._group, self._wanted, self._take = cluster, group, wanted, take
        self._member_id, self._generation = "", -1
        self._owned: Sequence[TopicPartition] = ()
        self._coordinator: Node | None = None
        self._wake, self._stopping = threading.Event(), threading.Event()
        self.failure: Exception | None = None  # why it has given up

    def rebalance(self) -> None:
        """There are other partitions to share."""
        self._wake.set()

    def stop(self) -> None:
        self._stopping.set()
        self._wake.set()

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._join()
                self._stay()
            except KafkaError as error:
                if not self._can_try_again(error):
                    self.failure = _explained(error)
                    return
            except (ConnectionLost, TimedOut, AdminError) as error:
                self._coordinator = None
                log.warning("group %s: %s. Trying again", self._group, error)
                self._stopping.wait(PAUSE_S)
        self._leave()

    @property
    def failure_told(self) -> str:
        return f"cannot share the work in group {self._group}: {self.failure}"

    def _can_try_again(self, error: KafkaError) -> bool:
        if error.code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
        if error.code in REJOIN:
            return True
        self._coordinator = None
        self._stopping.wait(PAUSE_S)
        return error.code.retriable

    # Requests

    def _ask(self, request: Message, response_type: type[Response]) -> Response:
        if self._coordinator is None:
            self._coordinator = self._cluster.coordinator(GROUP, self._group)
        return self._cluster.connection(self._coordinator).call(request, response_type)

    def _check(self, error_code: int) -> None:
        if error_code:
            code = ErrorCode(error_code)
            raise KafkaError(code, f"group {self._group}: {code.name}")

    def _join(self) -> None:
        protocol = JoinGroupRequestProtocol(PROTOCOL, sharing.encode(self._owned))
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=int(SESSION_S * 1000),
            rebalance_timeout_ms=int(REBALANCE_S * 1000),
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[protocol],
        )
        self._wake.clear()
        response = self._ask(request, JoinGroupResponse)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = response.member_id
        self._check(response.error_code)
        self._member_id, self._generation = response.member_id, response.generation_id
        is_leader = response.leader == response.member_id
        shares = self._shares(response) if is_leader else []
        self._owned = self._sync(shares)
        self._take(Assignment(self._owned, is_leader))

    def _shares(self, response: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        owned = {one.member_id: sharing.decode(one.metadata) for one in response.members}
        shares = sharing.assigned(owned, self._wanted())
        return [SyncGroupRequestAssignment(member, sharing.encode(those)) for member, those in shares.items()]

    def _sync(self, shares: list[SyncGroupRequestAssignment]) -> list[TopicPartition]:
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=PROTOCOL,
            assignments=shares,
        )
        response = self._ask(request, SyncGroupResponse)
        self._check(response.error_code)
        return sharing.decode(response.assignment)

    def _stay(self) -> None:
        """Until there is a reason to join again."""
        while not self._wake.wait(HEARTBEAT_S):
            request = HeartbeatRequest(self._group, self._generation, self._member_id)
            response = self._ask(request, HeartbeatResponse)
            self._check(response.error_code)

    def _leave(self) -> None:
        """So that the others need not wait for the end of our session."""
        if not self._member_id:
            return
        identity = MemberIdentity(self._member_id, reason="the mirror was stopped")
        try:
            self._ask(LeaveGroupRequest(self._group, [identity], self._member_id), LeaveGroupResponse)
        except (ConnectionLost, TimedOut, KafkaError):
            return


def _explained(error: KafkaError) -> KafkaError:
    if error.code is not ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return error
    return KafkaError(error.code, f"{error}; grant READ on the group at the target")
