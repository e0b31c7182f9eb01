"""ListOffsets (2): offsets by meaning (earliest, latest, of the largest timestamp) or by time.

- By time: the first record whose timestamp is at or after the requested one, not the start of its batch; records that
  the client's isolation level does not show yet are not found.
- A record that was acknowledged with acks=1 counts (see `own_writes`).
- Tiered storage does not exist: earliest local is earliest, and there is no latest tiered offset and none that
  waits for upload (-1).
"""

from collections import Counter

from odradek.errors import ErrorCode, KafkaError
from odradek.replication.leader import Leader
from odradek.services.partitions.own_writes import OwnWrites
from odradek.serving.refused import log_unreadable
from odradek.serving.request import Request
from odradek.serving.services import Services
from odradek.storage.log.lookup import FoundRecord, offset_for_timestamp, offset_of_max_timestamp
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
ANYWAY = {EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD}  # whatever is committed
OFFSET_NOT_AVAILABLE_SINCE = 5
NOT_FOUND = (-1, -1, -1)  # timestamp, offset, leader epoch

Found = tuple[int, int, int]


def handle(
    services: Services, request: Request, message: ListOffsetsRequest
) -> Steps[ListOffsetsResponse | None]:
    search = Search(services, request.version, message)
    own_writes = OwnWrites(services)
    for topic in message.topics:
        for asked in topic.partitions:
            search.asked_for[topic.name, asked.partition_index] += 1
            if search.goes_by_high_watermark(asked.timestamp):
                own_writes.expect(topic.name, asked.partition_index)
            yield
    if own_writes:
        request.then(_answer_after(own_writes, services, search))
        return None
    return (yield from search.answer())


async def _answer_after(own_writes: OwnWrites, services: Services, search: "Search") -> ListOffsetsResponse:
    await own_writes.committed(search.message.timeout_ms)
    return await services.node.turns.complete(search.answer())


class Search:
    def __init__(self, services: Services, version: int, message: ListOffsetsRequest) -> None:
        self.message = message
        self.asked_for: Counter[tuple[str, int]] = Counter()  # how often each partition is named
        self._services = services
        self._version = version
        self._is_consumer = message.replica_id < 0
        self._committed_only = message.isolation_level == READ_COMMITTED

    def goes_by_high_watermark(self, timestamp: int) -> bool:
        return self._is_consumer and timestamp not in ANYWAY

    def answer(self) -> Steps[ListOffsetsResponse]:
        response = ListOffsetsResponse()
        for topic in self.message.topics:
            results: list[ListOffsetsPartitionResponse] = []
            for asked in topic.partitions:
                results.append(self._answer(topic.name, asked))
                yield
            response.topics.append(ListOffsetsTopicResponse(topic.name, results))
        return response

    def _answer(self, topic: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        index = asked.partition_index
        try:
            if self.asked_for[topic, index] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST)
            leader = self._services.partitions.replicas.leader(topic, index)
            leader.check_leader_epoch(asked.current_leader_epoch)
            timestamp, offset, leader_epoch = self._find(leader, asked.timestamp)
        except KafkaError as error:
            return ListOffsetsPartitionResponse(index, error.code, timestamp=-1, offset=-1, leader_epoch=-1)
        except OSError as error:
            log_unreadable(topic, index, error)
            code = ErrorCode.KAFKA_STORAGE_ERROR
            return ListOffsetsPartitionResponse(index, code, timestamp=-1, offset=-1, leader_epoch=-1)
        return ListOffsetsPartitionResponse(
            index, timestamp=timestamp, offset=offset, leader_epoch=leader_epoch
        )

    def _find(self, leader: Leader, timestamp: int) -> Found:
        if timestamp < 0 and self._version < KNOWN_SINCE.get(timestamp, self._version + 1):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        log_start_offset = leader.log.log_start_offset
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            return -1, log_start_offset, self._epoch_at(leader, log_start_offset)
        if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            return NOT_FOUND
        end = self._end(leader)
        if timestamp == LATEST:
            self._check_high_watermark(leader)
            return -1, end, leader.leader_epoch
        found = self._search(leader, timestamp, end)
        if found is None:
            self._check_high_watermark(leader)
        return found or NOT_FOUND

    @staticmethod
    def _search(leader: Leader, timestamp: int, end: int) -> FoundRecord | None:
        if timestamp != MAX_TIMESTAMP:
            return offset_for_timestamp(leader.log, timestamp, end)
        found = offset_of_max_timestamp(leader.log) if leader.log.segments else None
        return found if found is not None and found.offset < end else None

    def _check_high_watermark(self, leader: Leader) -> None:
        """A new leader could return less than the previous one did (KIP-207)."""
        if self._is_consumer and not leader.knows_high_watermark:
            is_new = self._version >= OFFSET_NOT_AVAILABLE_SINCE
            raise KafkaError(
                ErrorCode.OFFSET_NOT_AVAILABLE if is_new else ErrorCode.LEADER_NOT_AVAILABLE,
                f"The leader of {leader.topic_partition} does not know its high watermark yet",
            )

    def _end(self, leader: Leader) -> int:
        if not self._is_consumer:
            return leader.log.end_offset
        return leader.last_stable_offset if self._committed_only else leader.high_watermark

    @staticmethod
    def _epoch_at(leader: Leader, offset: int) -> int:
        """The epoch of the record at this offset; the leader's if the log never had a record."""
        epoch = leader.log.leader_epochs.epoch_for_offset(offset)
        return epoch if epoch >= 0 else leader.leader_epoch
