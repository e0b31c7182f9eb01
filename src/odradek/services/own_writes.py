"""Read your own writes, also those with acks=1.

Such a record is acknowledged once it is written, and committed once it is on disk. Between the two, a request that
goes by the high watermark would say that the record is not there, to the very client that was told it is; on one
Kafka node, which does not wait for its disk, that cannot happen. So where nothing but our own sync holds the high
watermark back (one replica), such a request waits for the sync under way. A sync that fails closes the leader with
KAFKA_STORAGE_ERROR, which is then the answer. With more replicas it is as in Kafka: what acks=1 acknowledged may not
be committed for a while, or ever.
"""

import asyncio
from functools import partial

from odradek.errors import ErrorCode, KafkaError
from odradek.replication.leader import Leader
from odradek.requests.services import Services

DEFAULT_TIMEOUT_MS = 30_000  # of a request that does not say how long it would wait


class OwnWrites:
    """The leaders that a request has to wait for, if any."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._held_back: dict[Leader, int] = {}  # to which offset

    def __bool__(self) -> bool:
        return bool(self._held_back)

    def expect(self, topic: str, partition: int, offset: int = -1) -> None:
        """The request needs the high watermark of this partition to be here, or (-1) where the log ends now. Whether
        there is such a partition is found out later."""
        replica = self._services.replicas.present(topic, partition)
        leader = replica.leader if replica is not None else None
        if leader is None or not leader.is_held_back_by_own_sync:
            return
        end_offset = leader.log.end_offset
        needed = min(offset, end_offset) if offset >= 0 else end_offset
        if needed > leader.high_watermark:
            self._held_back[leader] = max(needed, self._held_back.get(leader, 0))

    async def committed(self, timeout_ms: int = 0) -> None:
        """Whatever was written when it was expected is committed, or never will be. Raises REQUEST_TIMED_OUT."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._services.deadlines.add(timeout_ms or DEFAULT_TIMEOUT_MS, partial(_time_out, over))
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
