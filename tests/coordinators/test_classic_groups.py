"""Classic groups, told as conversations: one for every state and move, and for every way to be refused."""

import pytest

from odradek.coordinators.classic.group import LEGAL_MOVES, ClassicGroup, State
from odradek.coordinators.group import GroupSettings
from odradek.errors import ErrorCode
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.coordinators.conversation import GROUP, Conversation, lines, subscription


@pytest.fixture
def talk() -> Conversation:
    return Conversation()


def group_of(talk: Conversation) -> ClassicGroup:
    group = talk.coordinator.groups[GROUP]
    assert isinstance(group, ClassicGroup)
    return group


# --- from Empty to Stable and back ---


def test_a_group_is_born_lives_and_ends(talk: Conversation) -> None:
    talk.join("anna")
    talk.join("bert")
    talk.passes(6_000)
    talk.sync("bert")
    talk.sync("anna", {"anna": "t0", "bert": "t1"})
    talk.beat("bert")
    talk.leave("bert")
    talk.beat("anna")
    talk.join("anna")
    talk.sync("anna", {"anna": "t0 t1"})
    talk.leave("anna")
    assert talk.heard() == lines("""
        anna joins
            anna: MEMBER_ID_REQUIRED
        anna joins with that id
        bert joins
            bert: MEMBER_ID_REQUIRED
        bert joins with that id
        (6000 ms pass)
            anna: generation 1, range, led by anna of anna bert
            bert: generation 1, range, led by anna
        bert syncs
        anna syncs {'anna': 't0', 'bert': 't1'}
            log: generation 1 of anna=t0 bert=t1
            anna: has t0
            bert: has t1
        bert beats
            bert: NONE
        bert leaves
            bert: NONE
        anna beats
            anna: REBALANCE_IN_PROGRESS
        anna joins
            anna: generation 2, range, led by anna of anna
        anna syncs {'anna': 't0 t1'}
            log: generation 2 of anna=t0 t1
            anna: has t0 t1
        anna leaves
            log: generation 3 of nobody
            anna: NONE
    """)
    assert group_of(talk).state is State.EMPTY


def test_older_clients_join_in_one_step(talk: Conversation) -> None:
    for version in range(4):
        talk.join(f"client{version}", version=version)
    talk.passes(60_000)
    assert talk.responses["client0"].generation_id == talk.responses["client3"].generation_id == 1
    assert len(talk.responses["client0"].members) == 4


def test_version_0_has_one_timeout_for_both(talk: Conversation) -> None:
    talk.join("anna", session_ms=9_000, rebalance_ms=1, version=0)
    (member,) = group_of(talk).members.values()
    assert member.rebalance_timeout_ms == 9_000


def test_newcomers_prolong_the_initial_delay_up_to_the_rebalance_timeout(talk: Conversation) -> None:
    talk.join("anna", rebalance_ms=7_000)
    for newcomer in ("bert", "carl", "dora"):
        talk.passes(2_000)
        talk.join(newcomer, rebalance_ms=7_000)
    assert "anna" not in talk.responses
    talk.passes(1_000)
    assert len(talk.responses["anna"].members) == 4


def test_without_a_delay_the_first_join_is_enough() -> None:
    talk = Conversation(GroupSettings(group_initial_rebalance_delay_ms=0))
    talk.join("anna")
    talk.passes(0)
    assert talk.responses["anna"].generation_id == 1


def test_the_moves_are_those_of_the_table() -> None:
    group = ClassicGroup(
        "g", Conversation().coordinator.timers, lambda group_id, member_id: lambda now_ms: None
    )
    for state in State:
        for target in State:
            group.state = state
            if target in LEGAL_MOVES[state]:
                group.move_to(target)
                assert group.state is target
            else:
                with pytest.raises(AssertionError):
                    group.move_to(target)


# --- PreparingRebalance ---


def test_a_newcomer_starts_a_rebalance_that_waits_for_the_others(talk: Conversation) -> None:
    talk.together("anna")
    talk.join("bert")
    talk.beat("anna")
    talk.join("anna")
    assert talk.heard() == lines("""
        bert joins
            bert: MEMBER_ID_REQUIRED
        bert joins with that id
        anna beats
            anna: REBALANCE_IN_PROGRESS
        anna joins
            anna: generation 2, range, led by anna of anna bert
            bert: generation 2, range, led by anna
    """)


