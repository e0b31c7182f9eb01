"""Offsets that are part of a transaction: who may commit them, when they are seen, and what becomes of them."""

from functools import partial
from itertools import permutations
from random import Random
from uuid import UUID

import pytest

from odradek.coordinators.group import GroupSettings
from odradek.coordinators.offsets import TransactionalCommit
from odradek.coordinators.pending_offsets import PendingOffsets, Place
from odradek.coordinators.records import OffsetCommitValue
from odradek.coordinators.runtime import Producer
from odradek.errors import ErrorCode
from odradek.model import Caller
from odradek.wire.messages.delete_groups import DeleteGroupsRequest
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
from tests.coordinators.conversation import GROUP, Conversation, lines

SETTINGS = GroupSettings(offsets_retention_minutes=60)
ONE, TWO = 1001, 1002  # producers
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


@pytest.fixture
def talk() -> Conversation:
    return Conversation(SETTINGS)


def stable_offset(talk: Conversation, topic: str = "t", group: str = GROUP) -> int | ErrorCode:
    """Return what a client is told that requires a stable offset."""
    topics = [OffsetFetchRequestTopics(name=topic, partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=topics)], require_stable=True)
    response = talk.request("someone", request, 9).groups[0].topics[0].partitions[0]
    return ErrorCode(response.error_code) if response.error_code else int(response.committed_offset)


# --- when they are seen ---


def test_offsets_are_seen_once_their_transaction_is_committed(talk: Conversation) -> None:
    talk.together("anna")
    talk.commit_offset("anna", 40)
    talk.heard()
    talk.commit_in_transaction("anna", ONE, 41)
    assert (talk.fetch_offset(), stable_offset(talk)) == (40, UNSTABLE)
    talk.end_transaction(ONE, commit=True)
    assert (talk.fetch_offset(), stable_offset(talk)) == (41, 41)
    assert talk.heard() == lines("""
        anna commits t-0 = 41 in transaction 1001
            log: t-0 = 41
            anna: NONE
            someone: offsets
            someone: offsets
        transaction 1001 commits
            log: COMMIT of 1001
            markers: NONE
            someone: offsets
            someone: offsets
    """)


def test_offsets_of_an_aborted_transaction_are_never_seen(talk: Conversation) -> None:
    talk.commit_offset("tool", 40)
    talk.commit_in_transaction("tool", ONE, 41)
    talk.end_transaction(ONE, commit=False)
    assert (talk.fetch_offset(), stable_offset(talk)) == (40, 40)
    talk.restarts()
    assert (talk.fetch_offset(), stable_offset(talk)) == (40, 40)


@pytest.mark.parametrize("commit", [True, False])
def test_a_new_coordinator_knows_what_is_pending(talk: Conversation, commit: bool) -> None:
    talk.commit_in_transaction("tool", ONE, 41)
    talk.restarts()
    assert (talk.fetch_offset(), stable_offset(talk)) == (-1, UNSTABLE)
    talk.end_transaction(ONE, commit=commit)
    assert stable_offset(talk) == (41 if commit else -1)
    talk.restarts()
    assert stable_offset(talk) == (41 if commit else -1)


def test_a_commit_and_a_marker_are_answered_once_they_are_committed(talk: Conversation) -> None:
    talk.commits = False
    assert talk.commit_in_transaction("tool", ONE, 41) is None
    assert talk.end_transaction(ONE, commit=True) is None
    talk.commit()
    assert talk.responses["tool"].topics[0].partitions[0].error_code == ErrorCode.NONE
    assert talk.responses["markers"] is ErrorCode.NONE


def test_the_last_commit_of_a_transaction_counts(talk: Conversation) -> None:
    talk.commit_in_transaction("tool", ONE, 41)
    talk.commit_in_transaction("tool", ONE, 43)
    talk.commit_in_transaction("tool", ONE, 42)
    talk.end_transaction(ONE, commit=True)
    assert talk.fetch_offset() == 42


