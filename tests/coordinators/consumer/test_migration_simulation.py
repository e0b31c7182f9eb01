"""Seeds of the simulation of mixed groups, and bugs that it must catch."""

from typing import Any

import pytest

from odradek.coordinators.consumer import classic_members, heartbeat, migration
from odradek.coordinators.consumer.migration import Downgrade
from tests.coordinators.consumer.migration_simulation import MigrationSimulation
from tests.coordinators.virtual import run_seeds
from tests.selection import chunks

SEEDS = 300
EVENTS = 100
PARTS = 4


@pytest.mark.parametrize("part", chunks(PARTS, 1))
def test_old_and_new_clients_share_and_never_overlap(part: int) -> None:
    for _ in run_seeds(lambda seed: MigrationSimulation(seed).run(EVENTS), range(part, SEEDS, PARTS)):
        pass


def forget_what_old_clients_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration, "read_assignment", lambda assignment, image: {})


def never_go_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Downgrade, "consider", lambda *arguments: None)


def go_back_without_a_rebalance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Downgrade, "_rebalance", lambda *arguments: None)


def leave_those_who_wait_in_the_dark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "dissolve", lambda *arguments: None)


def call_nobody_to_join(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classic_members, "_has_to_join", lambda group, member: False)


def assign_what_is_promised_not_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    real = classic_members.write_assignment

    def everything(partitions: Any, image: Any, subscription: bytes) -> bytes:
        everywhere = {topic.id: set(topic.partitions) for topic in image.topics.values()}
        return real(everywhere, image, subscription)

    monkeypatch.setattr(classic_members, "write_assignment", everything)


BUGS = [
    forget_what_old_clients_hold,
    never_go_back,
    go_back_without_a_rebalance,
    leave_those_who_wait_in_the_dark,
    call_nobody_to_join,
    assign_what_is_promised_not_what_is_free,
]


@pytest.mark.plants_traceback
@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_caught(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        for seed in range(300):
            MigrationSimulation(seed).run(EVENTS)
