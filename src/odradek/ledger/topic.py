"""The ledger as a topic: compacted, one record for each sink that writes exactly once, with the sink's id as key.

**An open transaction of another sink hides our record** from those who read committed data, until it ends. So `read`
takes the high watermark first, and reads until the last stable offset has reached it.
"""

import time

from odradek.client.cluster import LATEST, Cluster
from odradek.client.producing import EncodedRecords
from odradek.client.settings import ProduceSettings
from odradek.client.transactions import TransactionalProducer
from odradek.errors import ErrorCode, KafkaError
from odradek.ledger.compacted import CompactedTopic
from odradek.ledger.record import ANY, Entry, decode_entry, encode_entry
from odradek.model import TopicPartition

NAME = "_odradek-ledger"
PARTITIONS = 8
TRANSACTIONAL_ID = "odradek-once-"  # followed by the sink's id
RESET_TIMEOUT_MS = 60_000


class Ledger(CompactedTopic):
    """One cluster's ledger. `ensure` comes first for whoever writes."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster, NAME, PARTITIONS)

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

    def entries(self) -> dict[str, Entry]:
        """Return the entries of all sinks, as far as they can be seen without waiting."""
        return {sink: decode_entry(sink, value) for sink, value in self.values().items()}

    # Writing

    def encoded(self, sink: str, entry: Entry | None, now_ms: int) -> EncodedRecords:
        """A record for a transaction of the caller's; without an entry, a tombstone."""
        return self.encoded_value(sink, None if entry is None else encode_entry(entry), now_ms)

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