def test_who_does_not_come_back_in_time_is_out(talk: Conversation) -> None:
    talk.together("anna", "bert", rebalance_ms=30_000, session_ms=60_000)
    talk.join("bert", protocols={"range": subscription("t", "u")})
    talk.passes(30_000)
    assert talk.heard() == lines("""
        bert joins
        (30000 ms pass)
            bert: generation 2, range, led by bert of bert
    """)
    assert talk.beat("anna") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_is_late_keeps_its_place_and_loses_the_lead(talk: Conversation) -> None:
    talk.join("anna", instance="first", session_ms=60_000)
    talk.passes(3_000)
    talk.sync("anna", {"anna": "t0"}, instance="first")
    talk.join("bert", session_ms=60_000)
    talk.heard()
    talk.passes(20_000)
    assert talk.heard() == lines("""
        (20000 ms pass)
            bert: generation 2, range, led by bert of first bert
    """)


def test_static_members_of_whom_none_comes_back_are_waited_for(talk: Conversation) -> None:
    talk.join("anna", instance="first", session_ms=60_000)
    talk.passes(3_000)
    talk.sync("anna", {"anna": "t0"}, instance="first")
    talk.join("bert", instance="second", session_ms=60_000)
    talk.leave("bert", instance="second")
    talk.passes(20_000)
    assert group_of(talk).state is State.PREPARING_REBALANCE
    talk.passes(60_000)
    assert group_of(talk).state is State.EMPTY


def test_an_id_that_is_never_used_holds_the_rebalance_up_only_for_its_session(talk: Conversation) -> None:
    talk.together("anna", session_ms=60_000)
    protocols = [JoinGroupRequestProtocol("range", subscription("t"))]
    talk.request(
        "ghost", JoinGroupRequest(GROUP, 6_000, 20_000, protocol_type="consumer", protocols=protocols)
    )
    talk.join("anna", protocols={"range": subscription("t", "u")})
    assert "anna" not in talk.responses
    talk.passes(6_000)
    assert talk.responses["anna"].generation_id == 2


def test_a_repeated_join_replaces_the_one_that_waits(talk: Conversation) -> None:
    talk.together("anna", "bert")
    talk.leave("bert")
    talk.join("carl")
    talk.heard()
    talk.join("carl")
    assert talk.heard() == lines("""
        carl joins
            carl: REBALANCE_IN_PROGRESS
    """)
    talk.join("anna")
    assert talk.responses["carl"].generation_id == 2


def test_a_new_member_that_gave_up_waiting_goes_after_five_minutes(talk: Conversation) -> None:
    talk.join("anna", rebalance_ms=1_000_000, session_ms=60_000, version=3)
    talk.passes(3_000)
    talk.sync("anna", {"anna": "t0"})
    talk.join("bert", rebalance_ms=1_000_000, version=3)
    for _ in range(6):
        talk.beat("anna")
        talk.passes(50_000)
    assert ErrorCode(talk.responses["bert"].error_code) is ErrorCode.UNKNOWN_MEMBER_ID


# --- CompletingRebalance ---


def test_a_rebalance_during_sync_sends_those_who_wait_back(talk: Conversation) -> None:
    talk.join("anna")
    talk.join("bert")
    talk.passes(6_000)
    talk.sync("bert")
    talk.join("carl")
    talk.sync("anna", {"anna": "t0", "bert": "t1"})
    transcript = talk.heard()
    assert "bert: REBALANCE_IN_PROGRESS" in transcript
    assert transcript.endswith("anna: REBALANCE_IN_PROGRESS")
    assert "log" not in transcript


def test_members_may_beat_before_the_leader_has_spoken(talk: Conversation) -> None:
    talk.join("anna")
    talk.passes(3_000)
    assert talk.beat("anna") is ErrorCode.NONE


