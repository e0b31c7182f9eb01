"""One partition, from an offset to an offset, as chunks of record batches.

A fetch returns whole batches, the first of which may begin before the requested offset and the last of which may be cut
off. A `Chunk` has those with rows for us: no control batches, nothing aborted (under `read_committed`), the CRC
checked. Offsets that are missing in between (compaction, markers) are not lost records.

While one chunk is in use the next is fetched on a thread, so memory is bounded by two fetches. The thread
ends with the reader: `read_range` is a generator, and closing it aborts the request under way.

An offset that the broker no longer has, or not yet, is `OffsetsGone`: the caller decides what that means.
"""

from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from odradek.client.aborted import AbortedTransactions
from odradek.client.cluster import EARLIEST, LATEST, NO_OFFSET, Cluster
from odradek.client.connection import ConnectionLost
from odradek.client.deadline import Deadline
from odradek.client.settings import FetchSettings
from odradek.errors import ErrorCode, KafkaError
from odradek.model import TopicPartition
from odradek.records.batch import BatchHeader
from odradek.records.walk import Batch, whole_batches
from odradek.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

NO_EPOCH = -1
NO_REPLICA = -1


class OffsetsGone(Exception):
    """The requested offset is outside the partition's log: [earliest, latest)."""

    def __init__(self, partition: TopicPartition, offset: int, earliest: int, latest: int) -> None:
        super().__init__(f"{partition} has offsets {earliest} to {latest}, not {offset}")
        self.partition, self.offset = partition, offset
        self.earliest, self.latest = earliest, latest


@dataclass(frozen=True, slots=True)
class Chunk:
    """Batches with rows, and the offset to continue from. `end`: what the reader may see ends there, for now; `epoch`:
    the leader epoch of the last batch before `next_offset` that the reader has seen."""

    batches: list[Batch]
    next_offset: int
    end: int = NO_OFFSET
    epoch: int = NO_EPOCH


@dataclass(slots=True)
class RangeReader:
    """Reads [start, end) of one partition; `position` is what to fetch next.

    `timeout_s` is for a record that does not exist yet, `outage_timeout_s` for brokers that do not respond.
    """

    cluster: Cluster
    partition: TopicPartition
    position: int
    end: int
    settings: FetchSettings
    timeout_s: float
    outage_timeout_s: float | None = None  # None: as for any other request
    last_epoch: int = NO_EPOCH
    stopped: bool = False  # the fetch under way is no longer needed

    def stop(self) -> None:
        self.stopped = True
        self.cluster.abort()

    def fetch(self) -> Chunk:
        """The next chunk, from the current leader. It may be empty."""
        record_deadline = self.cluster.deadline(self._purpose, self.timeout_s)
        outage_deadline = self.cluster.deadline(self._purpose, self.outage_timeout_s)
        while True:
            before = self.position
            chunk = self._poll(outage_deadline)
            if chunk.next_offset > before:
                return chunk
            record_deadline.pause(KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE, "there is no such record yet"))

    def poll(self) -> Chunk:
        """Like `fetch`, but what there is after one wait of the broker: perhaps nothing."""
        return self._poll(self.cluster.deadline(self._purpose, self.outage_timeout_s))

    @property
    def _purpose(self) -> str:
        return f"read {self.partition} at offset {self.position}"

    def _poll(self, outage_deadline: Deadline) -> Chunk:
        while True:
            try:
                chunk = self._ask_leader()
                self.position = max(self.position, chunk.next_offset)
                outage_deadline.met()
                return chunk
            except ConnectionLost as error:
                self._look_for_leader_again(outage_deadline, error)
            except KafkaError as error:
                if not error.code.retriable or error.code is ErrorCode.CORRUPT_MESSAGE:
                    raise
                self._look_for_leader_again(outage_deadline, error)

    def _look_for_leader_again(self, deadline: Deadline, error: Exception) -> None:
        if self.stopped:
            raise error
        deadline.pause(error)
        self.cluster.forget_leader(self.partition)

    def _ask_leader(self) -> Chunk:
        leader = self.cluster.leader(self.partition)
        response = self.cluster.connection(leader.node).call(self._request(leader.epoch), FetchResponse)
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code))
        result = response.responses[0].partitions[0]
        code = ErrorCode(result.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            raise self._gone()
        if code:
            raise KafkaError(code, f"{self.partition}: {code.name}")
        if result.diverging_epoch.end_offset >= 0:  # what we read last was never committed
            end = result.diverging_epoch.end_offset
            raise OffsetsGone(self.partition, self.position, result.log_start_offset, end)
        return self._chunk(result)

    def _request(self, leader_epoch: int) -> FetchRequest:
        wanted = FetchPartition(
            partition=self.partition.partition,
            current_leader_epoch=leader_epoch,
            fetch_offset=self.position,
            last_fetched_epoch=self.last_epoch,
            partition_max_bytes=self.settings.max_bytes,
        )
        return FetchRequest(
            replica_id=NO_REPLICA,
            max_wait_ms=self.settings.max_wait_ms,
            min_bytes=self.settings.min_bytes,
            max_bytes=self.settings.max_bytes,
            isolation_level=int(self.settings.read_committed),
            topics=[FetchTopic(topic=self.partition.topic, partitions=[wanted])],
        )

    def _gone(self) -> OffsetsGone:
        earliest = self.cluster.list_offsets({self.partition: EARLIEST})[self.partition]
        latest = self.cluster.list_offsets({self.partition: LATEST})[self.partition]
        return OffsetsGone(self.partition, self.position, earliest, latest)

    def _chunk(self, result: PartitionData) -> Chunk:
        records = memoryview(result.records or b"")
        aborted = AbortedTransactions(
            (result.aborted_transactions or ()) if self.settings.read_committed else ()
        )
        batches, next_offset = [], self.position
        for batch in whole_batches(records, self._refuse):
            header = batch.header
            if header.base_offset >= self.end:
                next_offset = self.end
                break
            if self.settings.check_crc and not batch.has_valid_crc:
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"{self.partition}: the CRC of the batch at offset {header.base_offset} is wrong",
                )
            left_out = aborted.leaves_out(header, batch.data)
            if not left_out and header.last_offset >= self.position and header.record_count:
                batches.append(batch)
            next_offset = max(next_offset, header.next_offset)
            self.last_epoch = header.leader_epoch
        return Chunk(batches, next_offset, result.last_stable_offset, self.last_epoch)

    def _refuse(self, header: BatchHeader) -> None:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"{self.partition}: the batch at offset {header.base_offset} is of format {header.magic}; "
            "only format 2, which Kafka has written since 0.11, can be read",
        )


def read_range(reader: RangeReader) -> Generator[Chunk, None, None]:
    """All chunks of a range, one fetched ahead."""
    if reader.position >= reader.end:
        return
    executor = ThreadPoolExecutor(1, thread_name_prefix=f"fetch-{reader.partition}")
    try:
        ahead: Future[Chunk] | None = executor.submit(reader.fetch)
        while ahead is not None:
            chunk = ahead.result()
            ahead = executor.submit(reader.fetch) if chunk.next_offset < reader.end else None
            yield chunk
    finally:
        if ahead is not None and not ahead.done():
            reader.stop()
        executor.shutdown(wait=True, cancel_futures=True)
