"""Committed offsets: who may commit, what is given back, and when offsets go."""

from functools import partial
from uuid import UUID

import pytest

from odradek.coordinators.group import GroupSettings
from odradek.errors import ErrorCode
from odradek.model import Caller
from odradek.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.coordinators.conversation import GROUP, Conversation, lines, subscription

MINUTE_MS = 60_000
SETTINGS = GroupSettings(offsets_retention_minutes=60)


@pytest.fixture
def talk() -> Conversation:
    return Conversation(SETTINGS)


# --- commit ---


def test_a_member_commits_and_the_offset_survives_a_restart(talk: Conversation) -> None:
    talk.together("anna")
    talk.commit_offset("anna", 41)
    talk.commit_offset("anna", 42)
    talk.restarts()
    assert talk.fetch_offset() == 42
    assert talk.heard() == lines("""
        anna commits t-0 = 41
            log: t-0 = 41
            anna: NONE
        anna commits t-0 = 42
            log: t-0 = 42
            anna: NONE
        (the coordinator restarts)
            someone: offsets
    """)


def test_a_commit_is_not_true_before_it_is_committed(talk: Conversation) -> None:
    talk.commits = False
    assert talk.commit_offset("tool", 5) is None
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(GROUP, topics=None)])
    assert talk.request("reader", request, 9) is None
    talk.commit()
    assert talk.responses["tool"].topics[0].partitions[0].error_code == ErrorCode.NONE
    assert talk.responses["reader"].groups[0].topics[0].partitions[0].committed_offset == 5


def test_a_commit_that_cannot_be_stored_is_refused_and_forgotten(talk: Conversation) -> None:
    talk.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert talk.commit_offset("tool", 5) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert GROUP not in talk.coordinator.groups
    assert talk.fetch_offset() == -1


def test_a_consumer_without_membership_commits_to_a_group_of_its_own(talk: Conversation) -> None:
    assert talk.commit_offset("tool", 5) is ErrorCode.NONE
    group = talk.coordinator.groups[GROUP]
    assert (group.is_empty, group.protocol_type) == (True, "")