def test_who_missed_the_join_response_gets_it_again(talk: Conversation) -> None:
    talk.join("anna")
    talk.join("bert")
    talk.passes(6_000)
    talk.heard()
    talk.join("anna")
    talk.join("bert")
    assert talk.heard() == lines("""
        anna joins
            anna: generation 1, range, led by anna of anna bert
        bert joins
            bert: generation 1, range, led by anna
    """)


def test_who_never_syncs_is_removed(talk: Conversation) -> None:
    talk.join("anna", rebalance_ms=8_000)
    talk.join("bert", rebalance_ms=8_000)
    talk.passes(6_000)
    talk.sync("anna", {"anna": "t0", "bert": "t1"})
    for _ in range(3):
        talk.passes(3_000)
        talk.beat("bert")
    assert ErrorCode(talk.responses["bert"].error_code) is ErrorCode.UNKNOWN_MEMBER_ID
    assert set(group_of(talk).members) == {talk.ids["anna"]}
    assert group_of(talk).state is State.PREPARING_REBALANCE


def test_a_repeated_sync_replaces_the_one_that_waits(talk: Conversation) -> None:
    talk.join("anna")
    talk.join("bert")
    talk.passes(6_000)
    talk.sync("bert")
    talk.heard()
    talk.sync("bert")
    talk.sync("anna", {"bert": "t1"})
    assert talk.heard() == lines("""
        bert syncs
            bert: REBALANCE_IN_PROGRESS
        anna syncs {'bert': 't1'}
            log: generation 1 of anna= bert=t1
            anna: has nothing
            bert: has t1
    """)


def test_an_assignment_that_cannot_be_stored_starts_over(talk: Conversation) -> None:
    talk.join("anna")
    talk.join("bert")
    talk.passes(6_000)
    talk.sync("bert")
    talk.heard()
    talk.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    talk.sync("anna", {"anna": "t0", "bert": "t1"})
    talk.append_error = None
    talk.join("bert")
    talk.join("anna")
    assert talk.heard() == lines("""
        anna syncs {'anna': 't0', 'bert': 't1'}
            anna: COORDINATOR_NOT_AVAILABLE
            bert: COORDINATOR_NOT_AVAILABLE
        bert joins
        anna joins
            anna: generation 2, range, led by anna of anna bert
            bert: generation 2, range, led by anna
    """)


# --- Stable ---


def test_a_member_that_falls_silent_loses_its_place_and_its_commits(talk: Conversation) -> None:
    talk.together("anna", "bert")
    for _ in range(4):
        talk.passes(3_000)
        talk.beat("anna")
    assert talk.responses["anna"].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert talk.beat("bert") is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.commit_offset("bert", 5) is ErrorCode.UNKNOWN_MEMBER_ID


def test_commits_keep_a_session_alive(talk: Conversation) -> None:
    talk.together("anna")
    for offset in range(5):
        talk.passes(9_000)
        assert talk.commit_offset("anna", offset) is ErrorCode.NONE


def test_syncing_keeps_a_session_alive(talk: Conversation) -> None:
    """Also that of a member who asks for its assignment after the leader gave it."""
    talk.together("anna")
    for _ in range(5):
        talk.passes(9_000)
        talk.sync("anna")
        assert talk.responses["anna"].error_code == ErrorCode.NONE


def test_the_leader_may_ask_for_a_rebalance_a_follower_may_not(talk: Conversation) -> None:
    talk.together("anna", "bert")
    talk.join("bert")
    talk.join("anna")
    assert talk.heard() == lines("""
        bert joins
            bert: generation 1, range, led by anna
        anna joins
    """)
    assert group_of(talk).state is State.PREPARING_REBALANCE


def test_a_stable_member_may_sync_again(talk: Conversation) -> None:
    talk.join("anna")
    talk.passes(3_000)
    talk.sync("anna", {"anna": "t0"})
    response = talk.sync("anna")
    assert response is not None and response.assignment == b"t0"


# --- protocols ---


def test_the_protocol_with_most_votes_among_those_all_know_wins(talk: Conversation) -> None:
    talk.join("anna", protocols={"sticky": b"", "range": b"a", "robin": b""})
    talk.join("bert", protocols={"robin": b"", "range": b"b"})
    talk.join("carl", protocols={"range": b"c", "robin": b""})
    talk.passes(9_000)
    response = talk.responses["anna"]
    assert response.protocol_name == "range"
    assert [member.metadata for member in response.members] == [b"a", b"b", b"c"]


