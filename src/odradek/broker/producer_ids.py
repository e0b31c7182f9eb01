"""Ids of producers: unique in the cluster for all time, so they are handed out by the controller, in blocks.

A block that was begun and not used up before a restart is lost; there are 2^63 ids.
"""

import asyncio
from collections.abc import Iterator

from odradek.broker.metadata import BrokerMetadata
from odradek.controller.brokers import allocate_producer_ids
from odradek.metadata.image import MetadataImage
from odradek.metadata.records import MetadataRecord


class ProducerIds:
    def __init__(self, node_id: int, metadata: BrokerMetadata) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._block: Iterator[int] = iter(())
        self._lock = asyncio.Lock()

    async def next(self) -> int:
        async with self._lock:
            producer_id = next(self._block, None)
            if producer_id is None:
                self._block = iter(await self._metadata.decide(self._allocate))
                producer_id = next(self._block)
            return producer_id

    def _allocate(self, image: MetadataImage) -> tuple[list[MetadataRecord], range]:
        return allocate_producer_ids(image, self._node_id, image.brokers[self._node_id].epoch)
