"""Lines that say the same again are counted; one timer, bounded memory."""

import asyncio
import logging
from random import Random

import pytest

from odradek.host import log_lines
from odradek.host.repeats import Repeats
from odradek.host.simulated import SimulatedHost, VirtualLoop
from odradek.storage.disk.simulated import SimulatedFiles

log = logging.getLogger("odradek.test")


class Clock:
    """A clock with its timers."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, object]] = []
        self.timers_set = 0

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, callback: object) -> "Clock":
        self.timers.append((self.now + seconds, callback))
        self.timers_set += 1
        return self

    def cancel(self) -> None:
        self.timers.clear()

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self.timers and self.timers[0][0] <= end:
            self.now, callback = self.timers.pop(0)
            callback()  # type: ignore[operator]
        self.now = end


@pytest.fixture
def clock(caplog: pytest.LogCaptureFixture) -> Clock:
    caplog.set_level(logging.INFO)
    return Clock()


def warn(repeats: Repeats, source: str = "10.0.0.1", what: str = "it speaks TLS") -> None:
    if repeats.is_new(log, logging.WARNING, source, what):
        log.warning("closing %s: %s", source, what)


def test_the_first_is_written_and_the_others_are_counted(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    repeats = Repeats(clock.time, clock.call_later)
    for _ in range(413):
        warn(repeats)
        clock.advance(0.05)
    assert caplog.messages == ["closing 10.0.0.1: it speaks TLS"]
    clock.advance(60)
    assert caplog.messages[1:] == ["… 412 more in the last 60 s from 10.0.0.1: it speaks TLS"]
    assert caplog.records[1].levelno == logging.WARNING
    assert clock.timers == []  # nothing is repeated any more, nothing is waited for


def test_as_long_as_they_keep_coming_there_is_one_line_a_minute(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    repeats = Repeats(clock.time, clock.call_later)
    for _ in range(300):
        warn(repeats)
        clock.advance(1)
    assert len(caplog.messages) == 6
    assert clock.timers_set == 5


def test_after_a_minute_of_silence_it_is_written_in_full(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    repeats = Repeats(clock.time, clock.call_later)
    warn(repeats)
    clock.advance(61)
    warn(repeats)
    assert caplog.messages == ["closing 10.0.0.1: it speaks TLS"] * 2
    assert clock.timers_set == 0


def test_other_sources_and_other_causes_have_lines_of_their_own(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    repeats = Repeats(clock.time, clock.call_later)
    warn(repeats)
    warn(repeats, source="10.0.0.2")
    warn(repeats, what="it speaks HTTP")
    assert len(caplog.messages) == 3


def test_memory_is_bounded_and_the_surplus_is_counted_together(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    repeats = Repeats(clock.time, clock.call_later, max_kinds=10)
    for number in range(1_000):
        warn(repeats, source=f"10.0.{number // 256}.{number % 256}")
    assert len(caplog.messages) == 10
    assert len(repeats._windows) == 11
    clock.advance(60)
    assert caplog.messages[10:] == ["… 990 more in the last 60 s from others: lines like the ones above"]
    clock.advance(60)
    warn(repeats, source="10.1.1.1")
    assert caplog.messages[-1] == "closing 10.1.1.1: it speaks TLS"


def test_one_source_does_not_hide_the_lines_about_another(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    repeats = Repeats(clock.time, clock.call_later, max_kinds=10, max_kinds_of_a_source=4)
    for number in range(100):
        warn(repeats, what=f"it asks for topic {number}")
    warn(repeats, source="10.0.0.2")
    assert len(caplog.messages) == 5 and caplog.messages[-1] == "closing 10.0.0.2: it speaks TLS"
    clock.advance(60)
    assert caplog.messages[5:] == ["… 96 more in the last 60 s from 10.0.0.1: lines like the ones above"]


def test_what_was_counted_is_written_at_the_end(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    repeats = Repeats(clock.time, clock.call_later)
    for _ in range(4):
        warn(repeats)
    clock.advance(10)
    repeats.close()
    assert caplog.messages[1:] == ["… 3 more in the last 10 s from 10.0.0.1: it speaks TLS"]
    assert clock.timers == []


def test_a_level_that_is_not_written_counts_nothing(clock: Clock) -> None:
    repeats = Repeats(clock.time, clock.call_later)
    token = log_lines._repeats.set(repeats)
    try:
        for _ in range(3):
            log_lines.counted(log, logging.DEBUG, "10.0.0.1", "what", "line")
    finally:
        log_lines._repeats.reset(token)
    assert not repeats._windows


def test_each_node_counts_its_own_lines(caplog: pytest.LogCaptureFixture) -> None:
    loop = VirtualLoop()
    hosts = [SimulatedHost(loop, Random(number), SimulatedFiles()) for number in (1, 2)]

    async def work() -> None:
        for _ in range(3):
            log_lines.counted(log, logging.WARNING, "10.0.0.1", "what", "line", api="Fetch")
        await asyncio.sleep(61)

    for number, host in enumerate(hosts, 1):
        host.context.run(log_lines.enter, number, host)
        host.run(work())
    assert caplog.messages == ["line", "… 2 more in the last 60 s from 10.0.0.1: what"] * 2
    assert caplog.records[0].fields == {"api": "Fetch"}  # type: ignore[attr-defined]