def test_a_member_without_a_common_protocol_is_refused(talk: Conversation) -> None:
    talk.together("anna")
    refusal = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    for fields in ({"protocols": {"robin": b""}}, {"protocol_type": "connect"}):
        response = talk.join("bert", **fields)
        assert response is not None and response.error_code == refusal
    for fields in ({"protocols": {}}, {"protocol_type": ""}):
        response = talk.join("carl", group="other", **fields)
        assert response is not None and response.error_code == refusal
    assert "other" not in talk.coordinator.groups
    response = talk.sync("anna", protocol_name="robin")
    assert response is not None and response.error_code == refusal


# --- static members ---


def static_pair(talk: Conversation) -> None:
    for name, instance in (("anna", "first"), ("bert", "second")):
        talk.join(name, instance=instance)
    talk.passes(6_000)
    talk.sync("anna", {"anna": "t0", "bert": "t1"}, instance="first")
    talk.sync("bert", instance="second")
    talk.heard()


def test_a_static_member_comes_back_without_a_rebalance(talk: Conversation) -> None:
    static_pair(talk)
    talk.join("bert", instance="second", member_id="")
    talk.sync("bert", instance="second")
    assert talk.heard() == lines("""
        bert joins
            log: generation 1 of first=t0 second'=t1
            bert: generation 1, range, led by first
        bert syncs
            bert: has t1
    """)


def test_a_static_leader_that_comes_back_is_told_to_leave_things_as_they_are(talk: Conversation) -> None:
    static_pair(talk)
    talk.join("anna", instance="first", member_id="")
    assert talk.heard() == lines("""
        anna joins
            log: generation 1 of second=t1 first'=t0
            anna: generation 1, range, led by first' of second first', assignment stays
    """)


def test_an_older_static_leader_is_told_that_another_leads(talk: Conversation) -> None:
    static_pair(talk)
    talk.join("anna", instance="first", member_id="", version=8)
    assert talk.heard().endswith("anna: generation 1, range, led by first")


def test_the_old_self_of_a_static_member_is_fenced(talk: Conversation) -> None:
    static_pair(talk)
    talk.ids["old bert"] = talk.ids["bert"]
    talk.generation["old bert"] = 1
    talk.join("bert", instance="second", member_id="")
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert talk.beat("old bert", instance="second") is fenced
    assert talk.beat("old bert") is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.commit_offset("old bert", 1, instance="second") is fenced
    responses = [talk.sync("old bert", instance="second"), talk.join("old bert", instance="second")]
    assert [response and response.error_code for response in responses] == [fenced, fenced]
    assert talk.leave("old bert", instance="second").members[0].error_code == fenced
    assert talk.commit_offset("bert", 1, instance="second") is ErrorCode.NONE


def test_a_static_member_replaced_while_it_waits_is_told(talk: Conversation) -> None:
    static_pair(talk)
    talk.join("anna", instance="first")
    talk.join("anna again", instance="first", member_id="")
    assert "anna: FENCED_INSTANCE_ID" in talk.heard()


def test_a_static_member_with_another_subscription_still_takes_over_quietly(talk: Conversation) -> None:
    static_pair(talk)
    talk.join("bert", instance="second", member_id="", protocols={"range": subscription("other")})
    assert group_of(talk).state is State.STABLE


def test_a_takeover_that_changes_the_protocol_rebalances(talk: Conversation) -> None:
    both = {"range": subscription("t"), "robin": subscription("t")}
    talk.join("anna", instance="first", protocols=both)
    talk.passes(3_000)
    talk.sync("anna", {"anna": "t0"}, instance="first")
    talk.join("anna", instance="first", member_id="", protocols=dict(reversed(both.items())))
    assert talk.responses["anna"].protocol_name == "robin"
    assert talk.generation["anna"] == 2


def test_a_takeover_that_cannot_be_stored_is_undone(talk: Conversation) -> None:
    static_pair(talk)
    talk.append_error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    old_id = talk.ids["bert"]
    response = talk.join("bert", instance="second", member_id="")
    assert response is not None and response.error_code == ErrorCode.NOT_COORDINATOR
    talk.append_error = None
    talk.ids["bert"] = old_id
    assert talk.beat("bert", instance="second") is ErrorCode.NONE


