"""Error responses: where the response to each request has an error code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from odradek.coordinators.offset_forms import in_transaction
from odradek.coordinators.offsets import EndTransaction, TransactionalCommit
from odradek.errors import ErrorCode
from odradek.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from odradek.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from odradek.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from odradek.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from odradek.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from odradek.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def _heartbeat(request: HeartbeatRequest, code: ErrorCode) -> HeartbeatResponse:
    # A coordinator that is still loading does not know its members; it gives them the benefit of the doubt.
    is_loading = code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return HeartbeatResponse(error_code=ErrorCode.NONE if is_loading else code)


def _join(request: JoinGroupRequest, code: ErrorCode) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, member_id=request.member_id)


def _offset_commit(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                topic.topic_id,
                topic.name,
                [OffsetCommitResponsePartition(each.partition_index, code) for each in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _offset_fetch(request: OffsetFetchRequest, code: ErrorCode) -> OffsetFetchResponse:
    groups = [OffsetFetchResponseGroup(group.group_id, [], code) for group in request.groups]
    # Version 1 has room for an error with each partition only; versions 2 to 7 look at the one on top.
    topics = [
        OffsetFetchResponseTopic(
            topic.name,
            [OffsetFetchResponsePartition(index, -1, error_code=code) for index in topic.partition_indexes],
        )
        for topic in request.topics or []
    ]
    return OffsetFetchResponse(groups=groups, topics=topics, error_code=code)


def _describe(request: DescribeGroupsRequest, code: ErrorCode) -> DescribeGroupsResponse:
    groups = [DescribedGroup(error_code=code, group_id=group_id) for group_id in request.groups]
    return DescribeGroupsResponse(groups=groups)


def _delete(request: DeleteGroupsRequest, code: ErrorCode) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id, code) for group_id in request.groups_names]
    )


REFUSALS: dict[type[Any], Callable[[Any, ErrorCode], Any]] = {
    JoinGroupRequest: _join,
    SyncGroupRequest: lambda request, code: SyncGroupResponse(error_code=code),
    HeartbeatRequest: _heartbeat,
    LeaveGroupRequest: lambda request, code: LeaveGroupResponse(error_code=code),
    OffsetCommitRequest: _offset_commit,
    TransactionalCommit: lambda request, code: in_transaction(_offset_commit(request.commit, code)),
    EndTransaction: lambda request, code: code,
    OffsetFetchRequest: _offset_fetch,
    OffsetDeleteRequest: lambda request, code: OffsetDeleteResponse(error_code=code),
    ListGroupsRequest: lambda request, code: ListGroupsResponse(error_code=code),
    DescribeGroupsRequest: _describe,
    DeleteGroupsRequest: _delete,
}