def test_a_marker_ends_the_transaction_in_all_groups_and_in_no_other_producers(talk: Conversation) -> None:
    talk.commit_in_transaction("tool", ONE, 1, group="a")
    talk.commit_in_transaction("tool", ONE, 2, group="b", topic="u")
    talk.commit_in_transaction("tool", TWO, 3, group="c")
    talk.end_transaction(ONE, commit=True)
    assert (talk.fetch_offset(group="a"), talk.fetch_offset("u", group="b")) == (1, 2)
    assert stable_offset(talk, group="c") is UNSTABLE


def test_a_marker_of_a_producer_without_offsets_changes_nothing(talk: Conversation) -> None:
    talk.commit_in_transaction("tool", ONE, 41)
    assert talk.end_transaction(TWO, commit=True) is ErrorCode.NONE
    assert stable_offset(talk) is UNSTABLE
    talk.end_transaction(ONE, commit=True)
    assert talk.end_transaction(ONE, commit=False) is ErrorCode.NONE
    assert stable_offset(talk) == 41


@pytest.mark.parametrize("version", [7, 8, 9])
def test_all_versions_that_can_require_stable_offsets_are_told(talk: Conversation, version: int) -> None:
    talk.commit_in_transaction("tool", ONE, 41)
    if version < 8:
        request = OffsetFetchRequest(
            group_id=GROUP, topics=[OffsetFetchRequestTopic("t", [0, 1])], require_stable=True
        )
        partitions = talk.request("someone", request, version).topics[0].partitions
    else:
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(GROUP, topics=topics)], require_stable=True
        )
        partitions = talk.request("someone", request, version).groups[0].topics[0].partitions
    told = [(each.partition_index, each.committed_offset, each.error_code) for each in partitions]
    assert told == [(0, -1, UNSTABLE), (1, -1, ErrorCode.NONE)]


def test_a_fetch_of_everything_names_what_was_committed_before(talk: Conversation) -> None:
    talk.commit_offset("tool", 1, topic="a")
    talk.commit_offset("tool", 2, topic="b")
    talk.commit_in_transaction("tool", ONE, 5, topic="b")
    talk.commit_in_transaction("tool", ONE, 6, topic="c")
    groups = [OffsetFetchRequestGroup(GROUP, topics=None)]
    response = talk.request("someone", OffsetFetchRequest(groups=groups, require_stable=True), 9)
    told = {topic.name: topic.partitions[0].error_code for topic in response.groups[0].topics}
    assert told == {"a": ErrorCode.NONE, "b": UNSTABLE}


# --- the last record wins ---


def test_a_later_commit_outside_the_transaction_wins(talk: Conversation) -> None:
    talk.commit_in_transaction("tool", ONE, 41)
    talk.commit_offset("tool", 7)
    assert (talk.fetch_offset(), stable_offset(talk)) == (7, UNSTABLE)
    talk.end_transaction(ONE, commit=True)
    assert stable_offset(talk) == 7


def test_a_later_commit_in_the_transaction_wins(talk: Conversation) -> None:
    talk.commit_in_transaction("tool", ONE, 41)
    talk.commit_offset("tool", 7)
    talk.commit_in_transaction("tool", ONE, 42)
    talk.end_transaction(ONE, commit=True)
    assert stable_offset(talk) == 42


@pytest.mark.parametrize("order", list(permutations([ONE, TWO])))
def test_of_two_transactions_the_one_that_wrote_last_wins(talk: Conversation, order: tuple[int, ...]) -> None:
    talk.commit_in_transaction("tool", ONE, 1)
    talk.commit_in_transaction("tool", TWO, 2)
    for producer_id in order:
        talk.end_transaction(producer_id, commit=True)
    assert stable_offset(talk) == 2
    talk.restarts()
    assert stable_offset(talk) == 2