def test_a_tool_removes_a_static_member_by_its_instance_id(talk: Conversation) -> None:
    static_pair(talk)
    identities = [MemberIdentity("", "second"), MemberIdentity("", "nobody"), MemberIdentity("", None)]
    response = talk.request("tool", LeaveGroupRequest(group_id=GROUP, members=identities))
    assert [member.error_code for member in response.members] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert group_of(talk).state is State.PREPARING_REBALANCE


# --- bad input ---


def test_session_timeouts_have_bounds(talk: Conversation) -> None:
    for timeout_ms in (5_999, 1_800_001, -1):
        response = talk.join("anna", session_ms=timeout_ms)
        assert response is not None and response.error_code == ErrorCode.INVALID_SESSION_TIMEOUT


def test_a_group_needs_a_name(talk: Conversation) -> None:
    responses = [talk.join("anna", group=""), talk.sync("anna", group="")]
    assert [response and response.error_code for response in responses] == [ErrorCode.INVALID_GROUP_ID] * 2


def test_strangers_and_old_generations_are_refused(talk: Conversation) -> None:
    talk.together("anna")
    talk.ids["eve"] = "eve-made-this-up"
    assert talk.beat("eve", generation=1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.beat("anna", generation=0) is ErrorCode.ILLEGAL_GENERATION
    assert talk.beat("anna", instance="none") is ErrorCode.UNKNOWN_MEMBER_ID
    responses = [talk.join("eve"), talk.join("eve", group="unheard of"), talk.sync("eve", generation=1)]
    assert [response and response.error_code for response in responses] == [ErrorCode.UNKNOWN_MEMBER_ID] * 3
    response = talk.sync("anna", generation=2)
    assert response is not None and response.error_code == ErrorCode.ILLEGAL_GENERATION
    assert talk.leave("eve").members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_older_leave_names_one_member_and_has_one_error(talk: Conversation) -> None:
    talk.together("anna")
    for member_id, error in (("eve", ErrorCode.UNKNOWN_MEMBER_ID), (talk.ids["anna"], ErrorCode.NONE)):
        response = talk.request("anna", LeaveGroupRequest(GROUP, member_id=member_id), version=2)
        assert response.error_code == error and response.members == []


def test_a_full_group_takes_nobody_new() -> None:
    talk = Conversation(GroupSettings(group_max_size=2))
    talk.together("anna", "bert")
    response = talk.join("carl")
    assert response is not None and response.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    talk.join("anna")
    response = talk.join("bert")
    assert response is not None and response.error_code == ErrorCode.NONE


def test_a_group_that_forms_too_large_loses_the_last() -> None:
    talk = Conversation(GroupSettings(group_max_size=2))
    for name in ("anna", "bert"):
        talk.join(name)
    response = talk.join("carl")
    assert response is not None and response.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


# --- a new coordinator ---


def test_a_stable_group_goes_on_under_a_new_coordinator(talk: Conversation) -> None:
    talk.join("anna")
    talk.passes(3_000)
    talk.sync("anna", {"anna": "t0"})
    talk.heard()
    talk.restarts()
    talk.beat("anna")
    talk.sync("anna")
    talk.passes(10_001)
    talk.beat("anna")
    assert talk.heard() == lines("""
        (the coordinator restarts)
        anna beats
            anna: NONE
        anna syncs
            anna: has t0
        (10001 ms pass)
            log: generation 2 of nobody
        anna beats
            anna: UNKNOWN_MEMBER_ID
    """)


def test_a_rebalance_under_way_is_forgotten_by_a_new_coordinator(talk: Conversation) -> None:
    talk.together("anna", "bert")
    talk.join("carl")
    talk.restarts()
    assert talk.responses["carl"].error_code == ErrorCode.NOT_COORDINATOR
    assert talk.beat("anna") is ErrorCode.NONE
    response = talk.join("carl")
    assert response is not None and response.error_code == ErrorCode.UNKNOWN_MEMBER_ID
