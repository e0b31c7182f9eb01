"""Rounds of a follower's fetches over one connection: ask, take what comes back, wait for the disk, ask again.

A round runs in callbacks, without a task: what arrived is written, and the next request leaves, in one turn of the
event loop, because acknowledgements at the leader wait for it. Whatever is unusual ends the rounds, and whoever runs
them decides how to continue.
"""

import asyncio
from collections.abc import Callable, Iterable

from odradek.errors import ErrorCode
from odradek.host.interface import Host, Timer
from odradek.net.channel import Channel, ChannelClosed
from odradek.replication.follower import Follower
from odradek.wire.replica_fetch import ReplicaResponse, read_replica_response

SHORTEST_CHECK_SECONDS = 0.01  # a remainder may be too short for the clock to move on


class FetchRounds:
    """Takes the responses of one channel (`net.channel`)."""

    keeps_frame = False

    def __init__(
        self,
        channel: Channel,
        host: Host,
        timeout_seconds: float,
        next_frame: Callable[[], bytes | None],
        take: Callable[[ReplicaResponse], Iterable[Follower]],
    ) -> None:
        """`next_frame` returns the next request, or None if there is nothing to ask on this channel. `take` returns the
        followers whose logs have grown. If one of them raises, the rounds end with its error."""
        self._channel = channel
        self._host = host
        self._timeout_seconds = timeout_seconds
        self._next_frame = next_frame
        self._take = take
        self._asked_at: float | None = None  # None while no request is under way
        self._unsynced = 0  # followers whose sync the next request waits for
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Until there is nothing to ask. Raises what ended them, an OSError if no response came in time."""
        self._check_later(self._timeout_seconds)
        try:
            self._ask()
            await self._ended
        finally:
            self._ended.cancel()
            self._timer.cancel()

    def _end(self, error: Exception | None = None) -> None:
        if self._ended.done():
            return
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(error)

    # --- a round ---

    def _ask(self) -> None:
        if self._ended.done():
            return
        try:
            frame = self._next_frame()
            if frame is None:
                self._end()
                return
            self._channel.send_for(self, frame)
        except Exception as error:
            self._end(error)
            return
        self._asked_at = self._host.monotonic()

    def take(self, frame: memoryview) -> None:
        self._asked_at = None
        if self._ended.done():
            return
        try:
            grown = self._take(read_replica_response(frame))
        except Exception as error:
            self._end(error)
            return
        unsynced = [follower for follower in grown if not follower.may_fetch and not follower.closed_with]
        if not unsynced:
            self._ask()
            return
        self._unsynced = len(unsynced)
        for follower in unsynced:
            follower.when_synced(self._synced)

    def _synced(self, error: ErrorCode) -> None:
        """The next request tells the leader that everything below its offsets is on this disk. (A follower that was
        closed meanwhile is not named in it.)"""
        self._unsynced -= 1
        if self._unsynced == 0:
            self._ask()

    def fail(self, error: ChannelClosed) -> None:
        self._end(error)

    # --- responses that do not arrive ---

    def _check_later(self, seconds: float) -> None:
        """One timer for many rounds."""
        self._timer: Timer = self._host.call_later(seconds, self._check)

    def _check(self) -> None:
        left = self._timeout_seconds
        if self._asked_at is not None:
            left -= self._host.monotonic() - self._asked_at
        if left > 0:
            self._check_later(max(left, SHORTEST_CHECK_SECONDS))
        else:
            self._end(TimeoutError(f"no response from {self._channel.address} in time"))
            self._channel.close("no response in time")
