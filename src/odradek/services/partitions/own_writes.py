"""A client reads its own writes, even those with acks=1.

Such a record is acknowledged once it is written, but committed only once it is on disk. In between, a request that goes
by the high watermark would tell the client that its acknowledged record does not exist. A single Kafka broker, which
does not wait for its disk, never does that. So if only our own sync holds the high watermark back (there is one
replica), such a request waits for the current sync. If that fails, the leader closes with KAFKA_STORAGE_ERROR, which
becomes the response. With more replicas it is as in Kafka: a record acknowledged with acks=1 may be committed later, or
never.
"""

import asyncio
from functools import partial

from odradek.errors import ErrorCode, KafkaError
from odradek.replication.leader import Leader
from odradek.serving.services import Services

DEFAULT_TIMEOUT_MS = 30_000  # for requests that have no timeout of their own


class OwnWrites:
    """The leaders that a request has to wait for, if any."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._held_back: dict[Leader, int] = {}  # to which offset

    def __bool__(self) -> bool:
        return bool(self._held_back)

    def expect(self, topic: str, partition: int, offset: int = -1) -> None:
        """The request needs the high watermark of this partition to reach `offset`, or the current log end offset if
        that is -1. Whether the partition exists is checked later."""
        replica = self._services.partitions.replicas.present(topic, partition)
        leader = replica.leader if replica is not None else None
        if leader is None or not leader.is_held_back_by_own_sync:
            return
        end_offset = leader.log.end_offset
        needed = min(offset, end_offset) if offset >= 0 else end_offset
        if needed > leader.high_watermark:
            self._held_back[leader] = max(needed, self._held_back.get(leader, 0))

    async def committed(self, timeout_ms: int = 0) -> None:
        """Wait until every expected offset is committed, or never will be. Raises REQUEST_TIMED_OUT."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._services.node.deadlines.add(timeout_ms or DEFAULT_TIMEOUT_MS, partial(_time_out, over))
        remaining = dict(self._held_back)

        def told(leader: Leader, _: ErrorCode) -> None:
            remaining.pop(leader, None)
            if not remaining and not over.done():
                over.set_result(None)

        for leader, offset in self._held_back.items():
            leader.when_committed(offset, partial(told, leader))
        try:
            await over
        finally:
            timer.cancel()


def _time_out(over: "asyncio.Future[None]") -> None:
    if not over.done():
        over.set_exception(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The records were not on disk in time"))
