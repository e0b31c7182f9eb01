"""ListGroups, DescribeGroups, DeleteGroups, and requests that are split over partitions."""

from typing import Any

import pytest

from odradek.apis.items import MOST, join
from odradek.coordinators.routing import partition_of, split
from odradek.errors import ErrorCode
from odradek.wire.codec import drain
from odradek.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from odradek.wire.messages.describe_groups import DescribeGroupsRequest
from odradek.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.coordinators.conversation import GROUP, Conversation, subscription


@pytest.fixture
def talk() -> Conversation:
    talk = Conversation()
    talk.together("anna")
    talk.commit_offset("tool", 5, group="offsets only")
    return talk


def listed(talk: Conversation, **filters: Any) -> dict[str, tuple[str, str, str]]:
    response = talk.request("tool", ListGroupsRequest(**filters))
    return {
        each.group_id: (each.protocol_type, each.group_state, each.group_type) for each in response.groups
    }


def test_groups_are_listed_by_state_and_type(talk: Conversation) -> None:
    living = {GROUP: ("consumer", "Stable", "classic")}
    simple = {"offsets only": ("", "Empty", "classic")}
    assert listed(talk) == living | simple
    assert listed(talk, states_filter=["stable"]) == living
    assert listed(talk, states_filter=["EMPTY", "Dead"]) == simple
    assert listed(talk, types_filter=["Classic"]) == living | simple
    assert listed(talk, types_filter=["consumer", "nonsense"]) == {}


def test_a_stable_group_is_described_in_full(talk: Conversation) -> None:
    talk.sync("anna")
    (group,) = talk.request("tool", DescribeGroupsRequest([GROUP])).groups
    assert (group.error_code, group.group_state) == (ErrorCode.NONE, "Stable")
    assert (group.protocol_type, group.protocol_data) == ("consumer", "range")
    (member,) = group.members
    assert (member.client_id, member.client_host) == ("anna", "/127.0.0.1")
    assert (member.member_id, member.member_metadata) == (talk.ids["anna"], subscription("t"))


def test_a_rebalancing_group_shows_no_subscriptions(talk: Conversation) -> None:
    talk.join("bert")
    (group,) = talk.request("tool", DescribeGroupsRequest([GROUP])).groups
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert [member.member_metadata for member in group.members] == [b"", b""]


@pytest.mark.parametrize(("version", "code"), [(0, 0), (5, 0), (6, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_an_unknown_group_is_dead(talk: Conversation, version: int, code: int) -> None:
    (group,) = talk.request("tool", DescribeGroupsRequest(["none"]), version).groups
    assert (group.group_state, group.error_code) == ("Dead", code)


def test_only_empty_groups_can_be_deleted(talk: Conversation) -> None:
    response = talk.request("tool", DeleteGroupsRequest([GROUP, "offsets only", "none"]))
    assert [(result.group_id, result.error_code) for result in response.results] == [
        (GROUP, ErrorCode.NON_EMPTY_GROUP),
        ("offsets only", ErrorCode.NONE),
        ("none", ErrorCode.GROUP_ID_NOT_FOUND),
    ]
    talk.restarts()
    assert set(listed(talk)) == {GROUP}
    assert talk.fetch_offset(group="offsets only") == -1


def test_a_deleted_group_can_be_born_again(talk: Conversation) -> None:
    talk.leave("anna")
    talk.request("tool", DeleteGroupsRequest([GROUP]))
    talk.ids.clear()
    talk.together("anna")
    assert talk.generation["anna"] == 1
    assert talk.beat("anna") is ErrorCode.NONE


# --- routing ---


def test_requests_about_many_groups_are_split_by_partition() -> None:
    names = [f"group {number}" for number in range(20)]
    parts = drain(split(DescribeGroupsRequest(names, True), 5))
    assert sorted(name for _, part in parts for name in part.groups) == sorted(names)
    for partition, part in parts:
        assert part.include_authorized_operations
        assert {partition_of(name, 5) for name in part.groups} == {partition}
    fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(name) for name in names])
    assert [partition for partition, _ in drain(split(fetch, 5))] == [partition for partition, _ in parts]


@pytest.mark.parametrize("topics", [[2 * MOST + 7], [1] * 2 * MOST, [MOST - 1, MOST, MOST + 1], [], [0, 0]])
def test_a_large_request_is_cut_into_parts_and_its_response_put_together_again(topics: list[int]) -> None:
    """Nothing is lost, nothing comes twice, nothing is out of order, and no part is large."""
    wanted = [
        OffsetFetchRequestTopics(name=f"t{at}", partition_indexes=list(range(count)))
        for at, count in enumerate(topics)
    ]
    groups = [OffsetFetchRequestGroup(name, topics=wanted) for name in ("a", "b", "c")]
    parts = drain(split(OffsetFetchRequest(groups=groups), 2))
    responses = []
    for _, part in parts:
        response = OffsetFetchResponse()
        assert sum(len(topic.partition_indexes) for group in part.groups for topic in group.topics) <= MOST
        for group in part.groups:
            results = [
                OffsetFetchResponseTopics(
                    name=topic.name,
                    partitions=[OffsetFetchResponsePartitions(index) for index in topic.partition_indexes],
                )
                for topic in group.topics
            ]
            response.groups.append(OffsetFetchResponseGroup(group.group_id, results))
        responses.append(response)
    merged = join(responses)
    assert sorted(group.group_id for group in merged.groups) == ["a", "b", "c"]
    for group in merged.groups:
        assert [
            (topic.name, [each.partition_index for each in topic.partitions]) for topic in group.topics
        ] == [(topic.name, topic.partition_indexes) for topic in wanted]


def test_responses_are_put_together_again() -> None:
    results = [DeletableGroupResult(name) for name in ("a", "b", "c")]
    merged = join([DeleteGroupsResponse(results=results[:1]), DeleteGroupsResponse(results=results[1:])])
    assert merged.results == results
    loading = ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    merged = join([ListGroupsResponse(groups=[ListedGroup("a")]), loading])
    assert (merged.error_code, len(merged.groups)) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 1)
