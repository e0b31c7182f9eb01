"""Producer ids: unique in the cluster for all time, so the controller hands them out, in blocks.

A restart loses the rest of the current block; there are 2^63 ids.
"""

import asyncio
from collections.abc import Iterator

from odradek.errors import ErrorCode, KafkaError
from odradek.services.cluster.metadata import BrokerMetadata
from odradek.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest


class ProducerIds:
    def __init__(self, node_id: int, metadata: BrokerMetadata) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._block: Iterator[int] = iter(())
        self._lock = asyncio.Lock()

    async def next(self) -> int:
        """Raises KafkaError if the controller allocates none now."""
        async with self._lock:
            producer_id = next(self._block, None)
            if producer_id is None:
                self._block = iter(await self._allocate())
                producer_id = next(self._block)
            return producer_id

    async def _allocate(self) -> range:
        epoch = self._metadata.image.brokers[self._node_id].epoch
        request = AllocateProducerIdsRequest(self._node_id, epoch)
        response = await self._metadata.ask(request)
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code), "The controller allocates no producer ids now.")
        start: int = response.producer_id_start
        return range(start, start + response.producer_id_len)
