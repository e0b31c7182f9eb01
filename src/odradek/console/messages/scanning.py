"""Whole topics through filters, batch by batch.

Most batches have nothing that is wanted. Where a filter asks for certain bytes (a key, a text in the value), a batch
without these bytes is passed over whole: the records in it are never taken apart.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from odradek.admin.message_filter import compile_filters, needles_of
from odradek.client.cluster import Cluster
from odradek.client.fetching import RangeReader, read_range
from odradek.client.settings import FetchSettings
from odradek.console.messages.showing import Found
from odradek.model import TopicPartition
from odradek.records.native import read_records
from odradek.records.record import Record, uncompressed_records

FETCH = FetchSettings(max_bytes=4 * 1024 * 1024, max_wait_ms=100, read_committed=True)
RECORD_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Range:
    place: TopicPartition
    start: int
    end: int


class AsMessage:
    """A record as filters know it, with the methods of confluent-kafka's messages."""

    __slots__ = ("record",)

    def __init__(self, record: Record) -> None:
        self.record = record

    def key(self) -> bytes | None:
        return self.record.key

    def value(self) -> bytes | None:
        return self.record.value

    def headers(self) -> list[tuple[str, bytes | None]]:
        return [(name.decode(errors="replace"), value) for name, value in self.record.headers]


class Scan:
    """Goes through ranges; `scanned` counts offsets that are behind it."""

    def __init__(self, cluster: Cluster, ranges: list[Range], filters: list[str]) -> None:
        self._cluster, self._ranges = cluster, ranges
        self._passes: Callable[[Any], bool] = compile_filters(filters)
        self._needles = needles_of(filters)
        self._has_filters = bool(filters)
        self.total = sum(one.end - one.start for one in ranges)
        self.scanned = 0

    def run(self) -> Iterator[list[Found]]:
        """Yield the records that pass, a list for each chunk, also an empty one, so that progress can be told."""
        for one in self._ranges:
            reader = RangeReader(self._cluster, one.place, one.start, one.end, FETCH, RECORD_TIMEOUT_S)
            at = one.start
            for chunk in read_range(reader):
                found = [
                    Found(one.place.partition, record)
                    for batch in chunk.batches
                    for record in self._matching(batch.data, batch.header)
                    if one.start <= record.offset < one.end
                ]
                self.scanned += min(chunk.next_offset, one.end) - at
                at = chunk.next_offset
                yield found

    def _matching(self, data: memoryview, header: Any) -> list[Record]:
        if self._needles:
            plain = uncompressed_records(data, header)
            if not all(needle in plain for needle in self._needles):
                return []
        records = read_records(data, header)
        if not self._has_filters:
            return records
        return [record for record in records if self._passes(AsMessage(record))]
