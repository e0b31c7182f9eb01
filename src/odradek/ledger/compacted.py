"""A compacted topic of ours, of which the newest record of each key counts.

Segments are short, so that compaction keeps what has to be read at a start small. The partition of a key depends on the
key, and not on how many partitions were added later, as long as there were `partitions` at first.
"""

import zlib
from collections.abc import Iterator

from odradek.client.cluster import EARLIEST, LATEST, Cluster
from odradek.client.fetching import RangeReader
from odradek.client.producing import EncodedRecords
from odradek.client.settings import FetchSettings
from odradek.errors import ErrorCode, KafkaError
from odradek.model import TopicPartition
from odradek.records.record import Record, decode_batch, encode_records
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

REPLICAS = 3  # or as many as the cluster has brokers; Kafka's own default would be one
CONFIG = {
    "cleanup.policy": "compact",
    "segment.ms": "600000",
    "min.cleanable.dirty.ratio": "0.1",
}
# Like Kafka's own log of transactions: nobody would notice a record that is lost, and its batch would be written again.
IN_SYNC = {"min.insync.replicas": "2"}
STABLE_WITHIN_S = 1200.0  # longer than transaction.max.timeout.ms is by default


def create_compacted(cluster: Cluster, name: str, partitions: int) -> CreatableTopicResult:
    """Create a topic with as many replicas as the cluster has brokers for, counting one that is down: otherwise the
    topic would have too few replicas for ever, and nobody could write once the next broker goes down."""
    for replicas in range(REPLICAS, 0, -1):
        wanted = CONFIG | (IN_SYNC if replicas == REPLICAS else {})
        configs = [CreatableTopicConfig(key, value) for key, value in wanted.items()]
        topic = CreatableTopic(name, partitions, replicas, configs=configs)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
        (result,) = cluster.ask(f"create topic {name}", request, CreateTopicsResponse).topics
        if result.error_code != ErrorCode.INVALID_REPLICATION_FACTOR:
            break
    return result


class CompactedTopic:
    """The topic on one cluster. `ensure` comes first for whoever writes."""

    def __init__(self, cluster: Cluster, name: str, partitions: int) -> None:
        self._cluster, self.name, self._wanted = cluster, name, partitions
        self._count = 0

    def exists(self) -> bool:
        return self.name in self._cluster.topic_names()

    def ensure(self) -> None:
        if self._count:
            return
        if not self.exists():
            self._create()
        self._count = len(self._cluster.partitions_of([self.name]))

    def _create(self) -> None:
        result = create_compacted(self._cluster, self.name, self._wanted)
        code = ErrorCode(result.error_code)
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            reason, count = result.error_message or code.name, self._wanted
            raise KafkaError(
                code,
                f"cannot create topic {self.name}: {reason}; create it yourself, compacted and with {count} "
                f"partition{'s' if count > 1 else ''}",
            )

    def topic_id(self) -> str:
        return str(self._cluster.topic_ids([self.name])[self.name])

    def partition_of(self, key: str) -> TopicPartition:
        self.ensure()
        return TopicPartition(self.name, zlib.crc32(key.encode()) % min(self._count, self._wanted))

    def values(self) -> dict[str, bytes]:
        """The newest value of each key, as far as they can be seen without waiting."""
        if not self.exists():
            return {}
        partitions = self._cluster.partitions_of([self.name])
        ends = self._cluster.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=True)
        last: dict[bytes, bytes | None] = {}
        for partition in partitions:
            for record in self._records(partition, ends[partition]):
                last[record.key or b""] = record.value
        return {key.decode(errors="replace"): value for key, value in last.items() if value is not None}

    def _records(self, partition: TopicPartition, end: int) -> Iterator[Record]:
        start = self._cluster.list_offsets({partition: EARLIEST})[partition]
        settings = FetchSettings(read_committed=True, max_wait_ms=100 if start < end else 0)
        reader = RangeReader(self._cluster, partition, start, end, settings, STABLE_WITHIN_S)
        if start >= end:
            reader.poll()  # who may not read is told so at once, and not when there is something to read
        while reader.position < end:
            for batch in reader.fetch().batches:
                yield from (one for one in decode_batch(batch.data, batch.header) if one.offset < end)

    def encoded_value(self, key: str, value: bytes | None, now_ms: int) -> EncodedRecords:
        """One record, ready to be sent; without a value, a tombstone."""
        record = Record(0, now_ms, key.encode(), value)
        return EncodedRecords(self.partition_of(key), encode_records([record], 0, now_ms), 1, now_ms, now_ms)
