"""A client over its quota: its response leaves at once, then nothing is read from it for as long as that says."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from odradek.serving.conversation import Conversations
from odradek.serving.conversation_states import State
from odradek.serving.request import Request
from tests.serving.test_conversation import Handler, frames, settle
from tests.serving.wires import numbered_frame


class Timer:
    def __init__(self, seconds: float, callback: Callable[[], None]) -> None:
        self.seconds, self.callback, self.is_cancelled = seconds, callback, False

    def cancel(self) -> None:
        self.is_cancelled = True


class Throttling(Handler):
    """Answers at once, and throttles those that `throttles` names, by correlation id."""

    def __init__(self) -> None:
        super().__init__()
        self.timers: list[Timer] = []
        self.throttles: dict[int, int] = {}
        self.script = self.answer_at_once
        self.conversations = Conversations(
            self, asyncio.get_running_loop().create_task, call_later=self.call_later
        )

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Timer:
        timer = Timer(seconds, callback)
        if seconds:
            self.timers.append(timer)
        else:
            asyncio.get_running_loop().call_soon(callback)
        return timer

    def answer_at_once(self, request: Request) -> None:
        request.throttle_ms = self.throttles.get(request.correlation_id, 0)
        request.answer_parts((bytes([request.correlation_id]),))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for timer in self.timers:
            if not timer.is_cancelled and timer.seconds <= self.now:
                timer.is_cancelled = True
                timer.callback()


def scenario(work: Callable[[Throttling], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        await work(Throttling())

    asyncio.run(asyncio.wait_for(run(), 30))


def test_the_response_leaves_and_what_follows_is_held_until_the_time_is_over() -> None:
    async def work(handler: Throttling) -> None:
        transport, conversation = handler.connect()
        handler.throttles = {2: 1500}
        transport.arrive(*frames(1, 2, 3, 4))
        assert b"".join(transport.sent) == b"\x01\x02" and handler.handled == [1, 2]
        await settle()
        assert not transport.is_reading and conversation.state is State.FULL
        handler.pass_time(1.4)
        await settle()
        assert handler.handled == [1, 2]
        handler.pass_time(0.2)
        await settle()
        assert handler.handled == [1, 2, 3, 4] and transport.is_reading
        assert b"".join(transport.sent) == b"\x01\x02\x03\x04"

    scenario(work)


def test_reading_stops_even_if_nothing_follows_and_begins_again() -> None:
    async def work(handler: Throttling) -> None:
        transport, conversation = handler.connect()
        handler.throttles = {1: 1000}
        transport.arrive(*frames(1))
        assert transport.sent == [b"\x01"]
        await settle()
        assert not transport.is_reading
        handler.pass_time(1.0)
        assert transport.is_reading and conversation.state is State.READY
        transport.arrive(*frames(2))
        assert handler.handled == [1, 2]

    scenario(work)


def test_of_several_times_the_longest_counts() -> None:
    async def work(handler: Throttling) -> None:
        transport, _ = handler.connect()
        handler.script = handler.park
        transport.arrive(*frames(1, 2, 3))
        for number, throttle_ms in ((1, 2000), (2, 1000), (3, 3000)):
            handler.parked[number].throttle_ms = throttle_ms
            handler.answer(number)
        await settle()
        assert not transport.is_reading
        handler.pass_time(2.0)
        assert not transport.is_reading
        handler.pass_time(1.0)
        assert transport.is_reading

    scenario(work)


def test_a_response_that_waits_behind_another_mutes_too() -> None:
    """Nobody is over its quota unnoticed behind a Fetch that waits."""

    async def work(handler: Throttling) -> None:
        transport, _ = handler.connect()
        handler.script = lambda request: (
            handler.park(request) if request.correlation_id == 1 else handler.answer_at_once(request)
        )
        handler.throttles = {2: 1000}
        transport.arrive(*frames(1, 2, 3))
        await settle()
        assert handler.handled == [1, 2] and transport.sent == [] and not transport.is_reading
        handler.pass_time(1.0)
        await settle()
        assert handler.handled == [1, 2, 3]
        handler.answer(1)
        await settle()
        assert b"".join(transport.sent)[-2:] == b"\x02\x03" and transport.is_reading

    scenario(work)


def test_who_leaves_while_muted_is_forgotten() -> None:
    async def work(handler: Throttling) -> None:
        transport, conversation = handler.connect()
        handler.throttles = {1: 1000}
        transport.arrive(*frames(1, 2))
        conversation.lost("gone")
        await settle()
        assert [timer.is_cancelled for timer in handler.timers] == [True]
        assert handler.conversations.waiting_in_all == 0 and handler.handled == [1]

    scenario(work)


@pytest.mark.parametrize("size", [0, 50_000])
def test_others_are_not_muted(size: int) -> None:
    async def work(handler: Throttling) -> None:
        (throttled, _), (other, _) = handler.connect(), handler.connect()
        handler.throttles = {1: 60_000}
        throttled.arrive(numbered_frame(1))
        await settle()
        other.arrive(numbered_frame(2, size=size))
        assert other.sent == [b"\x02"] and other.is_reading and not throttled.is_reading

    scenario(work)


class Watched:
    """A quota on time, which notes what it is told."""

    is_active = times_requests = True

    def __init__(self) -> None:
        self.spent: list[float] = []

    def find(self, api_key: int, caller: object) -> "Watched":
        return self

    def spend(self, seconds: float) -> None:
        self.spent.append(seconds)


@pytest.mark.parametrize("size", [0, 50_000])
def test_time_counts_in_requests_and_in_runs_of_them(size: int) -> None:
    async def work(handler: Throttling) -> None:
        quotas = Watched()
        handler.conversations = Conversations(
            handler,
            asyncio.get_running_loop().create_task,
            quotas=quotas,  # type: ignore[arg-type]
            call_later=handler.call_later,
        )
        transport, _ = handler.connect()

        def gather(request: Request) -> None:
            handler.now += 1.0
            handler.at_finish.append(lambda: handle(request))

        def handle(request: Request) -> None:
            handler.now += 3.0
            request.answer_parts((b"x",))

        handler.script = gather
        frame = numbered_frame(1, size=size)
        if size:
            transport.arrive_own(frame, len(frame))
        else:
            transport.arrive(frame)
        await settle()
        assert [seconds for seconds in quotas.spent if seconds] == [1.0, 3.0]

    scenario(work)
