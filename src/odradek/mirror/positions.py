"""The positions as a topic of the target: compacted, read once by a process and then followed.

An open transaction of another partition hides our record from those who read committed data, until it ends. So `read`
takes the high watermark first, and reads until the last stable offset has reached it.
"""

import logging
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable
from uuid import UUID

from odradek.client.cluster import EARLIEST, LATEST, Cluster
from odradek.client.fetching import OffsetsGone, RangeReader
from odradek.client.producing import EncodedRecords
from odradek.client.settings import FetchSettings
from odradek.errors import ErrorCode, KafkaError
from odradek.ledger.compacted import create_compacted
from odradek.mirror.position import (
    Copy,
    Position,
    UnreadablePosition,
    decode_key,
    decode_position,
    encode_key,
    encode_position,
)
from odradek.mirror.rights import REFUSALS
from odradek.model import TopicPartition
from odradek.records.record import Record, decode_batch, encode_records

NAME = "_odradek-mirror-positions"
PARTITIONS = 8
STABLE_WITHIN_S = 1200.0  # longer than transaction.max.timeout.ms is by default

log = logging.getLogger("odradek.mirror")


def create_positions(cluster: Cluster) -> None:
    """Create the topic of positions if there is none yet."""
    if NAME in cluster.topic_names():
        return
    result = create_compacted(cluster, NAME, PARTITIONS)
    code = ErrorCode(result.error_code)
    if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        reason = result.error_message or code.name
        grant = "grant CREATE on it, or " if code in REFUSALS else ""
        raise KafkaError(
            code,
            f"cannot create topic {NAME} on the target: {reason}; {grant}create it, compacted, yourself",
        )


class Positions:
    """The positions of all partitions, as far as they were read. Threads may share it: it has a cluster of its own."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._count = cluster, 0
        self._lock = threading.Lock()
        self._topic_id: UUID | None = None
        self._next: dict[TopicPartition, int] = {}
        self._found: defaultdict[Copy, dict[str, Position | UnreadablePosition]] = defaultdict(dict)
        self._written_ms: dict[Copy, int] = {}

    def prepare(self) -> None:
        """Comes first, once for all threads."""
        create_positions(self._cluster)
        self._count = min(len(self._cluster.partitions_of([NAME])), PARTITIONS)

    def partition_of(self, copy: Copy) -> TopicPartition:
        """Without the lock: whoever has a transaction open must not wait for those who wait for its end."""
        key = f"{copy.source}/{copy.topic}/{copy.partition}"
        return TopicPartition(NAME, zlib.crc32(key.encode()) % self._count)

    def encoded(self, copy: Copy, position: Position) -> EncodedRecords:
        """A record for a transaction of the caller's."""
        now_ms = int(time.time() * 1000)
        record = Record(0, now_ms, encode_key(copy, position.number), encode_position(position))
        records = encode_records([record], 0, now_ms)
        return EncodedRecords(self.partition_of(copy), records, 1, now_ms, now_ms)

    def read(self, copy: Copy) -> Position | None:
        """The last that was committed before this call."""
        return max(self.kept(copy), key=lambda one: one.number, default=None)

    def kept(self, copy: Copy) -> list[Position]:
        """All that are kept of a partition, as of now. Of those for an older copy, none count."""
        return self.kept_of([copy])[copy]

    def kept_of(self, copies: Collection[Copy]) -> dict[Copy, list[Position]]:
        """Return the positions of several partitions. Raises `UnreadablePosition`."""
        with self._lock:
            self._forget_another_topic()
            for partition in {self.partition_of(one) for one in copies}:
                self._follow(partition)
            return {one: _counting(self._found[one].values()) for one in copies}

    def copies(self, source: str) -> list[Copy]:
        """The partitions of a source of which there are positions."""
        with self._lock:
            self._forget_another_topic()
            for number in range(self._count):
                self._follow(TopicPartition(NAME, number))
            return sorted(copy for copy, found in self._found.items() if copy.source == source and found)

    def written_ms(self, copy: Copy) -> int | None:
        """Return when the newest position that `kept` has seen was written."""
        return self._written_ms.get(copy)

    def _forget_another_topic(self) -> None:
        """Forget what was read if the topic was deleted and created again: it says nothing about the new one."""
        topic_id = self._cluster.topic_ids([NAME])[NAME]
        if topic_id != self._topic_id:
            self._next.clear()
            self._found.clear()
            self._topic_id = topic_id

    def _follow(self, partition: TopicPartition) -> None:
        try:
            self._read_on(partition)
        except KafkaError as error:
            if error.code in REFUSALS:
                raise KafkaError(error.code, f"{error}; grant READ on the topic at the target") from None
            raise

    def _read_on(self, partition: TopicPartition) -> None:
        """Up to the present high watermark."""
        high_watermark = self._cluster.list_offsets({partition: LATEST})[partition]
        start = self._next.get(partition)
        if start is None:
            start = self._cluster.list_offsets({partition: EARLIEST})[partition]
        settings = FetchSettings(read_committed=True, max_wait_ms=100)
        reader = RangeReader(self._cluster, partition, start, high_watermark, settings, STABLE_WITHIN_S)
        while reader.position < high_watermark:
            try:
                chunk = reader.fetch()
            except OffsetsGone as gone:  # compacted away meanwhile
                reader.position = max(gone.earliest, reader.position)
                continue
            for batch in chunk.batches:
                for record in decode_batch(batch.data, batch.header):
                    self._take(record, partition.partition)
            self._next[partition] = reader.position

    def _take(self, record: Record, partition: int) -> None:
        """A key that is none of ours is somebody else's. A value that cannot be read stops those whose key it has."""
        try:
            copy, slot = decode_key(record.key)
        except UnreadablePosition as error:
            log.warning("ignoring a record of %s: %s", NAME, error)
            return
        if record.value is None:
            self._found[copy].pop(slot, None)
            return
        self._written_ms[copy] = record.timestamp
        try:
            self._found[copy][slot] = decode_position(copy, record.value)
        except UnreadablePosition as error:
            key = (record.key or b"").decode()
            self._found[copy][slot] = UnreadablePosition(
                f"{error}. If somebody else has written it, remove it from the target: "
                f"odradek produce {NAME} -p {partition} --tombstone --key '{key}'"
            )


def _counting(found: Iterable[Position | UnreadablePosition]) -> list[Position]:
    readable = []
    for one in found:
        if isinstance(one, UnreadablePosition):
            raise one
        readable.append(one)
    newest = max(readable, key=lambda one: one.number, default=None)
    return [one for one in readable if newest is not None and one.target_id == newest.target_id]
