"""Tests of when a poller looks: pauses that grow with what a look costs brokers, and shrink when something happens."""

from typing import Any

import pytest

from odradek.admin.access import Access
from odradek.admin.failures import NoContact
from odradek.console.watch import poller as module
from odradek.console.watch.poller import HASTE, LONGEST_PAUSE_S, SHARE, Poller
from odradek.console.watch.topology import TOPICS_AT_ONCE, FewestInSync


class Clock:
    """Time that passes only when a look takes some."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s

    def thread_time(self) -> float:
        return 0.0

    def time_ns(self) -> int:
        return int(self.now_s * 1e9)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def a_poller(told: list[list[str]] | None = None) -> Poller:
    return Poller(Access("localhost:1", {}), (told if told is not None else []).append, lambda: 1)


def look(poller: Poller, clock: Clock, took_s: float) -> float:
    """A look that takes so long; the pause after it."""
    part = poller.parts["offsets"]

    def wait() -> None:
        clock.now_s += took_s

    part.look = wait
    poller._look(part)
    return part.due_s - clock.now_s


def test_a_cheap_look_has_the_usual_pause_and_a_dear_one_its_share(clock: Clock) -> None:
    poller = a_poller()
    assert look(poller, clock, 0.001) == 2.0
    assert look(poller, clock, 0.001) == 2.0
    assert look(poller, clock, 0.5) == 2.0, "one slow response says nothing"
    assert look(poller, clock, 0.1) == pytest.approx(SHARE * 0.1)
    assert look(poller, clock, 60.0) == pytest.approx(SHARE * 0.1)
    assert look(poller, clock, 60.0) == LONGEST_PAUSE_S


def test_what_happens_shortens_a_pause_but_not_to_nothing(clock: Clock) -> None:
    poller = a_poller()
    look(poller, clock, 0.1)
    look(poller, clock, 0.1)
    poller._hasten("offsets")
    assert poller.parts["offsets"].due_s - clock.now_s == pytest.approx(HASTE * 0.1)
    poller.nudge("offsets")
    assert poller.parts["offsets"].due_s == 0.0


def test_while_nobody_looks_pauses_are_longer(clock: Clock) -> None:
    poller = Poller(Access("localhost:1", {}), lambda parts: None, lambda: 0)
    clock.now_s += 1000.0
    assert look(poller, clock, 0.001) == 20.0
    poller.used()
    assert poller.parts["offsets"].due_s == 0.0, "whoever comes wakes it"


def test_a_cluster_that_goes_away_is_told_once(clock: Clock) -> None:
    told: list[list[str]] = []
    poller = a_poller(told)

    def fail() -> None:
        raise NoContact("no broker reachable")

    poller.parts["topology"].look = fail
    poller._look(poller.parts["topology"])
    poller._look(poller.parts["topology"])
    assert poller.seen.problem == "no broker reachable"
    assert [one.text for one in poller.seen.events] == ["the cluster does not respond"]
    assert told == [["topology"], ["topology"]]


def test_settings_are_asked_for_some_topics_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def answer(access: Any, address: Any, names: list[str]) -> dict[str, int]:
        asked.append(len(names))
        return dict.fromkeys(names, 2)

    monkeypatch.setattr("odradek.console.watch.topology.fewest_in_sync_of", answer)
    names = [f"topic-{number}" for number in range(TOPICS_AT_ONCE + 10)]
    fewest, nobody = FewestInSync(), Access("localhost:1", {})
    fewest.ask_for_missing(nobody, nobody.servers()[0], names)
    assert asked == [], "too many for one look"
    for _ in range(2):
        assert not fewest.is_complete(names)
        fewest.ask_for_next(nobody, nobody.servers()[0], names)
    assert fewest.is_complete(names)
    assert asked == [TOPICS_AT_ONCE, 10]
    fewest.ask_for_missing(nobody, nobody.servers()[0], [*names, "new"])
    assert asked[-1] == 1
