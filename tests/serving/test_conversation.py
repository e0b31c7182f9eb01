"""Tests of what a conversation makes of the frames it gets: order, gates, holds, turns and bounds. There is no socket
here.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from odradek.errors import ProtocolError
from odradek.net.states import RECEIVING_MOVES, SENDING_MOVES, IllegalMove, Receiving, Sending, next_state
from odradek.net.transport import SMALL_FRAME
from odradek.serving import conversation
from odradek.serving.conversation import Conversation, Conversations
from odradek.serving.conversation_states import MOVES, Move, State
from odradek.serving.request import Request
from odradek.serving.turns import TURN_SECONDS, Turns
from odradek.wire.codec import Steps
from tests.serving.wires import NotedTransport, numbered_frame

LARGE = 50_000


class Handler:
    """Notes what it is asked, by correlation id; a script says what becomes of it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.turns = Turns(lambda: self.now)
        self.conversations = Conversations(self, asyncio.get_running_loop().create_task)
        self.handled: list[int] = []
        self.parked: dict[int, Request] = {}
        self.script: Callable[[Request], Awaitable[None] | None] = self.park
        self.at_finish: list[Callable[[], Awaitable[None] | None]] = []

    def connect(self) -> tuple[NotedTransport, Conversation]:
        transport = NotedTransport(self.conversations.begin)
        assert isinstance(transport.receiver, Conversation)
        return transport, transport.receiver

    def dispatch(self, request: Request, frame: memoryview, body: int) -> Awaitable[None] | None:
        assert frame[4:8] == request.correlation_id.to_bytes(4, "big"), "the memory of a frame was used again"
        self.handled.append(request.correlation_id)
        return self.script(request)

    def finish(self) -> Awaitable[None] | None:
        at_finish, self.at_finish = self.at_finish, []
        effects = [effect for work in at_finish if (effect := work()) is not None]
        assert len(effects) <= 1
        return effects[0] if effects else None

    def keeps(self, api_key: int, size: int) -> bool:
        return False

    def park(self, request: Request) -> None:
        self.parked[request.correlation_id] = request

    def answer(self, *numbers: int, size: int = 1) -> None:
        for number in numbers:
            self.parked.pop(number).answer_parts((bytes([number % 256]) * size,))