def test_offsets_are_what_a_dumb_oracle_says() -> None:
    """The oracle keeps every record with its number, and looks for the last one that counts."""
    place = Place("g", "t", 0)
    for seed in range(300):
        rng, pending = Random(seed), PendingOffsets()
        records: list[tuple[int, int]] = []  # (producer, or 0 for none; offset), in the order of the log
        visible: list[bool] = []
        offset = -1
        for step in range(30):
            producer_id = rng.randrange(4)
            if rng.random() < 0.6:
                records.append((producer_id, step))
                visible.append(producer_id == 0)
                if producer_id:
                    pending.add(place, producer_id, OffsetCommitValue(step))
                else:
                    pending.overtake(place)
                    offset = step
            elif producer_id:
                commits = rng.random() < 0.5
                for at, (writer, _) in enumerate(records):
                    if writer == producer_id:
                        visible[at] |= commits
                        records[at] = (-1, records[at][1])
                for _, value in pending.end(producer_id, committed=commits):
                    offset = value.offset
            shown = [step for (_, step), counts in zip(records, visible, strict=True) if counts]
            assert offset == (shown[-1] if shown else -1), f"seed {seed}"
            assert (place in pending) == any(writer > 0 for writer, _ in records), f"seed {seed}"


# --- who may commit ---


