"""Tests of what the log says of classic groups: who came, who went and why, and how long rebalances took."""

import logging
import re
from contextvars import copy_context
from random import Random

import pytest

from odradek.errors import ErrorCode
from odradek.host import log_lines
from odradek.host.simulated import SimulatedHost, VirtualLoop
from odradek.storage.disk.simulated import SimulatedFiles
from odradek.wire.messages.delete_groups import DeleteGroupsRequest
from odradek.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.coordinators.conversation import GROUP, Conversation

UUID = re.compile(r"-[0-9a-f]{8}-[0-9a-f-]{27}")


@pytest.fixture
def talk(caplog: pytest.LogCaptureFixture) -> Conversation:
    caplog.set_level(logging.INFO)
    return Conversation()


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Since the last time, without the random part of member ids."""
    lines = [UUID.sub("", line).removeprefix('group "readers": ') for line in caplog.messages]
    caplog.clear()
    return lines


def two_members(talk: Conversation, caplog: pytest.LogCaptureFixture) -> None:
    talk.join("anna")
    talk.join("bert")
    talk.passes(6_000)
    talk.sync("bert")
    talk.sync("anna", {"anna": "t0", "bert": "t1"})
    said(caplog)


def test_members_join_and_leave(talk: Conversation, caplog: pytest.LogCaptureFixture) -> None:
    talk.join("anna")
    talk.join("bert")
    talk.passes(6_000)
    talk.sync("bert")
    talk.passes(400)
    talk.sync("anna", {"anna": "t0", "bert": "t1"})
    assert said(caplog) == [
        'member "anna" joined from 127.0.0.1 (client "anna", session timeout 10 s)',
        'rebalancing in generation 0, because member "anna" joined',
        'member "bert" joined from 127.0.0.1 (client "bert", session timeout 10 s)',
        'generation 1 has 2 members, leader "anna" and protocol "range"; joining took 6 s',
        "generation 1 is stable; the rebalance took 6.4 s",
    ]
    assert not caplog.records
    request = LeaveGroupRequest(
        GROUP, members=[MemberIdentity(talk.ids["bert"], None, "consumer poll timeout has expired.\n")]
    )
    talk.request("bert", request)
    talk.beat("anna")
    assert said(caplog) == [
        r'member "bert" left: consumer poll timeout has expired.\n',
        "rebalancing in generation 1, because members left",
    ]
    talk.leave("anna")
    assert said(caplog) == ['member "anna" left', "generation 2 has no members"]


def test_lines_have_the_group_as_a_field(talk: Conversation, caplog: pytest.LogCaptureFixture) -> None:
    talk.join("anna")
    assert {record.fields["group"] for record in caplog.records} == {GROUP}  # type: ignore[attr-defined]


def test_heartbeats_say_nothing(talk: Conversation, caplog: pytest.LogCaptureFixture) -> None:
    two_members(talk, caplog)
    caplog.set_level(logging.DEBUG)
    talk.beat("anna")
    talk.beat("bert")
    assert said(caplog) == []


def test_a_member_whose_session_ends(talk: Conversation, caplog: pytest.LogCaptureFixture) -> None:
    two_members(talk, caplog)
    talk.passes(6_000)
    talk.beat("anna")
    talk.passes(6_000)
    assert said(caplog) == [
        'member "bert" was removed: no heartbeat arrived within its session timeout of 10 s',
        'rebalancing in generation 1, because member "bert" was removed',
    ]


def test_a_member_that_does_not_join_again_in_time(
    talk: Conversation, caplog: pytest.LogCaptureFixture
) -> None:
    two_members(talk, caplog)
    talk.join("carl")
    talk.join("anna")
    for _ in range(4):
        talk.passes(5_000)
        if talk.ids["bert"] in talk.coordinator.groups[GROUP].members:  # type: ignore[attr-defined]
            talk.beat("bert")
    lines = said(caplog)
    assert 'rebalancing in generation 1, because member "carl" joined' in lines
    assert 'member "bert" was removed: it did not join again within the rebalance timeout of 20 s' in lines
    assert 'generation 2 has 2 members, leader "anna" and protocol "range"; joining took 20 s' in lines


def test_a_member_that_never_syncs(talk: Conversation, caplog: pytest.LogCaptureFixture) -> None:
    talk.join("anna")
    talk.join("bert")
    talk.passes(6_000)
    talk.sync("anna", {"anna": "t0"})
    said(caplog)
    for _ in range(4):
        talk.passes(5_000)
        talk.beat("anna")
        if talk.ids["bert"] in talk.coordinator.groups[GROUP].members:  # type: ignore[attr-defined]
            talk.beat("bert")
    assert said(caplog)[:2] == [
        'member "bert" was removed: it did not send SyncGroup within the rebalance timeout of 20 s',
        "rebalancing in generation 1, because members were removed",
    ]


def test_a_static_member_that_is_replaced(talk: Conversation, caplog: pytest.LogCaptureFixture) -> None:
    talk.join("anna", instance="anna")
    talk.passes(3_000)
    talk.sync("anna", {"anna": "t0"})
    said(caplog)
    talk.join("anna", instance="anna", member_id="")
    assert said(caplog) == [
        'member "anna" (instance "anna") replaced member "anna": its instance came back from 127.0.0.1 '
        '(client "anna")'
    ]


def test_what_could_not_be_written_is_not_told_as_if_it_were(
    talk: Conversation, caplog: pytest.LogCaptureFixture
) -> None:
    talk.join("anna")
    talk.passes(3_000)
    said(caplog)
    talk.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    talk.sync("anna", {"anna": "t0"})
    lines = said(caplog)
    assert not any("is stable" in line for line in lines)
    assert any(line.startswith("cannot write to __consumer_offsets-0") for line in lines)


def test_clients_that_are_refused_again_and_again_are_counted(
    talk: Conversation, caplog: pytest.LogCaptureFixture
) -> None:
    talk.join("anna")
    talk.passes(3_000)
    talk.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    said(caplog)

    def try_again() -> None:
        log_lines.enter(1, SimulatedHost(VirtualLoop(), Random(1), SimulatedFiles()))
        for _ in range(3):
            talk.sync("anna", {"anna": "t0"})

    copy_context().run(try_again)
    assert [line.startswith("cannot write to") for line in said(caplog)] == [True]


def test_a_deleted_group(talk: Conversation, caplog: pytest.LogCaptureFixture) -> None:
    two_members(talk, caplog)
    talk.leave("anna")
    talk.leave("bert")
    said(caplog)
    talk.request("tool", DeleteGroupsRequest([GROUP]))
    assert said(caplog) == ['deleted by 127.0.0.1 (client "tool"), with its offsets']


def test_loading_and_unloading(talk: Conversation, caplog: pytest.LogCaptureFixture) -> None:
    two_members(talk, caplog)
    talk.restarts()
    assert said(caplog) == [
        "unloaded 1 group of __consumer_offsets-0: its partition is gone",
        "loaded 1 group from __consumer_offsets-0 in 0 ms (1 record)",
    ]


def test_an_empty_shard_is_loaded_without_a_word(
    talk: Conversation, caplog: pytest.LogCaptureFixture
) -> None:
    assert said(caplog) == []
