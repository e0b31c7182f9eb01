"""Full collections of garbage wait until large requests are done."""

import gc
from collections.abc import Iterator

import pytest

from odradek.broker import collector
from odradek.broker.collector import NEVER, Collector


class Loop:
    """Only what the collector asks of a loop."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, object]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: object) -> None:
        self.timers.append((self.now + delay, callback))

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while self.timers and self.timers[0][0] <= end:
            self.now, callback = self.timers.pop(0)
            callback()  # type: ignore[operator]
        self.now = end


@pytest.fixture(autouse=True)
def same_threshold_afterwards() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_they_wait_while_long_work_is_done_and_come_back_afterwards() -> None:
    loop, before = Loop(), gc.get_threshold()
    pausing = Collector(loop)  # type: ignore[arg-type]
    for _ in range(10):
        pausing.long_work()
        loop.pass_time(0.5)
        assert gc.get_threshold() == (*before[:2], NEVER)
    loop.pass_time(2 * collector.PAUSE_SECONDS)
    assert gc.get_threshold() == before
    assert loop.timers == []


def test_work_without_an_end_does_not_keep_them_away_forever() -> None:
    loop, before = Loop(), gc.get_threshold()
    pausing = Collector(loop)  # type: ignore[arg-type]
    pauses = 0
    for _ in range(300):
        pausing.long_work()
        loop.pass_time(0.5)
        pauses += gc.get_threshold() == before
    assert pauses >= 2
