"""A thousand seeds of the simulation (`make test` runs half of them), and bugs that it must catch."""

from typing import Any

import pytest

from odradek.coordinators.consumer import draft, heartbeat, member
from odradek.coordinators.consumer.draft import Draft
from odradek.coordinators.consumer.group import ConsumerGroup
from odradek.coordinators.consumer.heartbeat import ConsumerGroups
from odradek.coordinators.consumer.replaying import Replay
from odradek.coordinators.consumer.topics import TopicsNow
from tests.coordinators.consumer.consumer_simulation import Simulation
from tests.coordinators.virtual import run_seeds
from tests.selection import chunks

SEEDS = 1_000
EVENTS = 70
PARTS = 8


@pytest.mark.parametrize("part", chunks(PARTS, 1))
def test_nothing_is_ever_owned_twice_and_all_converges(part: int) -> None:
    for _ in run_seeds(lambda seed: Simulation(seed).run(EVENTS), range(part, SEEDS, PARTS)):
        pass


def give_what_others_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConsumerGroup, "holder_of", lambda self, topic, partition: None)


def do_not_wait_for_revocation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "_still_reads", lambda owned, partitions: False)


def take_silence_for_letting_go(monkeypatch: pytest.MonkeyPatch) -> None:
    real = member.intersects
    monkeypatch.setattr(member, "_still_reads", lambda owned, taken: owned is not None and real(owned, taken))


def trust_a_member_that_missed_its_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "_check_epoch", lambda known, request: None)
    real = Draft.reconcile
    monkeypatch.setattr(Draft, "reconcile", lambda self, known, owned: real(self, known, owned or []))


def never_end_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConsumerGroups, "start_session_of", lambda *arguments: None)


def forget_sessions_at_fail_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Replay, "loaded", lambda *arguments: None)


def keep_the_old_promise_of_those_who_change(monkeypatch: pytest.MonkeyPatch) -> None:
    real = draft.target_record
    monkeypatch.setattr(draft, "target_record", lambda group, who, what: real(group, who, {}))


def do_not_release_what_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConsumerGroup, "_release", lambda *arguments: None)


def do_not_store_what_is_being_revoked(monkeypatch: pytest.MonkeyPatch) -> None:
    real = draft.current_record

    def without_revoking(group_id: str, who: Any) -> Any:
        key, value = real(group_id, who)
        value.partitions_pending_revocation = []
        return key, value

    monkeypatch.setattr(draft, "current_record", without_revoking)


def miss_topics_that_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TopicsNow, "publish", lambda self, delta: setattr(self, "image", delta.after))


def match_only_what_is_there_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft, "resolve_again", lambda regex, known, *_: known)


def forget_the_epoch_when_members_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Draft, "refresh_topics", lambda self, must_bump: False)


BUGS = [
    give_what_others_hold,
    do_not_wait_for_revocation,
    take_silence_for_letting_go,
    trust_a_member_that_missed_its_epoch,
    never_end_a_session,
    forget_sessions_at_fail_over,
    keep_the_old_promise_of_those_who_change,
    do_not_release_what_is_let_go,
    do_not_store_what_is_being_revoked,
    miss_topics_that_change,
    match_only_what_is_there_at_first,
    forget_the_epoch_when_members_leave,
]


@pytest.mark.plants_traceback
@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        for seed in range(200):
            Simulation(seed).run(EVENTS)
