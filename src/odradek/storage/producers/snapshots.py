"""Producer-state snapshots: `%020d.snapshot`, the state of the producers at that offset.

Without them, opening a log would mean reading all of it. One is written when a segment is rolled and when
the log is closed, in Kafka's format, which keeps only the last batch of each producer:

    version int16 (1), CRC-32C uint32 of what follows, number of producers int32, and for each
    producer id int64, epoch int16, last sequence int32, last offset int64, offset delta int32,
    timestamp int64, coordinator epoch int32, first offset of the open transaction int64 (-1: none)

A producer may have five batches in flight when a broker stops, and sends all of them again when it is back. So
the batches before the last follow, oldest first, where Kafka stops reading:

    producer id int64, last sequence int32, last offset int64, offset delta int32, timestamp int64

And the transactions that have ended, as long as their markers are not known to be committed: what they wrote is not
stable before. They have the same fields, with producer id -1, the marker's offset as last offset, and as timestamp the
first offset of the transaction; the others are 0.
"""

from collections.abc import Callable, Iterable, Iterator
from struct import Struct, error
from typing import NamedTuple

from odradek.records.batch import NO_SEQUENCE
from odradek.records.crc import crc32c
from odradek.storage.disk.files import File, Files
from odradek.storage.producers.state import MAX_SEQUENCE, NO_OFFSET, ProducedBatch, Producer, Producers

SUFFIX = ".snapshot"
EMPTY_SIZE = 10

_HEADER = Struct(">hI")
_COUNT = Struct(">i")
_ENTRY = Struct(">qhiqiqiq")
_EARLIER = Struct(">qiqiq")
_VERSION = 1
ENDED = -1  # a transaction, and not a batch of a producer


class CorruptSnapshot(Exception):
    """Not a snapshot, or not whole. An older one and more of the log serve instead."""


def encode(producers: Producers) -> bytes:
    entries = b"".join(
        _encode_entry(producer_id, producer) for producer_id, producer in producers.by_id.items()
    )
    earlier = b"".join(
        _EARLIER.pack(producer_id, *batch[1:])
        for producer_id, producer in producers.by_id.items()
        for batch in producer.batches[:-1]
    )
    ended = b"".join(_EARLIER.pack(ENDED, 0, marker, 0, first) for first, marker in producers.ended.items())
    body = _COUNT.pack(len(producers.by_id)) + entries + earlier + ended
    return _HEADER.pack(_VERSION, crc32c(body)) + body


class Snapshot(NamedTuple):
    producers: dict[int, Producer]
    ended: dict[int, int]  # see `Producers.ended`


def decode(data: bytes) -> Snapshot:
    try:
        version, crc = _HEADER.unpack_from(data)
        body = data[_HEADER.size :]
        if version != _VERSION or crc32c(body) != crc:
            raise CorruptSnapshot("the version or the checksum is wrong")
        (count,) = _COUNT.unpack_from(body)
        end = _COUNT.size + count * _ENTRY.size
        if len(body) < end or (len(body) - end) % _EARLIER.size:
            raise CorruptSnapshot("the number of producers is wrong")
    except error as reason:
        raise CorruptSnapshot("it is cut short") from reason
    producers = dict(_decode_entries(body[_COUNT.size : end]))
    ended: dict[int, int] = {}
    for producer_id, sequence, offset, delta, timestamp in _EARLIER.iter_unpack(body[end:]):
        if producer_id in producers:
            producers[producer_id].batches.insert(-1, _batch(sequence, offset, delta, timestamp))
        elif producer_id == ENDED:
            ended[timestamp] = offset
    return Snapshot(producers, ended)


def _encode_entry(producer_id: int, producer: Producer) -> bytes:
    last = producer.batches[-1] if producer.batches else ProducedBatch(-1, -1, NO_OFFSET, 0, -1)
    return _ENTRY.pack(
        producer_id,
        producer.epoch,
        last.last_sequence,
        last.last_offset,
        last.offset_delta,
        producer.last_timestamp,
        producer.coordinator_epoch,
        producer.transaction_first_offset,
    )


def _decode_entries(data: bytes) -> Iterator[tuple[int, Producer]]:
    for (
        producer_id,
        epoch,
        sequence,
        offset,
        delta,
        timestamp,
        coordinator_epoch,
        first,
    ) in _ENTRY.iter_unpack(data):
        producer = Producer(epoch, coordinator_epoch, timestamp, first)
        if offset >= 0:
            producer.batches.append(_batch(sequence, offset, delta, timestamp))
        yield producer_id, producer


def _batch(last_sequence: int, last_offset: int, delta: int, timestamp: int) -> ProducedBatch:
    first_sequence = NO_SEQUENCE if last_sequence == NO_SEQUENCE else (last_sequence - delta) & MAX_SEQUENCE
    return ProducedBatch(first_sequence, last_sequence, last_offset, delta, timestamp)


class Snapshots:
    """The snapshot files of one log."""

    __slots__ = ("_directory", "_files", "offsets")

    def __init__(self, files: Files, directory: str, offsets: Iterable[int]) -> None:
        self._files = files
        self._directory = directory
        self.offsets = sorted(offsets)

    def path(self, offset: int) -> str:
        return f"{self._directory}/{offset:020d}{SUFFIX}"

    def write(self, producers: Producers, offset: int) -> File | None:
        """Write the state at this offset, unless that was done; the caller syncs the file."""
        if self.offsets and self.offsets[-1] >= offset:
            return None
        file = self._files.create(self.path(offset))
        try:
            file.write_at(0, encode(producers))
        finally:
            file.close()
        self.offsets.append(offset)
        return self._files.to_sync(file.path)

    def restore_latest(self, producers: Producers, end_offset: int) -> int | None:
        """Restore from the newest whole snapshot that is not beyond the log's end. Returns its offset."""
        self.remove(lambda offset: offset > end_offset)
        while self.offsets:
            offset = self.offsets[-1]
            try:
                snapshot = decode(self._files.read(self.path(offset)))
                for producer_id, producer in snapshot.producers.items():
                    producers.restore(producer_id, producer)
                producers.ended = snapshot.ended
                return offset
            except CorruptSnapshot:
                self._files.remove(self.path(self.offsets.pop()))
        return None

    def remove(self, condition: Callable[[int], bool]) -> None:
        for offset in [offset for offset in self.offsets if condition(offset)]:
            self._files.remove(self.path(offset))
            self.offsets.remove(offset)