def scenario(work: Callable[[Handler], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        await work(Handler())

    asyncio.run(asyncio.wait_for(run(), 30))


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def frames(*numbers: int) -> list[memoryview]:
    return [numbered_frame(number) for number in numbers]


def test_responses_leave_in_the_order_of_their_requests() -> None:
    async def work(handler: Handler) -> None:
        transport, _ = handler.connect()
        transport.arrive(*frames(1, 2, 3))
        assert handler.handled == [1, 2, 3]
        handler.answer(2, 3)
        transport.flush()
        assert transport.sent == []
        handler.answer(1)
        assert transport.sent == [b"\1", b"\2", b"\3"]
        assert handler.conversations.waiting_in_all == 0

    scenario(work)


def test_a_response_leaves_at_once_if_no_other_is_owed_and_else_waits_for_company() -> None:
    async def work(handler: Handler) -> None:
        transport, _ = handler.connect()
        transport.arrive(*frames(1, 2, 3))
        handler.answer(1)
        assert (transport.sent, transport.flushes_due) == ([], 1)
        handler.answer(2)
        assert (transport.sent, transport.flushes_due) == ([], 1)
        transport.flush()
        assert transport.sent == [b"\1", b"\2"]
        handler.answer(3)
        assert (transport.sent, transport.flushes_due) == ([b"\1", b"\2", b"\3"], 1)

    scenario(work)


def test_what_is_answered_while_frames_are_handled_leaves_with_them() -> None:
    async def work(handler: Handler) -> None:
        transport, _ = handler.connect()
        handler.script = lambda request: request.answer_parts((b"x",))
        transport.arrive(*frames(1, 2, 3))
        assert (transport.sent, transport.flushes_due) == ([b"x"] * 3, 0)

    scenario(work)


def test_frames_behind_an_awaited_effect_are_held() -> None:
    async def work(handler: Handler) -> None:
        transport, talk = handler.connect()
        effect: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def gate_at_two(request: Request) -> Awaitable[None] | None:
            handler.park(request)
            return effect if request.correlation_id == 2 else None

        handler.script = gate_at_two
        transport.arrive(*frames(1, 2, 3, 4))
        assert (handler.handled, talk.state, transport.is_reading) == ([1, 2], State.GATED, False)
        transport.arrive(*frames(5))  # had been read already
        effect.set_result(None)
        await settle()
        assert (handler.handled, talk.state, transport.is_reading) == ([1, 2, 3, 4, 5], State.READY, True)

    scenario(work)


def test_reading_goes_on_while_nothing_is_held_at_a_gate() -> None:
    async def work(handler: Handler) -> None:
        transport, talk = handler.connect()
        effect: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        handler.script = lambda request: effect
        transport.arrive(*frames(1))
        assert (talk.state, transport.is_reading) == (State.GATED, True)
        effect.set_result(None)
        await settle()
        assert talk.state is State.READY

    scenario(work)


def test_what_was_gathered_may_be_awaited_too() -> None:
    async def work(handler: Handler) -> None:
        transport, talk = handler.connect()
        effect: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        handler.at_finish.append(lambda: effect)
        transport.arrive(*frames(1))
        assert talk.state is State.GATED
        effect.set_result(None)
        await settle()
        assert talk.state is State.READY

    scenario(work)


def test_requests_over_a_bound_are_held_until_responses_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "MAX_WAITING", 2)

    async def work(handler: Handler) -> None:
        transport, talk = handler.connect()
        transport.arrive(*frames(1, 2, 3, 4))
        assert (handler.handled, talk.state, transport.is_reading) == ([1, 2], State.FULL, False)
        handler.answer(2)
        assert talk.state is State.FULL
        handler.answer(1)
        assert (handler.handled, talk.state) == ([1, 2], State.IN_LINE)
        await settle()
        assert (handler.handled, talk.state, transport.is_reading) == ([1, 2, 3, 4], State.READY, True)

    scenario(work)


def test_large_requests_are_held_until_those_before_them_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conversation, "MAX_WAITING_BYTES", 3 * SMALL_FRAME)

    async def work(handler: Handler) -> None:
        transport, talk = handler.connect()
        large = [numbered_frame(number, size=2 * SMALL_FRAME) for number in range(1, 5)]
        transport.arrive(*large)
        assert (handler.handled, talk.state, transport.is_reading) == ([1, 2], State.FULL, False)
        handler.answer(1)
        await settle()
        assert handler.handled == [1, 2, 3]
        handler.answer(2, 3)
        await settle()
        assert (handler.handled, talk.state, transport.is_reading) == ([1, 2, 3, 4], State.READY, True)
        handler.answer(4)
        transport.arrive(*frames(5, 6, 7, 8))
        assert (handler.handled[4:], talk.state) == ([5, 6, 7, 8], State.READY), "small ones are only counted"

    scenario(work)


def test_a_client_that_does_not_read_is_not_read_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "MAX_OUTPUT_BYTES", 10)

    async def work(handler: Handler) -> None:
        transport, talk = handler.connect()
        transport.arrive(*frames(1))
        transport.has_room = False
        handler.answer(1, size=11)
        transport.flush()
        assert (talk.state, transport.is_reading) == (State.FULL, False)
        transport.arrive(*frames(2))
        assert handler.handled == [1]
        transport.unblock()
        await settle()
        assert (handler.handled, talk.state, transport.is_reading) == ([1, 2], State.READY, True)

    scenario(work)


def test_output_over_the_bound_that_leaves_at_once_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation, "MAX_OUTPUT_BYTES", 10)

    async def work(handler: Handler) -> None:
        transport, talk = handler.connect()
        handler.script = lambda request: request.answer_parts((bytes(11),))
        transport.arrive(*frames(1, 2, 3))
        await settle()
        assert (handler.handled, talk.state, transport.is_reading) == ([1, 2, 3], State.READY, True)

    scenario(work)


