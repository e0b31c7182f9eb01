"""A request that waits at several sources: what wakes it, and that nothing does once its wait is over."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from odradek.errors import ErrorCode
from odradek.fetching.waiting import Wait
from tests.replication.fakes import FakeLog, lead


class Deadlines:
    def __init__(self) -> None:
        self.cancelled = 0

    def add(self, delay_ms: float, callback: Callable[[], None]) -> Any:
        return SimpleNamespace(cancel=self._cancel)

    def _cancel(self) -> None:
        self.cancelled += 1


def test_the_source_that_changes_wakes_it_and_it_waits_again() -> None:
    woken: list[tuple[int, ErrorCode]] = []
    wait = Wait(Deadlines(), 500, lambda position, error: woken.append((position, error)), lambda: None)
    leaders = [lead(FakeLog(), leader_epoch=1) for _ in range(3)]
    for position, leader in enumerate(leaders):
        wait.add(leader)
        wait.again(position)
    leaders[1]._high_watermark_waiters.wake()
    leaders[1]._high_watermark_waiters.wake()
    assert woken == [(1, ErrorCode.NONE)], "once for each wait"
    wait.again(1)
    leaders[1].close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert woken[1:] == [(1, ErrorCode.NOT_LEADER_OR_FOLLOWER)]


def test_once_it_is_over_no_source_wakes_it() -> None:
    deadlines = Deadlines()
    woken: list[int] = []
    wait = Wait(deadlines, 500, lambda position, _: woken.append(position), lambda: None)
    leaders = [lead(FakeLog(), leader_epoch=1) for _ in range(2)]
    for position, leader in enumerate(leaders):
        wait.add(leader)
        wait.again(position)
    assert len(wait) == 2 and not wait.is_over
    wait.end()
    assert wait.is_over and deadlines.cancelled == 1
    assert not any(leader.has_waiters for leader in leaders)
