"""One timer for the deadlines of all requests: none fires early, one that fails stops no other, none is kept."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from odradek.host.real import RealHost
from odradek.net.deadlines import MIN_FORGET_AT, Deadlines

FAR_MS = 10**9


def run(scenario: Callable[[Deadlines], Awaitable[None]]) -> None:
    async def main() -> None:
        await asyncio.wait_for(scenario(Deadlines(RealHost(asyncio.get_running_loop()))), 20)

    asyncio.run(main())


def test_in_order_and_not_early() -> None:
    async def scenario(deadlines: Deadlines) -> None:
        loop, fired, done = asyncio.get_running_loop(), [], asyncio.Event()
        start = loop.time()
        deadlines.add(60, done.set)
        deadlines.add(20, lambda: fired.append(loop.time() - start))
        deadlines.add(40, lambda: fired.append(loop.time() - start)).cancel()
        await done.wait()
        assert len(fired) == 1
        assert fired[0] >= 0.02

    run(scenario)


@pytest.mark.plants_traceback
def test_one_that_fails_stops_no_other() -> None:
    async def scenario(deadlines: Deadlines) -> None:
        first, second = asyncio.Event(), asyncio.Event()
        for _ in range(3):
            deadlines.add(5, lambda: 1 / 0)
        deadlines.add(5, first.set)
        deadlines.add(30, second.set)
        await first.wait()
        await second.wait()

    run(scenario)


def test_cancelled_deadlines_of_the_far_future_are_forgotten() -> None:
    async def scenario(deadlines: Deadlines) -> None:
        for number in range(3 * MIN_FORGET_AT):
            deadlines.add(FAR_MS + number * 100, lambda: None).cancel()
        assert len(deadlines._buckets) <= MIN_FORGET_AT
        done = asyncio.Event()
        deadlines.add(1, done.set)
        await done.wait()

    run(scenario)
