"""Rules for what compaction and retention may take from the replicas of a log, and what they may not.

Every replica does both on its own, so logs differ below the high watermark, within bounds:

- **compaction** takes a record only if a newer one of its key is committed, or if it is a tombstone; whatever is left
  is as it was committed, at its offset and in its batch;
- **retention** takes batches from the start, nothing that is not committed, and leaves `retention.bytes` and what is
  younger than `retention.ms`. A replica also gives up what its leader has given up;
- **DeleteRecords** takes what it was asked to take. Once it was answered, every replica whose broker was alive has
  deleted that, on its disk too: whoever leads, and whatever is lost meanwhile, it never comes back.

A log that is neither compacted nor limited, and of which nobody deletes records, has everything.
"""

from collections.abc import Iterable, Mapping
from random import Random

from odradek.records.batch import BatchHeader, read_header
from odradek.records.record import Record, decode_batch
from tests.cluster.committed import Committed

# Settings of a node, so that both happen all the time.
SETTINGS = {
    "log.cleaner.enable": "true",
    "log.cleaner.backoff.ms": "300",
    "log.retention.check.interval.ms": "300",
}
# Settings of topics, as `make_topic` takes them.
COMPACTED = {
    "cleanup_policy": "compact",
    "internal_segment_bytes": "500",
    "min_cleanable_dirty_ratio": "0.3",
    "delete_retention_ms": "300",
}
LIMITED = {"internal_segment_bytes": "150", "retention_bytes": "250", "file_delete_delay_ms": "300"}
EXPIRING = {"internal_segment_bytes": "150", "retention_ms": "500", "file_delete_delay_ms": "300"}
DELETED = {"internal_segment_bytes": "400", "file_delete_delay_ms": "300"}
# Settings of the offsets topic, which is there before anybody can ask for this.
OFFSETS = {"internal.segment.bytes": "1000", "min.cleanable.dirty.ratio": "0.5"}
KEYS = [b"ant", b"bee", b"cat"]
ANYTHING = 2**63  # may be deleted

Disk = tuple[int, int]  # of a broker, by its number among those that the broker has had


class Kept:
    def __init__(self, settings: Mapping[str, str]) -> None:
        """Go by the topic's own settings."""
        self.is_compacted = "compact" in settings.get("cleanup.policy", "")
        self._retention_bytes = int(settings.get("retention.bytes", -1))
        self._retention_ms = int(settings.get("retention.ms", -1))
        self.asked_offset = 0  # below which a client asked to delete records
        self._deleted: dict[Disk, int] = {}  # below which they are deleted for good
        self._newest: dict[
            bytes | None, int
        ] = {}  # the offset of the newest record that is committed, by key
        self.start_offset = 0  # the highest that any replica had

    def committed(self, items: Iterable[Committed]) -> None:
        if self.is_compacted:
            for item in items:
                for record in records_of(item):
                    self._newest[record.key] = record.offset

    def starts(
        self,
        log_start_offset: int,
        size_bytes: int,
        high_watermark: int,
        items: Iterable[Committed],
        now_ms: int,
    ) -> str:
        """A replica's log starts here, further than any did before, and is so large; `items` were committed, from the
        former start on. Returns what is wrong with that, if anything."""
        gone = [item for item in items if item.base_offset < log_start_offset]
        self.start_offset = log_start_offset
        if log_start_offset > high_watermark:
            return f"P1: its log starts at {log_start_offset}, though only {high_watermark} is committed"
        if log_start_offset <= self.asked_offset:
            return ""
        if self._retention_bytes >= 0:
            is_kept = size_bytes < self._retention_bytes
            return (
                f"P1: its log starts at {log_start_offset}, and {size_bytes} bytes are left"
                if is_kept
                else ""
            )
        if self._retention_ms >= 0:
            young = [item for item in gone if self._is_young(item, now_ms)]
            return (
                f"P1: its log starts at {log_start_offset}, after {young}, which are young" if young else ""
            )
        return f"P1: its log starts at {log_start_offset}, though only {self.asked_offset} may be deleted"

    def _is_young(self, item: Committed, now_ms: int) -> bool:
        return now_ms - read_header(memoryview(item.data), 0).max_timestamp < self._retention_ms

    def deleted(self, disk: Disk, offset: int) -> None:
        """A client was told that all below this offset is deleted, and this disk is one of those that count."""
        self._deleted[disk] = max(offset, self._deleted.get(disk, 0))

    def check_deleted(self, disk: Disk, log_start_offset: int) -> str:
        offset = self._deleted.get(disk, 0)
        is_back = log_start_offset < offset
        return (
            f"its log starts at {log_start_offset}, though all below {offset} was deleted" if is_back else ""
        )

    def compare(self, wanted: Iterable[Committed], found: Mapping[int, Committed]) -> str:
        """Compare what a replica has, by base offset, with what is committed. Returns what is wrong, if anything."""
        for item in wanted:
            other = found.get(item.base_offset)
            if other == item or item.next_offset <= self.start_offset:
                continue  # what was deleted is gone, or lies below where the log starts, and nobody gets to see it
            if not self.is_compacted or (other is not None and not self._is_rest(item, other)):
                return f"has {other}, committed was {item}"
            left = records_of(other) if other is not None else []
            for record in records_of(item):
                if (
                    record not in left
                    and record.value is not None
                    and self._newest[record.key] == record.offset
                ):
                    return f"lacks the newest record of {record.key!r}, {record.offset}"
        return ""

    @staticmethod
    def _is_rest(item: Committed, other: Committed) -> bool:
        records = records_of(item)
        return _origin(other) == _origin(item) and all(record in records for record in records_of(other))


def records_of(item: Committed) -> list[Record]:
    data = memoryview(item.data)
    return list(decode_batch(data, read_header(data, 0)))


def _origin(item: Committed) -> tuple[int, ...]:
    header: BatchHeader = read_header(memoryview(item.data), 0)
    return (
        header.last_offset,
        header.leader_epoch,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    )


def keys_and_tombstones(rng: Random, count: int) -> tuple[list[bytes], frozenset[int]]:
    """Keys and tombstones of a batch that is to be compacted."""
    keys = [rng.choice(KEYS) for _ in range(count)]
    return keys, frozenset(at for at in range(count) if rng.random() < 0.2)
