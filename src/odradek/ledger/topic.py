"""The ledger as a topic: compacted, one record for each sink that writes exactly once, with the sink's id as key.

Segments are short, so that compaction keeps what has to be read at a start small. A sink's partition depends on its id,
and not on how many partitions were added later, as long as there were `PARTITIONS` at first.

**An open transaction of another sink hides our record** from those who read committed data, until it ends. So `read`
takes the high watermark first, and reads until the last stable offset has reached it.
"""

import time
import zlib
from collections.abc import Iterator

from odradek.client.cluster import EARLIEST, LATEST, Cluster
from odradek.client.fetching import RangeReader
from odradek.client.producing import EncodedRecords
from odradek.client.settings import FetchSettings, ProduceSettings
from odradek.client.transactions import TransactionalProducer
from odradek.errors import ErrorCode, KafkaError
from odradek.ledger.record import ANY, Entry, decode_entry, encode_entry
from odradek.model import TopicPartition
from odradek.records.record import Record, decode_batch, encode_records
from odradek.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

NAME = "_odradek-ledger"
PARTITIONS = 8
REPLICAS = 3  # or as many as there are brokers; Kafka's own default would be one
CONFIG = {
    "cleanup.policy": "compact",
    "segment.ms": "600000",
    "min.cleanable.dirty.ratio": "0.1",
}
TRANSACTIONAL_ID = "odradek-once-"  # followed by the sink's id
STABLE_WITHIN_S = 1200.0  # longer than transaction.max.timeout.ms is by default
RESET_TIMEOUT_MS = 60_000


class Ledger:
    """One cluster's ledger. `ensure` comes first for whoever writes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._count = 0

    def exists(self) -> bool:
        return NAME in self._cluster.topic_names()

    def ensure(self) -> None:
        if self._count:
            return
        if not self.exists():
            self._create()
        self._count = len(self._cluster.partitions_of([NAME]))

    def _create(self) -> None:
        configs = [CreatableTopicConfig(name, value) for name, value in CONFIG.items()]
        replicas = min(REPLICAS, self._cluster.broker_count)
        topic = CreatableTopic(
            name=NAME, num_partitions=PARTITIONS, replication_factor=replicas, configs=configs
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
        response = self._cluster.ask(f"create topic {NAME}", request, CreateTopicsResponse)
        for result in response.topics:
            code = ErrorCode(result.error_code)
            if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                reason = result.error_message or code.name
                raise KafkaError(
                    code,
                    f"cannot create topic {NAME}: {reason}; create it yourself, compacted and with {PARTITIONS} "
                    "partitions",
                )

    def topic_id(self) -> str:
        return str(self._cluster.topic_ids([NAME])[NAME])

    def partition_of(self, sink: str) -> TopicPartition:
        self.ensure()
        return TopicPartition(NAME, zlib.crc32(sink.encode()) % min(self._count, PARTITIONS))

    # Reading

    def read(self, sink: str) -> Entry | None:
        """The sink's last entry that was committed before this call."""
        partition = self.partition_of(sink)
        return self._last(sink, partition, self._high_watermark(partition))

    def seen(self, sink: str) -> Entry | None:
        """The sink's last entry as far as it can be seen without waiting for anybody's transaction."""
        if not self.exists():
            return None
        partition = self.partition_of(sink)
        end = self._cluster.list_offsets({partition: LATEST}, read_committed=True)[partition]
        return self._last(sink, partition, end)

    def _last(self, sink: str, partition: TopicPartition, end: int) -> Entry | None:
        key = sink.encode()
        value: bytes | None = None
        try:
            for record in self._records(partition, end):
                if record.key == key:
                    value = record.value
        except KafkaError as error:
            if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise KafkaError(error.code, f"{error}; grant READ on the topic to this user") from error
            raise
        return None if value is None else decode_entry(sink, value)

    def _high_watermark(self, partition: TopicPartition) -> int:
        return self._cluster.list_offsets({partition: LATEST})[partition]

    def _records(self, partition: TopicPartition, end: int) -> Iterator[Record]:
        start = self._cluster.list_offsets({partition: EARLIEST})[partition]
        settings = FetchSettings(read_committed=True, max_wait_ms=100 if start < end else 0)
        reader = RangeReader(self._cluster, partition, start, end, settings, STABLE_WITHIN_S)
        if start >= end:
            reader.poll()  # who may not read is told so at once, and not when there is something to read
        while reader.position < end:
            for batch in reader.fetch().batches:
                yield from (one for one in decode_batch(batch.data, batch.header) if one.offset < end)

    def entries(self) -> dict[str, Entry]:
        """Those of all sinks, as far as they can be seen without waiting."""
        if not self.exists():
            return {}
        partitions = self._cluster.partitions_of([NAME])
        ends = self._cluster.list_offsets(dict.fromkeys(partitions, LATEST), read_committed=True)
        last: dict[bytes, bytes | None] = {}
        for partition in partitions:
            for record in self._records(partition, ends[partition]):
                last[record.key or b""] = record.value
        names = {key.decode(errors="replace"): value for key, value in last.items() if value is not None}
        return {name: decode_entry(name, value) for name, value in names.items()}

    # Writing

    def encoded(self, sink: str, entry: Entry | None, now_ms: int) -> EncodedRecords:
        """A record for a transaction of the caller's; without an entry, a tombstone."""
        value = None if entry is None else encode_entry(entry)
        record = Record(0, now_ms, sink.encode(), value)
        return EncodedRecords(self.partition_of(sink), encode_records([record], 0, now_ms), 1, now_ms, now_ms)

    def reset(self, sink: str, batch: int | None) -> None:
        """Fence the sink's writer, and say that it has written everything up to `batch`; None: forget the sink."""
        producer = TransactionalProducer(
            self._cluster, TRANSACTIONAL_ID + sink, ProduceSettings(), RESET_TIMEOUT_MS
        )
        producer.initialize()
        now_ms = int(time.time() * 1000)
        entry = (
            None if batch is None else Entry(batch, ANY, written_at_ms=now_ms, name="reset by an operator")
        )
        producer.send([self.encoded(sink, entry, now_ms)])
        producer.commit()
