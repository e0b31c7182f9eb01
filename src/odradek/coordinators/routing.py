"""Which partition of an internal topic keeps a group, and requests that name groups of several partitions.

Kafka's rule: Java's `String.hashCode` of the group's id, modulo the number of partitions. `split` takes a
request about many groups apart, one for each partition; `merge` puts the answers together again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from odradek.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from odradek.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from odradek.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from odradek.wire.messages.list_groups import ListGroupsResponse
from odradek.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse

# The list of groups in a request, and of results in an answer.
GROUPS_FIELD: dict[type[Any], str] = {
    OffsetFetchRequest: "groups",
    DescribeGroupsRequest: "groups",
    DeleteGroupsRequest: "groups_names",
    ConsumerGroupDescribeRequest: "group_ids",
}
RESULTS_FIELD: dict[type[Any], str] = {
    OffsetFetchResponse: "groups",
    DescribeGroupsResponse: "groups",
    DeleteGroupsResponse: "results",
    ConsumerGroupDescribeResponse: "groups",
    ListGroupsResponse: "groups",
}


def java_hash(text: str) -> int:
    """String.hashCode: over UTF-16 units, in 32 bits with a sign."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for position in range(0, len(units), 2):
        value = (31 * value + (units[position] << 8 | units[position + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


@lru_cache(maxsize=1 << 14)  # every heartbeat asks, and Python takes its time over a hash of Java's
def partition_of(group_id: str, partition_count: int) -> int:
    # Kafka's Utils.abs: the one number without a positive counterpart becomes 0.
    value = java_hash(group_id)
    return (0 if value == -(1 << 31) else abs(value)) % partition_count


def split(request: Any, partition_count: int) -> dict[int, Any]:
    """A request about many groups as one for each partition that keeps some of them."""
    name = GROUPS_FIELD[type(request)]
    parts: dict[int, list[Any]] = {}
    for group in getattr(request, name):
        group_id = group if isinstance(group, str) else group.group_id
        parts.setdefault(partition_of(group_id, partition_count), []).append(group)
    return {partition: dataclasses.replace(request, **{name: groups}) for partition, groups in parts.items()}


def merge(responses: Iterable[Any]) -> Any:
    """The answers to the parts of one request, as one. Of several errors of ListGroups one is kept."""
    responses = list(responses)
    merged = responses[0]
    name = RESULTS_FIELD[type(merged)]
    for response in responses[1:]:
        getattr(merged, name).extend(getattr(response, name))
        if isinstance(response, ListGroupsResponse):
            merged.error_code = merged.error_code or response.error_code
    return merged