@pytest.mark.parametrize(
    ("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_a_member_of_an_unknown_group_is_refused(talk: Conversation, version: int, code: ErrorCode) -> None:
    assert talk.commit_offset("anna", 1, generation=3, member_id="x", version=version) is code


def test_who_may_commit_to_a_group_with_members(talk: Conversation) -> None:
    talk.together("anna")
    assert talk.commit_offset("tool", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.commit_offset("anna", 1, generation=0) is ErrorCode.ILLEGAL_GENERATION
    assert talk.commit_offset("anna", 1, member_id="eve") is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.commit_offset("anna", 1, instance="x") is ErrorCode.UNKNOWN_MEMBER_ID
    talk.join("bert")
    assert talk.commit_offset("anna", 1) is ErrorCode.NONE  # what it still owns, before it joins again
    talk.join("anna")
    assert talk.commit_offset("anna", 2, generation=1) is ErrorCode.ILLEGAL_GENERATION
    assert talk.commit_offset("anna", 2) is ErrorCode.REBALANCE_IN_PROGRESS
    assert talk.fetch_offset() == 1


def test_metadata_has_a_limit(talk: Conversation) -> None:
    assert talk.commit_offset("tool", 1, metadata="x" * 4_096) is ErrorCode.NONE
    assert talk.commit_offset("tool", 2, metadata="x" * 4_097) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert talk.fetch_offset() == 1


@pytest.mark.parametrize("version", range(2, 10))
def test_every_version_commits(talk: Conversation, version: int) -> None:
    assert talk.commit_offset("tool", version, version=version) is ErrorCode.NONE
    assert talk.fetch_offset() == version


# --- fetch ---


def fetch(talk: Conversation, *groups: OffsetFetchRequestGroup) -> dict[str, dict[tuple[str, int], int]]:
    response = talk.request("reader", OffsetFetchRequest(groups=list(groups)), 9)
    return {
        group.group_id: {
            (topic.name, partition.partition_index): partition.committed_offset
            for topic in group.topics
            for partition in topic.partitions
        }
        for group in response.groups
    }


def test_many_groups_are_fetched_at_once(talk: Conversation) -> None:
    talk.commit_offset("tool", 1, group="one", topic="a")
    talk.commit_offset("tool", 2, group="two", topic="a", partition=3)
    talk.commit_offset("tool", 3, group="two", topic="b")
    wanted = [OffsetFetchRequestTopics(name="a", partition_indexes=[0, 9])]
    assert fetch(
        talk,
        OffsetFetchRequestGroup("one", topics=wanted),
        OffsetFetchRequestGroup("two", topics=None),
        OffsetFetchRequestGroup("none", topics=None),
        OffsetFetchRequestGroup("nil", topics=wanted),
    ) == {
        "one": {("a", 0): 1, ("a", 9): -1},
        "two": {("a", 3): 2, ("b", 0): 3},
        "none": {},
        "nil": {("a", 0): -1, ("a", 9): -1},
    }


@pytest.mark.parametrize("version", range(1, 8))
def test_older_versions_fetch_one_group(talk: Conversation, version: int) -> None:
    talk.commit_offset("tool", 11, metadata="note")
    request = OffsetFetchRequest(group_id=GROUP, topics=[OffsetFetchRequestTopic("t", [0, 1])])
    response = talk.request("reader", request, version)
    found, missing = response.topics[0].partitions
    assert (found.committed_offset, found.metadata, found.committed_leader_epoch) == (11, "note", 7)
    assert (missing.committed_offset, missing.metadata, missing.committed_leader_epoch) == (-1, "", -1)
    if version >= 2:
        response = talk.request("reader", OffsetFetchRequest(group_id=GROUP, topics=None), version)
        assert [topic.name for topic in response.topics] == ["t"]


@pytest.mark.parametrize("version", range(1, 9))
def test_a_refused_fetch_says_so_in_every_version(talk: Conversation, version: int) -> None:
    talk.runner.resign()
    topics = [OffsetFetchRequestTopic("t", [0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(GROUP)], group_id=GROUP, topics=topics)
    response = talk.request("reader", request, version)
    (place,) = (
        response.groups if version >= 8 else (response,) if version >= 2 else response.topics[0].partitions
    )
    assert place.error_code == ErrorCode.NOT_COORDINATOR


def test_a_topic_of_the_same_name_and_another_id_has_no_offsets(talk: Conversation) -> None:
    def ask(topic_id: UUID) -> int:
        topics = [OffsetFetchRequestTopics(topic_id, "t", [0])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(GROUP, topics=topics)])
        decision = talk.coordinator.handle(request, 10, Caller(), "token", talk.now_ms)
        ((_, response),) = decision.responses
        assert response.groups[0].topics[0].topic_id == topic_id
        return int(response.groups[0].topics[0].partitions[0].committed_offset)

    partitions = [OffsetCommitRequestPartition(0, 5)]
    topic = OffsetCommitRequestTopic(topic_id=UUID(int=1), name="t", partitions=partitions)
    request = OffsetCommitRequest(group_id=GROUP, topics=[topic])
    decision = talk.coordinator.handle(request, 10, Caller(), "token", talk.now_ms)
    for key, value in decision.records:
        talk.coordinator.replay(key, value)
    assert [ask(UUID(int=number)) for number in (0, 1, 2)] == [5, 5, -1]


# --- delete ---


def delete(talk: Conversation, topic: str, group: str = GROUP) -> tuple[ErrorCode, ErrorCode | None]:
    topics = [OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(0)])]
    response = talk.request("tool", OffsetDeleteRequest(group, topics))
    part = ErrorCode(response.topics[0].partitions[0].error_code) if response.topics else None
    return ErrorCode(response.error_code), part


def test_offsets_can_be_deleted_unless_their_topic_is_read(talk: Conversation) -> None:
    talk.together("anna")
    talk.commit_offset("anna", 1, topic="t")
    talk.commit_offset("anna", 1, topic="old")
    assert delete(talk, "t") == (ErrorCode.NONE, ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
    assert delete(talk, "old") == (ErrorCode.NONE, ErrorCode.NONE)
    assert delete(talk, "unheard of") == (ErrorCode.NONE, ErrorCode.NONE)
    assert (talk.fetch_offset("t"), talk.fetch_offset("old")) == (1, -1)


def test_deleting_needs_a_group_that_we_understand(talk: Conversation) -> None:
    assert delete(talk, "t") == (ErrorCode.GROUP_ID_NOT_FOUND, None)
    assert delete(talk, "t", "") == (ErrorCode.INVALID_GROUP_ID, None)
    talk.together("anna", protocol_type="connect")
    assert delete(talk, "t") == (ErrorCode.NON_EMPTY_GROUP, None)


# --- offsets that go by themselves ---


def test_offsets_of_deleted_topics_go(talk: Conversation) -> None:
    talk.commit_offset("tool", 1, topic="a")
    talk.commit_offset("tool", 2, topic="b")
    talk.commit_offset("tool", 3, topic="a", group="two")
    talk.heard()
    talk.runner.tell(lambda coordinator, now_ms: coordinator.topics_deleted({"a", "c"}, now_ms))
    assert talk.heard().split("\n") == ["    log: a-0 = gone"] * 2
    talk.restarts()
    assert (talk.fetch_offset("a"), talk.fetch_offset("b")) == (-1, 2)


def test_offsets_of_an_earlier_topic_of_a_name_go(talk: Conversation) -> None:
    """The broker stopped after the topic was made again, and before the tombstones were written."""
    old, new = UUID(int=1), UUID(int=2)
    for name, topic_id in (("a", old), ("b", new), ("c", UUID(int=0))):
        topic = OffsetCommitRequestTopic(topic_id, name, [OffsetCommitRequestPartition(0, 7)])
        request = OffsetCommitRequest(group_id=GROUP, topics=[topic])
        talk.runner.handle(request, 10, Caller(), partial(talk._hear, "tool", 9))
    ids = {"a": new, "b": new, "c": new}
    talk.runner.tell(lambda coordinator, now_ms: coordinator.forget_missing_topics(ids.get, now_ms))
    assert [talk.fetch_offset(name) for name in ids] == [-1, 7, 7]
    talk.restarts()
    assert [talk.fetch_offset(name) for name in ids] == [-1, 7, 7]


def test_offsets_of_a_consumer_without_membership_expire_after_their_commit(talk: Conversation) -> None:
    talk.commit_offset("tool", 1, topic="a")
    talk.passes(40 * MINUTE_MS)
    talk.commit_offset("tool", 2, topic="b")
    talk.passes(30 * MINUTE_MS)
    assert (talk.fetch_offset("a"), talk.fetch_offset("b")) == (-1, 2)
    talk.passes(40 * MINUTE_MS)
    assert GROUP not in talk.coordinator.groups
    talk.restarts()
    assert GROUP not in talk.coordinator.groups


def test_offsets_of_a_group_expire_once_it_has_been_empty_for_long(talk: Conversation) -> None:
    talk.together("anna", session_ms=1_000_000)
    talk.commit_offset("anna", 1)
    for _ in range(10):
        talk.passes(10 * MINUTE_MS)
        talk.beat("anna")
    talk.leave("anna")
    talk.passes(50 * MINUTE_MS)
    assert talk.fetch_offset() == 1
    talk.restarts()
    talk.passes(20 * MINUTE_MS)
    assert talk.fetch_offset() == -1
    assert GROUP not in talk.coordinator.groups


def test_a_living_group_keeps_what_it_reads_and_loses_what_it_no_longer_reads(talk: Conversation) -> None:
    talk.together("anna", session_ms=1_000_000, protocols={"range": subscription("t")})
    talk.commit_offset("anna", 1, topic="t")
    talk.commit_offset("anna", 1, topic="once")
    for _ in range(8):
        talk.passes(10 * MINUTE_MS)
        talk.beat("anna")
    assert (talk.fetch_offset("t"), talk.fetch_offset("once")) == (1, -1)


def test_a_group_whose_subscription_we_cannot_read_keeps_everything(talk: Conversation) -> None:
    talk.together("anna", session_ms=1_000_000, protocols={"range": b"??"})
    talk.commit_offset("anna", 1, topic="once")
    for _ in range(8):
        talk.passes(10 * MINUTE_MS)
        talk.beat("anna")
    assert talk.fetch_offset("once") == 1


def test_an_explicit_retention_time_counts(talk: Conversation) -> None:
    talk.commit_offset("tool", 1, topic="short", retention_ms=15 * MINUTE_MS, version=4)
    talk.commit_offset("tool", 1, topic="long", retention_ms=90 * MINUTE_MS, version=4)
    talk.restarts()
    talk.passes(20 * MINUTE_MS)
    assert (talk.fetch_offset("short"), talk.fetch_offset("long")) == (-1, 1)
    talk.passes(60 * MINUTE_MS)
    assert talk.fetch_offset("long") == 1


def test_many_groups_expire_in_slices(talk: Conversation) -> None:
    for number in range(2_500):
        talk.commit_offset("tool", 1, group=f"group {number}")
    talk.passes(71 * MINUTE_MS)
    assert not talk.coordinator.groups
