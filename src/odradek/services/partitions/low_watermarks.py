"""Records are deleted once every replica has deleted them: a leader that is elected later must not bring them back.

The low watermark of a partition is the lowest log start offset of its replicas, of those whose brokers are alive, as in
Kafka. A follower learns from its next fetch what the leader has deleted, has that on its disk, and says so with the
fetch after it. A broker that is away meanwhile learns of it when it follows again.
"""

import asyncio

from odradek.errors import ErrorCode
from odradek.replication.leader import Leader
from odradek.serving.services import Services

LOOK_AGAIN_SECONDS = 0.5  # a broker that is fenced changes nothing in the partition


class LowWatermarks:
    """The partitions whose low watermarks a request waits for, if any."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.awaited: dict[Leader, int] = {}  # the offset that each has to reach

    def __bool__(self) -> bool:
        return bool(self.awaited)

    def of(self, leader: Leader) -> int:
        return leader.low_watermark(self._is_alive)

    def _is_alive(self, broker_id: int) -> bool:
        broker = self._services.cluster.image.brokers.get(broker_id)
        return broker is not None and not broker.is_fenced

    def expect(self, leader: Leader, offset: int) -> None:
        if self.of(leader) < offset:
            self.awaited[leader] = offset

    async def reached(self, timeout_ms: int) -> None:
        """Wait until all are reached, or never will be: those are awaited no longer. Or until the time is up."""
        monotonic = self._services.node.host.monotonic
        end = monotonic() + timeout_ms / 1000
        while self.awaited and (left := end - monotonic()) > 0:
            await self._next_change(min(left, LOOK_AGAIN_SECONDS))
            self.awaited = {
                leader: offset
                for leader, offset in self.awaited.items()
                if not leader.closed_with and self.of(leader) < offset
            }

    async def _next_change(self, seconds: float) -> None:
        has_changed = asyncio.Event()

        def changed(_: ErrorCode) -> None:
            has_changed.set()

        for leader in self.awaited:
            leader.when_low_watermark_may_move(changed)
        try:
            async with asyncio.timeout(seconds):
                await has_changed.wait()
        except TimeoutError:
            pass
        finally:
            for leader in self.awaited:
                leader.forget_waiter(changed)
