"""A ledger of what clients were told about records, and what must be true of a topic by that.

Every record is `producer/partition/number`, and the numbers of a producer in a partition rise from 0. So the ledger is
simple: an acknowledged record is in its partition once, at the offset that was named; the numbers of a producer rise
with the offsets; what was not acknowledged may be there, once, in its place. Nothing else is there.

A group's committed offset is never below one whose commit was acknowledged, and whatever a group has read at an offset
is what is there in the end.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

UNKNOWN = -1  # offset


class Sent(NamedTuple):
    """The sender and the place of a record."""

    producer: str
    partition: int
    number: int

    @property
    def value(self) -> bytes:
        return f"{self.producer}/{self.partition}/{self.number}".encode()

    @classmethod
    def parse(cls, value: bytes) -> "Sent":
        producer, partition, number = value.decode().split("/")
        return cls(producer, int(partition), int(number))


class Silence(NamedTuple):
    """A time without an acknowledgement in a partition."""

    seconds: float
    partition: int
    during: str

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s in partition {self.partition} ({self.during})"


Records = Mapping[int, Mapping[int, bytes]]  # values by partition and offset


class RecordLedger:
    """Threads of clients write, the test reads."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.phase = "the start"
        self.longest_silence = Silence(0, -1, "")
        self.doubts: list[str] = []  # why records were not acknowledged, though they may be there
        self.commits = 0
        self._changed = threading.Condition()
        self._next: defaultdict[tuple[str, int], int] = defaultdict(int)
        self._offsets: dict[Sent, int] = {}  # of acknowledged records
        self._acknowledged = [0] * partitions
        self._last_heard: list[float | None] = [None] * partitions
        self._committed: defaultdict[str, dict[int, int]] = defaultdict(dict)  # acknowledged, the highest
        self._read: defaultdict[str, dict[tuple[int, int], bytes]] = defaultdict(dict)

    # Producers

    def next_of(self, producer: str, partition: int) -> Sent:
        with self._changed:
            number = self._next[producer, partition]
            self._next[producer, partition] = number + 1
        return Sent(producer, partition, number)

    def told(self, value: bytes, offset: int | None, error: object = None) -> None:
        """`error`: why nobody knows whether the record is there. Without one it is, and mostly it is known where:
        what librdkafka sent twice may be acknowledged by what comes behind it."""
        sent = Sent.parse(value)
        with self._changed:
            if error is not None:
                self.doubts.append(f"{value.decode()} during {self.phase}: {error!r}")
                return
            assert sent not in self._offsets, f"{sent} is acknowledged twice"
            self._offsets[sent] = UNKNOWN if offset is None else offset
            self._acknowledged[sent.partition] += 1
            self._hear_of(sent.partition)
            self._changed.notify_all()

    def _hear_of(self, partition: int) -> None:
        now, last = time.monotonic(), self._last_heard[partition]
        self._last_heard[partition] = now
        if last is not None and now - last > self.longest_silence.seconds:
            self.longest_silence = Silence(now - last, partition, self.phase)

    @property
    def acknowledged(self) -> int:
        with self._changed:
            return len(self._offsets)

    def wait_for(self, count: int, timeout_s: float) -> None:
        """Until so many more records are acknowledged than now, in every partition."""
        with self._changed:
            wanted = [done + count for done in self._acknowledged]

            def behind() -> list[int]:
                return [n for n in range(self.partitions) if self._acknowledged[n] < wanted[n]]

            self._changed.wait_for(lambda: not behind(), timeout_s)
            assert not behind(), (
                f"{self.phase}: {count} records were not acknowledged in {timeout_s:g} s in partitions {behind()}"
            )

    # Groups

    def has_read(self, group: str, partition: int, offset: int, value: bytes) -> None:
        with self._changed:
            before = self._read[group].setdefault((partition, offset), value)
        assert before == value, f"group {group} read {before!r} at {partition}:{offset}, and now {value!r}"

    def has_committed(self, group: str, partition: int, offset: int) -> None:
        with self._changed:
            committed = self._committed[group]
            committed[partition] = max(offset, committed.get(partition, 0))
            self.commits += 1

    def committed(self, group: str) -> dict[int, int]:
        """The highest offsets whose commit was acknowledged, as of now."""
        with self._changed:
            return dict(self._committed[group])

    @property
    def groups(self) -> list[str]:
        with self._changed:
            return sorted(self._committed)

    # What must be true

    def check_records(self, records: Records) -> None:
        """These are all records of the topic, when nobody produces any more."""
        for partition, found in records.items():
            newest: dict[str, int] = {}
            for offset in sorted(found):
                sent = Sent.parse(found[offset])
                where = f"partition {partition}, offset {offset}: {sent.value.decode()}"
                assert sent.partition == partition, f"{where} was sent elsewhere"
                assert sent.number < self._next[sent.producer, partition], f"{where} was never sent"
                before = newest.get(sent.producer, -1)
                assert sent.number > before, f"{where} comes after number {before}"
                newest[sent.producer] = sent.number
        values = {partition: set(found.values()) for partition, found in records.items()}
        lost = [
            (sent, offset)
            for sent, offset in self._offsets.items()
            if sent.value not in values[sent.partition]
            or (offset != UNKNOWN and records[sent.partition].get(offset) != sent.value)
        ]
        assert not lost, f"{len(lost)} acknowledged records are not where they were: {lost[:5]}"

    def check_groups(self, records: Records) -> None:
        """Each group has read everything, when all of it was committed; and nothing else."""
        there = {
            (partition, offset): value
            for partition, found in records.items()
            for offset, value in found.items()
        }
        for group, read in self._read.items():
            missing = there.keys() - read.keys()
            assert not missing, f"group {group} committed what it had not read: {sorted(missing)[:5]}"
            wrong = [at for at, value in read.items() if there.get(at) != value]
            assert not wrong, f"group {group} read what is not there: {sorted(wrong)[:5]}"

    def check_committed(self, group: str, floor: Mapping[int, int], found: Mapping[int, int]) -> None:
        """`floor`: what had been acknowledged before `found` was asked for."""
        back = {
            partition: (offset, found.get(partition))
            for partition, offset in floor.items()
            if found.get(partition, -1) < offset
        }
        assert not back, f"group {group}: offsets went back, by partition (acknowledged, now): {back}"
