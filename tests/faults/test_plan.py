"""Tests of what a test may ask for, and what it is told where that cannot be."""

from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.faults.plan import BadFault, Kind, Plan, read_fault


def asked(**what: Any) -> dict[str, Any]:
    return {"id": 1, "kind": "answer", "api": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", **what}


def test_a_fault_is_read() -> None:
    fault = read_fault(asked(topic="t", partition=3, times=2, after_handling=True))
    assert (fault.kind, fault.api_key, fault.error) == (Kind.ANSWER, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert (fault.concern.topic, fault.concern.partition) == ("t", 3)
    assert (fault.times, fault.after_handling) == (2, True)


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ({"api": "produce"}, "the broker does not serve 'produce': did you mean Produce?"),
        ({"api": "Join"}, "the broker does not serve 'Join': did you mean JoinGroup?"),
        ({"api": "ShareFetch"}, "the broker does not serve 'ShareFetch'"),
        (
            {"error": "NOT_LEADER_FOR_PARTITION"},
            "Kafka has no error 'NOT_LEADER_FOR_PARTITION': did you mean NOT_LEADER_OR_FOLLOWER?",
        ),
        ({"error": "NONE"}, "Kafka has no error 'NONE'"),
        (
            {"api": "Heartbeat", "topic": "t"},
            "a fault of Heartbeat cannot be for one topic, but for one group",
        ),
        ({"group": "g"}, "a fault of Produce cannot be for one group, but for one topic"),
        ({"partition": 0}, "a partition needs its topic: name the topic too"),
        (
            {"api": "Metadata", "topic": "t", "partition": 0},
            "a fault of Metadata cannot be for one partition, only for a topic",
        ),
        ({"times": 0}, "times=0: a fault happens at least once; None is for every request"),
        ({"kind": "delay", "seconds": -1}, "seconds=-1: it must not be negative"),
    ],
)
def test_what_cannot_be_is_refused_with_a_guess_at_what_was_meant(what: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadFault) as refusal:
        read_fault(asked(**what))
    assert str(refusal.value).startswith(reason)


def test_a_fault_that_has_taken_its_requests_takes_no_more_and_lets_go_when_it_is_undone() -> None:
    plan = Plan()
    fault = read_fault(asked(kind="hold", times=2))
    plan.arm(fault)
    released = []
    for number in range(2):
        assert plan.of_api(0) == [fault]
        plan.take(fault)
        fault.endings.append(lambda number=number: released.append(number))
    assert plan.of_api(0) == []
    assert released == []
    plan.undo(fault.id)
    assert released == [0, 1]
    plan.undo(fault.id)
    assert released == [0, 1]