def test_a_share_of_the_turn() -> None:
    async def work(handler: Handler) -> None:
        transport, talk = handler.connect()

        def cost_half_a_turn(request: Request) -> None:
            handler.now += TURN_SECONDS / 2
            request.answer_nothing()

        handler.script = cost_half_a_turn
        transport.arrive(*frames(1, 2, 3, 4, 5))
        assert (handler.handled, talk.state, transport.is_reading) == ([1, 2], State.IN_LINE, False)
        await asyncio.sleep(0)
        assert handler.handled == [1, 2, 3, 4]
        await settle()
        assert (handler.handled, talk.state, transport.is_reading) == ([1, 2, 3, 4, 5], State.READY, True)

    scenario(work)


def test_a_frame_of_its_own_is_given_back_once_it_was_handled() -> None:
    async def work(handler: Handler) -> None:
        transport, _ = handler.connect()
        first = transport.arrive_own(numbered_frame(1), LARGE)
        assert transport.given_back == [(first, True)]
        effect: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        handler.script = lambda request: effect
        second = transport.arrive_own(numbered_frame(2), LARGE)
        third = transport.arrive_own(numbered_frame(3), LARGE)
        assert transport.given_back == [(first, True)]
        transport.close("test")
        assert transport.given_back[1:] == [(third, False)], "held, and nobody will handle it"
        effect.set_result(None)
        await settle()
        assert transport.given_back[2:] == [(second, False)], "whoever awaited may look at it still"
        assert handler.handled == [1, 2]

    scenario(work)


@pytest.mark.plants_traceback
@pytest.mark.parametrize("error", [ProtocolError("bad"), OSError("bad"), ValueError("bad")])
def test_a_request_that_fails_ends_its_own_conversation(error: Exception) -> None:
    async def work(handler: Handler) -> None:
        transport, talk = handler.connect()
        other, _ = handler.connect()
        abandoned = []

        def fail_at_two(request: Request) -> None:
            if request.correlation_id == 2:
                raise error
            request.on_abandoned = lambda: abandoned.append(request.correlation_id)

        handler.script = fail_at_two
        gathered = []
        handler.at_finish.append(lambda: gathered.append(1))
        transport.arrive(*frames(1, 2, 3))
        assert transport.closed and not other.closed
        assert (handler.handled, gathered, abandoned) == ([1, 2], [1], [1])
        assert (talk.state, handler.conversations.waiting_in_all) == (State.CLOSED, 0)

    scenario(work)


def test_a_client_that_leaves_while_its_response_is_written_abandons_nothing() -> None:
    """The wait is over by then, and ends once."""

    async def work(handler: Handler) -> None:
        transport, _ = handler.connect()
        transport.arrive(*frames(1))
        request, abandoned = handler.parked[1], []
        request.on_abandoned = lambda: abandoned.append(1)

        def writing() -> Steps[tuple[bytes]]:
            for _ in range(5):
                handler.now += TURN_SECONDS
                yield
            return (b"large",)

        request.answer_in_steps(writing())
        assert request.unfinished is not None
        transport.receiver.lost("it left")
        assert abandoned == []
        assert handler.conversations.waiting_in_all == 0
        await request.unfinished

    scenario(work)


@pytest.mark.plants_traceback
def test_an_effect_that_fails_ends_its_own_conversation() -> None:
    async def work(handler: Handler) -> None:
        transport, _ = handler.connect()
        effect: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        handler.script = lambda request: effect
        transport.arrive(*frames(1, 2))
        effect.set_exception(ValueError("bad"))
        await settle()
        assert "internal error" in transport.closed
        assert handler.handled == [1]

    scenario(work)


def test_when_reading_ends_what_was_handled_is_answered_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(conversation, "MAX_WAITING", 1)

    async def work(handler: Handler) -> None:
        transport, _ = handler.connect()
        transport.arrive(*frames(1, 2))
        transport.receiver.reading_ended()
        handler.answer(1)
        transport.flush()
        await settle()
        assert (handler.handled, transport.sent) == ([1], [b"\1"])

    scenario(work)


# --- the tables ---


@pytest.mark.parametrize(
    ("states", "moves", "first", "last"),
    [
        (State, MOVES, State.READY, State.CLOSED),
        (Receiving, RECEIVING_MOVES, Receiving.PAUSED, Receiving.CLOSED),
        (Sending, SENDING_MOVES, Sending.IDLE, Sending.CLOSED),
    ],
)
def test_every_state_can_be_reached_and_left_for_good(states: Any, moves: Any, first: Any, last: Any) -> None:
    assert set(moves) == set(states)

    def reachable(start: Any) -> set[Any]:
        found, new = set(), [start]
        while new:
            found.add(state := new.pop())
            new += [after for after in moves[state].values() if after not in found]
        return found

    assert reachable(first) == set(states)
    assert all(last in reachable(state) for state in states)
    assert reachable(last) == {last}


