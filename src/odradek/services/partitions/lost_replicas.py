"""Tells the controller that logs of this broker are damaged, until the metadata says that they are not needed.

A replica whose log is damaged must leave the ISR before anything else happens to it. `report` names it; it is sent to
the controller (AssignReplicasToDirs, with the directory that stands for lost), again and again while no other replica
can lead the partition. Once the metadata names the replica as lost, another broker leads, and the log may be thrown
away and copied again (`services.partitions.local_partitions`).

Reports live in memory. A broker that restarts finds the mark of a damaged log (`services.partitions.damaged_logs`) and
reports it again, or its replica is named as lost already.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from odradek.errors import ErrorCode
from odradek.host.log_lines import counted
from odradek.metadata.image import LOST_DIRECTORY, MetadataImage
from odradek.services.cluster.metadata import BrokerMetadata

if TYPE_CHECKING:
    from odradek.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0

ReplicaId = tuple[UUID, int]  # topic id, partition


class LostReplicas:
    def __init__(self, node_id: int, metadata: BrokerMetadata) -> None:
        self._node_id = node_id
        self._metadata = metadata
        self._reported: dict[ReplicaId, None] = {}
        self._has_news = asyncio.Event()

    def report(self, topic_id: UUID, index: int) -> None:
        """The log of this replica is damaged."""
        if (topic_id, index) not in self._reported:
            self._reported[topic_id, index] = None
            self._has_news.set()

    def metadata_changed(self, image: MetadataImage) -> None:
        """Settle the reports that the metadata has a response to."""
        for topic_id, index in list(self._reported):
            topic = image.topics_by_id.get(topic_id)
            registration = None if topic is None else topic.partitions.get(index)
            if (
                registration is None
                or self._node_id not in registration.replicas
                or registration.directory_of(self._node_id) == LOST_DIRECTORY
            ):
                del self._reported[topic_id, index]

    async def run(self) -> None:
        """Send reports until cancelled."""
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            self.metadata_changed(self._metadata.image)  # it may be named as lost already
            if self._reported:
                await self._send(list(self._reported))
                await asyncio.sleep(RETRY_SECONDS)
            if self._reported:
                self._has_news.set()

    async def _send(self, reported: Iterable[ReplicaId]) -> None:
        try:
            request = self._request(reported)
        except OSError as error:  # there is no descriptor left to import its messages with
            counted(log, logging.ERROR, "", "request", "cannot report damaged logs, trying again: %s", error)
            return
        if request is None:
            return
        response = await self._metadata.ask(request)
        if response.error_code:
            code = ErrorCode(response.error_code)
            counted(
                log,
                logging.WARNING,
                "",
                code.name,
                "the controller refused a report of damaged logs: %s",
                code.name,
            )
        for directory in response.directories:
            for topic in directory.topics:
                for partition in topic.partitions:
                    self._take(topic.topic_id, partition.partition_index, ErrorCode(partition.error_code))

    def _request(self, reported: Iterable[ReplicaId]) -> "AssignReplicasToDirsRequest | None":
        from odradek.wire.messages.assign_replicas_to_dirs import (  # only where a log is damaged
            AssignReplicasToDirsRequest,
            DirectoryDataInRequest,
            PartitionDataInRequest,
            TopicDataInRequest,
        )

        broker = self._metadata.image.brokers.get(self._node_id)
        if broker is None:
            return None
        topics: dict[UUID, TopicDataInRequest] = {}
        for topic_id, index in reported:
            data = topics.setdefault(topic_id, TopicDataInRequest(topic_id))
            data.partitions.append(PartitionDataInRequest(index))
        lost = DirectoryDataInRequest(LOST_DIRECTORY, list(topics.values()))
        return AssignReplicasToDirsRequest(self._node_id, broker.epoch, [lost])

    def _take(self, topic_id: UUID, index: int, code: ErrorCode) -> None:
        topic = self._metadata.image.topics_by_id.get(topic_id)
        if code is ErrorCode.NONE or topic is None:
            return  # the metadata brings the result
        name = f"{topic.name}-{index}"
        if code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE:
            why = "no other replica can lead it: keeping its log, and asking again"
        else:
            why = f"the controller refused to count it as lost: {code.name}"
        counted(log, logging.WARNING, name, code.name, "the log of %s is damaged, and %s", name, why)
