"""The two kinds of group members, as few requests as a commit needs: join, and commit with what joining gave."""

import uuid
from typing import Any, Protocol

from odradek.errors import ErrorCode
from odradek.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.wire.messages.find_coordinator import FindCoordinatorRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.lives.homes import Link

TRIES = 500
PAUSE_S = 0.02

# A client asks again after these, and joins again after those.
RETRY = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
REJOIN = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.STALE_MEMBER_EPOCH,
}


class Member(Protocol):
    group: str
    is_joined: bool

    def join(self, link: Link, topics: list[str]) -> None: ...
    def commit_request(self, topic: str, partition: int, offset: int) -> OffsetCommitRequest: ...


class ClassicMember:
    def __init__(self, group: str) -> None:
        self.group = group
        self.is_joined = False
        self._member_id = ""
        self._generation = -1

    def join(self, link: Link, topics: list[str]) -> None:
        """Join by way of MEMBER_ID_REQUIRED, and as often as a rebalance interferes."""
        for _ in range(10):
            joined = patiently(link, self._join_request(), 9)
            self._member_id = joined.member_id or self._member_id
            if joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self._member_id = ""
            if joined.error_code:
                continue
            self._generation = joined.generation_id
            if patiently(link, self._sync_request(), 5).error_code == ErrorCode.NONE:
                self.is_joined = True
                return
        raise AssertionError(f"{self.group}: could not join: {joined}")

    def _join_request(self) -> JoinGroupRequest:
        protocols = [JoinGroupRequestProtocol("range", b"")]
        return JoinGroupRequest(self.group, 30_000, 30_000, self._member_id, None, "consumer", protocols)

    def _sync_request(self) -> SyncGroupRequest:
        shares = [SyncGroupRequestAssignment(self._member_id, b"all")]
        return SyncGroupRequest(
            self.group, self._generation, self._member_id, None, "consumer", "range", shares
        )

    def commit_request(self, topic: str, partition: int, offset: int) -> OffsetCommitRequest:
        return commit_request(self.group, self._member_id, self._generation, topic, partition, offset)


class ConsumerMember:
    def __init__(self, group: str, member_id: uuid.UUID) -> None:
        self.group = group
        self.is_joined = False
        self._member_id = str(member_id)
        self._epoch = 0

    def join(self, link: Link, topics: list[str]) -> None:
        request = ConsumerGroupHeartbeatRequest(
            self.group,
            self._member_id,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=topics,
            topic_partitions=[],
        )
        response = patiently(link, request, 1)
        assert response.error_code == ErrorCode.NONE, response
        self._epoch = response.member_epoch
        self.is_joined = True

    def commit_request(self, topic: str, partition: int, offset: int) -> OffsetCommitRequest:
        return commit_request(self.group, self._member_id, self._epoch, topic, partition, offset)


def commit_request(
    group: str, member_id: str, epoch: int, topic: str, partition: int, offset: int
) -> OffsetCommitRequest:
    place = OffsetCommitRequestPartition(partition, offset, committed_metadata=f"at {offset}")
    topics = [OffsetCommitRequestTopic(name=topic, partitions=[place])]
    return OffsetCommitRequest(group, epoch, member_id, topics=topics)


def commit(link: Link, member: Member, topics: list[str], topic: str, partition: int, offset: int) -> None:
    """Commit, joining first where that must be."""
    for _ in range(10):
        if not member.is_joined:
            patiently(link, FindCoordinatorRequest(key_type=0, coordinator_keys=[member.group]), 4)
            member.join(link, topics)
        response = patiently(link, member.commit_request(topic, partition, offset), 9)
        code = code_of(response)
        if code == ErrorCode.NONE:
            return
        assert code in REJOIN, f"{member.group}: a commit was answered with {ErrorCode(code).name}"
        member.is_joined = False
    raise AssertionError(f"{member.group}: never got to commit")


def committed_offsets_request(group: str) -> OffsetFetchRequest:
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=None)])


def committed_offsets(link: Link, group: str) -> dict[tuple[str, int], int]:
    (response,) = patiently(link, committed_offsets_request(group), 9).groups
    assert response.error_code == ErrorCode.NONE, response
    return {
        (topic.name, place.partition_index): place.committed_offset
        for topic in response.topics
        for place in topic.partitions
    }


def patiently(link: Link, request: Any, version: int) -> Any:
    """The response, once it is none of those that ask a client to come back."""
    for _ in range(TRIES):
        response = link.ask(request, version)
        if code_of(response) not in RETRY:
            return response
        link.wait(PAUSE_S)
    raise AssertionError(f"still refused after {TRIES} tries: {response}")


def code_of(response: Any) -> int:
    """The error code, wherever this kind of response carries it."""
    if hasattr(response, "error_code") and response.error_code:
        return int(response.error_code)
    for items in ("groups", "coordinators"):
        for item in getattr(response, items, []):
            if item.error_code:
                return int(item.error_code)
    for topic in getattr(response, "topics", []):
        for place in getattr(topic, "partitions", []):
            if place.error_code:
                return int(place.error_code)
    return 0
