"""Rounds of a follower's fetches: when the next request leaves, and what ends them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from odradek.errors import ErrorCode
from odradek.host.simulated import VirtualLoop
from odradek.net.channel import ChannelClosed
from odradek.services.partitions.fetch_rounds import FetchRounds
from odradek.wire.frame import SIZE, encode_response
from odradek.wire.messages.fetch import FetchResponse
from odradek.wire.replica_fetch import API_KEY, VERSION, ReplicaResponse

TIMEOUT_S = 30.0


class FakeHost:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.call_later = loop.call_later
        self.monotonic = loop.time


class FakeChannel:
    address = "leader:9092"

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closed_because: str | None = None

    def send_for(self, taker: Any, frame: bytes) -> None:
        if self.closed_because is not None:
            raise ChannelClosed(self.closed_because)
        self.sent.append(frame)

    def close(self, reason: str) -> None:
        self.closed_because = reason


class FakeFollower:
    closed_with = ErrorCode.NONE

    def __init__(self) -> None:
        self.may_fetch = False
        self.waiters: list[Callable[[ErrorCode], None]] = []

    def when_synced(self, waiter: Callable[[ErrorCode], None]) -> None:
        self.waiters.append(waiter)

    def synced(self) -> None:
        self.may_fetch = True
        for waiter in self.waiters:
            waiter(ErrorCode.NONE)


class Following:
    def __init__(self) -> None:
        self.channel = FakeChannel()
        self.frames: list[bytes | None] = [b"1", b"2", b"3", None]
        self.taken: list[ReplicaResponse] = []
        self.grown: list[Any] = []
        host: Any = FakeHost(asyncio.get_running_loop())
        channel: Any = self.channel
        self.rounds = FetchRounds(channel, host, TIMEOUT_S, lambda: self.frames.pop(0), self._take)
        self.task = asyncio.get_running_loop().create_task(self.rounds.run())

    def _take(self, response: ReplicaResponse) -> list[Any]:
        self.taken.append(response)
        return self.grown

    def respond(self) -> None:
        frame = encode_response(FetchResponse(session_id=5), API_KEY, VERSION, 0)
        self.rounds.take(memoryview(frame)[SIZE.size :])


def run(scenario: Callable[[Following], Awaitable[None]]) -> None:
    loop = VirtualLoop()

    async def main() -> None:
        following = Following()
        await asyncio.sleep(0)
        await scenario(following)
        following.task.cancel()
        await asyncio.gather(following.task, return_exceptions=True)

    loop.run_until_complete(main())
    loop.close()


def test_the_next_request_leaves_with_the_response_until_there_is_nothing_to_ask() -> None:
    async def scenario(following: Following) -> None:
        for sent in ([b"1"], [b"1", b"2"], [b"1", b"2", b"3"]):
            assert following.channel.sent == sent and not following.task.done()
            following.respond()
        await following.task
        assert len(following.taken) == 3 and following.channel.closed_because is None

    run(scenario)


def test_it_waits_for_the_disks_of_all_that_have_grown() -> None:
    async def scenario(following: Following) -> None:
        one, two = FakeFollower(), FakeFollower()
        following.grown = [one, two]
        following.respond()
        assert following.channel.sent == [b"1"]
        two.synced()
        assert following.channel.sent == [b"1"]
        one.synced()
        assert following.channel.sent == [b"1", b"2"]

    run(scenario)


def test_a_response_that_does_not_come_in_time_closes_the_connection() -> None:
    async def scenario(following: Following) -> None:
        await asyncio.sleep(TIMEOUT_S - 1)
        following.respond()
        await asyncio.sleep(TIMEOUT_S - 1)
        assert not following.task.done(), "the time begins with the request"
        with pytest.raises(TimeoutError):
            await following.task
        assert following.channel.closed_because == "no response in time"
        following.respond()
        assert len(following.taken) == 1 and following.channel.sent == [b"1", b"2"], "too late"

    run(scenario)


def test_waiting_for_a_slow_disk_is_not_waiting_for_a_response() -> None:
    async def scenario(following: Following) -> None:
        follower = FakeFollower()
        following.grown = [follower]
        following.respond()
        await asyncio.sleep(3 * TIMEOUT_S)
        assert not following.task.done()
        follower.synced()
        assert following.channel.sent == [b"1", b"2"]

    run(scenario)


@pytest.mark.parametrize("what", ["a lost connection", "one that is lost while the disk works", "a response"])
def test_what_is_unusual_ends_the_rounds(what: str) -> None:
    async def scenario(following: Following) -> None:
        if what == "a lost connection":
            following.rounds.fail(ChannelClosed("lost"))
        elif what == "a response":
            following.rounds.take(memoryview(b"malformed"))
        else:
            following.channel.close("lost")
            following.respond()
        with pytest.raises(Exception, match=r"lost|cannot read"):
            await following.task
        assert following.channel.sent == [b"1"]

    run(scenario)
