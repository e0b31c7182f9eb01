"""Waits for the commit of what this node appended to the metadata log as the leader of the quorum.

Waits end in the order of their offsets: once the record is committed and applied here, or, with NOT_CONTROLLER, once
this node has lost the leadership: the outcome is then unknown.
"""

import asyncio
from collections import deque
from typing import NamedTuple

from odradek.errors import ErrorCode, KafkaError
from odradek.metadata.log import MetadataLog


class _Waiter(NamedTuple):
    offset: int
    epoch: int
    done: asyncio.Future[None]


class _Led(NamedTuple):
    """The offset that this node has seen committed while it was leader."""

    epoch: int = -1
    offset: int = -1


class CommitWaiters:
    def __init__(self, log: MetadataLog) -> None:
        self._log = log
        self._waiters: deque[_Waiter] = deque()
        self._led = _Led()  # in the last epoch in which it led
        self._is_closed = False

    async def committed(self, offset: int, epoch: int) -> None:
        """Wait for what was appended here at this offset in this epoch. Raises KafkaError."""
        if self._led.epoch == epoch and self._led.offset >= offset:
            return
        if not self._log.raft.is_leader or self._log.epoch != epoch or self._is_closed:
            raise _lost_lead()
        waiter = _Waiter(offset, epoch, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        await waiter.done

    def answer(self) -> None:
        """End the waits for what is committed. The epoch must match too: after an election, another leader's record may
        have the same offset."""
        if self._log.raft.is_leader:
            self._led = _Led(self._log.epoch, self._log.image.offset)
        while self._waiters and self._led.epoch == self._waiters[0].epoch:
            if self._led.offset < self._waiters[0].offset:
                break
            _set(self._waiters.popleft().done)
        if self._waiters and (not self._log.raft.is_leader or self._waiters[0].epoch != self._log.epoch):
            self.fail(_lost_lead())

    def fail(self, error: KafkaError) -> None:
        waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            if not waiter.done.done():
                waiter.done.set_exception(error)

    def close(self) -> None:
        self._is_closed = True
        self.fail(KafkaError(ErrorCode.NOT_CONTROLLER, "This node is stopping."))


def _set(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


def _lost_lead() -> KafkaError:
    return KafkaError(ErrorCode.NOT_CONTROLLER, "This node does not lead the metadata quorum any more.")
