"""The promises of a broker, and a check whether what is found later keeps them.

A ledger notes only what was acknowledged. What was sent and not yet answered when the broker died may or may not have
happened: it is kept apart (`in_flight`, `may_…`) until the broker, alive again, shows which of the two it was.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

KeyValue = tuple[bytes, bytes | None]


class BrokenPromise(AssertionError):
    """Something acknowledged is missing or different, or something that was deleted is back."""


@dataclass
class Batch:
    """Records that were sent together; `sequence` is -1 without an idempotent producer."""

    records: list[KeyValue]
    sequence: int = -1


@dataclass
class PartitionLedger:
    name: str
    start: int = 0  # nothing below it may ever be read again
    end: int = 0  # the offset after the last acknowledged record
    records: dict[int, KeyValue] = field(default_factory=dict)
    in_flight: list[Batch] = field(default_factory=list)
    start_in_flight: int | None = None  # of a DeleteRecords that was not answered
    next_sequence: int = 0
    producer_id: int = -1

    def acknowledged(self, base_offset: int, records: Iterable[KeyValue]) -> None:
        if base_offset != self.end:
            raise BrokenPromise(f"{self.name}: {base_offset} was given to a batch that belongs at {self.end}")
        for record in records:
            self.records[self.end] = record
            self.end += 1

    def deleted_before(self, offset: int) -> None:
        self.start = max(self.start, offset)
        for old in [old for old in self.records if old < offset]:
            del self.records[old]

    def check(self, start: int, end: int, found: Mapping[int, KeyValue], topic: TopicLedger) -> None:
        """`found` is all that can be read between `start` and `end`, which are what ListOffsets says."""
        self._settle_start(start, topic.may_be_deleted)
        self._settle_end(start, end, found)
        for offset, record in found.items():
            if offset >= start and self.records.get(offset) != record:
                raise BrokenPromise(f"{self.name}: {offset} holds {record}, not {self.records.get(offset)}")
        missing = [offset for offset in self.records if offset >= start and offset not in found]
        if missing and not topic.may_be_compacted:
            raise BrokenPromise(f"{self.name}: {missing[:5]} of {start} to {end} are missing")
        newest = {key: offset for offset, (key, _) in sorted(self.records.items())}
        for offset in missing:
            key, value = self.records[offset]
            if newest[key] == offset and value is not None:
                raise BrokenPromise(f"{self.name}: {offset} is missing, the newest record of {key!r}")
        for offset in missing:
            del self.records[offset]  # it must not come back

    def _settle_start(self, start: int, may_be_deleted: bool) -> None:
        wanted, self.start_in_flight = self.start_in_flight, None
        if wanted is not None and start == wanted:
            self.deleted_before(wanted)
        if start < self.start or (start > self.start and not may_be_deleted):
            raise BrokenPromise(f"{self.name} starts at {start}, it should at {self.start}")
        self.deleted_before(start)

    def _settle_end(self, start: int, end: int, found: Mapping[int, KeyValue]) -> None:
        """Settle what was in flight: if it is there now, it belongs to the log; all of a batch is, or nothing."""
        if end < self.end:
            raise BrokenPromise(f"{self.name} ends at {end}, but {self.end} was acknowledged")
        for batch in self.in_flight:
            if self.end < end:
                self.acknowledged(self.end, batch.records)
        if self.end != end:
            raise BrokenPromise(f"{self.name} ends at {end}, after all that was ever sent ({self.end})")


@dataclass
class TopicLedger:
    name: str
    id: uuid.UUID
    partitions: list[PartitionLedger]
    policy: str = "delete"
    may_be_compacted: bool = False  # it was compacted at some time
    may_be_deleted: bool = False  # retention could delete at some time
    # Of requests that were not answered:
    may_be_gone: bool = False
    may_have_grown_to: int | None = None
    policy_in_flight: str | None = None

    def grow(self, count: int) -> None:
        for index in range(len(self.partitions), count):
            self.partitions.append(PartitionLedger(f"{self.name}-{index}"))


Place = tuple[str, int]


@dataclass
class GroupLedger:
    """The offsets that a group has committed: exactly these are read back, or what was in flight."""

    name: str
    committed: dict[Place, int] = field(default_factory=dict)
    in_flight: dict[Place, int] = field(default_factory=dict)

    def topic_deleted(self, topic: str) -> None:
        for places in (self.committed, self.in_flight):
            for place in [place for place in places if place[0] == topic]:
                del places[place]

    def check(self, found: Mapping[Place, int]) -> None:
        for place, offset in self.in_flight.items():
            if found.get(place) == offset:
                self.committed[place] = offset
        self.in_flight.clear()
        if self.committed != found:
            raise BrokenPromise(f"group {self.name}: committed {self.committed}, found {dict(found)}")


@dataclass
class Ledger:
    topics: dict[str, TopicLedger] = field(default_factory=dict)
    groups: dict[str, GroupLedger] = field(default_factory=dict)
    may_have_come: dict[str, TopicLedger] = field(default_factory=dict)  # CreateTopics was not answered

    def topic_deleted(self, name: str) -> None:
        del self.topics[name]
        for group in self.groups.values():
            group.topic_deleted(name)

    def check_topics(self, found: Mapping[str, tuple[uuid.UUID, int]]) -> None:
        """`found` is the id and the number of partitions of every topic that there is."""
        for topic in list(self.topics.values()):
            self._settle(topic, found.get(topic.name))
        coming, self.may_have_come = self.may_have_come, {}
        for name, topic in coming.items():
            if name in found and name not in self.topics:
                topic.id = found[name][0]
                self.topics[name] = topic
        wanted = {topic.name: (topic.id, len(topic.partitions)) for topic in self.topics.values()}
        if found != wanted:
            raise BrokenPromise(f"topics {wanted} have become {dict(found)}")

    def _settle(self, topic: TopicLedger, found: tuple[uuid.UUID, int] | None) -> None:
        may_be_gone, topic.may_be_gone = topic.may_be_gone, False
        count, topic.may_have_grown_to = topic.may_have_grown_to, None
        if may_be_gone and (found is None or found[0] != topic.id):
            self.topic_deleted(topic.name)
        elif count is not None and found == (topic.id, count):
            topic.grow(count)
