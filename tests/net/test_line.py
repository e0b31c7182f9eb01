"""Work that stands in line: a share of each turn, in order, whatever one of them does."""

import asyncio

import pytest

from odradek.host.real import RealHost
from odradek.net import line
from odradek.net.line import Line


def test_work_is_done_in_order_with_others_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "SHARE_SECONDS", 0.0)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        waiting, done = Line(RealHost(loop)), []
        for number in range(3):
            waiting.add(lambda number=number: done.append(number))  # type: ignore[misc]
        assert done == [], "not in this turn"

        def other() -> None:
            done.append("other")
            if len(done) < 6:
                loop.call_soon(other)

        loop.call_soon(other)
        while len(done) < 6:
            await asyncio.sleep(0)
        assert done == [0, "other", 1, "other", 2, "other"]

    asyncio.run(asyncio.wait_for(scenario(), 10))


def test_a_turn_does_as_much_as_its_share_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "SHARE_SECONDS", 3600.0)

    async def scenario() -> None:
        waiting, done = Line(RealHost(asyncio.get_running_loop())), []
        for number in range(100):
            waiting.add(lambda number=number: done.append(number))  # type: ignore[misc]
        await asyncio.sleep(0)
        assert done == list(range(100))
        waiting.add(lambda: done.append(100))
        await asyncio.sleep(0)
        assert done[-1] == 100

    asyncio.run(scenario())