def test_a_producer_that_does_not_say_who_it_is_may_commit_to_any_group(talk: Conversation) -> None:
    """Before TxnOffsetCommit 3 it cannot say it."""
    assert talk.commit_in_transaction("tool", ONE, 1, version=2) is ErrorCode.NONE
    talk.together("anna")
    assert talk.commit_in_transaction("tool", ONE, 1, version=2) is ErrorCode.NONE
    assert talk.commit_offset("tool", 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_who_may_commit_to_a_group_with_members(talk: Conversation) -> None:
    talk.together("anna")
    generation = talk.generation["anna"]
    commit = talk.commit_in_transaction
    assert commit("anna", ONE, 1) is ErrorCode.NONE
    assert commit("anna", ONE, 1, generation=generation - 1) is ErrorCode.ILLEGAL_GENERATION
    assert commit("anna", ONE, 1, generation=-1) is ErrorCode.ILLEGAL_GENERATION
    assert commit("anna", ONE, 1, member_id="another") is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit("anna", ONE, 1, instance="unheard of") is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit("tool", ONE, 1, generation=5, group="unknown") is ErrorCode.ILLEGAL_GENERATION


def test_a_static_member_that_was_replaced_is_fenced(talk: Conversation) -> None:
    talk.together("anna", instance="desk")
    earlier = talk.ids["anna"]
    talk.join("anna", instance="desk", member_id="")
    commit = talk.commit_in_transaction
    assert commit("anna", ONE, 1, instance="desk", member_id=earlier) is ErrorCode.FENCED_INSTANCE_ID
    assert commit("anna", ONE, 1, instance="desk") is ErrorCode.NONE


def test_a_rebalance_does_not_stop_a_transaction(talk: Conversation) -> None:
    """The member's generation is the one that completes: a plain commit is told to wait."""
    talk.join("anna")
    talk.passes(SETTINGS.group_initial_rebalance_delay_ms)
    assert talk.commit_offset("anna", 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert talk.commit_in_transaction("anna", ONE, 1) is ErrorCode.NONE


def test_a_transactional_commit_is_no_heartbeat(talk: Conversation) -> None:
    talk.together("anna", session_ms=10_000)
    talk.passes(6_000)
    assert talk.commit_in_transaction("anna", ONE, 1) is ErrorCode.NONE
    talk.passes(6_000)
    assert talk.commit_in_transaction("anna", ONE, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_metadata_has_a_limit(talk: Conversation) -> None:
    long = "x" * (SETTINGS.offset_metadata_max_bytes + 1)
    assert talk.commit_in_transaction("tool", ONE, 1, metadata=long) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert stable_offset(talk) == -1


# --- epochs, and verification ---


def test_what_begins_a_transaction_must_be_verified(talk: Conversation) -> None:
    """A late commit would be pending for ever, or join the producer's next transaction."""
    commit = talk.commit_in_transaction
    assert commit("tool", ONE, 1, is_verified=False) is ErrorCode.INVALID_TXN_STATE
    assert commit("tool", ONE, 2, is_verified=True) is ErrorCode.NONE
    assert commit("tool", ONE, 3, is_verified=False) is ErrorCode.NONE  # it is open
    assert commit("tool", ONE, 4, epoch=1, is_verified=False) is ErrorCode.INVALID_TXN_STATE
    talk.end_transaction(ONE, commit=True)
    assert commit("tool", ONE, 5, is_verified=False) is ErrorCode.INVALID_TXN_STATE
    assert stable_offset(talk) == 3


def test_a_producer_that_was_fenced_is_refused(talk: Conversation) -> None:
    talk.commit_in_transaction("tool", ONE, 1, epoch=5)
    assert talk.commit_in_transaction("tool", ONE, 2, epoch=4) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert talk.end_transaction(ONE, commit=True, epoch=4) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert stable_offset(talk) is UNSTABLE
    assert talk.end_transaction(ONE, commit=False, epoch=6) is ErrorCode.NONE
    assert stable_offset(talk) == -1


def test_a_coordinator_that_was_replaced_is_refused(talk: Conversation) -> None:
    talk.end_transaction(ONE, commit=True, coordinator_epoch=4)
    talk.commit_in_transaction("tool", ONE, 1)
    refused = talk.end_transaction(ONE, commit=True, coordinator_epoch=3)
    assert refused is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert stable_offset(talk) is UNSTABLE


def test_a_late_marker_does_not_end_the_next_transaction(talk: Conversation) -> None:
    """The marker has an epoch of its own with transaction.version 2, which the next transaction takes over."""
    talk.commit_in_transaction("tool", ONE, 1, epoch=0)
    talk.end_transaction(ONE, commit=True, epoch=1, transaction_version=2)
    end_offset = talk.log.end_offset
    assert talk.end_transaction(ONE, commit=True, epoch=1, transaction_version=2) is ErrorCode.NONE
    assert talk.log.end_offset == end_offset  # it is there already
    talk.commit_in_transaction("tool", ONE, 2, epoch=1)
    late = talk.end_transaction(ONE, commit=True, epoch=1, transaction_version=2)
    assert late is ErrorCode.INVALID_PRODUCER_EPOCH
    assert (talk.fetch_offset(), stable_offset(talk)) == (1, UNSTABLE)


# --- appends that fail ---


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_what_cannot_be_appended_is_refused_and_forgotten(
    talk: Conversation, code: ErrorCode, seen: ErrorCode
) -> None:
    talk.append_error = code
    assert talk.commit_in_transaction("tool", ONE, 1) is seen
    talk.append_error = None
    assert stable_offset(talk) == -1
    assert talk.commit_in_transaction("tool", ONE, 1) is ErrorCode.NONE
    talk.append_error = code
    assert talk.end_transaction(ONE, commit=True) is seen
    assert stable_offset(talk) is UNSTABLE


# --- pending offsets that are removed ---


def delete_offset(talk: Conversation, topic: str = "t") -> None:
    topics = [OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(0)])]
    response = talk.request("tool", OffsetDeleteRequest(GROUP, topics))
    assert response.topics[0].partitions[0].error_code == ErrorCode.NONE


def test_deleting_an_offset_deletes_what_is_pending(talk: Conversation) -> None:
    talk.commit_in_transaction("tool", ONE, 41)
    talk.commit_in_transaction("tool", ONE, 51, topic="u")
    delete_offset(talk)
    assert stable_offset(talk) == -1
    talk.end_transaction(ONE, commit=True)
    assert (stable_offset(talk), stable_offset(talk, "u")) == (-1, 51)
    talk.restarts()
    assert (stable_offset(talk), stable_offset(talk, "u")) == (-1, 51)


def test_deleting_a_group_deletes_what_is_pending(talk: Conversation) -> None:
    talk.commit_offset("tool", 40)
    talk.commit_in_transaction("tool", ONE, 41)
    talk.commit_in_transaction("tool", TWO, 51, topic="u")
    talk.heard()
    assert talk.request("tool", DeleteGroupsRequest([GROUP])).results[0].error_code == ErrorCode.NONE
    assert [line for line in talk.heard().split("\n") if "= gone" in line] == [
        "    log: t-0 = gone",
        "    log: u-0 = gone",
    ]
    for producer_id in (ONE, TWO):
        talk.end_transaction(producer_id, commit=True)
    assert GROUP not in talk.coordinator.groups
    talk.restarts()
    assert GROUP not in talk.coordinator.groups


def test_nothing_expires_while_a_transaction_is_open(talk: Conversation) -> None:
    talk.commit_offset("tool", 40)
    talk.commit_in_transaction("tool", ONE, 41)
    talk.commit_in_transaction("tool", TWO, 42, group="new")
    talk.passes(2 * SETTINGS.offsets_retention_ms)
    assert (talk.fetch_offset(), set(talk.coordinator.groups)) == (40, {GROUP, "new"})
    for producer_id in (ONE, TWO):
        talk.end_transaction(producer_id, commit=False)
    talk.passes(SETTINGS.offsets_retention_check_interval_ms)
    assert not talk.coordinator.groups


def test_pending_offsets_of_deleted_topics_go(talk: Conversation) -> None:
    talk.commit_in_transaction("tool", ONE, 41)
    talk.commit_in_transaction("tool", ONE, 51, topic="u")
    talk.runner.tell(lambda coordinator, now_ms: coordinator.topics_deleted({"t"}, now_ms))
    assert (stable_offset(talk), stable_offset(talk, "u")) == (-1, UNSTABLE)
    talk.end_transaction(ONE, commit=True)
    talk.restarts()
    assert (stable_offset(talk), stable_offset(talk, "u")) == (-1, 51)


def test_a_pending_offset_of_the_next_topic_of_a_name_stays(talk: Conversation) -> None:
    """Its tombstone would remove what is pending: it waits for the end of that transaction."""
    old, new = UUID(int=1), UUID(int=2)
    topic = OffsetCommitRequestTopic(old, "t", [OffsetCommitRequestPartition(0, 7)])
    talk.runner.handle(
        OffsetCommitRequest(GROUP, topics=[topic]), 10, Caller(), partial(talk._hear, "tool", 9)
    )
    talk.commit_in_transaction("tool", ONE, 1, topic_id=new)
    talk.runner.tell(lambda coordinator, now_ms: coordinator.forget_missing_topics({"t": new}.get, now_ms))
    assert talk.fetch_offset() == -1
    talk.end_transaction(ONE, commit=True)
    talk.passes(5_000)
    assert stable_offset(talk) == 1


def test_an_offset_of_a_deleted_topic_goes_once_no_transaction_needs_it(talk: Conversation) -> None:
    old, new = UUID(int=1), UUID(int=2)
    talk.commit_in_transaction("tool", ONE, 7, topic_id=old)
    talk.commit_in_transaction("tool", TWO, 1, topic_id=new)
    talk.runner.tell(lambda coordinator, now_ms: coordinator.forget_missing_topics({"t": new}.get, now_ms))
    talk.end_transaction(ONE, commit=True)
    assert talk.fetch_offset() == -1
    talk.end_transaction(TWO, commit=False)
    talk.heard()
    talk.passes(1_000)
    assert "    log: t-0 = gone" in talk.heard().split("\n")
    talk.restarts()
    assert stable_offset(talk) == -1


def test_many_partitions_are_committed_at_once(talk: Conversation) -> None:
    topics = [
        OffsetCommitRequestTopic(
            name=name, partitions=[OffsetCommitRequestPartition(at, at) for at in range(3)]
        )
        for name in ("a", "b")
    ]
    commit = TransactionalCommit(
        OffsetCommitRequest(GROUP, topics=topics), Producer(ONE, 0), is_verified=True
    )
    talk.runner.handle(commit, 5, Caller(), partial(talk._hear, "tool", 5))
    talk.end_transaction(ONE, commit=True)
    assert [talk.fetch_offset(name, at) for name in ("a", "b") for at in range(3)] == [0, 1, 2] * 2
