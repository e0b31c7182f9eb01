"""Offsets that are part of open transactions: what becomes of them is known once a marker has ended each transaction.

Several transactions, and commits outside of any, may write the offset of one partition in any order. The record that
was written last wins, whenever its transaction ends: compaction keeps the last record of a key, so a rule by the order
of the markers would give another result once the log has been compacted. Hence the offsets of a partition are kept in
the order of their records, and one that was overtaken by a later record is kept as None: it will never be seen, but its
transaction is still open, and until it has ended the partition's offset is not stable.
"""

from collections.abc import Iterator
from typing import NamedTuple

from odradek.coordinators.records import OffsetCommitKey, OffsetCommitValue


class Place(NamedTuple):
    """The group, topic and partition that an offset is committed for."""

    group: str
    topic: str
    partition: int

    @property
    def key(self) -> OffsetCommitKey:
        return OffsetCommitKey(self.group, self.topic, self.partition)


ByProducer = dict[int, OffsetCommitValue | None]  # in the order of the records; None: overtaken


class PendingOffsets:
    def __init__(self) -> None:
        # Neither has empty dictionaries, and each names the same pairs of place and producer.
        self._by_group: dict[str, dict[Place, ByProducer]] = {}
        self._places: dict[int, dict[Place, None]] = {}  # of each producer with an open transaction

    # --- read ---

    def __contains__(self, place: Place) -> bool:
        return place in self._by_group.get(place.group, ())

    def groups(self) -> Iterator[str]:
        return iter(self._by_group)

    def has_group(self, group_id: str) -> bool:
        return group_id in self._by_group

    def places(self, group_id: str) -> Iterator[Place]:
        return iter(self._by_group.get(group_id, ()))

    def values(self, place: Place) -> list[OffsetCommitValue]:
        """Return the values that may still be committed."""
        by_producer = self._by_group.get(place.group, {}).get(place, {})
        return [value for value in by_producer.values() if value is not None]

    # --- change ---

    def add(self, place: Place, producer_id: int, value: OffsetCommitValue) -> None:
        by_producer = self._by_group.setdefault(place.group, {}).setdefault(place, {})
        by_producer.pop(producer_id, None)  # its place in the order is that of its last record
        by_producer[producer_id] = value
        self._places.setdefault(producer_id, {})[place] = None

    def overtake(self, place: Place) -> None:
        """A later record says what the partition's offset is."""
        if place in self:
            by_producer = self._by_group[place.group][place]
            for producer_id in by_producer:
                by_producer[producer_id] = None

    def drop(self, place: Place) -> None:
        """The partition's offset was deleted, and with it what was to replace it."""
        if place in self:
            for producer_id in list(self._by_group[place.group][place]):
                self._remove(place, producer_id)

    def end(self, producer_id: int, *, committed: bool) -> list[tuple[Place, OffsetCommitValue]]:
        """A marker has ended the producer's transaction. Returns the offsets that count from now on."""
        ended = []
        for place in list(self._places.get(producer_id, ())):
            value = self._by_group[place.group][place][producer_id]
            if committed and value is not None:
                self._overtake_before(place, producer_id)
                ended.append((place, value))
            self._remove(place, producer_id)
        return ended

    # --- inside ---

    def _overtake_before(self, place: Place, producer_id: int) -> None:
        by_producer = self._by_group[place.group][place]
        for other_id in by_producer:
            if other_id == producer_id:
                return
            by_producer[other_id] = None

    def _remove(self, place: Place, producer_id: int) -> None:
        group = self._by_group[place.group]
        del group[place][producer_id]
        if not group[place]:
            del group[place]
        if not group:
            del self._by_group[place.group]
        del self._places[producer_id][place]
        if not self._places[producer_id]:
            del self._places[producer_id]