def test_a_move_that_is_not_in_the_table_is_our_mistake() -> None:
    with pytest.raises(IllegalMove, match="line up"):
        next_state(MOVES, State.READY, Move.LINE_UP)


# --- any course of events ---


class Life:
    """One conversation, and everything that can happen to it, in an order that a seed chooses."""

    def __init__(self, handler: Handler, rng: random.Random) -> None:
        self.handler, self.rng = handler, rng
        self.transport, self.talk = handler.connect()
        self.arrived = 0
        self.effects: list[asyncio.Future[None]] = []
        self.seen: set[State] = set()
        handler.script = self.handle

    def handle(self, request: Request) -> Awaitable[None] | None:
        assert not any(not effect.done() for effect in self.effects), "handled behind an awaited effect"
        self.seen.add(self.talk.state)
        self.handler.now += self.rng.choice((0, TURN_SECONDS / 3))
        if self.rng.random() < 0.5:
            self.handler.park(request)
        else:
            request.answer_parts((bytes([request.correlation_id % 256]) * self.rng.choice((1, 30)),))
        if self.rng.random() < 0.15:
            return self._effect()
        if self.rng.random() < 0.1 and not self.handler.at_finish:
            self.handler.at_finish.append(self._effect)
        return None

    def _effect(self) -> Awaitable[None] | None:
        if any(not effect.done() for effect in self.effects):
            return None
        effect: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.effects.append(effect)
        return effect

    def arrive(self) -> None:
        if self.transport.is_reading:
            count = self.rng.randrange(1, 8)
            new = [numbered_frame(self.arrived + at) for at in range(1, count + 1)]
            self.arrived += count
            self.transport.arrive(*new)

    def arrive_own(self) -> None:
        if self.transport.is_reading:
            self.arrived += 1
            self.transport.arrive_own(numbered_frame(self.arrived), LARGE)

    def answer(self) -> None:
        if self.handler.parked:
            self.handler.answer(self.rng.choice(list(self.handler.parked)), size=self.rng.choice((1, 30)))

    def end_effect(self) -> None:
        for effect in self.effects:
            if not effect.done():
                effect.set_result(None)

    def block(self) -> None:
        self.transport.has_room = False

    async def step(self) -> None:
        self.rng.choice(
            (self.arrive, self.arrive, self.arrive_own, self.answer, self.end_effect, self.block,
             self.transport.unblock, self.transport.flush)
        )()  # fmt: skip
        self.seen.add(self.talk.state)
        if self.rng.random() < 0.7:
            await asyncio.sleep(0)

    async def end_well(self) -> None:
        while len(self.handler.handled) < self.arrived or self.handler.parked or not self.is_quiet:
            self.transport.unblock()
            self.end_effect()
            self.answer()
            await asyncio.sleep(0)
        self.transport.flush()

    @property
    def is_quiet(self) -> bool:
        return self.talk.state is State.READY


def test_any_course_of_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every request is handled once, in order, and so are the responses; at the end nothing is stuck."""
    monkeypatch.setattr(conversation, "MAX_WAITING", 4)
    monkeypatch.setattr(conversation, "MAX_OUTPUT_BYTES", 40)

    seen: set[State] = set()

    async def work(rng: random.Random, handler: Handler) -> None:
        life = Life(handler, rng)
        for _ in range(150):
            await life.step()
        await life.end_well()
        assert handler.handled == list(range(1, life.arrived + 1))
        assert [sent[0] for sent in life.transport.sent] == [number % 256 for number in handler.handled]
        assert (life.transport.is_reading, life.transport.closed) == (True, "")
        assert handler.conversations.waiting_in_all == 0
        assert len(life.transport.given_back) == len({id(own) for own, _ in life.transport.given_back})
        seen.update(life.seen)

    for seed in range(100):
        scenario(partial(work, random.Random(seed)))
    assert seen == set(State) - {State.HOLDING, State.CLOSED}
