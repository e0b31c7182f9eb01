"""ListOffsets (2): offsets by meaning (earliest, latest, of the largest timestamp) or by time.

- By time: the first record whose timestamp is at or after the one asked for, not the start of its batch; what
  the client's isolation level does not show yet is not found.
- Tiered storage does not exist: earliest local is earliest, and there is no latest tiered offset and none that
  waits for upload (-1).
"""

from collections import Counter

from odradek.api.refused import log_unreadable
from odradek.api.request import Request
from odradek.api.services import Services
from odradek.errors import ErrorCode, KafkaError
from odradek.replication.partition import Partition
from odradek.storage.lookup import offset_for_timestamp, offset_of_max_timestamp
from odradek.wire.codec import Steps
from odradek.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
KNOWN_SINCE = {
    LATEST: 0,
    EARLIEST: 0,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
READ_COMMITTED = 1
NOT_FOUND = (-1, -1, -1)  # timestamp, offset, leader epoch

Found = tuple[int, int, int]


def handle(services: Services, request: Request, message: ListOffsetsRequest) -> Steps[ListOffsetsResponse]:
    asked_for: Counter[tuple[str, int]] = Counter()
    for topic in message.topics:
        for asked in topic.partitions:
            asked_for[topic.name, asked.partition_index] += 1
            yield
    search = Search(services, request.version, message)
    answer = ListOffsetsResponse()
    for topic in message.topics:
        results: list[ListOffsetsPartitionResponse] = []
        for asked in topic.partitions:
            results.append(search.answer(topic.name, asked, asked_for))
            yield
        answer.topics.append(ListOffsetsTopicResponse(topic.name, results))
    return answer


class Search:
    def __init__(self, services: Services, version: int, message: ListOffsetsRequest) -> None:
        self._services = services
        self._version = version
        self._is_consumer = message.replica_id < 0
        self._committed_only = message.isolation_level == READ_COMMITTED

    def answer(
        self, topic: str, asked: ListOffsetsPartition, asked_for: Counter[tuple[str, int]]
    ) -> ListOffsetsPartitionResponse:
        index = asked.partition_index
        try:
            if asked_for[topic, index] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            partition = self._services.replicas.get(topic, index)
            partition.check_leader_epoch(asked.current_leader_epoch)
            timestamp, offset, leader_epoch = self._find(partition, asked.timestamp)
        except KafkaError as error:
            return ListOffsetsPartitionResponse(index, error.code, timestamp=-1, offset=-1, leader_epoch=-1)
        except OSError as error:
            log_unreadable(topic, index, error)
            code = ErrorCode.KAFKA_STORAGE_ERROR
            return ListOffsetsPartitionResponse(index, code, timestamp=-1, offset=-1, leader_epoch=-1)
        return ListOffsetsPartitionResponse(
            index, timestamp=timestamp, offset=offset, leader_epoch=leader_epoch
        )

    def _find(self, partition: Partition, timestamp: int) -> Found:
        if timestamp < 0 and self._version < KNOWN_SINCE.get(timestamp, self._version + 1):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        end = self._end(partition)
        if timestamp == LATEST:
            return -1, end, partition.leader_epoch
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return (
                -1,
                partition.log.log_start_offset,
                self._epoch_at(partition, partition.log.log_start_offset),
            )
        if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            return NOT_FOUND
        if timestamp == MAX_TIMESTAMP:
            found = offset_of_max_timestamp(partition.log)
            return found if found is not None and found.offset < end else NOT_FOUND
        return offset_for_timestamp(partition.log, timestamp, end) or NOT_FOUND

    def _end(self, partition: Partition) -> int:
        if not self._is_consumer:
            return partition.log.end_offset
        return partition.last_stable_offset if self._committed_only else partition.high_watermark

    @staticmethod
    def _epoch_at(partition: Partition, offset: int) -> int:
        """Of the record at this offset; an empty log that never had one has the leader's."""
        epoch = partition.log.leader_epochs.epoch_for_offset(offset)
        return epoch if epoch >= 0 else partition.leader_epoch
